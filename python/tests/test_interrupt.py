"""Ctrl-C at any place leaves models, regions and sockets in a state that is true, and that the next call goes on from."""
import _thread
import itertools
import os
import signal
import socket
import sys
import threading
import time

import numpy
import pytest

import gvmem
from conftest import DEVICE_BUDGET, MIB
from gvmem import _gvmem, _saver, models


def interruptions(path, call):
    """call(), interrupted at each place of a file where CPython looks for signals, until there is none left: at the begin of a
    function, and after one that is not Python's. Yields after each interruption."""
    for step in itertools.count():
        places = itertools.count()

        def interrupt(frame, event, _, step=step, places=places):
            if frame.f_code.co_filename == path and event in ("call", "c_return") and next(places) == step:
                raise KeyboardInterrupt

        sys.setprofile(interrupt)
        try:
            call()
            return
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        yield step


def test_model_is_awake_by_a_lease_alone(keeper):
    models.publish({"w": numpy.ones(1000)}, "/model", keeper=keeper)
    model = models.attach("/model", keeper=keeper, awake=False)
    for prepare, call in ((model.sleep, model.wake), (model.wake, model.sleep)):
        prepare()
        steps = 0
        for steps in interruptions(models.__file__, call):
            assert model.awake == (keeper.objects()[0].read_leases > 0)
            model.sleep()
            assert not model.awake and keeper.objects()[0].read_leases == 0
            model.wake()
            assert model["w"].shape == (1000,) and keeper.objects()[0].read_leases == 1
            prepare()
        assert steps > 3
        model.sleep()
        assert not model.awake and keeper.objects()[0].read_leases == 0
    for _ in interruptions(models.__file__, model.__enter__):
        assert not model.awake and keeper.objects()[0].read_leases == 0
    assert keeper.objects()[0].read_leases == 1
    model.__exit__(None, None, None)
    model.close()
    keeper.drop("/model")


def test_region_is_given_up_and_had_back(keeper):
    with gvmem.Saver(keeper, reserve=DEVICE_BUDGET) as saver, saver.region("a") as region:
        array = numpy.asarray(region.alloc(4 * MIB).array())
        for prepare, call in ((region.resume, region.pause), (region.pause, region.resume)):
            prepare()
            steps = 0
            for steps in interruptions(_saver.__file__, call):
                region.pause()
                assert region.paused and keeper.objects()[0].size_bytes == 0
                region.resume()
                assert not region.paused and not array.any() and len(region.alloc(1)) == 1
                array[:] = 1
                prepare()
            assert steps > 1
        del array


@pytest.mark.parametrize("by_number", [False, True])
def test_socket_whose_adoption_is_interrupted_stays_the_callers(keeper, server, monkeypatch, by_number):
    adopt, interrupted, threads = _gvmem.adopt, threading.Event(), _thread._count()

    def adopt_after_interrupt(fd):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        assert interrupted.wait(60)
        return adopt(fd)

    monkeypatch.setattr(_gvmem, "adopt", adopt_after_interrupt)
    with socket.socket(socket.AF_UNIX) as made:
        made.connect(server.path)
        try:
            gvmem.Keeper(adopt=made.fileno() if by_number else made)
            interrupted.set()
            pytest.fail("it was not interrupted")
        except KeyboardInterrupt:
            interrupted.set()
        while _thread._count() > threads:
            time.sleep(0.001)
        with open("/dev/null", "rb") as file:  # it takes the number if that is free
            made.close()
            os.fstat(file.fileno())
