"""Objects: creating, opening, changing, copies, errors; what closing means."""
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy
import pytest

import gvmem
from conftest import MIB, running


def test_object_written_is_read_back(keeper):
    with keeper.create("/written", 4 * MIB) as obj:
        with obj.write("i4") as a:
            numpy.asarray(a)[:] = numpy.arange(MIB, dtype="i4")
        with obj.read("i4") as a:
            assert numpy.asarray(a).sum() == MIB * (MIB - 1) // 2


def test_object_new_reads_as_zeros(keeper):
    with keeper.create(None, 2 * MIB) as obj, obj.read() as a:
        assert not numpy.asarray(a).any()


def test_object_of_other_process_is_read(keeper, start_child):
    obj = keeper.create("/shared", 2 * MIB)
    obj.copy_in(numpy.arange(1000, dtype="f8"))
    child = start_child("""
obj = keeper.open("/shared", readonly=True)
with obj.read("f8", 1000) as a: say(numpy.asarray(a).sum(), obj.address)
wait()
with obj.read("f8", 1000) as a: say(numpy.asarray(a).sum())
""")
    assert child.read() == f"499500.0 {obj.address}"
    with obj.write("f8") as a:
        numpy.asarray(a)[0] = 500
    child.tell()
    assert child.read() == "500000.0"
    assert child.end() == (0, "")


def test_object_properties_and_info(keeper):
    with keeper.create("/properties", 2 * MIB, reserve=64 * MIB, mode=0o640, metadata=b"what it is") as obj:
        info = obj.info()
        assert (obj.name, obj.size, obj.device, obj.closed, obj.readonly) == ("/properties", 2 * MIB, 0, False, False)
        assert (info.name, info.size_bytes, info.reserve_bytes, info.mode) == ("/properties", 2 * MIB, 64 * MIB, 0o640)
        assert obj.metadata == b"what it is" and obj.address == info.address != 0
        obj.metadata = b""
        assert obj.metadata == b""
        obj.set_mode(0o600)
        assert obj.info().mode == 0o600
        assert [i.name for i in keeper.objects()] == ["/properties"]
        assert keeper.snapshot().devices[0].objects == 1
    assert keeper.objects() == [] and obj.closed


def test_object_of_second_device_is_there(keeper):
    with keeper.create("/second", 2 * MIB, device=1) as obj, keeper.open("/second") as again:
        assert (obj.device, again.device) == (1, 1)
        again.copy_in(b"x")
        assert obj.copy_out(1) == b"x"


def test_object_grows_and_shrinks(keeper):
    with keeper.create("/grows", 2 * MIB, reserve=16 * MIB) as obj:
        obj.copy_in(b"abc")
        obj.grow(8 * MIB)
        with obj.read() as a:
            assert a.shape == (8 * MIB,) and bytes(memoryview(a)[:3]) == b"abc"
        obj.shrink(2 * MIB)
        assert obj.size == 2 * MIB
        with pytest.raises(gvmem.errors.Invalid):
            obj.grow(32 * MIB)


def test_object_sealed_is_readonly_for_good(keeper):
    with keeper.create("/sealed", 2 * MIB) as obj:
        obj.seal()
        with pytest.raises(PermissionError):
            obj.write()
        with pytest.raises(gvmem.errors.Sealed):
            obj.copy_in(b"x")
        assert obj.info().sealed
        keeper.drop("/sealed")


def test_object_published_outlives_its_creator(keeper, server):
    with gvmem.connect(server.path) as other:
        made = other.create(None, 2 * MIB)
        made.copy_in(b"first")
        made.publish("/published")
        assert made.name == "/published"
    with gvmem.connect(server.path) as other:
        second = other.create("/published.new", 2 * MIB)
        with pytest.raises(FileExistsError):
            second.publish("/published")
        second.publish("/published", replace=True)
    with keeper.open("/published") as obj:
        assert obj.copy_out(5) == bytes(5)
    keeper.drop("/published")
    with pytest.raises(FileNotFoundError):
        keeper.open("/published")


def test_many_threads_open_at_once(keeper):
    """More than may wait for snapshots over one connection (16): none is needed to know on which of two devices the object is."""
    made = [keeper.create(f"/many{i}", MIB, device=1) for i in range(8)]  # a connection opens one 16 times
    start, outcomes = threading.Barrier(48), []

    def work(name):
        start.wait()
        for _ in range(4):
            with keeper.open(name) as opened:
                outcomes.append(opened.device)

    threads = [threading.Thread(target=work, args=(f"/many{i % 8}",)) for i in range(48)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for obj in made:
        assert obj.info().local_device == 1 and keeper.snapshot().objects[0].local_device == -1
        obj.close()
    assert outcomes == [1] * 192


def test_object_link_opens_readonly(keeper):
    with keeper.create("/linked", 2 * MIB) as obj:
        obj.copy_in(b"by link")
        obj.link("/secret", 7)
        with keeper.open("/secret", link=True) as linked:
            assert linked.readonly and linked.copy_out(7) == b"by link"
            with pytest.raises(gvmem.errors.Readonly):
                linked.write()
        keeper.unlink("/secret")
        with pytest.raises(FileNotFoundError):
            keeper.open("/secret", link=True)


def test_object_evicted_is_read_where_it_is(keeper):
    with keeper.create("/evicted", 8 * MIB) as obj:
        obj.copy_in(b"still here")
        assert keeper.evict("/evicted") == 8 * MIB
        with obj.read(cpu=True) as a:
            assert bytes(memoryview(a)[:10]) == b"still here"
        with keeper.open("/evicted", mapped=True, readonly=True) as mapped, mapped.read(hint="once") as a:
            assert bytes(memoryview(a)[:10]) == b"still here"


def test_objects_larger_than_the_budget_are_all_read(keeper):
    made = [keeper.create(None, 24 * MIB) for _ in range(3)]  # of a device budget of 32 MiB
    for i, obj in enumerate(made):
        with obj.write() as a:
            numpy.asarray(a)[:] = i + 1
    for i, obj in enumerate(made):
        with obj.read(hint="scan") as a:
            assert int(numpy.asarray(a).min()) == int(numpy.asarray(a).max()) == i + 1


# ---- copies


def test_copies_take_buffers(keeper):
    with keeper.create(None, 2 * MIB) as obj:
        obj.copy_in(numpy.arange(6, dtype="i8").reshape(2, 3), offset=16)
        out = numpy.empty((2, 3), "i8")
        assert obj.copy_out(into=out, offset=16) is out and out.tolist() == [[0, 1, 2], [3, 4, 5]]
        assert obj.copy_out(8, 24) == (1).to_bytes(8, "little")
        assert len(obj.copy_out()) == 2 * MIB and len(obj.copy_out(offset=MIB)) == MIB
        out = bytearray(64)
        assert obj.copy_out(2, 24, into=out) is out and out == b"\1" + bytes(63)
        for wrong, error in ((65, ValueError), (-1, ValueError), ("x", TypeError)):
            with pytest.raises(error):
                obj.copy_out(wrong, into=out)
        for wrong in ("text", 5, None, numpy.arange(10)[::2]):
            with pytest.raises((TypeError, ValueError, BufferError)):
                obj.copy_in(wrong)
        for wrong in (b"readonly", memoryview(b"readonly")):
            with pytest.raises((TypeError, BufferError)):
                obj.copy_out(into=wrong)


@pytest.mark.parametrize("offset, size", [(2 * MIB, 1), (2 * MIB + 1, 0), (-1, 1), (0, 2 * MIB + 1), (2**64 - 1, 2), (2**64, 1), (0, -1)])
def test_copy_beyond_the_object_is_refused(keeper, offset, size):
    with keeper.create(None, 2 * MIB) as obj:
        with pytest.raises(ValueError):
            obj.copy_out(size, offset)
        if size >= 0:
            with pytest.raises(ValueError):
                obj.copy_in(bytes(size), offset)


# ---- errors


def test_error_has_status_and_text(keeper):
    with pytest.raises(gvmem.Error) as caught:
        keeper.open("/absent")
    error = caught.value
    assert isinstance(error, FileNotFoundError) and isinstance(error, gvmem.errors.Absent)
    assert (error.name, error.status, error.native_call) == ("GVM_E_ABSENT", 12, "")
    assert "/absent" in str(error)


def test_errors_have_a_class_each():
    from gvmem import _gvmem

    wanted = {name for name, status, *_ in _gvmem.statuses if status}
    stubs = open(gvmem.errors.__file__ + "i", encoding="utf8").read()
    for status, made in _gvmem.errors.items():
        assert issubclass(made, gvmem.Error) and made.__doc__
        bases = ", ".join(base.__name__ for base in made.__bases__)
        assert f"class {made.__name__}({bases}): ..." in stubs
        wanted.discard("GVM_E_" + made.__name__.upper())
    assert wanted == set()


def test_connect_without_keeper_is_an_error(tmp_path):
    with pytest.raises(ConnectionError) as caught:
        gvmem.connect(tmp_path / "nobody.sock")
    assert caught.value.name == "GVM_E_PEER"
    with pytest.raises(ValueError):
        gvmem.connect("x" * 300)
    with pytest.raises(ValueError):
        gvmem.connect("a\0b")
    with pytest.raises(TypeError):
        gvmem.connect(5)


def test_error_about_a_name_beyond_utf8_is_that_error(tmp_path):
    program = """
import gvmem
try:
    gvmem.connect()
except gvmem.Error as error:
    print(error.name, ascii(str(error)))
"""
    path = os.fsencode(tmp_path) + b"/\xff.sock"
    said = subprocess.run([sys.executable, "-c", program], env={**os.environ, "GVMEM_KEEPER": path}, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout
    assert said.startswith("GVM_E_PEER ") and r"\udcff.sock" in said


def test_connect_takes_paths_beyond_utf8(server, tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff"
    os.symlink(server.path, path)
    for given in (path, os.fsdecode(path), tmp_path / os.fsdecode(b"\xff")):
        with gvmem.connect(given) as keeper:
            assert keeper.snapshot().keeper.pid == server.process.pid
    for wrong in (b"a\0b", b"x" * 300):
        with pytest.raises(ValueError):
            gvmem.connect(wrong)


def test_connect_by_socket_takes_it(server):
    with socket.socket(socket.AF_UNIX) as made:
        made.connect(server.path)
        with gvmem.Keeper(adopt=made) as keeper:
            assert made.fileno() == -1 and keeper.snapshot().keeper.pid == server.process.pid
    with socket.socket(socket.AF_INET) as made:
        with pytest.raises(gvmem.Error):
            gvmem.Keeper(adopt=made)
        assert made.fileno() >= 0
    with socket.socket(socket.AF_UNIX) as made:
        made.connect(server.path)
        fd = made.detach()
    with gvmem.Keeper(adopt=fd) as keeper:
        assert keeper.snapshot().keeper.pid == server.process.pid
    with pytest.raises(OSError):
        os.fstat(fd)
    for wrong in (-5, 2**40):
        with pytest.raises((ValueError, OverflowError)):
            gvmem.Keeper(adopt=wrong)


ADOPTER = """
import os, sys, gvmem
with gvmem.Keeper(adopt=int(sys.argv[1])) as keeper, keeper.create("/adopted", 1 << 20) as made, keeper.open("/lent") as lent:
    leases = made.write(), lent.write()
    print(os.getpid(), flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def adopter(keeper):
    """A process over a socket that this one has connected; it has leases to write. keeper has /lent."""
    with keeper.create("/lent", MIB) as lent, socket.socket(socket.AF_UNIX) as made:
        made.connect(running[0].path)
        with subprocess.Popen([sys.executable, "-c", ADOPTER, str(made.fileno())], pass_fds=[made.fileno()], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True) as child:
            made.close()
            assert child.stdout.readline().strip() == str(child.pid)
            yield child, lent
            child.kill()


def test_process_that_adopts_is_the_one_that_ends(keeper, adopter):
    """The one that connected goes on, and keeps nothing back."""
    child, lent = adopter
    assert child.pid in [info.pid for info in keeper.snapshot().clients]
    child.kill()
    child.wait()
    started = time.monotonic()
    lent.write(timeout=60).release()
    assert child.pid not in [info.pid for info in keeper.snapshot().clients]
    assert "/adopted" not in [info.name for info in keeper.snapshot().objects]
    assert keeper.snapshot().devices[0].held_bytes == 0 and time.monotonic() - started < 8  # not the time-out of a process that goes on


CONNECTOR = """
import socket, sys
made = socket.socket(socket.AF_UNIX)
made.connect(sys.argv[1])
socket.send_fds(socket.socket(fileno=int(sys.argv[2])), [b"x"], [made.fileno()])
"""


@pytest.mark.parametrize("late", [False, True])
def test_process_that_connected_may_end(server, keeper, late):
    here, there = socket.socketpair()
    here.settimeout(60)
    with here, there, subprocess.Popen([sys.executable, "-c", CONNECTOR, server.path, str(there.fileno())], pass_fds=[there.fileno()]) as connector:
        there.close()
        if late:
            connector.wait()
            time.sleep(0.3)
        _, (fd,), _, _ = socket.recv_fds(here, 1, 1)
        with gvmem.Keeper(adopt=fd) as adopted, adopted.create("/adopted", MIB) as obj, keeper.open("/adopted") as seen:
            with obj.write():
                connector.wait()
                time.sleep(0.3)
                with pytest.raises(TimeoutError):
                    seen.write(timeout=0.3)
                assert [info.pid for info in keeper.snapshot().clients].count(os.getpid()) == 2  # with that of the fixture
            seen.write(timeout=10).release()


def test_socket_that_cannot_be_adopted_leaves_nothing_open():
    files = len(os.listdir("/proc/self/fd"))
    with socket.socket(socket.AF_INET) as made:
        for given in (made, made.fileno()):
            with pytest.raises(gvmem.Error):
                gvmem.Keeper(adopt=given)
            assert len(os.listdir("/proc/self/fd")) == files + 1 and made.fileno() >= 0


@pytest.mark.parametrize("arguments", [
    {"size": -1}, {"size": 2**64}, {"size": "1"}, {"size": 2.5}, {"size": MIB, "reserve": 2**63}, {"size": MIB, "device": 99},
    {"size": MIB, "device": -1}, {"size": MIB, "chunk": 3}, {"size": MIB, "mode": 2**32}, {"size": MIB, "metadata": b"x" * 4097},
    {"size": MIB, "metadata": "text"}, {"size": 4 * MIB, "reserve": MIB}, {"size": MIB, "device": 2**40},
])
def test_create_with_nonsense_is_refused(keeper, arguments):
    with pytest.raises((ValueError, TypeError, OverflowError, gvmem.Error)):
        keeper.create(None, **arguments)


@pytest.mark.parametrize("name", ["", "no slash", "/" + "x" * 300, "/a\0b", "/a\nb", 5, None])
def test_open_with_a_malformed_name_is_refused(keeper, name):
    with pytest.raises((ValueError, TypeError)):
        keeper.open(name)


def test_objects_beyond_the_budgets_are_refused(keeper):
    with pytest.raises(MemoryError) as caught:
        keeper.create(None, 1 << 30)
    assert caught.value.name == "GVM_E_NOSPACE"


# ---- closing


def test_closed_object_and_keeper_refuse_everything(keeper, server):
    obj = keeper.create(None, 2 * MIB)
    obj.close()
    obj.close()
    for call in (obj.read, obj.write, obj.info, obj.seal, lambda: obj.grow(1), lambda: obj.copy_in(b"x"), lambda: obj.size):
        with pytest.raises(ValueError, match="closed"):
            call()
    assert "closed" in repr(obj)
    other = gvmem.connect(server.path)
    obj = other.create(None, 2 * MIB)
    other.close()
    other.close()
    assert other.closed and obj.closed
    for call in (obj.read, other.snapshot, lambda: other.open("/x"), lambda: other.create(None, MIB)):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_keeper_closed_keeps_what_is_consumed(server, keeper):
    other = gvmem.connect(server.path)
    obj = other.create(None, 2 * MIB)
    obj.copy_in(b"kept")
    lease = obj.read()
    with lease as a:
        array = numpy.asarray(a)
    other.close()
    assert len(keeper.snapshot().clients) == 2 and bytes(array[:4]) == b"kept"
    del array, lease, a
    assert len(keeper.snapshot().clients) == 1


def test_garbage_is_closed_in_any_order(server, keeper):
    for order in range(6):
        names = ["other", "obj", "lease", "array"]
        for i in range(order):
            names.append(names.pop(i % 3))
        things = {"other": gvmem.connect(server.path)}
        things["obj"] = things["other"].create(None, 2 * MIB)
        things["lease"] = things["obj"].write()
        with things["lease"] as a:
            things["array"] = numpy.asarray(a)
        del a
        for name in names:
            del things[name]
            if "array" in things:
                things["array"][:8] = 1
        assert len(keeper.snapshot().clients) == 1


def test_garbage_in_a_cycle_is_closed(server, keeper):
    other = gvmem.connect(server.path)
    cycle = [other, other.create(None, 2 * MIB)]
    cycle.append(cycle)
    del other, cycle
    gc.collect()
    assert len(keeper.snapshot().clients) == 1


def test_nothing_leaks_in_a_long_loop(keeper):
    def rss():
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    with keeper.create("/loop", 2 * MIB) as obj:
        def turn(times):
            for _ in range(times):
                with keeper.open("/loop", readonly=True) as again, again.read("f4", (2, 3)) as a:
                    numpy.asarray(a), memoryview(a), a.shape, repr(a)
                    with pytest.raises(gvmem.Error):
                        again.write()
                with obj.write() as a:
                    numpy.from_dlpack(a)
                obj.info(), keeper.objects()

        turn(50)
        gc.collect()
        threads, files, before = threading.active_count(), len(os.listdir("/proc/self/fd")), rss()
        turn(500)
        gc.collect()
        assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == (threads, files)
        assert rss() - before < 4 * MIB
        assert obj.info().openings == 1


# ---- processes


def test_keeper_killed_is_an_error_and_closing_is_not(own_server):
    keeper = gvmem.connect(own_server.path)
    obj = keeper.create(None, 2 * MIB, reserve=8 * MIB)
    with obj.read() as a:
        array = numpy.asarray(a)
        own_server.process.kill()
        own_server.process.wait()
        assert not array.any()
        del array
        with pytest.raises(ConnectionError):
            keeper.snapshot()
    with pytest.raises(ConnectionError):
        obj.grow(4 * MIB)
    keeper.close()


def test_child_by_fork_cannot_use_it_and_ends_well(server):
    program = """
import os, sys, gvmem
keeper = gvmem.connect(sys.argv[1])
obj = keeper.create(None, 2 << 20)
lease, entered = obj.read(), obj.read()
entered.__enter__()
pid = os.fork()
if pid == 0:
    for call in (obj.read, keeper.snapshot, lambda: obj.copy_in(b"x")):
        try:
            call()
            os._exit(2)
        except gvmem.errors.Foreign:
            pass
    entered.__exit__()
    assert entered.ended and not entered.released
    del lease
    obj.close()
    keeper.close()
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert lease.release() and entered.release()
obj.copy_in(b"x")
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program, server.path], check=True, timeout=60)


def test_process_that_ends_in_a_lease_ends_well(keeper, start_child):
    child = start_child("""
obj = keeper.create("/ending", 2 << 20)
with obj.write() as a:
    array = numpy.asarray(a)
    say("ready")
    wait()
    sys.exit(3)
""")
    assert child.read() == "ready"
    assert child.end() == (3, "")


def test_signal_other_than_ctrl_c_ends_a_wait_by_its_exception(keeper, start_child):
    child = start_child("""
import signal
class Alarm(Exception): pass
def ring(*_): raise Alarm
signal.signal(signal.SIGALRM, ring)
obj = keeper.open("/alarm")
try:
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    obj.write()
except Alarm: say("rung")
wait()
with obj.write(timeout=5): say("granted")
""")
    with keeper.create("/alarm", 2 * MIB) as obj:
        with obj.read():
            assert child.read() == "rung"
        child.tell()
        assert child.read() == "granted"
        assert child.end() == (0, "")


def test_ctrl_c_ends_each_call_that_waits(own_server):
    program = """
import os, signal, sys, threading, gvmem
keeper = gvmem.connect(sys.argv[1])
obj = keeper.create("/one", 2 << 20, reserve=8 << 20)
print("ready", flush=True)
sys.stdin.readline()          # the keeper is stopped now
for call in (lambda: keeper.open("/one"), keeper.snapshot, lambda: obj.grow(4 << 20), obj.info):
    press = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    try:
        press.start()
        call()
        print("no wait", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    press.join()
keeper.abort()
"""
    with subprocess.Popen([sys.executable, "-c", program, own_server.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout.readline() == "ready\n"
            own_server.process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, own_server.process.pid, os.WSTOPPED)
            said, _ = child.communicate("\n", timeout=60)
            assert said.split() == ["interrupted"] * 4 and child.returncode == 0
        finally:
            own_server.process.send_signal(signal.SIGCONT)
            child.kill()
