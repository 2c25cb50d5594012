"""Models: what is published is what is attached, in any process, at one address; they are swapped, replaced, and survive faults.

Files of safetensors are made here, good and hostile ones, and by the package safetensors where it is there.
"""
import array
import copy
import ctypes
import gc
import json
import os
import pickle
import random
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy
import pytest

import gvmem
from conftest import BUILD, DEVICE_BUDGET, MIB, KeeperProcess
from gvmem import models

READER = """
from gvmem import models
model = models.attach(sys.argv[2], keeper=keeper)
arrays = {key: numpy.asarray(model[key]) for key in model}
def tell(): say(*(float(array.sum(dtype="f8")) for array in arrays.values()), model.address)
tell()
"""


def fill(seed, size=20 * MIB):
    return {"a": numpy.random.default_rng(seed).integers(0, 100, size // 8, dtype="i4"),
            "b": numpy.full((size // 32, 4), seed, "f4")}


def sums(tensors, address):
    return " ".join(str(float(array.sum(dtype="f8"))) for array in tensors.values()) + f" {address}"


@pytest.fixture
def published(keeper):
    """Names that are dropped after the test."""
    names = []
    yield names
    gc.collect()  # exceptions that a test has caught keep its models
    for name in names:
        try:
            keeper.drop(name)
        except gvmem.Error:  # dropped already; or the test has failed, and its keeper is gone
            pass


@pytest.fixture
def publish(keeper, published):
    def call(tensors, name="/model", **more):
        models.publish(tensors, name, keeper=keeper, **more)
        if name not in published:
            published.append(name)

    return call


# ---- the whole


def test_models_are_swapped_under_a_budget_for_one(keeper, publish, start_child):
    """Two models that fit the device alone, each in two other processes: what sleeps is evicted, and comes back as it was."""
    first, second = fill(1), fill(2)
    assert sum(array.nbytes for array in first.values()) * 2 > DEVICE_BUDGET
    publish(first, "/first")
    publish(second, "/second")
    children = [start_child(READER + """
wait(); model.sleep(); say("asleep")
wait(); model.wake(); tell(); say(model.resident_bytes == model.size)
""", "/first") for _ in range(2)]
    told = [child.read() for child in children]
    address = int(told[0].split()[-1])
    assert told == [sums(first, address)] * 2
    for child in children:
        child.tell()
        assert child.read() == "asleep"
    other = models.attach("/second", keeper=keeper)
    assert other.resident_bytes == other.size
    assert keeper.open("/first").info().device_bytes < 20 * MIB
    assert all((numpy.asarray(other[key]) == second[key]).all() for key in second)
    other.sleep()
    for child in children:
        child.tell()
        assert child.read() == sums(first, address)
        assert child.read() == "True"
        assert child.end() == (0, "")
    assert keeper.open("/second").info().device_bytes < 20 * MIB
    other.close()


def test_example_swaps_models(server, keeper):
    """The end of `make demo`, smaller."""
    example = Path(__file__).resolve().parents[2] / "examples/models.py"
    done = subprocess.run([sys.executable, example, server.path, str(DEVICE_BUDGET // MIB)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.endswith("addresses stayed: True\n"), done.stdout + done.stderr
    assert f"/demo/red 0 MiB, /demo/blue {DEVICE_BUDGET // MIB} MiB" in done.stdout


# ---- tensors of every kind


def attached(keeper, tensors, **more):
    """A model that was made of tensors and has its name no more."""
    models.publish(tensors, "/passing", keeper=keeper, **more)
    model = models.attach("/passing", keeper=keeper)
    keeper.drop("/passing")
    return model


@pytest.mark.parametrize("dtype", ["?", "u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4", "u8", "i8", "f8", "c8", "c16"])
@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (0,), (4, 0, 3)])
def test_array_of_numpy_is_what_it_was(keeper, dtype, shape):
    given = numpy.arange(numpy.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    model = attached(keeper, {"x": given, "other": numpy.ones(3)})
    got = numpy.asarray(model["x"])
    assert got.dtype == given.dtype and got.shape == shape and (got == given).all() and not got.flags.writeable
    assert model["x"].address % 256 == 0 or not given.size


@pytest.mark.parametrize("dtype, element", [("BF16", "bfloat16"), ("F8_E4M3", "float8_e4m3fn"), ("F8_E5M2", "float8_e5m2"),
                                            ("F8_E8M0", "float8_e8m0fnu")])
def test_tensor_of_a_type_without_arrays_is_what_it_was(keeper, dtype, element):
    given = bytes(range(24))
    model = attached(keeper, {"x": models.Tensor(dtype, (6 if dtype == "BF16" else 12, 2), given)})
    assert model["x"].dtype == element and model["x"].nbytes == 24
    with pytest.raises(BufferError):
        memoryview(model["x"])
    assert model.layout["x"].dtype == dtype and read_bytes(model, "x") == given
    again = attached(keeper, {"x": model["x"]})  # by DLPack
    assert again.layout["x"].dtype == dtype and read_bytes(again, "x") == given


def read_bytes(model, key):
    layout = model.layout[key]
    return ctypes.string_at(model[key].address, layout.size)


def test_tensor_of_wrong_size_or_type_is_refused():
    with pytest.raises(ValueError, match="7 bytes are not"):
        models.Tensor("BF16", (4,), bytes(7))
    with pytest.raises(ValueError, match="F8_E4M3"):
        models.Tensor("F4", (4,), bytes(2))


def test_array_of_the_standard_library_and_memoryview_are_taken(keeper):
    model = attached(keeper, {"array": array.array("d", [1, 2, 3]), "bytes": b"abc", "rows": memoryview(bytes(range(6))).cast("B", (2, 3))})
    assert numpy.asarray(model["array"]).tolist() == [1, 2, 3] and bytes(model["bytes"]) == b"abc"
    assert numpy.asarray(model["rows"]).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_strides_stay_where_there_are_no_gaps(keeper):
    base = numpy.arange(24, dtype="f4").reshape(2, 3, 4)
    given = {"fortran": numpy.asfortranarray(base[0]), "moved": base.transpose(2, 0, 1), "plain": base + 1}
    model = attached(keeper, given)
    for key, wanted in given.items():
        got = numpy.asarray(model[key])
        assert (got == wanted).all() and got.strides == wanted.strides
    assert model.layout["plain"].strides is None and model.layout["moved"].strides == (1, 12, 4)
    assert memoryview(model["plain"]).c_contiguous
    with pytest.raises(BufferError, match="strides"):
        ctypes.c_char.from_buffer_copy(model["moved"])


def test_gaps_are_left_out(keeper):
    base = numpy.arange(1000, dtype="i4").reshape(10, 100)
    given = {"columns": base[:, ::10], "backwards": base[0, ::-1], "repeated": numpy.broadcast_to(base[0, :3], (5, 3)),
             "same": base[:, ::10]}
    model = attached(keeper, given)
    for key, wanted in given.items():
        assert (numpy.asarray(model[key]) == wanted).all() and model.layout[key].strides is None
    assert model.layout["columns"] == model.layout["same"] and model.layout["columns"].size == 400


def test_shared_memory_is_shared_there(keeper):
    whole = numpy.arange(600, dtype="f4").reshape(6, 100)
    given = {"tied": whole, "whole": whole, "rows": whole[2:4], "column": whole[:, 7], "bytes": whole.view("u1")[0], "other": whole.copy()}
    model = attached(keeper, given)
    at = model["whole"].address
    assert model["tied"].address == at and model["rows"].address == at + 800 and model["column"].address == at + 28
    assert all((numpy.asarray(model[key]) == wanted).all() for key, wanted in given.items())
    assert max(layout.offset + layout.size for layout in model.layout.values()) == 2560 + 2400 and model["other"].address == at + 2560


def test_views_whose_elements_overlap_share_memory(keeper):
    base = numpy.arange(12, dtype="f4")
    views = {"repeated": numpy.broadcast_to(base[:3], (500, 3)), "windows": numpy.lib.stride_tricks.sliding_window_view(base, 4),
             "one": numpy.broadcast_to(base[5:6], (7, 1))}
    model = attached(keeper, {"base": base, **views})
    for key, wanted in views.items():
        assert (numpy.asarray(model[key]) == wanted).all() and model.layout[key].size <= base.nbytes
    assert model["repeated"].address == model["windows"].address == model["base"].address == model["one"].address - 20


def test_shared_memory_out_of_line_is_refused(keeper):
    data = numpy.zeros(64, "u1")
    with pytest.raises(ValueError, match='"b" lies in the memory of another'):
        models.publish({"a": data, "b": data[1:9].view("f8")}, "/never", keeper=keeper)


def test_tensors_are_laid_out_as_named(keeper):
    model = attached(keeper, {str(i): numpy.full(10, i) for i in random.Random(1).sample(range(50), 50)})
    offsets = [layout.offset for layout in model.layout.values()]
    assert offsets == sorted(offsets) == list(range(0, 50 * 256, 256))


def test_random_views_of_random_memory_are_what_they_were(keeper):
    """Against NumPy, with whatever overlaps."""
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(10):
        bases = [numpy.array([chance.randrange(256) for _ in range(chance.randrange(1, 4096))], "u1") for _ in range(3)]
        given = {}
        for number in range(30):
            dtype = numpy.dtype(chance.choice(["u1", "i2", "f4", "f8"]))
            base = chance.choice(bases)
            items = base[:base.size // dtype.itemsize * dtype.itemsize].view(dtype)
            first = chance.randrange(items.size + 1)
            part = items[first:chance.randrange(first, items.size + 1):chance.choice([1, 1, 1, 2, -1])]
            rows = chance.choice([1, 1, 2, 3])
            if part.size % rows == 0:
                part = part.reshape(rows, -1)
                part = part.T if chance.random() < .5 else part
            given[str(number)] = part
        model = attached(keeper, given)
        for key, wanted in given.items():
            assert numpy.asarray(model[key]).tobytes() == wanted.tobytes(), (seed, key)
        model.close()


@pytest.mark.parametrize("value, why", [
    (numpy.zeros(3, ">f4"), "byte order"), (numpy.array(["a"]), "is no tensor"), (numpy.zeros(3, "M8[s]"), ""), ([1, 2], "list"),
    (numpy.zeros((1,) * 17), "17 dimensions"), (None, "NoneType"), (numpy.zeros(3, "g"), "is no tensor"), (memoryview(b"ab").cast("c"), "format"),
])
def test_what_is_no_tensor_is_refused_by_name(keeper, value, why):
    with pytest.raises(TypeError, match=f'"bad.*{why}'):
        models.publish({"good": numpy.zeros(3), "bad": value}, "/never", keeper=keeper)


# ---- memory of GPUs


class OnGpu:
    """Memory of a software GPU as a CUDA framework would show it."""

    def __init__(self, buffer, count, device=0, stream=None):
        self.buffer, self.count, self.device, self.stream = buffer, count, device, stream


class ByInterface(OnGpu):
    @property
    def __cuda_array_interface__(self):
        return {"shape": (self.count,), "typestr": "<f4", "data": (self.buffer.address, False), "version": 3, "stream": self.stream}


class ByDlpack(OnGpu):
    """A capsule of DLPack 0.x, without a deleter."""

    def __dlpack_device__(self):
        return (2, self.device)

    def __dlpack__(self, *, stream=None):
        self.asked = stream
        self.shape = ctypes.c_int64(self.count)
        self.managed = ctypes.create_string_buffer(struct.pack(
            "PiiiBBHPPQPP", self.buffer.address, 2, self.device, 1, 2, 32, 1, ctypes.addressof(self.shape), 0, 0, 0, 0))
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.managed), b"dltensor", None)


@pytest.mark.parametrize("made", [ByInterface, ByDlpack])
def test_memory_of_a_gpu_is_copied_there(keeper, made):
    buffer = gvmem.Buffer(2 * MIB)
    numpy.asarray(buffer.array("f4"))[:1000] = numpy.arange(1000)
    given = made(buffer, 1000)
    model = attached(keeper, {"cpu": numpy.ones(5), "gpu": given, "tied": given})
    assert (numpy.asarray(model["gpu"]) == numpy.arange(1000)).all() and model["tied"].address == model["gpu"].address
    assert numpy.asarray(model["cpu"]).sum() == 5 and getattr(given, "asked", 1) == 1


def test_memory_of_a_gpu_decides_on_the_device(keeper):
    buffer = gvmem.Buffer(2 * MIB, device=1)
    numpy.asarray(buffer.array("f4"))[:3] = (1, 2, 3)
    with pytest.raises(ValueError, match='"x" is on GPU 1, and the model is to be on GPU 0'):
        models.publish({"x": ByDlpack(buffer, 3, 1)}, "/never", keeper=keeper, device=0)
    model = attached(keeper, {"x": ByDlpack(buffer, 3, 1)})
    assert model.device == 1 and numpy.asarray(model["x"]).tolist() == [1, 2, 3]


# ---- publishing


def test_name_that_is_taken_is_refused_and_replaced(keeper, publish, start_child):
    publish({"x": numpy.full(1000, 1.0)}, version="1", metadata={"of": "somebody"})
    with pytest.raises(FileExistsError, match='"/model".*replace=True') as raised:
        publish({"x": numpy.full(1000, 2.0)})
    assert raised.value.name == "GVM_E_EXISTS"
    old = models.attach("/model", keeper=keeper)
    child = start_child(READER + "wait(); tell(); say(model.current)", "/model")
    address = int(child.read().split()[-1])
    publish({"x": numpy.full(1000, 2.0), "y": numpy.ones(3)}, version="2", replace=True)
    new = models.attach("/model", keeper=keeper, version="2")
    assert (old.version, new.version, old.current, new.current) == ("1", "2", False, True)
    assert numpy.asarray(old["x"]).sum() == 1000 and numpy.asarray(new["x"]).sum() == 2000 and list(new) == ["x", "y"]
    assert old.metadata == {"of": "somebody"} and new.metadata == {}
    child.tell()
    assert (child.read(), child.read()) == (f"1000.0 {address}", "False") and child.end() == (0, "")
    with pytest.raises(ValueError, match='of version "2", not "1"'):
        models.attach("/model", keeper=keeper, version="1")
    old.close()
    assert len(keeper.objects()) == 1


def test_replaced_in_a_loop_is_always_whole(keeper, publish, start_child):
    """Who attaches while versions come finds one of them, with all of its tensors."""
    publish({"a": numpy.full(100, 0.0), "b": numpy.full(100, 0.0)}, version="0")
    children = [start_child("""
from gvmem import models
say("ready")
seen = 0
while seen < 30:
    model = models.attach("/model", keeper=keeper)
    a, b = numpy.asarray(model["a"]), numpy.asarray(model["b"])
    assert len({*a, *b, float(model.version)}) == 1 and a[0] >= seen, (a[0], b[0], model.version)
    seen = int(a[0])
    model.close()
say("done")
""") for _ in range(2)]
    assert [child.read() for child in children] == ["ready"] * 2
    for i in range(1, 31):
        publish({"a": numpy.full(100, float(i)), "b": numpy.full(100, float(i))}, version=str(i), replace=True)
    assert [child.read() for child in children] == ["done"] * 2
    assert [child.end() for child in children] == [(0, "")] * 2


def test_published_is_sealed_and_has_its_mode(keeper, publish):
    publish({"x": numpy.ones(3)}, mode=0o644, version="v" * 32)
    info, = keeper.objects()
    assert (info.sealed, info.kept, info.mode, info.name) == (True, True, 0o644, "/model")
    with pytest.raises(PermissionError):
        keeper.open("/model").write()
    for version in ("v" * 33, "a\nb"):
        with pytest.raises(ValueError, match="version"):
            models.publish({}, "/never", keeper=keeper, version=version)


def test_model_without_tensors_is_one(keeper):
    model = attached(keeper, {})
    assert len(model) == 0 and list(model) == [] and model.awake


def test_names_of_tensors_are_any_text(keeper):
    given = {"": numpy.ones(1), "läyer.0": numpy.ones(2), "a\n\"b\"": numpy.ones(3), "x" * 5000: numpy.ones(4)}
    model = attached(keeper, given)
    assert {key: len(model[key]) for key in model} == {key: len(value) for key, value in given.items()}


@pytest.mark.parametrize("tensors, metadata, why", [({"__metadata__": b"a"}, None, "__metadata__"), ({1: b"a"}, None, "names"),
                                                    ({}, {"a": 1}, "metadata are texts"), ({}, {1: "a"}, "metadata are texts")])
def test_names_and_metadata_are_texts(keeper, tensors, metadata, why):
    with pytest.raises(TypeError, match=why):
        models.publish(tensors, "/never", keeper=keeper, metadata=metadata)


def test_too_little_memory_is_an_error_and_leaves_nothing(keeper, publish):
    publish({"x": numpy.ones(MIB)})
    with pytest.raises(MemoryError):
        publish({"x": numpy.zeros(200 * MIB, "u1")}, replace=True)
    assert [info.name for info in keeper.objects()] == ["/model"]
    assert numpy.asarray(models.attach("/model", keeper=keeper)["x"]).sum() == MIB


def test_other_objects_are_no_models(keeper):
    with keeper.create("/plain", 2 * MIB), pytest.raises(ValueError, match='"/plain" is no model'):
        models.attach("/plain", keeper=keeper)
    with pytest.raises(FileNotFoundError, match='no model "/nothing".*gvmem models'):
        models.attach("/nothing", keeper=keeper)
    with pytest.raises(ValueError):
        models.publish({}, "no slash", keeper=keeper)


def test_others_attach_what_the_mode_allows(server, keeper, publish):
    if os.getuid() != 0:
        pytest.skip("another user is needed")
    publish({"x": numpy.ones(3)}, "/mine")
    publish({"x": numpy.ones(3)}, "/everybody", mode=0o644)
    os.chmod(server.path, 0o777)
    folder = os.path.dirname(server.path)
    while folder != "/":
        os.chmod(folder, os.stat(folder).st_mode | 0o055)
        folder = os.path.dirname(folder)
    done = subprocess.run(["setpriv", "--reuid", "65534", "--clear-groups", sys.executable, "-c", """
import sys, gvmem, numpy
from gvmem import models
for name in ("/everybody", "/mine"):
    try:
        print(numpy.asarray(models.attach(name, keeper=sys.argv[1])["x"]).sum())
    except PermissionError as error:
        print(error)
""", server.path], capture_output=True, text=True, check=False)
    if "Permission denied" in done.stderr:
        pytest.skip("another user cannot read the package")
    first, second = done.stdout.strip().split("\n")
    assert first == "3.0" and '"/mine" may not be read' in second, done.stderr


def test_gvmem_models_lists_them(server, keeper, publish):
    publish({"x": numpy.ones(3), "y": numpy.ones(3)}, "/b", version="3 beta")
    publish(fill(1), "/a")
    model = models.attach("/a", keeper=keeper)
    with keeper.create("/plain", 2 * MIB, metadata=b"gvmem-model 1 x"):
        done = subprocess.run([BUILD / "tools/gvmem", "models", "--socket", server.path], capture_output=True, text=True, check=True)
        lines = [line.split() for line in done.stdout.splitlines()]
        assert [line[-1] for line in lines] == ["MODEL", "/a", "/b"] and lines[1][4:8] == ["2", "1", "1", "-"] and lines[2][7:9] == ["3", "beta"]
        done = subprocess.run([BUILD / "tools/gvmem", "models", "-s", server.path, "--json"], capture_output=True, text=True, check=True)
    a, b = json.loads(done.stdout)
    assert (a["name"], a["tensors"], a["read_leases"], a["size_bytes"], a["version"]) == ("/a", 2, 1, model.size, "")
    assert (b["name"], b["tensors"], b["read_leases"], b["openings"], b["version"], b["mode"]) == ("/b", 2, 0, 0, "3 beta", 0o600)


def test_gvmem_models_writes_no_control_character_of_others(server, keeper):
    with forge(keeper, b"", mark="gvmem-model 1 1 3 \x9bbeta".encode()):
        text, as_json = (subprocess.run([BUILD / "tools/gvmem", "models", "-s", server.path, *more], capture_output=True, text=True, check=True).stdout
                         for more in ([], ["--json"]))
    assert "3 ?beta" in text and "\x9b" not in text + as_json and json.loads(as_json)[0]["version"] == "3 \x9bbeta"
    keeper.drop("/forged")


# ---- sleep, wake, with


def test_asleep_it_has_no_lease_and_gives_no_tensors(keeper, publish):
    publish({"x": numpy.ones(3)})
    model = models.attach("/model", keeper=keeper)
    early = model["x"]
    kept = numpy.asarray(early)
    address = kept.ctypes.data
    assert model.info().read_leases == 1 and model.awake and "awake" in repr(model)
    model.sleep()
    model.sleep()
    assert model.info().read_leases == 0 and not model.awake and "asleep" in repr(model)
    with pytest.raises(ValueError, match="sleeps: wake"):
        model["x"]
    with pytest.raises(BufferError):
        numpy.asarray(early)
    assert list(model) == ["x"] and "x" in model and model.layout["x"].shape == (3,)
    with pytest.raises(KeyError):
        model["y"]
    model.wake()
    model.wake()
    assert model.info().read_leases == 1 and kept.sum() == 3 and numpy.asarray(model["x"]).ctypes.data == address
    model.close()
    assert model.closed and "closed" in repr(model)
    with pytest.raises(ValueError):
        model.wake()
    with pytest.raises(ValueError, match="closed"):
        model["x"]
    del kept, early


def test_with_is_a_lease_for_the_block(keeper, publish):
    publish({"x": numpy.ones(3)})
    model = models.attach("/model", keeper=keeper, awake=False)
    assert not model.awake
    with model as entered, model, model.use() as used:
        assert entered is used is model and model.info().read_leases == 3 and numpy.asarray(model["x"]).sum() == 3
    assert not model.awake and model.info().read_leases == 0
    with pytest.raises(KeyError), model:
        raise KeyError
    model.wake()
    with model:
        model.sleep()
        assert model.awake and numpy.asarray(model["x"]).sum() == 3
    assert not model.awake and model.info().read_leases == 0


def test_array_of_a_model_that_is_gone_keeps_it_awake(keeper, publish):
    publish({"x": numpy.ones(3)})
    kept = numpy.asarray(models.attach("/model", keeper=keeper)["x"])
    gc.collect()
    info, = keeper.objects()
    assert (info.read_leases, info.openings) == (1, 1) and kept.sum() == 3
    del kept
    info, = keeper.objects()
    assert (info.read_leases, info.openings) == (0, 0)


def test_threads_share_a_model(keeper, publish):
    publish({"x": numpy.arange(1000)})
    model, failed = models.attach("/model", keeper=keeper, awake=False), []

    def work(seed):
        chance = random.Random(seed)
        try:
            for _ in range(50):
                with model:
                    assert numpy.asarray(model["x"]).sum() == 499500
                if chance.random() < .3:
                    chance.choice([model.wake, model.sleep])()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    model.sleep()
    assert failed == [] and model.info().read_leases == 0 and not model.awake


def test_model_is_neither_copied_nor_pickled(keeper, publish):
    """Two of one lease would end it for each other."""
    publish({"x": numpy.ones(3)})
    model = models.attach("/model", keeper=keeper)
    for call in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match='model "/model" cannot be copied'):
            call(model)
    assert model.awake and numpy.asarray(model["x"]).sum() == 3


def test_awake_is_never_taken_and_asleep_is(keeper, publish):
    for name in ("/a", "/b"):
        publish(fill(ord(name[1])), name)
    a = models.attach("/a", keeper=keeper)
    assert a.resident_bytes == a.size
    with pytest.raises(MemoryError, match="no room on the device.*others sleep"):
        models.attach("/b", keeper=keeper, awake=False).wake(resident=True)
    b = models.attach("/b", keeper=keeper)
    assert a.resident_bytes == a.size and b.resident_bytes < b.size
    assert (numpy.asarray(b["a"]) == fill(ord("b"))["a"]).all()  # over the link
    with pytest.raises(MemoryError, match="awake"):
        b.wake(resident=True)
    a.sleep()
    b.sleep()
    b.wake(resident=True)
    assert b.resident_bytes == b.size and a.resident_bytes < a.size


def test_wake_that_finds_no_room_leaves_what_another_thread_woke(keeper, publish, monkeypatch):
    """Between its lease and the look at where the bytes are, another thread wakes the model, and relies on that."""
    publish({"x": numpy.ones(3)})
    model = models.attach("/model", keeper=keeper, awake=False)

    def look(self):
        other = threading.Thread(target=self.wake)
        other.start()
        other.join()
        return 0

    monkeypatch.setattr(models.Model, "resident_bytes", property(look))
    with pytest.raises(MemoryError, match="no room"):
        model.wake(resident=True)
    assert model.awake and model.info().read_leases == 1
    model.sleep()
    assert not model.awake and model.info().read_leases == 0


def test_mapped_can_be_touched_asleep(keeper, publish):
    publish(fill(3))
    model = models.attach("/model", keeper=keeper, mapped=True)
    arrays = {key: numpy.asarray(model[key]) for key in model}
    model.sleep()
    assert keeper.evict("/model") > 0 and model.resident_bytes == 0
    assert all((arrays[key] == wanted).all() for key, wanted in fill(3).items())


def test_mapped_ends_the_process_if_it_is_touched_while_it_moves(keeper, publish, start_child):
    """As the documentation says, too."""
    publish(fill(3))
    child = start_child("""
from gvmem import models
model = models.attach("/model", keeper=keeper, mapped=True)
array = numpy.asarray(model["a"])
model.sleep()
say("asleep")
while True: array.sum()
""")
    assert child.read() == "asleep"
    model = models.attach("/model", keeper=keeper, awake=False)
    deadline = time.monotonic() + 60
    while child.process.poll() is None and time.monotonic() < deadline:
        keeper.evict("/model")
        model.wake()
        model.sleep()
    assert child.process.poll() == -11


def test_touched_asleep_ends_the_process(publish, start_child):
    """As the documentation says first."""
    publish(fill(3))
    child = start_child(READER + """
model.sleep(); keeper.evict(sys.argv[2]); say("evicted"); print(arrays["a"][0]); say("alive")
""", "/model")
    child.read()
    assert child.read() == "evicted" and child.end() == (-11, "")


def test_attach_without_a_connection_makes_one(server, keeper, publish):
    publish({"x": numpy.ones(3)})
    model = models.attach("/model", keeper=server.path)
    assert len(keeper.snapshot().clients) == 2 and numpy.asarray(model["x"]).sum() == 3
    model.close()
    assert len(keeper.snapshot().clients) == 1
    models.publish({"x": numpy.zeros(3)}, "/model", keeper=server.path, replace=True)
    assert len(keeper.snapshot().clients) == 1


# ---- files of safetensors


def write_file(path, header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_file_is_loaded(keeper, published, tmp_path):
    data = numpy.arange(1000, dtype="<f4").tobytes() + bytes(range(10)) + b"\1"
    path = write_file(tmp_path / "a.safetensors", {"__metadata__": {"format": "pt"}, "x": entry("F32", [10, 100], 0, 4000),
                                                  "none": entry("F64", [0, 3], 4000, 4000), "y": entry("BF16", [5], 4000, 4010),
                                                  "z": entry("BOOL", [], 4010, 4011)}, data)
    other = write_file(tmp_path / "b.safetensors", {"w": entry("I64", [2], 0, 16)}, struct.pack("<qq", 1, -1))
    models.publish_files([path, str(other)], "/file", keeper=keeper, version="7")
    published.append("/file")
    model = models.attach("/file", keeper=keeper)
    assert (numpy.asarray(model["x"]) == numpy.arange(1000).reshape(10, 100)).all() and bool(numpy.asarray(model["z"]))
    assert read_bytes(model, "y") == bytes(range(10)) and numpy.asarray(model["w"]).tolist() == [1, -1]
    assert model["none"].shape == (0, 3) and model.metadata == {"format": "pt"} and model.version == "7"
    assert all(model[key].address % 256 == 0 for key in "xyzw")
    with pytest.raises(ValueError, match='"x" is in .* and in a file before'):
        models.publish_files([path, path], "/never", keeper=keeper)
    with pytest.raises(FileNotFoundError):
        models.publish_files(tmp_path / "nothing", "/never", keeper=keeper)


def test_file_larger_than_what_is_read_at_once(keeper, published, tmp_path):
    given = numpy.random.default_rng(5).integers(0, 2**31, 9 * MIB, dtype="i4")
    path = write_file(tmp_path / "a", {"x": entry("I32", [9 * MIB], 0, 36 * MIB)}, given.tobytes())
    models.publish_files(path, "/file", keeper=keeper)
    published.append("/file")
    assert (numpy.asarray(models.attach("/file", keeper=keeper)["x"]) == given).all()


@pytest.mark.parametrize("header, data, length, why", [
    (b"", b"", 0, "0 bytes"), (b"{}", b"", 3, "3 bytes"), (b"{}", b"", 2**63, "header of"), (b"[]", b"", None, "begin with {"),
    (b" {}", b"", None, "begin with {"), (b"{", b"", 1, "header of 1"), (b"{" * 100, b"", None, ""), pytest.param(b'{"a":' * 100000, b"", None, "deeply", id="deep"),
    (b"{\xff}", b"", None, ""), ({"x": 1}, b"", None, '"x": it has no'), ({"x": entry("F4", [2], 0, 1)}, b"a", None, "F4"),
    ({"x": entry("C128", [1], 0, 16)}, bytes(16), None, "C128"), ({"x": entry(["F32"], [1], 0, 4)}, bytes(4), None, "dtype"),
    ({"x": entry("F32", [2], 0, 4)}, bytes(4), None, "8 bytes"), ({"x": entry("F32", [-1], 0, 4)}, bytes(4), None, "lengths"),
    ({"x": entry("F32", [1.0], 0, 4)}, bytes(4), None, "lengths"), ({"x": entry("F32", [True], 0, 4)}, bytes(4), None, "lengths"),
    ({"x": entry("F32", [2**62, 4], 0, 0)}, b"", None, "too many"), ({"x": entry("U8", [0, 2**62, 2**62], 0, 0)}, b"", None, "too many"), ({"x": entry("F32", [2**63], 0, 0)}, b"", None, "lengths"),
    ({"x": entry("F32", [1] * 17, 0, 4)}, bytes(4), None, "lengths"), ({"x": entry("F32", "1", 0, 4)}, bytes(4), None, "lengths"),
    ({"x": entry("U8", [4], 4, 0)}, bytes(4), None, "data_offsets"), ({"x": entry("U8", [8], 0, 8)}, bytes(4), None, "do not lie"),
    ({"x": entry("U8", [4], 2**70, 2**70 + 4)}, bytes(4), None, "data_offsets"), ({"x": entry("U8", [4], 1, 5)}, bytes(5), None, "gap"),
    ({"x": entry("U8", [4], 0, 4), "y": entry("U8", [4], 2, 6)}, bytes(6), None, "overlap"),
    ({"x": entry("U8", [4], 0, 4), "y": entry("U8", [4], 0, 4)}, bytes(4), None, "overlap"),
    ({"x": entry("U8", [4], 0, 4)}, bytes(5), None, "tensors have 4"), ({"__metadata__": {"a": 1}}, b"", None, "__metadata__"),
    ({"__metadata__": []}, b"", None, "__metadata__"), (b'{"x":{},"x":{}}', b"", None, "twice"),
    (b'{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"dtype":"U8"}}', b"a", None, "twice"),
    (b'{"x":{"dtype":"U8","shape":[1' + b"0" * 5000 + b'],"data_offsets":[0,1]}}', b"a", None, ""),
    (b'{"x":{"dtype":"U8","shape":[NaN],"data_offsets":[0,1]}}', b"a", None, "lengths"),
])
def test_file_that_is_hostile_is_refused(keeper, tmp_path, header, data, length, why):
    path = write_file(tmp_path / "bad", header, data, length)
    with pytest.raises(ValueError, match="(?s)bad is no file of safetensors.*" + why):
        models.publish_files(path, "/never", keeper=keeper)
    path.write_bytes(b"abc")
    with pytest.raises(ValueError, match="3 bytes are too few"):
        models.publish_files(path, "/never", keeper=keeper)


def test_file_with_random_bytes_changed_is_refused_or_whole(keeper, tmp_path):
    """Every tensor that is there lies in the object; nothing else happens than a ValueError."""
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    good = write_file(tmp_path / "good", {"x": entry("F32", [10, 10], 0, 400), "y": entry("U8", [24], 400, 424)}, bytes(424)).read_bytes()
    taken = 0
    for _ in range(300):
        bad = bytearray(good)
        for _ in range(chance.randrange(1, 4)):
            bad[chance.randrange(150)] = chance.choice(b'0123456789"{}[],:\0\xff') if chance.random() < .8 else chance.randrange(256)
        path = tmp_path / "bad"
        path.write_bytes(bad)
        try:
            file = models.File(path)
        except ValueError:
            continue
        assert all(layout.offset + layout.size <= 424 for layout in file.table.values())
        file.close()
        taken += 1
    assert taken < 300


def test_file_that_becomes_shorter_is_an_error(keeper, tmp_path, monkeypatch):
    path = write_file(tmp_path / "short", {"x": entry("U8", [2 * MIB], 0, 2 * MIB)}, bytes(2 * MIB))
    truncated = models.lay_out_files

    def shorten(files):
        os.truncate(path, MIB)
        return truncated(files)

    monkeypatch.setattr(models, "lay_out_files", shorten)
    with pytest.raises(ValueError, match="has become shorter"):
        models.publish_files(path, "/never", keeper=keeper)


def test_file_of_the_package_safetensors_is_the_same(keeper, published, tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy", reason="the package safetensors is missing")
    chance = numpy.random.default_rng(7)
    given = {f"{dtype}.{i}": chance.integers(0, 2, shape).astype(dtype) for dtype in ("?", "u1", "i2", "f2", "f4", "i8", "f8")
             for i, shape in enumerate([(), (3,), (5, 7), (0, 2)])}
    safetensors.save_file(given, tmp_path / "a", metadata={"a": "b"})
    models.publish_files(tmp_path / "a", "/file", keeper=keeper)
    published.append("/file")
    model = models.attach("/file", keeper=keeper)
    assert set(model) == set(given) and model.metadata == {"a": "b"}
    for key, wanted in given.items():
        got = numpy.asarray(model[key])
        assert got.dtype == wanted.dtype and got.shape == wanted.shape and (got == wanted).all()


def forge(keeper, header, size=4096, mark=b"gvmem-model 1 1 "):
    """An object that says it is a model, with a header of somebody else's."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    obj = keeper.create("/forged", size, metadata=mark)
    obj.copy_in(struct.pack("<Q", len(text)) + text)
    obj.seal()
    return obj


@pytest.mark.parametrize("header, why", [
    ({"x": entry("F32", [1000], 4096, 8096)}, "do not lie"), ({"x": {**entry("F32", [2, 2], 0, 16), "strides": [2**40, 1]}}, "apart"),
    ({"x": {**entry("F32", [2, 2], 0, 16), "strides": [-2, 1]}}, "strides"), ({"x": {**entry("F32", [2, 2], 0, 16), "strides": [1]}}, "strides"),
    (b"[]", "begin with"), (b"\0" * 10, "begin with"),
])
def test_object_that_is_hostile_is_refused(keeper, header, why):
    obj = forge(keeper, header)
    with pytest.raises(ValueError, match=f'"/forged" is malformed.*{why}'):
        models.attach("/forged", keeper=keeper)
    keeper.drop("/forged")
    obj.close()


def test_object_with_a_tensor_out_of_line_is_refused_when_it_is_used(keeper):
    obj = forge(keeper, {"x": entry("F64", [2], 1, 17), "y": entry("U8", [2], 1, 3)})
    model = models.attach("/forged", keeper=keeper)
    with pytest.raises(ValueError, match="not aligned"):
        model["x"]
    assert model["y"].shape == (2,)
    model.close()
    keeper.drop("/forged")
    obj.close()


@pytest.mark.parametrize("strides, why", [((1,), "tuple of 2"), ([4, 1], "tuple of 2"), ((2**61, 1), "out of all memory"),
                                          ((2**40, 1), "lies behind"), ((-1, 1), "not in"), ((1000, 1), "lies behind")])
def test_strides_that_lead_out_are_refused(keeper, strides, why):
    with keeper.create("/strides", 2 * MIB) as obj:
        view = obj._handle.view(obj.address, 4000, False, None)
        assert view.array(0, 0, "<f4", (2, 2), (998, 1)).strides == (3992, 4)
        with pytest.raises(ValueError, match=why):
            view.array(0, 0, "<f4", (2, 2), strides)
        view.end(None)


# ---- faults


def wait_until(condition):
    """The keeper has seen that a process is gone."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


PUBLISHER = """
import os, signal
from gvmem import models, _keeper
def die(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
step = sys.argv[2]
if step == "before copying": models.copy_pieces = die
if step == "in the middle":
    whole = models.copy_pieces
    def part(handle, pieces):
        pieces = list(pieces)
        whole(handle, pieces[:len(pieces) // 2])
        die()
    models.copy_pieces = part
if step == "before the seal": _keeper.Object.seal = die
if step == "before the name": _keeper.Object.publish = die
if step == "after the name":
    publish = _keeper.Object.publish
    _keeper.Object.publish = lambda *a, **k: (publish(*a, **k), die())
models.publish({str(i): numpy.full(MIB // 8, 2.0) for MIB in [1 << 20] for i in range(8)}, "/model", keeper=keeper, replace=True)
"""


@pytest.mark.parametrize("step", ["before copying", "in the middle", "before the seal", "before the name", "after the name"])
def test_killed_in_publish_leaves_the_old_one_or_the_new_one(keeper, publish, start_child, step):
    publish({"0": numpy.full(1000, 1.0)})
    child = start_child(PUBLISHER, step)
    assert child.end() == (-9, "")
    wait_until(lambda: len(keeper.snapshot().clients) == 1 and len(keeper.objects()) == 1)
    model = models.attach("/model", keeper=keeper)
    replaced = step == "after the name"
    assert len(model) == (8 if replaced else 1) and set(numpy.asarray(model["0"])) == {2.0 if replaced else 1.0}
    info, = keeper.objects()
    assert keeper.snapshot().devices[0].resident_bytes == info.device_bytes


def test_killed_while_attached_gives_its_lease_back(keeper, publish, start_child):
    publish(fill(1), "/a")
    publish(fill(2), "/b")
    child = start_child(READER, "/a")
    child.read()
    child.process.kill()
    wait_until(lambda: len(keeper.snapshot().clients) == 1)
    b = models.attach("/b", keeper=keeper, awake=False)
    b.wake(resident=True)
    assert all((numpy.asarray(b[key]) == wanted).all() for key, wanted in fill(2).items())


def test_killed_in_wake_leaves_both_models_whole(keeper, publish, start_child):
    """Processes that swap two models are killed at any moment; what is left is whole, and nothing leased."""
    publish(fill(1), "/a")
    publish(fill(2), "/b")
    for number in range(6):
        child = start_child("""
from gvmem import models
both = [models.attach(name, keeper=keeper, awake=False) for name in ("/a", "/b")]
say("ready")
while True:
    for model in both:
        model.wake(); model.sleep()
""")
        assert child.read() == "ready"
        time.sleep(random.random() * .05)
        child.process.kill()
        with models.attach("/a", keeper=keeper, awake=False) as a:
            assert (numpy.asarray(a["a"]) == fill(1)["a"]).all()
        wait_until(lambda: len(keeper.snapshot().clients) == 1)
    assert [info.read_leases for info in keeper.objects()] == [0, 0]
    b = models.attach("/b", keeper=keeper, awake=False)
    b.wake(resident=True)
    assert (numpy.asarray(b["a"]) == fill(2)["a"]).all()


def test_wakes_that_meet_are_all_right(keeper, publish, start_child):
    """Four processes wake two models again and again: of each what they read is right, wherever it is."""
    publish(fill(1), "/a")
    publish(fill(2), "/b")
    children = [start_child("""
from gvmem import models
model = models.attach(sys.argv[2], keeper=keeper, awake=False)
say("ready"); wait()
sums = set()
for _ in range(10):
    model.wake(); sums.add((int(numpy.asarray(model["a"]).sum()), model["a"].address)); model.sleep()
say(*sums)
""", name) for name in ("/a", "/b", "/a", "/b")]
    assert [child.read() for child in children] == ["ready"] * 4
    for child in children:
        child.tell()
    told = [child.read() for child in children]
    assert told[0] == told[2] and told[1] == told[3]
    assert told[0].startswith(f"({fill(1)['a'].sum()}, ") and told[1].startswith(f"({fill(2)['a'].sum()}, ")
    assert [child.end() for child in children] == [(0, "")] * 4


def test_wake_does_not_wait_for_a_process_whose_interpreter_is_busy(server, keeper, publish):
    """A thread elsewhere holds the GIL; what is taken from that process is unmapped all the same."""
    publish(fill(1), "/a")
    publish(fill(2), "/b")
    read, write = os.pipe()
    os.set_inheritable(read, True)
    child = subprocess.Popen([sys.executable, "-c", """
import ctypes, sys, gvmem
from gvmem import models
model = models.attach("/a", keeper=sys.argv[1])
model.sleep()
print("busy", flush=True)
ctypes.PyDLL(None).read(int(sys.argv[2]), ctypes.create_string_buffer(1), 1)  # with the GIL
model.wake()
import numpy
print(numpy.asarray(model["a"]).sum())
""", server.path, str(read)], pass_fds=[read], stdout=subprocess.PIPE, text=True)
    os.close(read)
    try:
        assert child.stdout.readline() == "busy\n"
        b = models.attach("/b", keeper=keeper, awake=False)
        b.wake(timeout=20, resident=True)
        assert (numpy.asarray(b["a"]) == fill(2)["a"]).all()
        b.sleep()
    finally:
        os.close(write)
    assert child.communicate()[0] == f"{fill(1)['a'].sum()}\n" and child.returncode == 0


def test_keeper_killed_is_an_error_and_awake_tensors_stay(own_server):
    keeper = gvmem.connect(own_server.path)
    models.publish({"x": numpy.ones(1000)}, "/model", keeper=keeper)
    awake, asleep = (models.attach("/model", keeper=keeper, awake=awake) for awake in (True, False))
    kept = numpy.asarray(awake["x"])
    own_server.stop()
    assert kept.sum() == 1000
    for call in (asleep.wake, asleep.info, lambda: models.attach("/model", keeper=keeper)):
        try:
            call()  # what is mapped here wakes without the keeper, until this process has seen that it is gone
        except ConnectionError:
            continue
        assert call == asleep.wake and numpy.asarray(asleep["x"]).sum() == 1000
    with pytest.raises(ConnectionError):
        models.publish({}, "/other", keeper=keeper)
    assert numpy.asarray(awake["x"]).sum() == 1000
    del kept
    awake.close()
    asleep.close()
    keeper.close()


def test_host_budget_too_small_is_an_error(tmp_path):
    server = KeeperProcess(tmp_path, host_budget="8M")
    try:
        with gvmem.connect(server.path) as keeper:
            models.publish(fill(1), "/a", keeper=keeper)
            with pytest.raises(MemoryError, match="budget"):
                models.publish(fill(2), "/b", keeper=keeper)
            assert [info.name for info in keeper.objects()] == ["/a"]
            a = models.attach("/a", keeper=keeper)
            assert a.resident_bytes == a.size and (numpy.asarray(a["a"]) == fill(1)["a"]).all()
            models.publish({"x": numpy.ones(MIB)}, "/b", keeper=keeper)
            b = models.attach("/b", keeper=keeper)
            assert numpy.asarray(b["x"]).sum() == MIB
            a.close()
            b.close()
    finally:
        server.stop()


def test_fork_after_import_and_after_attaching(server, publish):
    """After the import alone a child can do all; what its parent has attached it cannot use."""
    publish({"x": numpy.ones(1000)})
    done = subprocess.run([sys.executable, "-c", """
import os, sys, gvmem, numpy
from gvmem import models
if not os.fork():
    print(numpy.asarray(models.attach("/model", keeper=sys.argv[1])["x"]).sum(), flush=True)
    os._exit(0)
os.wait()
model, other = (models.attach("/model", keeper=sys.argv[1]) for _ in range(2))
if not os.fork():
    other.close()
    for call in (model.wake, model.sleep, model.__enter__, model.info, lambda: models.attach("/model", keeper=sys.argv[1])):
        try:
            print(call(), flush=True)
        except (ValueError, gvmem.Error) as error:
            print(type(error).__name__, flush=True)
    os._exit(0)
os.wait()
print(numpy.asarray(model["x"]).sum())
""", server.path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().split("\n")
    assert lines[0] == lines[-1] == "1000.0" and lines[1:5] == ["None", "None", "Foreign", "Foreign"], lines


def test_ends_well_with_the_interpreter(server, publish):
    publish({"x": numpy.ones(1000)})
    done = subprocess.run([sys.executable, "-c", """
import sys, gvmem, numpy
from gvmem import models
class Late:
    def __del__(self, model=models.attach("/model", keeper=sys.argv[1])): print(model.resident_bytes)
model = models.attach("/model", keeper=sys.argv[1])
kept = numpy.asarray(model["x"])
late = Late()
print(kept.sum())
""", server.path], capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"1000.0\n{models.attach('/model', keeper=server.path).resident_bytes}\n", "")
