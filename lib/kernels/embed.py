#!/usr/bin/env python3
"""Writes the images of one kernel file as C arrays. usage: embed.py NAME -o OUTPUT ARCHITECTURES SHARED-OBJECT [FATBIN]

ARCHITECTURES is a text, of what the fatbin has code for. Without a fatbin the image for real GPUs is NULL.
"""
import sys
from pathlib import Path


def array(declaration, path):
    data = Path(path).read_bytes()
    lines = [",".join(map(str, data[i : i + 32])) for i in range(0, len(data), 32)]
    return f"{declaration} __attribute__((aligned(64))) = {{\n" + ",\n".join(lines) + "};\n"


def main():
    name, _, output, architectures, *images = sys.argv[1:]
    soft, cuda = f"gvmi_image_soft_{name}", f"gvmi_image_cuda_{name}"
    names = f"gvmi_image_architectures_{name}"
    text = f"/* Made by kernels/embed.py of {name}.c. */\n"
    text += f"extern const unsigned char {soft}[];\nextern const unsigned char *const {cuda};\n"
    text += f'extern const char {names}[];\nconst char {names}[] = "{architectures}";\n'
    text += array(f"const unsigned char {soft}[]", images[0])
    if len(images) > 1:
        text += array("static const unsigned char fatbin[]", images[1])
    text += f"const unsigned char *const {cuda} = {'fatbin' if len(images) > 1 else '0'};\n"
    Path(output).write_text(text)


main()
