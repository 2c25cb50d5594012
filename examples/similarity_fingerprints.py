#!/usr/bin/env python3
"""Fingerprints of molecules, as rows for COPY. usage: similarity_fingerprints.py FILE.smi > ROWS

FILE.smi has a molecule a line: its structure in SMILES, and its number. Each row is number, SMILES and the
fingerprint, as PostgreSQL's bit(1024).

The fingerprint is of hashed paths, as Daylight's: a molecule is a graph of atoms and bonds. Every path of
1 to 6 atoms that meets no atom twice is written as text, atom, bond, atom ..., in whichever of its two
directions comes first in the order of bytes, and sets bit crc32(text) % 1024, counted from
the left. An atom is its symbol, lower case if aromatic, with its charge;
a bond is one of - = # $ and : (aromatic, also where SMILES leaves it out between two aromatic atoms).
Hydrogens, isotopes and chirality are left out; so is what lies between molecules (".").
"""
import re
import sys
import zlib

ATOMS_MAX = 6
BITS = 1024

TOKEN = re.compile(
    r"\[\d*(?P<bracket>[A-Z][a-z]?|[a-z][a-z]?|\*)[^\]+-]*(?P<charge>\++\d*|-+\d*)?(?::\d+)?\]"
    r"|(?P<atom>Cl|Br|[BCNOPSFI]|[bcnops]|\*)"
    r"|(?P<bond>[-=#$:/\\~])|(?P<ring>\d|%\d\d)|(?P<open>\()|(?P<close>\))|(?P<dot>\.)"
)


def charge_text(text):
    """"++" and "+2" are the same."""
    if not text:
        return ""
    count = text.lstrip("+-")
    return text[0] + str(int(count) if count else len(text))


def parse(smiles):
    """Atoms as texts, and for each atom a list of (neighbour, bond)."""
    atoms, bonds, rings, branches = [], [], {}, []
    last, bond, position = None, None, 0

    def connect(a, b, kind):
        if kind is None:
            kind = ":" if atoms[a][0].islower() and atoms[b][0].islower() else "-"
        kind = "-" if kind in "/\\" else kind
        bonds[a].append((b, kind))
        bonds[b].append((a, kind))

    while position < len(smiles):
        match = TOKEN.match(smiles, position)
        if not match:
            raise ValueError(f"no SMILES: {smiles!r} at {position}")
        position = match.end()
        symbol = match["bracket"] or match["atom"]
        if symbol:
            atoms.append(symbol + charge_text(match["charge"]))
            bonds.append([])
            if last is not None:
                connect(last, len(atoms) - 1, bond)
            last, bond = len(atoms) - 1, None
        elif match["bond"]:
            bond = match["bond"]
        elif match["ring"]:
            number = match["ring"].lstrip("%")
            if number in rings:
                other, opened = rings.pop(number)
                connect(other, last, bond or opened)
            else:
                rings[number] = (last, bond)
            bond = None
        elif match["open"]:
            branches.append(last)
        elif match["close"]:
            last, bond = branches.pop(), None
        else:
            last, bond = None, None
    return atoms, bonds


def paths(atoms, bonds):
    """Each path's text; a path is found from both of its ends, and counts from the lower one."""
    found = set(atoms)

    def walk(path, texts):
        for neighbour, bond in bonds[path[-1]]:
            if neighbour in path:
                continue
            longer = texts + [bond, atoms[neighbour]]
            if path[0] < neighbour:
                found.add(min("".join(longer), "".join(reversed(longer))))
            if len(path) + 1 < ATOMS_MAX:
                walk(path + [neighbour], longer)

    for atom, text in enumerate(atoms):
        walk([atom], [text])
    return found


def fingerprint(smiles):
    bits = ["0"] * BITS
    for text in paths(*parse(smiles)):
        bits[zlib.crc32(text.encode()) % BITS] = "1"
    return "".join(bits)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: similarity_fingerprints.py FILE.smi > ROWS")
    with open(sys.argv[1], encoding="ascii") as file:
        for line in file:
            smiles, number = line.split()
            escaped = smiles.replace("\\", "\\\\")
            print(int(number), escaped, fingerprint(smiles), sep="\t")


main()
