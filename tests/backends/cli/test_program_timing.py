"""``weft compile`` tells the time of the program, and races forms of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command import Weft

from weft.backends.compile import timing
from weft.backends.compile.choice import FormTimer
from weft.backends.compile.descent import RACE
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


def test_forms_are_raced_and_the_flags_repeat_the_best(
    weft: Weft, chain: Path, tmp_path: Path
) -> None:
    """Three hops in four turns of 2 MiB: with more instances or segments they overlap more."""
    raced, again = tmp_path / "raced.xml", tmp_path / "again.xml"
    ran = weft("compile", chain, "-o", raced, "--json")
    time = ran.json["time"]
    assert time["program_us"] <= RACE.spared * min(one["us"] for one in time["tried"])
    assert len(time["tried"]) <= RACE.forms
    assert f"Chosen   {time['flags']}, of " in ran.err
    same = weft("compile", chain, *time["flags"].split(), "-o", again, "--json")
    assert again.read_text() == raced.read_text()
    assert "Chosen" not in same.err
    assert "flags" not in same.json["time"]
    plain = weft("compile", chain, "--form", "fixed", "-o", tmp_path / "plain.xml", "--json")
    assert plain.json["time"]["program_us"] > 1.4 * time["program_us"]
    auto = weft("compile", chain, "--instances", "auto", "-o", tmp_path / "auto.xml", "--json")
    assert auto.json["time"] == time


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--protocol", "LL"), {"protocol": "LL"}),
        (("--instances", "1"), {"instances": 1}),
        (("--segments", "1"), {"segments": 1}),
        (("--lanes", "0"), {"lanes": 0}),
        (("-p", "threadblocks.policy=auto"), {"pairing": "auto"}),
        (("--segments", "3", "--instances", "5"), {"segments": 3, "instances": 5}),
    ],
)
def test_named_settings_stay(
    weft: Weft, chain: Path, tmp_path: Path, flags: tuple[str, ...], named: dict[str, object]
) -> None:
    ran = weft("compile", chain, *flags, "--no-run", "-o", tmp_path / "x.xml", "--json").ended(0)
    tried = ran.json["time"]["tried"]
    assert len(tried) > 1
    assert all(one[key] == value for one in tried for key, value in named.items())


def test_a_list_of_passes_is_a_form(weft: Weft, chain: Path, tmp_path: Path) -> None:
    ran = weft("compile", chain, "-p", "aggregate,fuse,sync", "-o", tmp_path / "x.xml", "--json")
    assert "flags" not in ran.json["time"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("threadblocks.policy=noone", "noone"),
        ("threadblocks.polocy=none", "unknown setting of a pass"),
        ("lower.parts=8,lower.parts=8", "named twice"),
        ("lower.parts=8,fuse", "unknown setting of a pass 'fuse'"),
        ("channels.lanes=2", "said twice"),
    ],
)
def test_settings_that_make_no_sense(
    weft: Weft, chain: Path, tmp_path: Path, text: str, why: str
) -> None:
    weft("compile", chain, "--lanes", "2", "-p", text, "-o", tmp_path / "x.xml").ended(2, why)


def test_an_interruption_keeps_the_best_form(
    weft: Weft, chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[float] = []
    real = FormTimer.us

    def interrupted(*given: Any) -> float:
        if len(timed) == 3:
            raise KeyboardInterrupt
        timed.append(real(*given))
        return timed[-1]

    monkeypatch.setattr(FormTimer, "us", interrupted)
    ran = weft("compile", chain, "-o", tmp_path / "x.xml", "--json").ended(0)
    assert ran.json["time"]["program_us"] <= RACE.spared * min(timed)
    assert "of 3 forms; interrupted" in ran.err


def test_nothing_is_said_where_it_cannot_be_told(
    weft: Weft, chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = weft("compile", chain, "--to", "program", "-o", tmp_path / "out", "-f", "--json").ended(0)
    assert "time" not in ran.json
    monkeypatch.setattr(timing, "LIMITS", timing.TimingLimits(operations=3))
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


@pytest.mark.parametrize("to", ["mscclpp-json", "torch-symm", "mpi"])
def test_other_formats_race_too(weft: Weft, chain: Path, tmp_path: Path, to: str) -> None:
    raced, again = tmp_path / "raced" / "x", tmp_path / "again" / "x"
    for folder in (raced.parent, again.parent):
        folder.mkdir()
    for place in ((), ("--in-place",)):
        flags = ("compile", chain, "--to", to, "--no-run", "-f", *place)
        time = weft(*flags, "-o", raced, "--json").ended(0).json["time"]
        assert time["program_us"] <= RACE.spared * min(one["us"] for one in time["tried"])
        assert weft(*flags, *time["flags"].split(), "-o", again).code == 0
        assert again.read_text() == raced.read_text()
