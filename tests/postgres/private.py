"""A PostgreSQL server with gstore_fdw of a test's own, and sessions on it.

The server's folder is in the build folder; server and folder are gone when the program ends, whatever
it ends of: guard.sh waits for the end of file on a pipe that only the program writes to.
"""
import contextlib
import copy
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("BUILD", PROJECT / "build")).resolve()
START_S = 120  # on a busy machine
READY = "database system is ready to accept connections"


class Failed(Exception):
    """What a test expected is not so."""


class SqlError(Exception):
    """An SQLSTATE."""


def wait_until(what, is_so, limit_s=START_S):
    deadline = time.monotonic() + limit_s
    while not is_so():
        if time.monotonic() > deadline:
            raise Failed(f"never: {what}")
        time.sleep(0.02)


def expect(value, wanted, what):
    if value != wanted:
        raise Failed(f"{what}: {value!r} instead of {wanted!r}")


def as_owner(command):
    """The server's own programs do not run as root."""
    return [str(PROJECT / "scripts/pg-owner.sh"), *command]


def pg_config(option):
    return subprocess.run([os.environ.get("PG_CONFIG", "pg_config"), option], capture_output=True, text=True, check=True).stdout.strip()


def build_probe(name):
    """A program of tests/postgres. It is put in its place whole: other tests build and run it at the same time."""
    path = BUILD / "postgres-run" / name
    path.parent.mkdir(exist_ok=True)
    made = f"{path}.{os.getpid()}"
    command = [
        *shlex.split(os.environ.get("CC", "cc")), "-std=gnu11", "-Wall", "-Wextra", f"-I{PROJECT}", f"-I{PROJECT}/include",
        str(PROJECT / f"tests/postgres/{name}.c"), "-o", made, f"-L{BUILD}", "-lgvmem", f"-Wl,-rpath,{BUILD}",
    ]
    subprocess.run(command, check=True)
    os.replace(made, path)


def why_not():
    """Why there is no server to test with; None if there is. In continuous integration (CI) the program ends without one, as a failure."""
    environ = {**os.environ, "BUILD": str(BUILD)}
    done = subprocess.run([PROJECT / "scripts/pg-server.sh", "why-not"], env=environ, capture_output=True, text=True, check=True)
    reason = done.stdout.strip() or None
    if reason and os.environ.get("CI"):
        print(f"Bail out! {reason}")
        sys.exit(1)
    return reason


class Server:
    def __init__(self, name, *settings):
        (BUILD / "postgres-run").mkdir(exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix=name + ".", dir=BUILD / "postgres-run"))
        self.folder.chmod(0o755)
        script = PROJECT / "scripts/pg-server.sh"
        self.script = str(script)
        self.guard = subprocess.Popen(
            [PROJECT / "tests/postgres/guard.sh", self.folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.environ = {**os.environ, "BUILD": str(BUILD)}
        self.environ.setdefault("GVMEM_SOFTGPU", f"devices=2,peers=1,memory=4GiB,sms=2,instance={self.folder.name}")
        self.environ.setdefault("PGCTLTIMEOUT", "300")  # seconds
        self.start(*(setting.replace("FOLDER", str(self.folder)) for setting in settings))
        self.bin = str(self.folder / "root") + pg_config("--bindir")
        self.environ.update(PGHOST=str(self.folder / "run"), PGUSER="postgres", PGDATABASE="postgres")
        self.sql("CREATE EXTENSION gstore_fdw")

    def control(self, *words):
        # Not by a pipe: the server would hold its end.
        with open(self.folder / "control", "w+", encoding="utf8") as out:
            command = [self.script, words[0], str(self.folder), *words[1:]]
            with subprocess.Popen(command, env=self.environ, stdout=out, stderr=out, start_new_session=True) as process:
                starting = self.folder / "starting"
                starting.write_text(f"{process.pid}\n")
                process.wait()
                starting.unlink()
            out.seek(0)
            if process.returncode:
                raise Failed(f"{words[0]}: {out.read()}")

    def start(self, *settings):
        self.control("start", *settings)

    def stop(self, mode):
        self.control("stop", mode)

    def log(self):
        return (self.folder / "log").read_text(errors="replace")

    def run(self, *command, **more):
        """A program of PostgreSQL's, as the server's user."""
        path = f"{self.bin}/{command[0]}"
        done = subprocess.run(as_owner([path, *command[1:]]), env=self.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=self.folder, **more)
        if done.returncode:
            raise Failed(f"{command[0]}: {done.stderr[-2000:]}")
        return done.stdout

    def end(self):
        self.guard.stdin.close()
        self.guard.wait()

    def psql(self, *arguments, database="postgres"):
        command = [self.bin + "/psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=sqlstate", "-d", database]
        return command + list(arguments)

    def sql(self, text, database="postgres", timeout=300):
        """What the statements say, in one transaction; SqlError with the SQLSTATE."""
        done = subprocess.run(
            self.psql("-c", text, database=database), env=self.environ, capture_output=True, text=True, timeout=timeout
        )
        if done.returncode:
            raise error_of(done.stderr)
        return done.stdout.strip()

    def error(self, text, **more):
        """The SQLSTATE with which the statements fail."""
        try:
            said = self.sql(text, **more)
        except SqlError as error:
            return str(error)
        raise Failed(f"no error, but {said[:200]!r}: {text}")

    def wait_log(self, text, after=0):
        """Until the log has the text more than `after` times."""
        deadline = time.monotonic() + START_S
        while self.log().count(text) <= after:
            if time.monotonic() > deadline:
                raise Failed(f"the server does not say: {text}")
            time.sleep(0.02)

    def starts(self):
        return self.log().count(READY)

    def wait_for(self, query, wanted="t"):
        """Until a query returns so: for states without a signal."""
        deadline = time.monotonic() + START_S
        while True:
            said = self.sql(query)
            if said == wanted:
                return
            if time.monotonic() > deadline:
                raise Failed(f"{query}: still {said!r}")
            time.sleep(0.01)

    def session(self, **more):
        return Session(self, **more)

    def keeper_pid(self):
        """None: there is none at the moment."""
        postmaster = (self.folder / "data/postmaster.pid").read_text().split()[0]
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        for child in children:
            try:
                if b"GPU memory keeper" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return int(child)
            except OSError:
                pass  # it has just ended
        return None

    def wait_keeper(self, other_than):
        deadline = time.monotonic() + START_S
        while self.keeper_pid() in (None, other_than):
            if time.monotonic() > deadline:
                raise Failed("no other keeper comes")
            time.sleep(0.02)

    def kill_and_wait(self, pid):
        """Kills a process of the server and waits for the restart that follows."""
        before = self.starts()
        os.kill(pid, signal.SIGKILL)
        self.wait_log(READY, before)


def stop_process(pid):
    """Returns when it is stopped: the signal reaches its threads one after the other."""
    os.kill(pid, signal.SIGSTOP)
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        while thread.read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.001)


@contextlib.contextmanager
def started(server, folder):
    """Another server, of a copy of the first one's data."""
    other = copy.copy(server)
    other.environ = {**server.environ, "PGPORT": "5433"}
    control = ["pg_ctl", "-w", "-s", "-D", str(folder), "-l", str(folder / "log")]
    # Not by run(), as the server would hold the pipes' ends.
    start = as_owner([f"{server.bin}/pg_ctl", *control[1:], "-o", "-c port=5433", "start"])
    subprocess.run(start, env=server.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    try:
        yield other
    finally:
        server.run(*control, "-m", "fast", "stop")


@contextlib.contextmanager
def running_keeper(server, name="keeper.sock"):
    """A gvmem-keeper beside the server's socket; also ended with this program, by the signal that the kernel sends."""
    path = server.folder / "run" / name
    path.unlink(missing_ok=True)
    die = ["setpriv", "--pdeathsig", "KILL", f"{BUILD}/tools/gvmem-keeper", "-s", str(path), "--ready-fd", "1"]
    keeper = subprocess.Popen(as_owner(die), env=server.environ, stdout=subprocess.PIPE, text=True)
    if not keeper.stdout.readline():
        raise Failed("gvmem-keeper does not start")
    try:
        yield keeper
    finally:
        keeper.kill()
        keeper.wait()


# Has a write lease on an object until standard input ends.
HOLDER = """
import ctypes, sys
library, socket, name = sys.argv[1:]
lib = ctypes.CDLL(library)
keeper, held, lease = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.create_string_buffer(256)
status = lib.gvm_client_connect(socket.encode(), ctypes.byref(keeper))
status = status or lib.gvm_object_open(keeper, name.encode(), 0, ctypes.byref(held))
status = status or lib.gvm_object_acquire(held, 2, None, -1, lease)
print("ready" if status == 0 else f"status {status}", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def leased(server, table):
    """Another program has a write lease on a column of the table, or on the object that all of a small one are in."""
    oid, socket = server.sql(f"SELECT '{table}'::regclass::oid"), str(server.folder / "data/pg_stat_tmp/gstore.sock")
    ls = as_owner([f"{BUILD}/tools/gvmem", "keeper", "ls", "-s", socket])
    names = subprocess.run(ls, env=server.environ, capture_output=True, text=True, check=True).stdout.split()
    name = max((name for name in names if name.split("/")[3] == oid), key=lambda name: int(name.split("/")[-1].split(".")[0]))
    command = [sys.executable, "-c", HOLDER, f"{BUILD}/libgvmem.so", socket, name]
    holder = subprocess.Popen(command, env=server.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        expect(holder.stdout.readline().strip(), "ready", "a lease")
        yield
    finally:
        holder.stdin.close()
        holder.wait()


def error_of(stderr):
    for line in stderr.splitlines():
        for kind in ("ERROR:", "FATAL:"):
            if kind in line:
                return SqlError(line.split(kind)[1].strip())
    return SqlError("connection lost: " + stderr.strip())


class Session:
    """A psql that stays connected."""

    MARK = "=done="

    def __init__(self, server, database="postgres"):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            server.psql(database=database),
            env=server.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            bufsize=1,
        )
        self.pid = int(self.sql("SELECT pg_backend_pid()"))

    def begin(self, text):
        """Sends statements; finish() says what came of them."""
        try:
            self.process.stdin.write(f"{text};\n\\echo {self.MARK}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def finish(self):
        lines = []
        for line in self.process.stdout:
            if line.strip() == self.MARK:
                return "\n".join(lines)
            lines.append(line.rstrip("\n"))
        self.process.wait()
        self.errors.seek(0)
        raise error_of(self.errors.read())

    def sql(self, text):
        self.begin(text)
        return self.finish()

    def error(self):
        """The SQLSTATE with which what was begun fails; the session ends with it."""
        try:
            said = self.finish()
        except SqlError as error:
            return str(error)
        raise Failed(f"no error, but {said[:200]!r}")

    def close(self):
        self.process.stdin.close()
        self.process.wait()
