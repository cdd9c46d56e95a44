"""``weft compile`` tells what the program takes, and which number of instances is quicker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from command import Weft

from weft.backends.compile import instances
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.schedule import Schedule, Transfer, write

MIB = 1 << 20


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """Broadcast down a line, in slices far finer than the turns of the runtime's loop."""
    machine = topology("line:4")
    link = {(x.src, x.dst): i for i, x in enumerate(machine.links)}
    hops = [Transfer(0, r, r + 1, (link[r, r + 1],), step=r) for r in range(3)]
    schedule = Schedule.of(machine, make("broadcast", 4), hops)
    path = tmp_path / "chain.json"
    write(path, replace(schedule, segments=64, bytes=8 * MIB))
    return path


def test_the_program_is_timed_beside_the_schedule(weft: Weft, chain: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.xml"
    ran = weft("compile", chain, "-o", out, "--json").ended(0)
    time = ran.json["time"]
    assert time["bytes"] == 8 * MIB
    same = weft("simulate", out, "-t", "line:4", "--size", "8MiB", "--json")
    assert time["program_us"] == same.json["sizes"][0]["us"]
    same = weft("simulate", chain, "--size", "8MiB", "--json")
    assert time["schedule_us"] == same.json["sizes"][0]["us"]
    assert f"{time['program_us']:,.3f} µs at 8MiB as a program" in ran.err
    assert f"the schedule's {time['schedule_us']:,.3f} µs" in ran.err


def test_a_size_may_be_asked_for(weft: Weft, chain: Path, tmp_path: Path) -> None:
    ran = weft("compile", chain, "-o", tmp_path / "x.xml", "--size", "1KiB:1MiB", "--json")
    assert ran.json["time"]["bytes"] == MIB


def test_more_instances_are_tried_where_the_program_is_slow(
    weft: Weft, chain: Path, tmp_path: Path
) -> None:
    """Three hops in four turns of 2 MiB: with more instances they overlap more."""
    ran = weft("compile", chain, "-o", tmp_path / "out.xml", "--json")
    time = ran.json["time"]
    assert time["program_us"] > 1.1 * time["schedule_us"]
    tried = {x["instances"]: x["us"] for x in time["tried"]}
    assert set(tried) == {1, 2, 4, 8}
    assert tried[1] == time["program_us"]
    assert tried[time["fastest"]] == min(tried.values()) < tried[1]
    assert f"Hint     --instances {time['fastest']}: {min(tried.values()):,.3f} µs" in ran.err
    ran = weft("compile", chain, "--instances", "auto", "-o", tmp_path / "auto.xml", "--json")
    assert ran.json["time"]["program_us"] == min(tried.values())
    assert f"Chosen   --instances {time['fastest']} of 1: " in ran.err
    assert "Hint" not in ran.err
    same = weft("simulate", tmp_path / "auto.xml", "-t", "line:4", "--size", "8MiB", "--json")
    assert same.json["sizes"][0]["us"] == min(tried.values())


def test_nothing_is_said_where_it_cannot_be_told(
    weft: Weft, chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for flags in (("--to", "program"), ("--to", "mscclpp-json")):
        ran = weft("compile", chain, *flags, "-o", tmp_path / "out", "-f", "--json").ended(0)
        assert "time" not in ran.json
    monkeypatch.setattr(instances, "MOST_OPERATIONS", 3)
    ran = weft("compile", chain, "-o", tmp_path / "out.xml", "--json").ended(0)
    assert "time" not in ran.json
    assert "Timed" not in ran.err


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--to", "program"), "knows the runtimes of msccl-xml, not of program"),
        ((), "no message size is given"),
        (("-p", "instances{count=2},fuse"), "said twice"),
    ],
)
def test_auto_says_why_it_cannot_choose(
    weft: Weft, triangle: Path, tmp_path: Path, flags: tuple[str, ...], why: str
) -> None:
    weft("compile", triangle, "--instances", "auto", *flags, "-o", tmp_path / "out").ended(2, why)
    assert not (tmp_path / "out").exists()
