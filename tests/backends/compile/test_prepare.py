"""The compiler called from Python makes the bytes that ``weft compile`` writes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import patterns
import pytest
from shares import in_pieces

import weft
from weft.backends.cli import main
from weft.backends.compile.pipeline import parse_passes
from weft.backends.compile.variants import Variant
from weft.backends.formats.p2p.read import read_script
from weft.dsl.base.errors import CheckFailed, UserError
from weft.dsl.base.registry import BACKENDS
from weft.dsl.base.units import SizeRange
from weft.dsl.nouns.runtime import MSCCL
from weft.dsl.nouns.schedule import Schedule
from weft.synth.engines.classic.text import named_algorithm

MIB = 1 << 20


def uneven() -> Schedule:
    """Chunks whose shares no equal chunks of a message can express exactly."""
    return in_pieces(patterns.ring_allgather(3, 1), [[1, 499], [250, 250], [499, 1]])


def sketched() -> Schedule:
    """What the search finds under a sketch."""
    machine, collective = weft.topology("dgx1"), weft.make("allgather", 8)
    sketch = weft.elaborate(weft.load_sketch("dgx1_double_links"), machine)
    problem = weft.Problem(machine, collective, sketch, weft.Objective.LATENCY)
    return weft.synthesize(problem, "exact", weft.Budget(60.0)).points[0].schedule


SCHEDULES = {
    "ring": lambda: replace(patterns.ring_allgather(4, 1), bytes=MIB),
    "ring allreduce": lambda: patterns.ring_allreduce(4, 1),
    "sliced": lambda: replace(patterns.ring_allgather(4, 1), segments=64, bytes=64 * MIB),
    "uneven": uneven,
}

WAYS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "plain": ((), {}),
    "two instances, LL": (
        ("--instances", "2", "--protocol", "LL"),
        {"instances": 2, "protocol": "LL"},
    ),
    "in place, for RCCL": (
        ("--in-place", "--target", "rccl"),
        {"in_place": True, "target": "rccl"},
    ),
    "pieces": (("--segments", "2", "--name", "mine"), {"segments": 2, "name": "mine"}),
    "passes": (
        ("-p", "channels{lanes=2},fuse"),
        {"passes": parse_passes("channels{lanes=2},fuse")},
    ),
}


def written(tmp_path: Path, file: object, to: str, *flags: str) -> str:
    """What ``weft compile`` writes."""
    out = tmp_path / "out"
    code = main(["compile", str(file), "--to", to, "-o", str(out), "--no-run", "-qf", *flags])
    assert code == 0
    return out.read_text()


CASES = [*((name, "plain") for name in SCHEDULES), *(("ring", way) for way in WAYS)]


@pytest.mark.parametrize("to", ["msccl-xml", "mscclpp-json", "program"])
@pytest.mark.parametrize(("name", "way"), dict.fromkeys(CASES))
def test_schedules(tmp_path: Path, name: str, to: str, way: str) -> None:
    schedule, (flags, fields) = SCHEDULES[name](), WAYS[way]
    weft.write_schedule(tmp_path / "s.json", schedule)
    options = weft.CompileOptions(**fields)
    made = weft.artefact(schedule, to, options)
    assert made.text == written(tmp_path, tmp_path / "s.json", to, *flags)
    program = weft.compile_schedule(schedule, options, to=to)
    assert program == made.program
    backend: Any = BACKENDS.make(to)
    if hasattr(backend, "on"):
        backend = backend.on(schedule.topology)
    assert backend.emit(program, options.target, None) == made.text


def test_point_to_point_programs(tmp_path: Path) -> None:
    """The command's file says in its head what it was made from; the rest is the same."""
    schedule = patterns.ring_allgather(4, 1)
    weft.write_schedule(tmp_path / "s.json", schedule)
    made = weft.artefact(schedule, "mpi")
    text = written(tmp_path, tmp_path / "s.json", "mpi")
    assert read_script(made.text, "python") == read_script(text, "command")


def test_the_schedule_of_a_sketch(tmp_path: Path) -> None:
    schedule = sketched()
    weft.write_schedule(tmp_path / "s.json", schedule)
    made = weft.artefact(schedule, sizes=SizeRange(1024, MIB))
    text = written(tmp_path, tmp_path / "s.json", "msccl-xml", "--size", "1KiB:1MiB")
    assert made.text == text
    program = weft.compile_schedule(schedule, sizes=SizeRange(1024, MIB))
    assert weft.emit_msccl_xml(program, MSCCL, min_bytes=1024, max_bytes=MIB) == text


def test_instances_are_chosen_as_the_command_chooses(tmp_path: Path) -> None:
    machine = weft.topology("line:4")
    link = {(x.src, x.dst): i for i, x in enumerate(machine.links)}
    hops = [weft.Transfer(0, r, r + 1, (link[r, r + 1],), step=r) for r in range(3)]
    schedule = Schedule.of(machine, weft.make("broadcast", 4), hops)
    schedule = replace(schedule, segments=64, bytes=8 * MIB)
    weft.write_schedule(tmp_path / "s.json", schedule)
    options = weft.CompileOptions(instances="auto")
    made = weft.artefact(schedule, "msccl-xml", options)
    assert made.choice is not None
    assert made.choice.form != Variant()
    assert made.text == written(tmp_path, tmp_path / "s.json", "msccl-xml", "--instances", "auto")
    assert weft.compile_schedule(schedule, options) == made.program
    with pytest.raises(UserError, match="no message size is given"):
        weft.compile_schedule(replace(schedule, bytes=None), options)


@pytest.mark.parametrize("to", ["msccl-xml", "mscclpp-json", "program"])
def test_algorithms_and_programs(tmp_path: Path, to: str) -> None:
    name = "classic:ring{collective=allgather,on=dgx-a100:nodes=2}"
    algorithm = named_algorithm(name).algorithm
    machine = weft.topology("dgx-a100:nodes=2")
    made = weft.artefact(algorithm, to, topology=machine, sizes=MIB)
    assert made.text == written(tmp_path, name, to, "--size", "1MiB")
    program = weft.compile_algorithm(algorithm, to=to, topology=machine, sizes=MIB)
    assert program == made.program
    (tmp_path / "p.json").write_text(written(tmp_path, name, "program"))
    plain = weft.compile_algorithm(algorithm)
    again = weft.artefact(plain, to)
    assert again.text == written(tmp_path, tmp_path / "p.json", to)
    assert weft.compile_program(plain, to=to) == again.program


def test_every_pass_is_proved_and_the_artefact_checked() -> None:
    schedule = patterns.ring_allgather(3, 1)
    told: list[str] = []
    weft.compile_schedule(schedule, weft.CompileOptions(tell=told.append), to="msccl-xml")
    assert "prove lower" in told
    assert "prove weave" in told
    assert told[-2:] == ["emit", "check artefact"]
    lost = replace(schedule, chunk=schedule.chunk[:-1], src=schedule.src[:-1])
    with pytest.raises((CheckFailed, UserError, ValueError)):
        weft.compile_schedule(lost)
