"""What is taken as a tensor of a model, and what is refused before anything is published."""
import os
import threading
import tracemalloc

import numpy
import pytest

import gvmem
from conftest import MIB
from gvmem import models


class ByDlpack:
    """An array that has no buffer, as those of some packages."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)


class ByInterface:
    """Memory of a software GPU as a CUDA framework would show it."""

    def __init__(self, buffer, **said):
        self.__cuda_array_interface__ = {"shape": (3,), "typestr": "<f4", "data": (buffer.address, False), "version": 3, **said}


@pytest.fixture
def refused(keeper):
    """The model is refused, by the tensor's name, and the one that has its name stays."""
    models.publish({"x": numpy.ones(3)}, "/model", keeper=keeper)

    def check(why, **tensors):
        with pytest.raises(TypeError, match=f'"bad", of .*{why}'):
            models.publish(tensors, "/model", keeper=keeper, replace=True)
        assert list(models.attach("/model", keeper=keeper)) == ["x"]

    yield check
    try:
        keeper.drop("/model")
    except gvmem.Error:  # the test has failed, and its keeper is gone
        pass


@pytest.mark.parametrize("cut", [slice(None, None, -1), slice(5, 2, -1)])
def test_negative_strides_are_refused_where_they_cannot_be_copied(refused, cut):
    """Also inside the memory of another tensor, where strides else stay."""
    base = numpy.arange(12, dtype="f4")
    refused("negative", bad=ByDlpack(base[cut]))
    refused("negative", good=base, bad=ByDlpack(base[cut]))
    refused("negative", good=base, bad=ByDlpack(base.reshape(3, 4)[:, ::-1]))
    buffer = gvmem.Buffer(2 * MIB)
    refused("negative", good=ByInterface(buffer), bad=ByInterface(buffer, data=(buffer.address + 8, False), strides=(-4,)))


def test_negative_strides_of_nothing_mean_nothing(keeper):
    base = numpy.lib.stride_tricks.as_strided(numpy.ones(6, "f4"), (1, 2, 3), (-24, 4, 8))
    models.publish({"one": ByDlpack(base), "none": ByDlpack(numpy.ones((3, 0), "f4")[::-1])}, "/model", keeper=keeper)
    model = models.attach("/model", keeper=keeper)
    keeper.drop("/model")
    assert (numpy.asarray(model["one"]) == base).all() and model["none"].shape == (3, 0)


@pytest.mark.parametrize("said, why", [
    ({"strides": (6,)}, "no multiples of 4"), ({"mask": object()}, "mask"), ({"typestr": None}, "lstrip"), ({"shape": (-3,)}, "lengths"),
    ({"shape": (2**63, 0)}, "lengths"), ({"shape": (3.5,)}, "integer"), ({"strides": (4, 4)}, "strides"), ({"data": ()}, "range"),
])
def test_what_memory_of_a_gpu_says_of_itself_is_checked(refused, said, why):
    refused(why, bad=ByInterface(gvmem.Buffer(2 * MIB), **said))


def test_masked_arrays_are_refused(refused):
    refused("filled", bad=numpy.ma.masked_array([1.0, 2.0], [False, True]))


def test_lengths_are_any_integers(keeper):
    none = models.Tensor("BF16", (0, 4), numpy.empty((0, 4), "u2"))
    models.publish({"x": models.Tensor("F32", numpy.array([2, 1]), bytes(8)), "y": models.Tensor("U8", (True,), b"a"), "z": none}, "/model", keeper=keeper)
    model = models.attach("/model", keeper=keeper)
    keeper.drop("/model")
    assert model["x"].shape == (2, 1) and model["y"].shape == (1,)
    with pytest.raises(TypeError):
        models.Tensor("F32", (2.0,), bytes(8))


def test_gaps_are_copied_without_an_object_for_each_element(keeper):
    """Not element by element in Python: that takes a hundred bytes for each."""
    base = numpy.arange(MIB, dtype="u4").astype("u1").reshape(1024, -1)
    tracemalloc.start()
    try:
        models.publish({"x": base[:, ::2], "t": base[:, :1000].T}, "/model", keeper=keeper)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    model = models.attach("/model", keeper=keeper)
    keeper.drop("/model")
    assert (numpy.asarray(model["x"]) == base[:, ::2]).all() and (numpy.asarray(model["t"]) == base[:, :1000].T).all()
    assert peak < 16 * MIB


def test_fifo_is_no_file_and_is_not_waited_for(keeper, tmp_path):
    path, said = tmp_path / "fifo", []
    os.mkfifo(path)

    def publish():
        try:
            models.publish_files(path, "/never", keeper=keeper)
        except ValueError as error:
            said.append(str(error))

    thread = threading.Thread(target=publish)
    thread.start()
    thread.join(10)
    waited = thread.is_alive()
    if waited:
        os.close(os.open(path, os.O_WRONLY))
        thread.join()
    assert not waited and "fifo is no file of safetensors: 0 bytes" in said[0]
