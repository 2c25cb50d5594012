"""A backend's side of a connection to the executor of queries (query/wire.h), and what cases need beside it."""
import contextlib
import ctypes
import fcntl
import functools
import mmap
import os
import pwd
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
import private  # noqa: E402
from private import PROJECT, Failed, Server, expect  # noqa: E402

ANSWER_S = 60
LIMIT_S = 25  # before an executor that hangs is killed
PLANNED = "SET gstore_fdw.gpu_startup_cost = 0; SET gstore_fdw.gpu_instruction_cost = 0; "


def enumerators(*headers):
    """What the headers call by numbers."""
    found = {}
    for header in headers:
        text = re.sub(r"/\*.*?\*/", "", (PROJECT / header).read_text(), flags=re.S)
        found.update({name: int(value, 0) for name, value in re.findall(r"#define (G(?:QUERY|STORE)_\w+)[\s\\]+(0x[0-9a-f]+|\d+)u?\s*$", text, re.M)})
        for body in re.findall(r"enum \w+\s*\{(.*?)\}", text, re.S):
            number = -1
            for item in body.split(","):
                match = re.match(r"\s*(\w+)(?:\s*=\s*(\d+))?", item)
                if match:
                    number = int(match[2]) if match[2] else number + 1
                    found[match[1]] = number
    return found


N = enumerators("query/program.h", "query/search.h", "query/wire.h", "query/tables.h", "postgres/spawner.h", "postgres/connector.h")
MAGIC, SPAWN_MAGIC = 0x79717267, 0x776F7267
U32, U64, I64 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int64


def layout(name, **fields):
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


Column = layout("Column", table=U32, number=U32, type=U32, form=U32, bias=I64)
Instruction = layout("Instruction", op=ctypes.c_uint16, b=ctypes.c_uint16, a=U32, value=U64)
Program = layout(
    "Program", column_count=U32, code_count=U32, value_count=U32, state_words=U32, columns=Column * N["GQUERY_COLUMNS_MAX"],
    code=Instruction * N["GQUERY_CODE_MAX"], values=I64 * N["GQUERY_VALUES_MAX"],
)  # fmt: skip
Span = layout("Span", at=U64, bytes=U64)
Table = layout("Table", token=ctypes.c_char * N["GQUERY_TOKEN_BYTES"], rows=U64, store=U64, version=U64, dead=Span, deleted_at=U64, deleted_bytes=U64)
Cost = layout("Cost", rows=U64, read_bytes=U64, host_bytes=U64, kernel_ns=U64, total_ns=U64, scratch_bytes=U64)
Distance = layout(
    "Distance", table=U32, number=U32, type=U32, elements=U32, metric=U32, stride=U32, count=U32, query_square=ctypes.c_double, query=Span,
)  # fmt: skip
WantedText = layout("WantedText", key=U32, column=U32)
Window = layout(
    "Window", magic=U32, version=U32, used=U64, begun=U32, role=U32, table_count=U32, tables=Table * N["GQUERY_TABLES_MAX"], batched=U32, batch=Span, program=Program,
    builds=Span * (N["GQUERY_TABLES_MAX"] - 1), distance_count=U32,
    distances=Distance * N["GQUERY_DISTANCES_MAX"], scratch_bytes_max=U64, hash_bytes_max=U64, list_max=U64, continued=U32, nearest=U32, after=I64 * (N["GQUERY_KEYS_MAX"] + N["GQUERY_TABLES_MAX"]),
    gather_max=U64, gather_count=U32, gather=U32 * N["GQUERY_COLUMNS_MAX"], gather_vectors=U32, stage_count=U32, stages=Span * N["GQUERY_STAGES_MAX"],
    first_row=U64, slice_rows=U64, text_count=U32, texts=WantedText * N["GQUERY_KEYS_MAX"],
    record_count=U64, text_words=U32 * N["GQUERY_KEYS_MAX"], record_words=U32, more=U32, gathered=U32, records=Span, next_row=U64, next_slice_rows=U64, cost=Cost,
)  # fmt: skip
Message = layout("Message", magic=U32, verb=U32, error=U32, lost=U32, sqlstate=ctypes.c_char * 8, text=ctypes.c_char * N["GQUERY_TEXT_BYTES"])
LAYOUTS = {
    "gquery_window": Window, "gquery_program": Program, "gquery_column": Column, "gquery_instruction": Instruction, "gquery_table": Table,
    "gquery_wanted_distance": Distance, "gquery_wanted_text": WantedText, "gquery_cost": Cost, "gquery_span": Span, "gquery_message": Message,
}  # fmt: skip
SPAWN_REQUEST = struct.Struct("=IIii")
SPAWN_ENDED = struct.Struct("=IIi")

# of the table that cases read, by fill()
ID, K, F = (0, 23, "GQUERY_I32"), (1, 20, "GQUERY_I64"), (2, 701, "GQUERY_F64")


def check_layouts():
    """Structures are here as the headers have them."""
    lines = ["#include <stddef.h>", '#include "query/wire.h"', '#include "postgres/spawner.h"']
    lines.append(f'_Static_assert(sizeof(gstore_spawn_request) == {SPAWN_REQUEST.size}, "gstore_spawn_request");')
    for name, fields in LAYOUTS.items():
        lines.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(fields)}, "{name}");')
        for member, _ in fields._fields_:
            lines.append(f'_Static_assert(offsetof({name}, {member}) == {getattr(fields, member).offset}, "{name}.{member}");')
    command = [*shlex.split(os.environ.get("CC", "cc")), f"-I{PROJECT}", f"-I{PROJECT}/include", "-x", "c", "-fsyntax-only", "-"]
    subprocess.run(command, input="\n".join(lines) + "\n", text=True, check=True)


class Ended(Exception):
    """The connection was closed by the other side."""


def op(name, a=0, b=0, value=0):
    return Instruction(N["GQUERY_" + name], N.get(b, b), a, value % 2**64)


def aggregate(word, what):
    return op("AGGREGATE", word, "GQUERY_" + what)


def block(bytes_):
    """What scratch memory of so many bytes takes (gquery_scratch_size())."""
    step = 4096
    while bytes_ > 16 * step:
        step *= 2
    if bytes_ > 1 << 20:
        step = max(step, 2 << 20)
    return (bytes_ + step - 1) // step * step


def signed(word):
    return word - 2**64 if word >> 63 else word


def as_double(word):
    return struct.unpack("d", struct.pack("Q", word))[0]


def as_word(value):
    return struct.unpack("Q", struct.pack("d", value))[0]


# count(*), sum(id), count(f), sum(f) where id > value
def sums(least):
    return [
        op("LOAD", 0), op("CONSTANT", value=least), op("GT", b="GQUERY_ORDER_I64"), op("FILTER"),
        aggregate(0, "COUNT_ROWS"), op("LOAD", 0), aggregate(1, "SUM_I64"), op("LOAD", 2), aggregate(3, "COUNT"), op("LOAD", 2), aggregate(4, "SUM_F64"),
    ], 5  # fmt: skip


# count(*), sum(id) by k
BY_K = [op("LOAD", 1), op("GROUP", 1), aggregate(0, "COUNT_ROWS"), op("LOAD", 0), aggregate(1, "SUM_I64")], 3
BY_ID = [op("LOAD", 0), op("GROUP", 1), aggregate(0, "COUNT_ROWS")], 1
COUNT = [aggregate(0, "COUNT_ROWS")], 1


def write_program(to, program, columns):
    code, words = program
    to.column_count, to.code_count, to.state_words = len(columns), len(code), words
    to.columns[: len(columns)] = columns
    to.code[: len(code)] = code


class Client:
    """A backend's side of one connection."""

    def __init__(self, server, device=0, seal=fcntl.F_SEAL_SHRINK, kind="GSTORE_SPAWN_EXECUTOR"):
        self.server = server
        self.memory = os.memfd_create("query", os.MFD_ALLOW_SEALING)
        os.ftruncate(self.memory, 1 << 20)
        fcntl.fcntl(self.memory, fcntl.F_ADD_SEALS, seal)
        self.map = mmap.mmap(self.memory, 1 << 20)
        self.window = Window.from_buffer(self.map)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(ANSWER_S)
        connect_as_owner(self.socket, server)
        request = SPAWN_REQUEST.pack(SPAWN_MAGIC, N[kind], os.getpid(), device)
        socket.send_fds(self.socket, [request], [self.memory])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()
        os.close(self.memory)

    def write(self, token, rows, program, columns=(ID, K, F), scratch=1 << 30, hashes=1 << 40, dead=b"", entries=0, after=None, distances=(), nearest=0, gather_max=0, gather=(), vectors=False, stages=(), texts=(), role=0):
        """columns: attribute, type, form, and a bias, if it has one; after: an entry; distances: (Distance, its query); nearest: queries of the only distance, one behind the other; gather: columns' places; vectors: are gathered, too; stages: (a program, numbers of the words that are its columns); texts: (key, column)."""
        w = self.window
        ctypes.memset(ctypes.byref(w), 0, ctypes.sizeof(w))
        w.magic, w.version, w.role, w.table_count, w.scratch_bytes_max, w.hash_bytes_max = MAGIC, N["GQUERY_VERSION"], role, 1, scratch, hashes
        w.tables[0].token, w.tables[0].rows = token.encode(), rows
        at = (ctypes.sizeof(Window) + 63) // 64 * 64
        self.map[at : at + len(dead)] = dead
        w.tables[0].dead = Span(at, len(dead))
        at += len(dead)
        w.list_max, w.continued, w.nearest, w.distance_count = entries, after is not None, nearest, len(distances)
        w.gather_max, w.gather_count, w.gather_vectors = gather_max, len(gather), vectors
        for i, column in enumerate(gather[: N["GQUERY_COLUMNS_MAX"]]):
            w.gather[i] = column
        for i, word in enumerate(after or ()):
            w.after[i] = word
        for i, (distance, point) in enumerate(distances):
            at = (at + 15) // 16 * 16
            self.map[at : at + len(point)] = point
            w.distances[i] = distance
            w.distances[i].query = Span(at, len(point))
            at += len(point)
        w.stage_count = len(stages)
        for i, (program_, numbers) in enumerate(stages):
            at = (at + 63) // 64 * 64
            w.stages[i] = Span(at, ctypes.sizeof(Program))
            stage = Program()
            write_program(stage, program_, [Column(2**32 - 2, number, 0, N["GQUERY_I64"], 0) for number in numbers])
            self.map[at : at + ctypes.sizeof(Program)] = bytes(stage)
            at += ctypes.sizeof(Program)
        w.used = at
        w.text_count = len(texts)
        for i, (key, column) in enumerate(texts[: N["GQUERY_KEYS_MAX"]]):
            w.texts[i] = WantedText(key, column)
        write_program(w.program, program, [Column(0, number + 1, kind, N[form], *(bias or [0])) if kind else Column(2**32 - 1, number, 0, N[form], 0) for number, kind, form, *bias in columns])

    def send(self, verb):
        with contextlib.suppress(BrokenPipeError):  # receive() says so
            self.socket.send(bytes(Message(MAGIC, N["GQUERY_" + verb])))

    def receive(self):
        try:
            data = self.socket.recv(4096)
        except ConnectionResetError:  # something was not read; what was sent before comes next
            data = self.socket.recv(4096)
        if len(data) == SPAWN_ENDED.size:
            raise Ended(f"spawner: {SPAWN_ENDED.unpack(data)}")
        if len(data) != ctypes.sizeof(Message):
            raise Ended("end of file")
        return Message.from_buffer_copy(data)

    def ask(self, verb="RUN"):
        self.send(verb)
        return self.receive()

    def records(self):
        """Of the piece that is in the file."""
        w = self.window
        bytes_ = os.pread(self.memory, w.records.bytes, w.records.at)
        expect(len(bytes_), w.records.bytes, "bytes of records")
        words = struct.unpack(f"={len(bytes_) // 8}Q", bytes_)
        return [words[i : i + w.record_words] for i in range(0, len(words), w.record_words)]

    def run(self, *query, **more):
        """All records."""
        self.write(*query, **more)
        return self.finish(self.ask())

    def finish(self, answer):
        expect_verb(answer, "DONE")
        found = self.records()
        while self.window.more:
            expect_verb(self.ask("FETCH"), "DONE")
            found += self.records()
        expect(len(found), self.window.record_count, "records")
        return found


def write_inner(client, token, rows, key):
    """The inner table of the join: ft by one column."""
    w = client.window
    w.table_count = 2
    w.tables[1].token, w.tables[1].rows = token.encode(), rows
    build = Program(column_count=1, code_count=2)
    build.columns[0] = Column(0, key[0] + 1, key[1], N[key[2]], 0)
    build.code[0], build.code[1] = op("LOAD", 0), op("BUILD", 1)
    at = (w.used + 63) // 64 * 64
    client.map[at : at + ctypes.sizeof(build)] = bytes(build)
    w.builds[0] = Span(at, ctypes.sizeof(build))
    w.used = at + ctypes.sizeof(build)
    return at


@contextlib.contextmanager
def other_server(**environ):
    """One whose programs have more in their environment."""
    os.environ.update(environ)
    try:
        server = Server("other")
    finally:
        for name in environ:
            del os.environ[name]
    try:
        yield server
    finally:
        server.end()


def run_again(server, *query, **more):
    """In another executor, once the one before is gone: until then a connection may still reach that."""
    for _ in range(100):
        with contextlib.suppress(Ended), Client(server) as client:
            return client.run(*query, **more)
        time.sleep(0.02)
    raise Failed("no other executor")


def connect_as_owner(sock, server):
    """The spawner serves the server's own user. A server that has just been started may take a moment for it, more so on a GPU."""
    owner = pwd.getpwuid(server.folder.joinpath("data").stat().st_uid)
    before = os.geteuid()
    folder = os.open(server.folder / "data/pg_stat_tmp", os.O_PATH)
    if before == 0:
        os.seteuid(owner.pw_uid)
    try:
        wait_until("the spawner listens", lambda: sock.connect_ex(f"/proc/self/fd/{folder}/gstore_spawn.sock") == 0, limit_s=private.START_S)
    finally:
        os.seteuid(before)
        os.close(folder)


def expect_verb(answer, verb, sqlstate=None):
    said = f"{answer.verb} {answer.sqlstate.decode()} {answer.text.decode()}"
    if answer.verb != N["GQUERY_" + verb] or (sqlstate and answer.sqlstate.decode() != sqlstate):
        raise Failed(f"an answer other than {verb} {sqlstate or ''}: {said}")


def fill(server, rows):
    """The table, and a token."""
    server.sql("DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft (id int, k bigint, f float8, t text) SERVER gstore_fdw")
    server.sql(f"INSERT INTO ft SELECT i, nullif(i % 1000, 0), nullif(i % 10, 0) * 0.5, 'row ' || i FROM generate_series(1, {rows}) i")
    return server.sql("SELECT gstore_export('ft')")


def fill_hashes(server, hashes):
    """The table and a token as fill() has them: column k alone, of keys that have these hashes (query/kernel_groups.h)."""
    first, last = (pow(factor, -1, 2**64) for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
    file = server.folder / "hashes"
    with file.open("w") as lines:
        for h in hashes:
            h = (h ^ h >> 32) * last % 2**64
            h = (h ^ h >> 29 ^ h >> 58) * first % 2**64
            print(signed(h), file=lines)
    server.sql("DROP FOREIGN TABLE IF EXISTS ft; CREATE FOREIGN TABLE ft (id int, k bigint, f float8, t text) SERVER gstore_fdw")
    server.sql(f"COPY ft (k) FROM '{file}'")
    return server.sql("SELECT gstore_export('ft')")


def sums_of(record):
    bits, count, low, high, count_f, total = record
    expect(bits, 0, "NULL bits of a record without keys")
    return count, signed(high) * 2**64 + low, count_f, as_double(total)


def sums_in_sql(server, where):
    count, total, count_f, total_f = server.sql(f"SELECT count(*), coalesce(sum(id), 0), count(f), coalesce(sum(f), 0) FROM ft WHERE {where}").split("|")
    return int(count), int(total), int(count_f), float(total_f)


def executor_pids(server):
    keeper = server.keeper_pid()
    found = []
    for thread in Path(f"/proc/{keeper}/task").glob("*/children"):
        for pid in thread.read_text().split():
            with contextlib.suppress(OSError):
                if b"gstore-executor" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(int(pid))
    return found


def executor_pid(server):
    found = executor_pids(server)
    expect(len(found), 1, "executors")
    return found[0]


wait_until = functools.partial(private.wait_until, limit_s=LIMIT_S)


def descriptors(pid):
    """Of connections and processes; those of tables come and go with memory."""
    found = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(os.readlink(path))
    return [name for name in found if name.startswith(("socket:", "/memfd:query", "anon_inode:[pidfd]"))]


def has_begun(pid):
    """Whether an executor is at work on a backend's query."""
    files = [path.read_bytes() for path in Path(f"/proc/{pid}/fd").iterdir() if os.readlink(path).startswith("/memfd:gstore ")]
    return any(window.begun and not window.cost.total_ns for window in map(Window.from_buffer_copy, filter(None, files)))


@contextlib.contextmanager
def stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
