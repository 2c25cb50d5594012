#!/usr/bin/env python3
"""GPU workers of the language plcuda: killed at each step, endless, wild, many at once, idle; compiled images on disk.

usage: plcuda.py [CASE...]. TAP, a line a case; each starts from a working server and leaves one, as in crash.py.
"""
import ctypes.util
import glob
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True
from cases import Skipped, expect_usable, fill, group, main  # noqa: E402
from private import BUILD, PROJECT, Failed, Server, SqlError, as_owner, build_probe, expect, pg_config, wait_until  # noqa: E402

SOFT = os.environ.get("GVMEM_DRIVER") != "cuda"  # else some cases are left out
ROWS = 1000
SUM = """
#plcuda_begin
#plcuda_num_threads 64
PLCUDA_FOR_ROWS (arg1.value, row)
    gvm_atomic_add_u64((uint64_t *)&retval->value, (uint64_t)plcuda_get_int4(arg1.value, 1, row).value);
if (gvm_thread_global() == 0)
    retval->isnull = 0;
#plcuda_end
"""
ENDLESS = """
#plcuda_begin
for (;;)
    gvm_pause();
#plcuda_end
"""
# Writes where it must not: into the table, nowhere, into the table's description.
WILD = """
#plcuda_begin
if (arg2.value == 0)
    *(int32_t *)arg1.value->columns[0].values = 666;
if (arg2.value == 1)
    *(volatile int32_t *)8 = 666;
if (arg2.value == 2)
    for (uint64_t i = 0; i < (1u << 30); i += 4096)
        ((char *)arg1.value)[i] = 1;
if (arg2.value == 3) /* it has none */
    *(volatile int32_t *)gvm_shared() = 666;
retval->isnull = 0;
#plcuda_end
"""

LENGTH = """
#plcuda_begin
retval->value = (int32_t)arg1.length;
retval->isnull = 0;
#plcuda_end
"""
# Rows of NULLs, many at once.
NULLS = """
#plcuda_begin
#plcuda_num_threads 64
for (uint64_t i = gvm_thread_global() * 4096; i < (uint64_t)arg1.value; i += gvm_thread_count() * 4096)
    if (plcuda_append_rows(plcuda, 4096) == 0)
        return;
#plcuda_end
"""
# 'row N' beside N.
NUMBERED = """
#plcuda_begin
#plcuda_num_threads 1024
for (int64_t i = 1 + (int64_t)gvm_thread_global(); i <= arg1.value; i += (int64_t)gvm_thread_count()) {
    plcuda_row *r = plcuda_append(plcuda);
    char digits[20], *text;
    int count = 0;

    for (int64_t left = i; left > 0; left /= 10)
        digits[count++] = (char)('0' + left % 10);
    text = plcuda_append_bytes(plcuda, 4 + (uint64_t)count);
    if (r == 0 || text == 0)
        return;
    for (int n = 0; n < 4; n++)
        text[n] = "row "[n];
    for (int n = 0; n < count; n++)
        text[4 + n] = digits[count - 1 - n];
    r->number.value = i;
    r->number.isnull = 0;
    r->t.value = text;
    r->t.length = 4 + (uint32_t)count;
    r->t.isnull = 0;
}
#plcuda_end
"""
# A thread that writes to what the backend reads of an answer: it finds the number of rows there, behind which are its spans.
HOSTILE = """
#plcuda_decl
extern void *mmap(void *, unsigned long, int, int, int, long);
extern int pthread_create(unsigned long *, const void *, void *(*)(void *), void *);
extern int usleep(unsigned);
static unsigned seed;

static void *spoil(void *kind)
{
    volatile uint64_t *file = (uint64_t *)mmap((void *)0, 1 << 20, 3, 1, 4, 0);
    const uint64_t values[] = {0, 8, 10007, (1 << 20) - 8, 1 << 20, 0x3fffff00, 1ull << 40, ~0ull, ~0ull - 7, 1ull << 63};
    uint32_t at = 0;

    for (int tries = 0; tries < 200000 && file[at] != 10007; tries++) {
        usleep(10);
        for (at = 0; at < 8192 && file[at] != 10007; at++)
            ;
    }
    for (int i = 0; i < 300000; i++) {
        const uint32_t where = (seed = seed * 1664525 + 1013904223) >> 8;
        const uint64_t value = values[(seed >> 4) % 10];

        if (kind == (void *)0)
            file[at + where % 5] = value;
        else if (file[at + 1] < (1 << 20) - 80000)
            file[file[at + 1] / 8 + where % 10000] = value;
        if (i % 1000 == 0)
            usleep(1000);
    }
    return (void *)0;
}
#plcuda_end
#plcuda_begin
unsigned long thread;
plcuda_row *r = plcuda_append_rows(plcuda, 10007);

seed = (unsigned)arg2.value;
for (int i = 0; i < 10007; i++) {
    r[i].value = "text";
    r[i].length = 4;
    r[i].isnull = 0;
}
pthread_create(&thread, (void *)0, spoil, (void *)(long)arg1.value);
#plcuda_end
"""


def define(server, name, arguments, returns, body):
    server.sql(f"CREATE OR REPLACE FUNCTION {name}({arguments}) RETURNS {returns} LANGUAGE plcuda AS $p${body}$p$")


programs = ""  # where those of this server are: other servers of the machine may have workers


def prepare(server):
    global programs
    programs = str(server.folder)
    server.sql("CREATE EXTENSION IF NOT EXISTS plcuda")
    fill(server, ROWS)
    define(server, "total", "reggstore", "int8", SUM)
    define(server, "endless", "int", "int", ENDLESS)
    define(server, "wild", "reggstore, int", "int", WILD)


def workers(pid=None, kind="session"):
    """Process numbers of the workers of a session, or of all of the server."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if len(words) > 3 and words[0].endswith(b"/gstore-gpu-worker") and words[0].startswith(programs.encode()) and words[1] == kind.encode() and (pid is None or words[2] == b"for %d" % pid):
            found.append(int(folder.name))
    return found


def mapped(pid):
    """Bytes of device memory that a process on the software GPU has mapped."""
    total = 0
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if "memfd:gvmem-softgpu" in line:
            first, end = line.split()[0].split("-")
            total += int(end, 16) - int(first, 16)
    return total


def wait_workers(count, pid=None, seconds=50, kind="session"):
    """Sooner than by plcuda.time_limit or plcuda.idle_timeout."""
    deadline = time.monotonic() + seconds
    while len(workers(pid, kind)) != count:
        if time.monotonic() > deadline:
            raise Failed(f"{workers(pid, kind)} instead of {count} workers")
        time.sleep(0.005)
    return workers(pid, kind)


def wait_mapped(pid):
    """Until the process has little device memory: a second after its last call."""
    wait_until(f"process {pid} has mapped 32 MiB at most", lambda: mapped(pid) <= 32 << 20, 60)


def wait_gone(pid, seconds=30):
    """Until the process has ended, which the session has been sent by then."""
    deadline = time.monotonic() + seconds
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > deadline:
            raise Failed(f"process {pid} is still there")
        time.sleep(0.005)


def eight_sessions(server):
    """Of as many roles: one alone may not have all workers."""
    sessions = [server.session() for _ in range(8)]
    for i, session in enumerate(sessions):
        session.sql(f"DO $d$ BEGIN CREATE ROLE caller{i} SUPERUSER; EXCEPTION WHEN duplicate_object THEN END $d$; SET SESSION AUTHORIZATION caller{i}")
    return sessions


def expect_total(session_or_server, what, limit_s=5):
    """A call of a function that is compiled takes no longer."""
    start = time.monotonic()
    expect(session_or_server.sql("SELECT total('ft')"), str(ROWS * (ROWS + 1) // 2), what)
    if time.monotonic() - start > limit_s:
        raise Failed(f"{what}: it took {time.monotonic() - start:.1f} s")


def caught(statement):
    """The SQLSTATE of a statement, in a session that goes on."""
    return f"DO $d$ BEGIN {statement}; RAISE INFO 'no error'; EXCEPTION WHEN OTHERS OR query_canceled THEN PERFORM set_config('test.state', SQLSTATE, false); END $d$; SELECT current_setting('test.state')"


@group("plcuda.max_workers=8")
class Workers:
    def a_worker_that_is_killed_costs_one_error(self, server):
        prepare(server)
        session = server.session()
        expect_total(session, "before")
        session.begin(caught("PERFORM endless(1)"))
        (worker,) = wait_workers(1, session.pid)
        time.sleep(0.2)
        os.kill(worker, signal.SIGKILL)
        expect(session.finish(), "38000", "SQLSTATE")
        expect_total(session, "after")
        # While it is idle nobody needs it.
        (worker,) = wait_workers(1, session.pid)
        os.kill(worker, signal.SIGKILL)
        wait_gone(worker)
        expect_total(session, "after an idle one was killed")
        session.close()
        expect_usable(server, ROWS)

    def workers_end_with_their_sessions(self, server):
        prepare(server)
        session = server.session()
        expect_total(session, "the first call")
        wait_workers(1, session.pid)
        session.close()
        wait_workers(0, session.pid)
        session = server.session()
        session.begin("SELECT endless(1)")
        wait_workers(1, session.pid)
        server.sql(f"SELECT pg_terminate_backend({session.pid})")
        wait_workers(0, session.pid)
        session.error()
        expect_usable(server, ROWS)

    def a_role_leaves_a_worker_to_others(self, server):
        """It has three times as many as are free, or one."""
        prepare(server)
        server.sql("CREATE ROLE greedy; CREATE ROLE modest; GRANT SELECT ON ft TO greedy, modest")
        sessions = [server.session() for _ in range(10)]
        for session in sessions:
            session.sql(f"SET SESSION AUTHORIZATION {'greedy' if session in sessions[:7] else 'modest'}")
        for session in sessions[:6]:
            expect_total(session, "one of six")
        said = "DO $d$ DECLARE d text; BEGIN PERFORM total('ft'); EXCEPTION WHEN OTHERS THEN GET STACKED DIAGNOSTICS d = PG_EXCEPTION_DETAIL; PERFORM set_config('test.said', concat_ws('. ', SQLSTATE, SQLERRM, d), false); END $d$; SELECT current_setting('test.said')"
        expect(sessions[6].sql(said), '53400. no GPU worker can be started: 6 sessions of role "greedy" have one, its share. A role may have 3 times as many as are free.', "the seventh")
        expect_total(sessions[7], "another role's")
        expect(sessions[8].sql(caught("PERFORM total('ft')")), "53400", "the second of that role")
        for session in sessions[:3]:
            session.close()
        wait_workers(4)  # of which one is the other role's
        expect_total(sessions[6], "one more, when others have ended")
        expect_total(sessions[8], "one more of the other role")
        for session in sessions[3:]:
            session.close()
        wait_workers(0)
        server.sql("DROP OWNED BY greedy, modest; DROP ROLE greedy, modest")

    def an_endless_kernel_ends_by_timeout_cancel_or_limit(self, server):
        prepare(server)
        session = server.session()
        for setting in ("statement_timeout", "plcuda.time_limit"):
            start = time.monotonic()
            expect(session.sql(f"SET LOCAL {setting} = '300ms' \\; " + caught("PERFORM endless(1)")), "57014", setting)
            expect(time.monotonic() - start < 3, True, "it ends at once")
            expect_total(session, f"after {setting}")
        session.begin(caught("PERFORM endless(1)"))
        wait_workers(1, session.pid)
        time.sleep(0.2)
        server.sql(f"SELECT pg_cancel_backend({session.pid})")
        expect(session.finish(), "57014", "cancel")
        wait_workers(0, session.pid)
        expect_total(session, "after a cancel")
        session.close()

    def a_call_that_is_repeated_has_one_time_limit(self, server):
        """A worker that ends with status 0 is replaced once, as if it had been idle for too long."""
        prepare(server)
        if not SOFT:
            raise Skipped("on a GPU a function cannot end its process")
        body = "\n#plcuda_decl\nextern int usleep(unsigned);\nextern void _exit(int);\n#plcuda_end\n#plcuda_begin\nusleep(600000);\n_exit(0);\n#plcuda_end\n"
        define(server, "slow_end", "int", "int", body)
        session = server.session()
        session.sql("SET plcuda.time_limit = '900ms'")
        expect(session.sql(caught("PERFORM slow_end(1)")), "57014", "SQLSTATE")
        session.sql("RESET plcuda.time_limit")
        expect(session.sql(caught("PERFORM slow_end(1)")), "38000", "SQLSTATE with more time")
        session.close()

    def a_wild_kernel_changes_no_table(self, server):
        prepare(server)
        session = server.session()
        for i in range(4):
            expect(session.sql(caught(f"PERFORM wild('ft', {i})")), "38000", f"SQLSTATE of {i}")
            expect_total(session, f"after {i}")
            expect(session.sql("SELECT sum(id), count(DISTINCT t) FROM ft"), f"{ROWS * (ROWS + 1) // 2}|{ROWS}", f"the table after {i}")
        session.close()
        expect_usable(server, ROWS)

    def a_function_that_ends_its_process_costs_one_error(self, server):
        prepare(server)
        if not SOFT:
            raise Skipped("on a GPU it cannot")
        define(server, "leaves", "int", "int", "\n#plcuda_decl\nextern void _exit(int);\n#plcuda_end\n#plcuda_begin\n_exit(arg1.value);\n#plcuda_end\n")
        for status in (3, 0):
            expect(server.error(f"SELECT leaves({status})"), "38000", f"SQLSTATE of {status}")
        hint = server.sql("DO $d$ DECLARE said text; BEGIN PERFORM leaves(3); EXCEPTION WHEN OTHERS THEN GET STACKED DIAGNOSTICS said = PG_EXCEPTION_HINT; PERFORM set_config('test.hint', said, false); END $d$; SELECT current_setting('test.hint')")
        expect("outside of its arguments" in hint, True, f"a hint that says where to look: {hint}")
        expect_total(server, "after it")

    def a_worker_that_spoils_its_memory_file_costs_one_error(self, server):
        """It can make it longer than anything that can be mapped, and write to all of it."""
        prepare(server)
        if not SOFT:
            raise Skipped("on a GPU a function does not reach it")
        body = """
#plcuda_decl
extern int ftruncate(int, long);
extern void *mmap(void *, unsigned long, int, int, int, long);
#plcuda_end
#plcuda_begin
if (arg1.value == 1 && ftruncate(4, 1L << 52) != 0)
    plcuda_raise(plcuda, "XX000", "it cannot be made longer");
if (arg1.value == 2 && ftruncate(4, 100) == 0)
    plcuda_raise(plcuda, "XX000", "it can be made shorter");
if (arg1.value == 3) {
    char *file = (char *)mmap((void *)0, 65536, 3, 1, 4, 0);
    for (int i = 0; i < 65536; i++)
        file[i] = (char)0xff;
}
retval->isnull = 0;
#plcuda_end
"""
        define(server, "spoils", "int", "int", body)
        session = server.session()
        for i, wanted in ((1, "53200"), (2, "fine"), (3, "58000")):
            expect(session.sql("SELECT set_config('test.state', 'fine', false);" + caught(f"PERFORM spoils({i})")).splitlines()[-1], wanted, f"SQLSTATE of {i}")
            expect_total(session, f"after {i}")
        session.close()
        expect(server.error("SELECT spoils(1)"), "53200", "a longer file is refused")
        expect(server.sql("SELECT spoils(2)"), "0", "a shorter file")
        expect_usable(server, ROWS)

    def a_set_is_the_same_as_sqls(self, server):
        prepare(server)
        define(server, "numbered", "int8", "TABLE (number int8, t text)", NUMBERED)
        n = 1000000
        expect(server.sql(f"SELECT count(*), count(DISTINCT number) FROM numbered({n}) JOIN generate_series(1::int8, {n}) i ON i = number AND t = 'row ' || i"), f"{n}|{n}", "rows")
        expect(server.sql(f"SELECT count(*) FROM numbered({n})"), f"{n}", "number of rows")

    def a_set_that_is_read_can_be_cancelled_and_its_worker_killed(self, server):
        prepare(server)
        define(server, "nulls", "int8", "SETOF int8", NULLS)
        session = server.session()
        session.sql("SET work_mem = '64kB'; SET plcuda.buffer_memory = '2GB'; SET plcuda.idle_timeout = '1s'")
        expect_total(session, "before")
        for how, state in (("cancel", "57014"), ("kill", "38000")):
            session.begin(caught("PERFORM count(*) FROM nulls(40000000)"))
            server.wait_for("SELECT count(*) > 0 FROM pg_ls_tmpdir()")
            (worker,) = workers(session.pid)
            start = time.monotonic()
            if how == "cancel":
                server.sql(f"SELECT pg_cancel_backend({session.pid})")
            else:
                os.kill(worker, signal.SIGKILL)
            expect(session.finish(), state, how)
            expect(time.monotonic() - start < 20, True, "it ends at once")
            expect(server.sql("SELECT count(*) FROM pg_ls_tmpdir()"), "0", "temporary files that are left")
            wait_gone(worker)
            expect_total(session, f"after {how}")
        session.close()
        expect_usable(server, ROWS)

    def a_set_comes_in_pieces_and_waits_for_a_slow_backend(self, server):
        """Longer than the worker would stay idle, and than it keeps tables without a call."""
        prepare(server)
        define(server, "nulls", "int8", "SETOF int8", NULLS)
        session = server.session()
        session.sql("SET work_mem = '64kB'; SET plcuda.buffer_memory = '2GB'; SET plcuda.idle_timeout = '1s'")
        session.begin("SELECT count(*) FROM nulls(20 * 1024 * 1024)")
        server.wait_for("SELECT count(*) > 0 FROM pg_ls_tmpdir()")
        os.kill(session.pid, signal.SIGSTOP)
        time.sleep(2.5)
        (worker,) = workers(session.pid)
        size = os.stat(f"/proc/{worker}/fd/4").st_size
        os.kill(session.pid, signal.SIGCONT)
        expect(session.finish(), str(20 << 20), "rows")
        expect(size < 16 << 20, True, f"the memory file has {size} bytes")
        session.close()

    def a_set_that_reaches_the_bound_costs_one_error(self, server):
        prepare(server)
        define(server, "nulls", "int8", "SETOF int8", NULLS)
        session = server.session()
        expect_total(session, "before")
        (worker,) = workers(session.pid)
        session.sql("SET plcuda.buffer_memory = '64MB'")
        for _ in range(3):
            expect(session.sql(caught("PERFORM nulls(100000000)")), "53400", "SQLSTATE")
            expect(session.sql("SELECT count(*) FROM nulls(409600)"), "409600", "a smaller set")
        expect(workers(session.pid), [worker], "workers")
        if SOFT:
            wait_mapped(worker)
        session.close()

    def a_worker_that_spoils_its_answers_costs_errors_only(self, server):
        prepare(server)
        if not SOFT:
            raise Skipped("on a GPU a function does not reach the memory file")
        define(server, "hostile", "int, int", "SETOF text", HOSTILE)
        seed = random.randrange(1 << 31)
        print(f"# seed {seed}", flush=True)
        session, said = server.session(), {}
        for i in range(40):
            session.sql("SET statement_timeout = '5s'")
            state = session.sql("SELECT set_config('test.state', 'fine', false);" + caught(f"PERFORM count(*) FROM hostile({i % 2}, {(seed + i) % (1 << 31)})")).splitlines()[-1]
            said[state] = said.get(state, 0) + 1
        print(f"# {said}", flush=True)
        expect(said.get("39000", 0) > 0, True, "some answers were refused")
        session.close()
        expect_total(server, "after it")
        expect_usable(server, ROWS)

    def eight_sessions_at_once_and_no_ninth(self, server):
        prepare(server)
        sessions = eight_sessions(server)
        for session in sessions:
            session.begin("SELECT count(*), sum(total('ft')) FROM generate_series(1, 200)")
        for session in sessions:
            expect(session.finish(), f"200|{200 * ROWS * (ROWS + 1) // 2}", "totals")
        wait_workers(8)
        expect(server.error("SELECT total('ft')"), "53400", "the ninth session")
        sessions.pop().close()
        wait_workers(7)
        expect_total(server, "in its place")
        for session in sessions:
            session.close()
        wait_workers(0)

    def workers_killed_at_any_moment_cost_one_error_each(self, server):
        """Also while they start, attach, compile and answer: functions are new ones each time."""
        prepare(server)
        seed = random.randrange(1 << 32)
        draw = random.Random(seed)
        print(f"# seed {seed}", flush=True)
        stop, late, killed = threading.Event(), threading.Event(), []

        def kill():
            while not stop.is_set():
                time.sleep(draw.random() * (0.05 if SOFT and not late.is_set() else 2))  # as long as a worker takes to open the device, and less
                for pid in workers(kind=draw.choice(["session", "session", "compile"])):
                    try:
                        os.kill(pid, signal.SIGKILL)
                        killed.append(pid)
                    except OSError:
                        pass

        thread = threading.Thread(target=kill)
        session = server.session()
        thread.start()
        try:
            said, in_time, end, i = {}, 0, time.monotonic() + (8 if SOFT else 40), 0
            while time.monotonic() < end or (in_time == 0 and time.monotonic() < end + 60):
                if time.monotonic() >= end:
                    late.set()
                i += 1
                text = SUM.replace("#plcuda_end", f"// {i}\n#plcuda_end")
                for statement in (
                    f"EXECUTE $c$CREATE OR REPLACE FUNCTION fresh(reggstore) RETURNS int8 LANGUAGE plcuda AS $p${text}$p$ $c$" if i % 5 == 1 else "NULL",
                    f"IF total('ft') <> {ROWS * (ROWS + 1) // 2} THEN RAISE division_by_zero; END IF",
                    f"IF fresh('ft') <> {ROWS * (ROWS + 1) // 2} THEN RAISE division_by_zero; END IF" if i > 5 else "NULL",
                ):
                    state = session.sql("SELECT set_config('test.state', 'fine', false);" + caught(statement)).splitlines()[-1]
                    said[state] = said.get(state, 0) + 1
                    in_time += state == "fine" and statement.startswith("IF ")
        finally:
            stop.set()
            thread.join()
        print(f"# {len(killed)} killed; {said}; {in_time} calls were in time", flush=True)
        expect(set(said) - {"fine", "38000", "42883"}, set(), "SQLSTATEs")
        expect(len(killed) > 10 and said.get("38000", 0) > 0 and in_time > 0, True, "some were killed in time")
        for pid in killed[-10:]:  # the last ones may be ending
            wait_gone(pid)
        expect_total(session, "after all")
        session.close()
        wait_workers(0)
        wait_workers(0, kind="compile")
        expect_usable(server, ROWS)

    def a_new_worker_has_none_of_the_memory_of_the_one_before(self, server):
        """One ends when it is called a second time, with a memory file that it has made longer meanwhile."""
        if not SOFT:
            raise Skipped("on a GPU it cannot")
        prepare(server)
        body = """
#plcuda_decl
extern long lseek(int, long, int);
extern int ftruncate(int, long);
extern void _exit(int);
extern int pthread_create(unsigned long *, const void *, void *(*)(void *), void *);
extern int usleep(unsigned);

static void *extend(void *mib)
{
    usleep(200000);
    (void)ftruncate(4, (long)mib << 20);
    return (void *)0;
}
#plcuda_end
#plcuda_begin
unsigned long thread;

retval->value = lseek(4, 0, 2) >> 20;
retval->isnull = 0;
if (retval->value >= 256)
    _exit(0);
if (arg1.value > 0)
    pthread_create(&thread, (void *)0, extend, (void *)(long)arg1.value);
#plcuda_end
"""
        define(server, "longer", "int", "int8", body)
        session = server.session()
        expect(session.sql("SELECT longer(256)"), "1", "MiB at first")
        (worker,) = wait_workers(1, session.pid)
        wait_until("its file is longer", lambda: os.stat(f"/proc/{worker}/fd/4").st_size >= 256 << 20)
        expect(session.sql("SELECT longer(0)"), "1", "MiB of the second worker's")
        session.close()

    def an_idle_worker_ends_and_comes_back(self, server):
        prepare(server)
        session = server.session()
        session.sql("SET plcuda.idle_timeout = '2s'")
        expect_total(session, "the first call")
        wait_workers(1, session.pid)
        wait_workers(0, session.pid)
        expect_total(session, "the next call")
        session.close()

    def a_dropped_table_does_not_stay_in_memory_for_a_worker(self, server):
        prepare(server)
        if not SOFT:
            raise Skipped("what a process has mapped there cannot be seen")
        session = server.session()
        server.sql("INSERT INTO ft SELECT i, repeat('x', 1000) FROM generate_series(1, 40000) i")
        session.sql("SELECT total('ft')")
        (worker,) = wait_workers(1, session.pid)
        expect(mapped(worker) > 32 << 20, True, f"{mapped(worker)} bytes are mapped while the table is used")
        server.sql("DROP FOREIGN TABLE ft")
        wait_mapped(worker)
        prepare(server)
        expect_total(session, "with another table")
        expect(workers(session.pid), [worker], "workers")
        session.close()

    def arguments_do_not_stay_in_memory_for_a_worker(self, server):
        prepare(server)
        if not SOFT:
            raise Skipped("what a process has mapped there cannot be seen")
        define(server, "length_of", "bytea", "int", LENGTH)
        session = server.session()
        expect(session.sql("SELECT length_of(decode(repeat('00', 40 << 20), 'hex'))"), str(40 << 20), "the length")
        (worker,) = wait_workers(1, session.pid)
        wait_mapped(worker)
        expect_total(session, "the next call")
        expect(workers(session.pid), [worker], "workers")
        session.close()

    def columns_that_a_function_does_not_read_are_not_mapped(self, server):
        prepare(server)
        if not SOFT:
            raise Skipped("what a process has mapped there cannot be seen")
        define(server, "total_of_ids", "reggstore", "int8", SUM.replace("#plcuda_begin", "#plcuda_columns arg1 id\n#plcuda_begin"))
        server.sql("INSERT INTO ft SELECT i, repeat('x', 1000) FROM generate_series(1, 40000) i")
        for function, all_columns in (("total_of_ids", False), ("total", True)):
            session = server.session()
            expect(session.sql(f"SELECT {function}('ft') = sum(id) FROM ft"), "t", "the total")
            (worker,) = wait_workers(1, session.pid)
            expect(mapped(worker) > 32 << 20, all_columns, f"{mapped(worker)} bytes are mapped by {function}")
            session.close()

    def calls_end_no_token_of_a_user(self, server):
        """A table has 64 tokens of each kind at most."""
        prepare(server)
        token = server.sql("SELECT gstore_export('ft')")
        session = server.session()
        for i in range(70):
            session.sql(f"INSERT INTO ft VALUES ({-i}, 'x')")
            session.sql("SELECT total('ft')")
        session.close()
        expect(server.sql(f"SELECT gstore_revoke('{token}')"), "t", "the token is still there")
        expect(server.sql("SELECT gstore_revoke_all('ft') <= 64"), "t", "tokens of calls")

    def a_keeper_that_is_killed_takes_its_workers_along(self, server):
        prepare(server)
        session = server.session()
        expect_total(session, "before")
        wait_workers(1)
        server.kill_and_wait(server.keeper_pid())
        wait_workers(0)
        prepare(server)
        expect_total(server, "after")


    def a_workers_connection_opens_what_tokens_lead_to_and_nothing_else(self, server):
        """Not used by the worker before its first call with a table: so it can be tried here."""
        from attach import Probe

        prepare(server)
        define(server, "plain", "int", "int", "\n#plcuda_begin\n*retval = arg1;\n#plcuda_end\n")
        token, other = server.sql("SELECT gstore_export('ft')"), "/gstore/not/a/secret/1.values"
        links = re.search(r"/gstore/[0-9a-f]{32}", token)[0]
        session = server.session()
        session.sql("SELECT plain(1)")
        (worker,) = wait_workers(1, session.pid)
        build_probe("attach_probe")
        probe = Probe(server)
        expect(probe.ask("adopt", f"{worker}:5"), "GVM_OK", "adopting")
        objects = server.sql("SELECT database_oid, table_oid FROM (SELECT oid AS database_oid FROM pg_database WHERE datname = current_database()) d, (SELECT 'ft'::regclass::oid AS table_oid) t").replace("|", "/")
        for i in range(1, 20):
            expect(probe.ask("spy", f"/gstore/{objects}/{i}/1.values"), "GVM_E_DENIED", "opening by name")
        expect(probe.ask("list"), "GVM_E_DENIED", "listing")
        expect(probe.ask("forge", "/gstore/forged"), "GVM_E_DENIED", "creating")
        expect(probe.ask("link", other), "GVM_E_ABSENT", "a link that is none")
        expect(probe.ask("link", links + "/1.values"), "GVM_OK", "a link of a token")
        expect(probe.ask("over", token), f"{ROWS} 2", "attaching a token")
        expect(probe.ask("open", "id"), "GVM_OK", "opening a column")
        expect(probe.ask("detach"), "GVM_OK", "detaching")
        expect(probe.ask("link", links + "/1.values"), "GVM_OK", "the connection after it")
        probe.close()
        # By name the keeper lets in the server's user: so the connection is what is restricted.
        probe = Probe(server)
        expect(probe.ask("keeper", token.rsplit(":", 1)[1]), "GVM_OK", "connecting")
        expect(probe.ask("forge", "/gstore/forged"), "GVM_OK", "creating")
        probe.close()
        session.close()
        expect_total(server, "after it")

    def memory_of_a_killed_worker_is_waited_for(self, server):
        """Its process, which takes long to give back much memory, is gone before another one is there."""
        prepare(server)
        if not SOFT:
            raise Skipped("on a GPU a function cannot take memory of the host")
        define(server, "large", "int", "int", """
#plcuda_decl
extern void *mmap(void *, unsigned long, int, int, int, long);
#plcuda_end
#plcuda_begin
char *file = (char *)mmap((void *)0, 1ul << 30, 3, 0x8022, -1, 0);
if (file == (char *)-1)
    plcuda_raise(plcuda, "53200", "no memory");
else
    for (;;)
        gvm_pause();
#plcuda_end
""")
        session, other = server.session(), server.session()
        for waiting in (session, other):
            session.begin(caught("PERFORM large(1)"))
            (worker,) = wait_workers(1, session.pid)
            while int(re.search(r"VmRSS:\s*(\d+)", Path(f"/proc/{worker}/status").read_text())[1]) < 1 << 20:
                time.sleep(0.01)
            server.sql(f"SELECT pg_cancel_backend({session.pid})")
            expect(session.finish(), "57014", "SQLSTATE")
            waiting.begin("SELECT total('ft')")
            while not set(workers(waiting.pid)) - {worker}:  # a killed process keeps its words for a moment
                pass
            together = Path(f"/proc/{worker}").exists()
            expect(waiting.finish(), str(ROWS * (ROWS + 1) // 2), "the next call")
            expect(together, False, "both processes were there")
            waiting.close()
            session = server.session()
        session.close()


    def workers_reach_a_keeper_that_is_not_the_servers_own(self, server):
        path = server.folder / "run" / "shared.sock"
        command = ["setpriv", "--pdeathsig", "KILL", f"{BUILD}/tools/gvmem-keeper", "-s", str(path), "--ready-fd", "1"]
        with subprocess.Popen(as_owner(command), env=server.environ, stdout=subprocess.PIPE, text=True) as keeper:
            keeper.stdout.readline()
            before = os.environ.get("GVMEM_SOFTGPU")
            os.environ["GVMEM_SOFTGPU"] = server.environ["GVMEM_SOFTGPU"]  # the same devices
            try:
                other = Server("external", f"gstore_fdw.keeper={path}")
            finally:
                os.environ.pop("GVMEM_SOFTGPU") if before is None else os.environ.update(GVMEM_SOFTGPU=before)
            try:
                prepare(other)
                expect_total(other, "a call")
                expect(other.sql("BEGIN; INSERT INTO ft VALUES (7, 'own'); SELECT total('ft'); ROLLBACK").split(), [str(ROWS * (ROWS + 1) // 2 + 7)], "own rows")
            finally:
                other.end()
                keeper.kill()
        prepare(server)


@group("plcuda.max_workers=1")
class One:
    def the_place_of_a_killed_worker_is_waited_for(self, server):
        prepare(server)
        session = server.session()
        for _ in range(20):
            expect(session.sql("SET LOCAL statement_timeout = '50ms' \\; " + caught("PERFORM endless(1)")), "57014", "SQLSTATE")
            expect_total(session, "at once")
        expect(server.error("SELECT total('ft')"), "53400", "another session")
        session.close()
        wait_workers(0, session.pid)
        expect_total(server, "another session, later")


@group("plcuda.max_workers=8", "gstore_fdw.device_memory=64MB", "gstore_fdw.host_memory=1GB")
class Small:
    def eight_sessions_call_over_tables_that_do_not_fit_together(self, server):
        """Each table is a third of the device's memory; sessions take two of eight at a time, and one of them changes a table."""
        prepare(server)
        rows, tables, calls = 40000, 8, 25
        define(server, "two", "reggstore, reggstore", "int8", """
#plcuda_begin
#plcuda_num_threads 64
const plcuda_table *tables[2] = {arg1.value, arg2.value};
for (int i = 0; i < 2; i++)
    PLCUDA_FOR_ROWS (tables[i], row)
        gvm_atomic_add_u64((uint64_t *)&retval->value, (uint64_t)plcuda_get_int4(tables[i], 1, row).value + plcuda_get_text(tables[i], 2, row).length);
if (gvm_thread_global() == 0)
    retval->isnull = 0;
#plcuda_end
""")
        for i in range(tables):
            server.sql(f"CREATE FOREIGN TABLE t{i} (id int, t text) SERVER gstore_fdw; INSERT INTO t{i} SELECT i + {i}, repeat('x', 500) FROM generate_series(1, {rows}) i")
        server.wait_for(f"SELECT sum(device_resident + device_on_host) > {2 * (64 << 20)} FROM gstore_fdw_keeper_info")
        totals = [rows * (rows + 1) // 2 + i * rows + 500 * rows for i in range(tables)]
        draw = random.Random(4)
        sessions = eight_sessions(server)
        start = time.monotonic()
        for session in sessions:
            pairs = [(draw.randrange(tables), draw.randrange(tables)) for _ in range(calls)]
            values = ", ".join(f"('t{a}', 't{b}', {totals[a] + totals[b]})" for a, b in pairs)
            session.begin(f"SELECT count(*), count(*) FILTER (WHERE two(a::reggstore, b::reggstore) = c) FROM (VALUES {values}) v (a, b, c)")
        for session in sessions:
            expect(session.finish(), f"{calls}|{calls}", "calls, and right ones")
        seconds = time.monotonic() - start
        print(f"# {8 * calls} calls in {seconds:.1f} s", flush=True)
        expect(seconds < 120, True, f"{seconds:.1f} s")
        expect(server.error("SELECT total('ft')"), "53400", "the ninth session")
        for session in sessions:
            session.sql("BEGIN; DELETE FROM t0 WHERE id > 100; INSERT INTO t1 VALUES (7, 'own')") if session is sessions[0] else None
            a = 100 * 101 // 2 + 500 * 100 if session is sessions[0] else totals[0]
            b = totals[1] + (7 + 3 if session is sessions[0] else 0)
            expect(session.sql("SELECT two('t0', 't1')"), str(a + b), "what each session sees")
        sessions[0].sql("ROLLBACK")
        for session in sessions:
            session.close()
        for i in range(tables):
            expect(server.sql(f"SELECT count(*), sum(id + length(t)) FROM t{i}"), f"{rows}|{totals[i]}", f"table {i}")
            server.sql(f"DROP FOREIGN TABLE t{i}")
        expect_usable(server, ROWS)


@group()
class Room:
    def the_default_budget_leaves_room_for_workers(self, server):
        """Of a GPU's free memory, 600 MiB for each and for the executor: 30 of them need more than the tenth that is left in any case."""
        budgets = []
        for count in (0, 30):
            server.sql(f"ALTER SYSTEM SET plcuda.max_workers = {count}")
            server.stop("fast")
            server.start()
            server.wait_for("SELECT count(device_budget) > 0 FROM gstore_fdw_keeper_info")
            budgets.append(int(server.sql("SELECT device_budget FROM gstore_fdw_keeper_info WHERE device = 0")))
        free = budgets[0] * 10 // 9
        wanted = budgets[0] if SOFT else min(budgets[0], free - min(31 * 600 << 20, free // 2))
        expect(abs(budgets[1] - wanted) < 64 << 20, True, f"a budget of {budgets[1]} instead of {wanted} bytes, without workers {budgets[0]}")


STEPS = {
    "session": ["receive", "receive after", "adopt", "adopt after", "attach", "attach after", "device", "device after", "load", "load after", "lease", "lease after", "launch", "launch after", "release", "release after", "send", "send after"],
    "compile": ["receive", "receive after", "compiler", "compiler after", "store", "store after", "send", "send after"],
}


def build_preload():
    """Wraps what a worker calls: it ends itself at a step; and what a backend allocates a memory file by."""
    library = BUILD / "postgres-run/plcuda_kill.so"
    library.parent.mkdir(exist_ok=True)
    command = [*shlex.split(os.environ.get("CC", "cc")), "-std=c11", "-shared", "-fPIC", "-Wall", "-Wextra", f"-I{PROJECT}/include", f"-I{PROJECT}", str(PROJECT / "tests/postgres/plcuda_kill.c"), "-o", str(library), "-ldl"]
    subprocess.run(command, check=True)
    return library


def preload(server):
    """The server and all that it starts have it from now on. The file that says what is to fail."""
    where = server.folder / "kill_at"
    server.stop("fast")
    before = dict(server.environ)
    server.environ.update(LD_PRELOAD=str(build_preload()), PLCUDA_KILL_AT=str(where))
    where.write_text("")
    where.chmod(0o644)
    server.start()
    server.environ = before
    prepare(server)
    return where


@group("plcuda.max_workers=2")
class Steps:
    def a_worker_killed_at_each_step_costs_one_error(self, server):
        prepare(server)
        where = preload(server)
        killed = 0
        for kind, steps in STEPS.items():
            for number, step in enumerate(steps):
                if not SOFT and step.startswith("compiler after"):
                    continue
                text = SUM.replace("#plcuda_end", f"// {number}\n#plcuda_end").replace("'", "''")
                statement = "PERFORM total('ft')" if kind == "session" else f"EXECUTE $c$CREATE OR REPLACE FUNCTION fresh(reggstore) RETURNS int8 LANGUAGE plcuda AS $p${text}$p$ $c$"
                session = server.session()
                worker = None
                if (kind, step) == ("session", "send after"):  # the worker is to be known
                    expect_total(session, "before")
                    (worker,) = workers(session.pid)
                where.write_text(f"{kind} {step}")
                start = time.monotonic()
                state = session.sql("SELECT set_config('test.state', 'fine', false);" + caught(statement)).splitlines()[-1]
                print(f"# {kind} {step}: {state}", flush=True)
                # Its answer has been sent then.
                expect(state, "fine" if step == "send after" else "38000", f"SQLSTATE at {kind}, {step}")
                expect(time.monotonic() - start < 30, True, "no time limit is waited for")
                killed += state == "38000"
                where.write_text("")
                if kind == "session":
                    if worker is not None:  # it ends behind its answer
                        wait_gone(worker)
                    expect(session.sql("SELECT total('ft')"), str(ROWS * (ROWS + 1) // 2), f"after {step}")
                else:
                    session.sql("DO $d$ BEGIN " + statement + "; END $d$")
                    expect(session.sql("SELECT fresh('ft')"), str(ROWS * (ROWS + 1) // 2), f"after {step}")
                session.close()
                wait_workers(0)
                wait_workers(0, kind="compile")
        expect(killed >= 20, True, f"{killed} were killed")
        expect(server.sql("SELECT count(*), sum(id) FROM ft"), f"{ROWS}|{ROWS * (ROWS + 1) // 2}", "the table")
        expect([left.name for left in (server.folder / "data/pg_plcuda").iterdir() if not left.name.endswith(".image")], [], "left files")
        expect_usable(server, ROWS)

    def memory_that_was_given_back_is_allocated_again_before_it_is_written(self, server):
        """A write to a page of a memory file that cannot be allocated would be a SIGBUS of the backend."""
        prepare(server)
        where = preload(server)
        define(server, "same", "bytea", "bytea", "\n#plcuda_begin\n*retval = arg1;\n#plcuda_end\n")
        session = server.session()
        zeros = "decode(repeat('00', {}), 'hex')"
        expect(session.sql(f"SELECT length(same({zeros.format(30 << 20)}))"), str(30 << 20), "a long result")
        session.sql("SELECT same('short')")
        where.write_text("fallocate")
        expect(session.sql(caught(f"PERFORM same({zeros.format(20 << 20)})")), "53200", "SQLSTATE")
        where.write_text("")
        expect(session.sql(f"SELECT length(same({zeros.format(20 << 20)}))"), str(20 << 20), "the same call")
        session.close()


@group("plcuda.cache_size=1MB")
class Images:
    def images_serve_after_a_restart(self, server):
        prepare(server)
        folder = server.folder / "data/pg_plcuda"
        expect(oct(folder.stat().st_mode & 0o777), "0o700", "mode")
        before = {image: image.stat().st_ino for image in folder.glob("*.image")}
        server.stop("fast")
        server.start()
        server.sql(f"INSERT INTO ft SELECT i, 'row ' || i FROM generate_series(1, {ROWS}) i")
        expect_total(server, "after a restart")
        expect({image: image.stat().st_ino for image in folder.glob("*.image")}, before, "images")

    def a_server_without_a_path_compiles(self, server):
        """As pg_ctlcluster starts one; gcc finds its parts by PATH."""
        prepare(server)
        server.stop("fast")
        start = as_owner(["env", "-u", "PATH", f"{server.bin}/pg_ctl", "-w", "-s", "-D", str(server.folder / "data"), "-l", str(server.folder / "log"), "start"])
        subprocess.run(start, env=server.environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        try:
            define(server, "seven", "", "int", "\n#plcuda_begin\nretval->value = 7; retval->isnull = 0;\n#plcuda_end\n")
            expect(server.sql("SELECT seven()"), "7", "without PATH")
        finally:
            server.stop("fast")
            server.start()

    def a_cache_has_the_modes_of_the_data_directory(self, server):
        """A cluster that its group may read stays so: chmod is what initdb's manual says for one that exists."""
        prepare(server)
        data = server.folder / "data"
        try:
            for mode, folder_mode, file_mode in (("g+rX", "0o750", "0o640"), ("g-rwx", "0o700", "0o600")):
                server.stop("fast")
                subprocess.run(["rm", "-rf", str(data / "pg_plcuda")], check=True)
                subprocess.run(["chmod", "-R", mode, str(data)], check=True)
                server.start()
                define(server, "fast", "", "int", "\n#plcuda_begin\n#plcuda_end\n")
                expect(oct((data / "pg_plcuda").stat().st_mode & 0o777), folder_mode, "folder")
                expect({oct(image.stat().st_mode & 0o777) for image in (data / "pg_plcuda").glob("*.image")}, {file_mode}, "images")
        finally:
            subprocess.run(["chmod", "-R", "g-rwx", str(data)], check=True)

    def a_damaged_image_is_made_anew(self, server):
        prepare(server)
        folder = server.folder / "data/pg_plcuda"
        for image in folder.glob("*.image"):
            damaged = bytearray(image.read_bytes())
            damaged[len(damaged) // 2] ^= 1
            image.write_bytes(damaged)
        expect_total(server, "with damaged images", limit_s=60)
        for image in folder.glob("*.image"):
            image.write_bytes(b"")
        expect_total(server, "with empty images", limit_s=60)

    def the_folder_stays_within_its_bound(self, server):
        prepare(server)
        if not SOFT:
            raise Skipped("such arrays are the C compiler's")
        folder = server.folder / "data/pg_plcuda"
        for i in range(80):
            define(server, "many", "", "int", f"\n#plcuda_decl\nstatic const char big[100000] = {{{i % 100 + 1}}};\n#plcuda_end\n#plcuda_begin\nretval->value = big[gvm_thread()];\nretval->isnull = 0;\n#plcuda_end\n")
        size = sum(image.stat().st_size for image in folder.glob("*.image"))
        expect(size <= 1 << 20, True, f"{size} bytes are within the bound")
        expect(server.sql("SELECT many()"), "80", "the newest one")
        expect_total(server, "one that was removed", limit_s=60)

    def functions_compile_for_gpus_too(self, server):
        """Those of these tests and of the documentation, by NVRTC, where it is: it needs no GPU."""
        prepare(server)
        library = ctypes.util.find_library("nvrtc") or next(iter(glob.glob("/usr/local/cuda*/lib*/libnvrtc.so.1[23]")), None)
        if library is None:
            raise Skipped("there is no NVRTC")
        texts = [server.sql(f"SELECT plcuda_function_source('{name}')") for name in ("total", "endless", "wild")]
        for path in ("docs/plcuda.md", "tests/postgres/sql/plcuda.sql", "tests/postgres/sql/plcuda_sets.sql", "tests/postgres/sql/plcuda_messages.sql"):
            for name in ("nearest", "similar_to", "p_sum", "p_blocks", "p_raise", "p_outside", "p_column", "s_where", "s_repeat", "s_out", "s_series", "s_list", "s_ways", "n_values", "n_fails", "n_bytes"):
                made = re.search(rf"^CREATE FUNCTION {name}\(.*?^\$\$;", (PROJECT / path).read_text(encoding="utf8"), re.M | re.S)
                if made:
                    helpers = "CREATE OR REPLACE FUNCTION s_threads(kind int, threads int) RETURNS int LANGUAGE SQL AS 'SELECT threads'; "
                    helpers += "CREATE OR REPLACE FUNCTION p_wants(n int) RETURNS bigint LANGUAGE SQL AS 'SELECT 1::bigint'; CREATE OR REPLACE FUNCTION p_wants_work(n int) RETURNS int LANGUAGE SQL AS 'SELECT 1'; "
                    texts.append(server.sql(f"BEGIN; {helpers} {made[0]} SELECT plcuda_function_source('{name}'); ROLLBACK"))
        program = server.folder / "root" / pg_config("--pkglibdir").lstrip("/") / "plcuda/gstore-gpu-worker"
        with tempfile.TemporaryDirectory() as folder:
            for text in texts:
                Path(folder, "from").write_text(text, encoding="utf8")
                done = subprocess.run([program, "nvrtc", library, "90", f"{folder}/from", f"{folder}/to"], capture_output=True, text=True)
                if done.returncode:
                    raise Failed(f"NVRTC: {done.returncode} {done.stdout} {done.stderr}\n{text}")
        expect(len(texts), 19, "functions")

    def a_compiler_has_limits(self, server):
        prepare(server)
        explosion = "#define A0 x++;\n" + "".join(f"#define A{i} A{i - 1} A{i - 1} A{i - 1} A{i - 1}\n" for i in range(1, 14))
        slow = f"CREATE FUNCTION slow() RETURNS int LANGUAGE plcuda AS $p$\n#plcuda_decl\n{explosion}#plcuda_end\n#plcuda_begin\nint x = 0;\nA13\n#plcuda_end\n$p$"
        expect(server.error(f"SET plcuda.compile_time = 1; {slow}"), "54000", "SQLSTATE of too much time")
        said = server.sql(
            f"SET plcuda.compile_memory = '256MB'; DO $d$ DECLARE d text; BEGIN EXECUTE $c${slow}$c$; EXCEPTION WHEN OTHERS THEN GET STACKED DIAGNOSTICS d = PG_EXCEPTION_DETAIL; "
            "PERFORM set_config('test.said', concat(SQLSTATE, ' ', d), false); END $d$; SELECT current_setting('test.said')"
        )
        if SOFT:  # what NVRTC does at this limit is its own
            expect((said[:5], "memory" in said), ("42P13", True), said)
        wait_workers(0, kind="compile")
        expect_total(server, "after it")
        define(server, "fast", "", "int", "\n#plcuda_begin\n#plcuda_end\n")
        expect([left.name for left in (server.folder / "data/pg_plcuda").iterdir() if not left.name.endswith(".image")], [], "left files")


if __name__ == "__main__":
    sys.exit(main())
