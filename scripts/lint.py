#!/usr/bin/env python3
"""Checks the source text against the house rules. usage: lint.py FILE... (paths from the root)

Each finding is one line, file:line: what is wrong; how to fix it. Exits 1 if there are any.
"""
import re
import sys
from fnmatch import fnmatch
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))
import headers  # noqa: E402

# The folders that each folder includes, besides itself and the public headers: exactly these.
NEIGHBOURS = {
    "lib/base": "",
    "lib/driver": "lib/base",
    "lib/memory": "lib/base lib/driver",
    "lib/heap": "lib/base lib/memory",
    "lib/kernels": "lib/base lib/memory",
    "lib/appender": "lib/base lib/memory",
    "lib/callback": "lib/base lib/memory",
    "lib/sharing": "lib/base lib/driver lib/memory",
    "lib/region": "lib/base lib/callback lib/memory lib/kernels",
    "keeper/protocol": "lib/base",
    "keeper/machine": "lib/base keeper/protocol",
    "keeper/client": "lib/base lib/memory lib/sharing keeper/protocol",
    "keeper/server": "lib/base lib/memory keeper/protocol keeper/machine",
    "keeper/region": "lib/base lib/region keeper/client",
    "keeper/table": "lib/base keeper/client",
    "softgpu": "lib/driver",
    "postgres": "keeper/table query",
    "query": "lib/driver postgres",
    "tools": "lib/base",
    "bench": "lib/base lib/driver lib/kernels keeper/machine postgres query tools",
    "examples": "",
    "python": "",
}
LIB = {folder[4:] for folder in NEIGHBOURS if folder.startswith("lib/")}
SOFTGPU_MAY = {"driver/calls.h", "driver/cuda_abi.h", "gvmem/device/kernel.h"}
CUDA_H_MAY = {"lib/driver/abi_check.c"}
C11_HEADERS = set(
    "assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg stdatomic stdbool "
    "stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype".split()
)
LINES_MAX = 1000
EXAMPLE_LINES_MAX = 200
NO_LINE_LIMIT = ("LICENSE", "bench/results/", "bench/traces/", "tests/fuzz/corpus/")
PRODUCT = tuple(f"{folder}/" for folder in NEIGHBOURS)

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]')
VARIABLE = re.compile(r"\bGVMEM_[A-Z][A-Z0-9_]*\b")
# Assembled, so that this file does not find itself.
DEVELOPER_PATH = re.compile(r"(?<![\w.}])/(?:" + "|".join(["work", "home", "root", "Users"]) + r")/\w")
# Deadlines and durations are of CLOCK_MONOTONIC (base/clock.h): the wall clock can be set back.
WALL_CLOCK = re.compile(
    r"\b(?:CLOCK_REALTIME\w*|gettimeofday|timespec_get|ftime|sem_timedwait|mq_timed\w+|pthread_mutex_timedlock|"
    r"pthread_rwlock_timed\w+|pthread_timedjoin_np|pthread_cond_timedwait)\b|(?<![\w.>])time\((?:NULL|0|&\w+)\)"
)
WALL_CLOCK_MAY = {
    "lib/base/lock.c",  # gvmi_wait_until(), whose condition has the other clock
    "bench/hashjoin/report.c", "bench/record.c", "tools/top.c",  # print the date
    "tests/unit/test_appender_clock.c",  # sets the wall clock
}
# What the library defines for users: a name, and all between its braces.
DEFINITION = re.compile(r"^\w[\w *]*?\b(gvm_\w+)\([^;{}]*\)\n\{\n(.*?)^\}", re.M | re.S)
UNCANCELLED = "GVMI_UNCANCELLED"  # base/cancel.h
# Public functions without it: they come to no cancellation point, or what they call begins with it.
UNCANCELLED_WITHOUT = set(
    "gvm_appender_buffer gvm_buffer_address gvm_kernel_checksum_host gvm_error_last gvm_error_restore gvm_error_set gvm_device_pop_context gvm_heap_alloc gvm_heap_alloc_aligned gvm_heap_alloc_aligned_async gvm_heap_alloc_async "
    "gvm_heap_alloc_tagged gvm_heap_free gvm_heap_free_after gvm_heap_free_async gvm_heap_locate gvm_heap_get_size gvm_kernel_architectures "
    "gvm_object_acquire gvm_object_release gvm_keeper_path gvm_setting_get_info gvm_status_name "
    "gvm_status_sqlstate gvm_status_text gvm_vector_address gvm_vector_buffer gvm_vector_capacity gvm_vector_count "
    "gvm_version".split()
)
LIBRARY = ("lib/", "keeper/")
# Results that callers may ignore: of what ends something, and gvm_error_last(), which tells of failures.
UNCHECKED = set(
    "gvm_error_last gvm_error_set gvm_driver_error gvm_free gvm_heap_free gvm_heap_free_async gvm_heap_free_after gvm_ipc_close gvm_callback_server_close "
    "gvm_object_release gvm_object_release_async gvm_object_drop gvm_object_unlink gvm_table_release gvm_table_release_async".split()
)
FORMATS = {"include/gvmem/gstore_arrow.h", "include/gvmem/gstore_kds.h"}  # of tables in memory, by docs/gstore_format.md
BLANKED = re.compile(r'/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', re.S)
RECORDERS = {"gvm_error_set", "gvm_driver_error"}  # return the status that they are given
# Names of files in comments: each is there, from the root, from lib/ or include/, or from the comment's own folder.
COMMENT = re.compile(r"/\*.*?\*/", re.S)
FILE_NAME = re.compile(r"(?<![\w<./-])([\w-]+(?:/[\w.-]+)*\.(?:c|h|py|sh|md|in|cpp))\b(?!\()")
FILES_OF_OTHERS = {"cuda.h", "pg_type.h", "kernels/NAME.c"}
# Folders that have a page which says where to find what.
PAGES = [*NEIGHBOURS, "postgres/plcuda", "lib", "keeper", "packaging", "python/gvmem", "python/src", "python/tests", "scripts", "tests"]
NO_PAGE = {"keeper/protocol", "keeper/machine", "keeper/client", "keeper/server", "keeper/region", "keeper/table", "python/gvmem", "python/src", "python/tests"}  # the README.md above
# What lists the files of a folder, but for the page; lists have names, NAME.[ch] and patterns.
LISTED_IN = {
    "keeper/protocol": "keeper/README.md", "keeper/machine": "keeper/machine/state.h", "keeper/client": "keeper/client/client.h",
    "keeper/server": "keeper/server/server.h", "keeper/region": "keeper/README.md", "keeper/table": "keeper/table/table.h",
    "python/gvmem": "python/README.md", "python/src": "python/README.md", "python/tests": "python/README.md",
}
LISTED = re.compile(r"(?<![\w/])[\w*.-]+\.(?:\[ch\]|\*|\w+)")
PAGE_LINES_MAX = 60
UNFINISHED = re.compile(r"\b(?:" + "|".join(["TO" + "DO", "FIX" + "ME", "HA" + "CK"]) + r")\b")

findings = 0
seen = set()  # (folder, neighbour) of every include


def complain(path, line, wrong, fix):
    global findings
    findings += 1
    print(f"{path}:{line}: {wrong}; {fix}")


def folder_of(name):
    """The folder of a file, or of what an #include names."""
    first, *rest = name.split("/")
    if first in LIB:
        return f"lib/{first}"
    return f"{first}/{rest[0]}" if first in ("lib", "keeper") and len(rest) > 1 else first


def exists(name):
    return Path(name).exists() or Path("lib", name).exists()


def check_include(path, number, bracket, name):
    folder = folder_of(path)
    if name == "cuda.h" and path not in CUDA_H_MAY and not path.startswith("tests/foreign/"):
        complain(path, number, "includes cuda.h", "include driver/cuda_abi.h, and add there what is missing")
    if path.startswith("include/"):
        standard = name.endswith(".h") and name[:-2] in C11_HEADERS
        if not (bracket == "<" and (standard or name.startswith("gvmem/"))):
            complain(path, number, f"public header includes {name}", "use <gvmem/...> and standard C headers only")
        return
    if bracket == "<":
        if folder == "softgpu" and name.startswith("gvmem/") and name not in SOFTGPU_MAY:
            complain(path, number, f"softgpu includes {name}", "it knows the driver's interface alone: " + ", ".join(sorted(SOFTGPU_MAY)))
        return
    if folder not in NEIGHBOURS or (folder == "postgres" and not exists(name)):
        return  # tests may include everything; the rest is PostgreSQL's own
    target = folder_of(name)
    if name.startswith("gvmem/"):
        complain(path, number, f'includes "{name}"', f"public headers are included as <{name}>")
    elif "/" not in name:
        if folder in ("examples", "python") and exists(f"{path.rsplit('/', 1)[0]}/{name}"):
            return  # users copy the former, and the latter is a project of its own
        complain(path, number, f'includes "{name}"', f'write it from the root, or for lib/ from there: "{path.rsplit("/", 1)[0]}/{name}"')
    elif folder == "softgpu" and target != folder and name not in SOFTGPU_MAY:
        complain(path, number, f"softgpu includes {name}", "it may include itself, " + ", ".join(sorted(SOFTGPU_MAY)))
    elif target != folder:
        seen.add((folder, target))
        if target not in NEIGHBOURS[folder].split():
            complain(path, number, f"{folder} includes {name}", "see NEIGHBOURS in scripts/lint.py: move the code or turn the call round")


def check_neighbours():
    for folder, neighbours in NEIGHBOURS.items():
        for neighbour in neighbours.split():
            if (folder, neighbour) not in seen:
                complain("scripts/lint.py", 1, f"{folder} includes nothing of {neighbour}", "take it out of NEIGHBOURS")


def check_c(path, lines, options):
    product = path.startswith((*PRODUCT, "include/"))
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if match:
            check_include(path, number, match[1], match[2])
        if "\t" in line and not path.startswith("postgres/"):  # PostgreSQL's style has tabs
            complain(path, number, "tab", "indent with 4 spaces, or run make fmt")
        match = WALL_CLOCK.search(line)
        if match and path not in WALL_CLOCK_MAY:
            complain(path, number, f"{match[0]} is of the wall clock, which can be set back", "use base/clock.h and gvmi_wait_until() of base/lock.h, or sem_clockwait()")
        if product:
            for name in VARIABLE.findall(line):
                if name not in options and not name.endswith("_H"):
                    complain(path, number, f"{name} is not in the table of settings", "add a row to GVMI_OPTIONS in base/options.h")


def check_file_names(path, text, files):
    names = {file.rsplit("/", 1)[-1] for file in files} if path.startswith("tests/") else set()  # of what is tested
    folder = path.rsplit("/", 1)[0]
    for comment in COMMENT.finditer(text):
        for match in FILE_NAME.finditer(comment[0]):
            name = match[1]
            places = {name, f"lib/{name}", f"include/{name}", f"{folder}/{name}", f"{folder.rsplit('/', 1)[0]}/{name}"}
            if not places & files and name not in names | FILES_OF_OTHERS:
                line = text.count("\n", 0, comment.start() + match.start()) + 1
                complain(path, line, f"there is no {name}", "name the file as it is called now, from the root, from lib/ or from here")


def public_functions():
    return {f.name for path in Path("include/gvmem").rglob("*.h") for f in headers.parse(path).functions}


def check_cancellation(path, text, public):
    """No call of the library is a cancellation point."""
    for match in DEFINITION.finditer(text):
        name, line = match[1], text.count("\n", 0, match.start()) + 1
        if name not in public:
            continue
        if UNCANCELLED not in match[2] and name not in UNCANCELLED_WITHOUT:
            complain(path, line, f"{name} does not begin with {UNCANCELLED}", "a cancellation in it leaves locks taken: see base/cancel.h")
        elif UNCANCELLED in match[2] and name in UNCANCELLED_WITHOUT:
            complain(path, line, f"{name} begins with {UNCANCELLED}", "take it out of UNCANCELLED_WITHOUT in scripts/lint.py")


def check_text(path, lines):
    if lines == [""]:
        complain(path, 1, "the file is empty", "put back what it had, or remove it")
    most = EXAMPLE_LINES_MAX if path.startswith("examples/") and not path.endswith(".sql") else LINES_MAX
    if len(lines) > most and not path.startswith(NO_LINE_LIMIT):
        complain(path, most + 1, f"{len(lines)} lines", f"split the file: {most} lines are the limit")
    for number, line in enumerate(lines, 1):
        if line != line.rstrip() and not path.endswith(".md") and "/expected/" not in path:
            complain(path, number, "blanks at the end of the line", "remove them")
        if DEVELOPER_PATH.search(line):
            complain(path, number, "path of one developer's machine", "make it relative, or an option")
        if UNFINISHED.search(line):
            complain(path, number, "note of unfinished work", "finish it or open an issue")


def check_header(path, codes):
    header = headers.parse(path)
    if not header.title:
        complain(path, 1, "no title", f'start the head comment with "{header.name} - what it is", the manual page\'s name line')
    if header.functions and not header.description:
        complain(path, 1, "no description", "tell in the head comment what it is for, threads, ownership")
    in_kernels = path.startswith("include/gvmem/device/")
    for topic in ("Threads", "Ownership"):
        if header.functions and not in_kernels and not re.search(rf"^{topic}:", header.description, re.M):
            complain(path, 1, f"the head comment says nothing of {topic.lower()}", f'add a paragraph "{topic}: ..."')
    common = "GVM_E_" in header.description
    for f in header.functions:
        family = re.sub(r"_(whole_)?(warp|block|lanes)$", "", f.name)
        short = "_" + family.rpartition("_")[2]  # in a list: gvm_region_map(), _unmap()
        if in_kernels and (re.search(rf"\b({family}|{short})\(", header.description) or re.search("/detail/|/kernel.h$", path)):
            continue  # those of kernel.h are in docs/kernels.md
        if not f.comment:
            complain(path, f.line, f"{f.name} is not documented", "put a comment above it: what it does, its errors, whether it blocks")
        elif f.result == "gvm_status" and f.name not in RECORDERS and "GVM_E_" not in f.comment and not common:
            complain(path, f.line, f"{f.name} does not list its errors", 'add lines "GVM_E_CODE  when" to its comment')
    text = Path(path).read_text()
    shown = {f.name for f in header.functions}
    for name in re.findall(r"^(?:GVM_API|GVM_DEVICE|RSVM_CALL)\b[^;{(]*?(\w+)\(", text, re.M):
        if name not in shown and not headers.INSIDE.match(name) and name != "GVM_PRINTF":
            complain(path, 1, f"{name} is not in the manual page", "declare it in the form that scripts/headers.py reads")
    for number, line in enumerate(text.split("\n"), 1):
        for code in re.findall(r"\bGVM_E_[A-Z]+\b", line):
            if code not in codes and code != "GVM_E_UNKNOWN":
                complain(path, number, f"{code} is no status code", "add a row to GVM_STATUS_TABLE in include/gvmem/status.h")


def check_rules(path):
    """What a program can check of docs/design/api.md."""
    text = Path(path).read_text()
    code = BLANKED.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)  # lines and columns stay
    for match in re.finditer(r"^GVM_API\b[^;{]*;", code, re.M):
        line = code.count("\n", 0, match.start()) + 1
        f = headers.parse_function(match[0], "", line)
        names = [re.search(r"(\w+)(?:\[\w*\])?$", argument) for argument in f.arguments]
        names = [name[1] for name in names if name]
        if f.result == "gvm_status" and ("GVM_CHECKED" in match[0]) == (f.name in UNCHECKED):
            complain(path, line, f"{f.name} {'has' if f.name in UNCHECKED else 'has no'} GVM_CHECKED", "callers must use results, except of the calls in UNCHECKED of scripts/lint.py, which end something")
        if "timeout_ms" in names:
            at = names.index("timeout_ms")
            if f.arguments[at] != "int timeout_ms":
                complain(path, line, f"{f.name} takes {f.arguments[at]}", "a time-out is int timeout_ms")
            if any("*" not in argument or argument.startswith("const") for argument in f.arguments[at + 1:]) or any("**" in argument for argument in f.arguments[:at]):
                complain(path, line, f"timeout_ms of {f.name} is at another place", "it comes behind all inputs and before the outputs")
        if any(re.fullmatch(r"u?int\w*_t bytes|size_t bytes", argument) for argument in f.arguments):
            complain(path, line, f"{f.name} takes bytes", "say of what: size_bytes, len_bytes, ...")
    for match in re.finditer(r"^(?:typedef )?(?:struct|union)\b[^;{}]*\{(.*?)^\}", code, re.M | re.S):
        for member in re.finditer(r"\b(?:u?int\d+_t|size_t|int|unsigned)\s[^;(){}]*;", match[1]):
            line = code.count("\n", 0, match.start(1) + member.start()) + 1
            members = [name.strip() for name in re.split(r"\s", member[0], maxsplit=1)[1].rstrip(";").split(",")]
            if "timeout_ms" in members:
                complain(path, line, "a member timeout_ms", "a time-out is an argument of the call; what bounds others is a limit")
            if "bytes" in members:
                complain(path, line, "a member bytes", "say of what: size_bytes, ...")
    for match in re.finditer(r"\bGVM_\w+ = 1 << \d", code):
        complain(path, code.count("\n", 0, match.start()) + 1, f"{match[0]} is signed", "flags are written 1u << n")


def check_manual(options, codes):
    """The tables reach gvmem(7) by these two lines; gen-man.py puts the rows there."""
    page = Path("docs/man/gvmem.7.in")
    text = page.read_text() if page.exists() else ""
    for mark in ("@ENVIRONMENT@", "@STATUS@"):
        if f"\n{mark}\n" not in text:
            complain(page, 1, f"no line {mark}", "the table of settings or status codes is put in its place")
    for name, text in [*options.items(), *codes.items()]:
        if not text:
            complain("lib/base/options.h or include/gvmem/status.h", 1, f"{name} has no text", "say what it does in its row")


def read_all(*patterns):
    return "".join(path.read_text() for pattern in patterns for path in sorted(Path().glob(pattern)))


def find_elsewhere(file):
    """What a page may name without being in its folder."""
    paths = [Path(root, file) for root in ("", "lib", "include", "include/gvmem", "tests/unit")]
    return [path for path in paths if path.exists()]


def check_page_names(page, text):
    """Files, and functions written `file.c:function` or by their name alone, are there."""
    inside = [path for path in page.parent.rglob("*") if path.suffix in (".c", ".h", ".py", ".sh", ".in", ".sql", ".build")]
    matches = list(re.finditer(r"`([\w./-]+\.(?:c|h|py|sh|md))(?::(\w+))?`|`([a-z]+(?:_[a-z0-9]+)+)(?:\(\))?`", text))
    elsewhere = {file: find_elsewhere(file) for file in {match[1] for match in matches} if file}
    sources = "".join(path.read_text() for path in [*inside, *(path for paths in elsewhere.values() for path in paths)])
    for match in matches:
        file, function, name = match.groups()
        line = text.count("\n", 0, match.start()) + 1
        if name and not re.search(rf"\b{name}\b", sources):
            complain(page, line, f"nothing in {page.parent} is called {name}", "use its name of today")
        found = [path for path in inside if file and str(path).endswith(f"/{file}")]
        outside = elsewhere.get(file, [])
        if file and not found and not outside and file not in FILES_OF_OTHERS:
            complain(page, line, f"there is no {file}", "name the file as it is called now")
        if function and not any(re.search(rf"^(?:\w.*)?\b{function}\(", path.read_text(), re.M) for path in [*found, *outside]):
            complain(page, line, f"{file} has no {function}()", "name the function, and its file, of today")


def check_pages():
    for folder in PAGES:
        page = Path(folder, "README.md")
        if folder in NO_PAGE:
            continue
        if not page.exists():
            complain(page, 1, "there is no such page", f"say what {folder}/ is for, what its files do, and where its design page is")
            continue
        text = page.read_text()
        check_page_names(page, text)
        if len(text.splitlines()) > PAGE_LINES_MAX:
            complain(page, PAGE_LINES_MAX + 1, "too long for a page on a folder", f"{PAGE_LINES_MAX} lines are the limit: move what is more to docs/design")


def row_line(path, name):
    """The line of a table's row."""
    lines = Path(path).read_text().splitlines()
    return next((number for number, line in enumerate(lines, 1) if re.search(rf"\bX\({name}\b", line)), 1)


def check_lists(files):
    """Every source file of a folder is in the folder's list; a header may be there by the name of its C file."""
    for folder in PAGES:
        page = LISTED_IN.get(folder, f"{folder}/README.md")
        if not Path(page).exists():
            continue
        patterns = {pattern.replace(".[ch]", ".*") for pattern in LISTED.findall(Path(page).read_text())}
        for path in sorted(Path(file) for file in files if str(Path(file).parent) == folder):
            stem = {f"{path.stem}.c"} if path.suffix == ".h" else set()
            names = {path.name, *stem}
            if path.suffix in (".c", ".h", ".py", ".sh") and str(path) != page and not any(fnmatch(n, p) for n in names for p in patterns):
                complain(page, 1, f"{path.name} is not in the list of files", f"say what {path} does")


def check_driver_calls():
    """Every call is answered by the software GPU, and every case of the conformance table runs."""
    softgpu, cases = read_all("softgpu/*.c"), read_all("tests/conform/case_*.c")
    rows = re.findall(r"\bX\((\w+),", read_all("tests/conform/cases_*.h"))
    for name, symbol, *_ in headers.table("lib/driver/calls.h", "GVMI_CUDA_CALLS"):
        if not re.search(rf"^\w[\w *]*\b{symbol}\(", softgpu, re.M):
            complain("lib/driver/calls.h", row_line("lib/driver/calls.h", name), f"softgpu/ does not define {symbol}", "the software GPU has every call of the table")
        if f"cu->{name}(" not in cases:
            complain("lib/driver/calls.h", row_line("lib/driver/calls.h", name), f"no conformance case makes {name}", "add one to tests/conform")
    for name in re.findall(r"^CASE\((\w+)\)", cases, re.M):
        if name not in rows:
            complain("tests/conform/cases.h", 1, f"the case {name} has no row and is never run", "add one to cases_memory.h or cases_execution.h")


def check_messages():
    """Every message of a client has a handler, and the tests of the decoder have one."""
    machine, samples = read_all("keeper/machine/machine.c"), read_all("tests/fuzz/wire_samples.c")
    for name, _, sender, body, *_ in headers.table("keeper/protocol/wire.h", "GVMI_WIRE_TABLE"):
        if sender == "C" and f"[GVMI_WIRE_{name}] =" not in machine:
            complain("keeper/protocol/wire.h", row_line("keeper/protocol/wire.h", name), f"the machine has no handler for {name}", "add a row to handlers in keeper/machine/machine.c")
        if body != "none" and f"GVMI_WIRE_{name}:" not in samples:
            complain("keeper/protocol/wire.h", row_line("keeper/protocol/wire.h", name), f"there is no sample of {name}", "add a valid message to tests/fuzz/wire_samples.c")


def check_sql_functions():
    """The extension is linked of all files; each function is in the newest script, in the manual and in a test."""
    objects = re.search(r"^OBJS = (.*)$", read_all("postgres/Makefile"), re.M)[1].split()
    version = re.search(r"default_version = '(.*)'", read_all("postgres/gstore_fdw.control"))[1]
    script = Path(f"postgres/gstore_fdw--{version}.sql")
    text, manual = script.read_text(), read_all("docs/gstore_*.md")
    tests = read_all("tests/postgres/sql/*.sql", "tests/postgres/*.py", "tests/postgres/*.sh")
    for path in sorted(Path("postgres").glob("*.c")):
        if f"{path.stem}.o" not in objects:
            complain(path, 1, "is not linked into the extension", "add it to OBJS in postgres/Makefile")
        for name in re.findall(r"^PG_FUNCTION_INFO_V1\((\w+)\)", path.read_text(), re.M):
            if f"FUNCTION {name}(" not in text and f"'{name}'" not in text:
                complain(path, 1, f"{name} is not in {script}", "CREATE FUNCTION there and in the update to that version; a version that was released gets a next one (CONTRIBUTING.md)")
    for name in re.findall(r"^CREATE FUNCTION ((?:gstore|lo)_\w+)\(", text, re.M):
        if f"FROM {name}()" in text or re.search(r"_(?:handler|validator)$", name):
            continue  # a view's, or the wrapper's
        if not re.search(rf"\b{name}\b", manual):
            complain(script, 1, f"no page in docs/ names {name}", "describe it in docs/gstore_format.md")
        if f"{name}(" not in tests:
            complain(script, 1, f"no test calls {name}()", "add one to tests/postgres/sql")


def main():
    options = {row[0]: row[-1] for row in headers.table("lib/base/options.h", "GVMI_OPTIONS")}
    codes = {row[0]: row[-1] for row in headers.table("include/gvmem/status.h", "GVM_STATUS_TABLE")}
    if not options or not codes:
        sys.exit("lint: cannot read GVMI_OPTIONS in lib/base/options.h or GVM_STATUS_TABLE in include/gvmem/status.h")
    public = public_functions()
    for name in sorted(UNCANCELLED_WITHOUT - public):
        complain("scripts/lint.py", 1, f"there is no {name}", "take it out of UNCANCELLED_WITHOUT")
    files = set(sys.argv[1:])
    for path in sys.argv[1:]:
        try:
            lines = Path(path).read_text().removesuffix("\n").split("\n")
        except UnicodeDecodeError:
            continue
        check_text(path, lines)
        if path.endswith((".c", ".h", ".cu")):
            check_c(path, lines, options)
            check_file_names(path, "\n".join(lines), files)
            if path.startswith(LIBRARY):
                check_cancellation(path, "\n".join(lines), public)
        if path.startswith("include/") and path.endswith(".h"):
            check_header(path, codes)
            if path not in FORMATS:
                check_rules(path)
    check_neighbours()
    check_pages()
    check_lists(files)
    check_driver_calls()
    check_messages()
    check_sql_functions()
    check_manual(options, codes)
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
