"""Models: published once, attached in other processes at one address, swapped under a budget for one."""
import json
import struct

import numpy
import pytest

import gvmem
from conftest import DEVICE_BUDGET, MIB
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
    for name in names:
        try:
            keeper.drop(name)
        except gvmem.errors.Absent:
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
