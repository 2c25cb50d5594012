"""Ctrl-C at any place leaves models and regions in a state that is true, and that the next call goes on from."""
import itertools
import sys

import numpy

import gvmem
from conftest import DEVICE_BUDGET, MIB
from gvmem import _saver, models


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
