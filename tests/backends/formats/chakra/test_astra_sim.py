"""The files of docs/outside.md in the simulators themselves, where a path names them, and what
stands beside them."""

from dataclasses import replace
from pathlib import Path

import pytest
from outside_simulators import ASTRA_SIM, LOGGOPSIM, astra_sim_us, loggopsim_us, made, time_of
from strategies import hub

from weft.backends.formats.chakra.format import ChakraEt, Segments, Turns, network_files, network_of
from weft.backends.formats.goal.format import GoalFile
from weft.dsl.base.errors import UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.synth.time.schedule_time import simulate

SIZE = 1 << 20


def around(name: str) -> Schedule:
    """An allgather of a ring's shape on a machine of the catalogue."""
    machine = topology(name)
    n = machine.ranks
    link = {(x.src, x.dst): i for i, x in enumerate(machine.links)}
    moves = [
        Transfer((r - k) % n, r, (r + 1) % n, (link[r, (r + 1) % n],), k)
        for k in range(n - 1)
        for r in range(n)
    ]
    return Schedule.of(machine, make("allgather", n), moves)


def through(n: int) -> Schedule:
    """An alltoall through one switch, in which all ranks begin with the first receiver."""
    moves = [
        Transfer(s * n + d, s, d, (2 * s, 2 * d + 1)) for d in range(n) for s in range(n) if s != d
    ]
    return Schedule.of(hub(n), make("alltoall", n), moves)


CASES = {"ring": around("ring:8"), "full": around("full:4"), "switch": through(6)}


@pytest.mark.skipif(not ASTRA_SIM, reason="WEFT_ASTRA_SIM names no ASTRA-sim binary")
@pytest.mark.parametrize("name", CASES)
def test_astra_sim_takes_as_long_as_its_replay(name: str, tmp_path: Path) -> None:
    schedule = CASES[name]
    ours = time_of(made(ChakraEt(local_mem_bw=0), schedule, SIZE))["us"]
    assert astra_sim_us(ASTRA_SIM, schedule, SIZE, tmp_path) == pytest.approx(ours, rel=0.01)


@pytest.mark.skipif(not LOGGOPSIM, reason="WEFT_LOGGOPSIM names no LogGOPSim binary")
@pytest.mark.parametrize("name", CASES)
def test_loggopsim_takes_as_long_as_its_replay(name: str, tmp_path: Path) -> None:
    schedule = CASES[name]
    ours = time_of(made(GoalFile(), schedule, SIZE))["us"]
    assert loggopsim_us(LOGGOPSIM, schedule, SIZE, tmp_path) == pytest.approx(ours, rel=0.01)


def test_the_machines_that_astra_sim_can_be_told_of() -> None:
    assert network_of(topology("ring:8")) == "Ring"
    assert network_of(topology("full:4")) == "FullyConnected"
    assert network_of(hub(4)) == "Switch"
    assert network_of(topology("dgx1")) is None


def test_what_stands_beside_the_traces() -> None:
    """A network and the line to run where there is one, the links and why not elsewhere."""
    format = ChakraEt()
    there = made(format, CASES["switch"], SIZE, "x")
    files = format.files(there.text, "x")
    assert b"topology: [ Switch ]" in files[".network.yml"]
    assert "memory-type" in files[".memory.json"].decode()
    assert "--network-configuration=x.network.yml" in dict(there.told)["Run"]
    unlike = topology("ring:8")
    slow = replace(unlike.links[0], bandwidth=unlike.links[0].bandwidth / 2)
    other = replace(CASES["ring"], topology=replace(unlike, links=(slow, *unlike.links[1:])))
    lacks = made(format, other, SIZE, "x")
    rows = format.files(lacks.text, "x")[".links.csv"].decode().splitlines()
    assert len(rows) == 1 + len(unlike.links)
    assert rows[1].startswith("0,0,")
    assert "of equal links" in dict(lacks.told)["Network"]
    apart = topology("dgx-a100:nodes=2,fabric=star")
    assert any(node.copy_of for node in apart.nodes)
    listed = network_files(apart)[".links.csv"].decode().splitlines()[1:]
    assert len({tuple(row.split(",")[1:3]) for row in listed}) == len(listed)
    assert len(listed) == len(topology("dgx-a100:nodes=2,fabric=star,loopback=on").links)


# --- order and pieces -----------------------------------------------------------------------------


def us_of(schedule: Schedule, format: ChakraEt) -> float:
    time: float = time_of(made(format, schedule, SIZE))["us"]
    return time


def test_turns_are_written_where_the_replay_gains() -> None:
    """Through a switch, ranks that all begin with one receiver wait for each other."""
    schedule = CASES["switch"]
    never, always = (ChakraEt(turns=turns) for turns in (Turns.NEVER, Turns.ALWAYS))
    assert us_of(schedule, ChakraEt()) == us_of(schedule, always) < 0.85 * us_of(schedule, never)
    ring = CASES["ring"]
    assert us_of(ring, ChakraEt()) == us_of(ring, never)
    assert made(ChakraEt(), ring, SIZE).text == made(never, ring, SIZE).text


def test_segments_are_chosen_by_the_replay() -> None:
    """One message at a time through a switch, which stores it whole, is better in pieces."""
    moves = [Transfer(0, r, r + 1, (2 * r, 2 * r + 3), r) for r in range(2)]
    schedule = Schedule.of(hub(3), make("broadcast", 3, roots=[0]), moves)
    given, chosen = (ChakraEt(segments=one) for one in (Segments.GIVEN, Segments.AUTO))
    assert us_of(schedule, chosen) < 0.5 * us_of(schedule, given)
    told = made(chosen, schedule, SIZE)
    pieces = told.facts["pieces"]
    assert f"cut into {pieces} pieces" in dict(told.told)["Sliced"]
    assert time_of(told)["schedule_us"] == pytest.approx(
        simulate(replace(schedule, segments=pieces), SIZE).time_us, rel=1e-6
    )


def test_messages_have_a_least_size() -> None:
    """The schedule's 512 segments were messages of 256 bytes."""
    schedule = replace(CASES["ring"], segments=512)
    told = made(ChakraEt(), schedule, SIZE)
    assert told.facts["pieces"] == SIZE // 8 // 4096
    assert "min_message_bytes" in dict(told.told)["Sliced"]
    small = made(ChakraEt(min_message_bytes=256), schedule, SIZE)
    assert small.facts["pieces"] == 512
    with pytest.raises(UserError, match="at least 1"):
        made(ChakraEt(min_message_bytes=0), CASES["ring"], SIZE)
