"""What follows from frozen nouns is computed once, and is gone with them."""

import gc
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier, Event
from typing import Any

import numpy as np
import pytest

from weft.dsl.base.kept import kept
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.dsl.nouns.topology import Topology, both_ways, gpu
from weft.synth.judge.replay import replay


def pair(name: str = "pair") -> Topology:
    return Topology(name, (gpu(0), gpu(1)), both_ways(0, 1, 25, "0.7"))


def exchange(topology: Topology) -> Schedule:
    transfers = [Transfer(0, 0, 1, (0,)), Transfer(1, 1, 0, (1,))]
    return Schedule.of(topology, make("allgather", 2), transfers)


class Counted:
    """A function that counts its calls, and whose results are kept."""

    def __init__(self, most: int = 32) -> None:
        self.calls: list[Any] = []
        self.ask = kept(most)(self._make)

    def _make(self, *args: Any, **kwargs: Any) -> list[Any]:
        self.calls.append((args, kwargs))
        return [len(self.calls)]


def test_nouns_are_told_apart_by_identity_and_numbers_by_value() -> None:
    counted, one, other = Counted(), pair(), pair()
    assert one == other
    assert counted.ask(one, 3) is counted.ask(one, 3)
    assert counted.ask(one, 3) is not counted.ask(other, 3)
    assert counted.ask(one, 1) is not counted.ask(one, True)
    assert counted.ask(one, size=2) is not counted.ask(one, size=3)
    assert len(counted.calls) == 6


def test_results_go_with_their_noun() -> None:
    counted, one = Counted(), pair()
    first = counted.ask(one)
    counted.calls.clear()
    del one
    gc.collect()
    for _ in range(100):  # some of them get the number that the first object had
        assert counted.ask(pair()) is not first


def test_no_more_are_kept_than_allowed() -> None:
    counted, nouns = Counted(most=2), [pair() for _ in range(3)]
    first = counted.ask(nouns[0])
    assert counted.ask(nouns[1]) is counted.ask(nouns[1])
    counted.ask(nouns[2])
    assert counted.ask(nouns[0]) is not first


def test_nouns_look_as_before() -> None:
    one = pair()
    before = (hash(one), repr(one), pickle.dumps(one))
    Counted().ask(one)
    assert (hash(one), repr(one), pickle.dumps(one)) == before
    assert one == pair()
    assert pickle.loads(pickle.dumps(one)) == one


def test_what_raises_is_asked_again() -> None:
    calls = []

    @kept()
    def fails(one: Topology) -> None:
        calls.append(one)
        raise ValueError(one.name)

    one = pair()
    for _ in range(2):
        with pytest.raises(ValueError, match="pair"):
            fails(one)
    assert len(calls) == 2


def test_threads_compute_once() -> None:
    begun, calls = Event(), []
    together = Barrier(4)

    @kept()
    def slow(one: Topology) -> list[int]:
        calls.append(one)
        begun.wait(0.2)
        return [len(calls)]

    def ask(one: Topology) -> list[int]:
        together.wait(10)
        return slow(one)

    one = pair()
    with ThreadPoolExecutor(4) as pool:
        found = [job.result() for job in [pool.submit(ask, one) for _ in range(4)]]
    assert len(calls) == 1
    assert all(x is found[0] for x in found)


def test_a_replay_holds_for_all_that_has_the_same_columns() -> None:
    schedule = exchange(pair())
    assert replay(schedule) is replay(replace(schedule, topology=pair("other")))
    assert replay(schedule) is replay(replace(schedule, bytes=7).with_provenance(engine="test"))
    assert replay(schedule) is not replay(exchange(pair()))


def test_columns_that_can_be_written_are_not_kept() -> None:
    """A judge must see what is there now."""
    schedule = exchange(pair())
    tampered = replace(schedule, src=np.array(schedule.src))
    assert not replay(tampered).fault.any()
    tampered.src[0] = 1 - tampered.src[0]
    assert replay(tampered).fault.any()
