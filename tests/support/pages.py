"""What pages are made of in tests: schedules of classic algorithms, a frontier, a library."""

from fractions import Fraction
from pathlib import Path

from weft.backends.compile.compile import CompileOptions, lower_schedule
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.library import MANIFEST, Candidate, Library, Tuned, TunedPlan, dumps
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.schedule import Schedule, write
from weft.dsl.nouns.topology import Resource, Topology, both_ways, gpu, switch
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.engines.classic.place import Site
from weft.synth.engines.classic.schedule import to_schedule
from weft.synth.time.program_time import simulate_program
from weft.synth.time.schedule_time import simulate

GRID = (1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 26)


def classic(spec: str, name: str, kind: str, chunks: int = 1) -> Schedule:
    """The schedule of a classic algorithm on a machine of the catalogue."""
    machine = topology(spec)
    site = Site(machine)
    schedule = to_schedule(site.algorithm(name, kind, chunks=chunks), machine, 0, site.routes)
    return schedule.with_provenance(engine="classic", algorithm=name, seed=0)


def sharing() -> Schedule:
    """A ring on two boxes of four GPUs, in which pairs of GPUs share what leads to their switch."""
    nodes = (
        *(gpu(i, i // 4) for i in range(8)),
        switch("pcie0", 0),
        switch("pcie1", 1),
        switch("fabric"),
    )
    links = [x for i in range(8) for x in both_ways(i, 8 + i // 4, 20, "0.8")]
    links += [x for box in (8, 9) for x in both_ways(box, 10, "12.5", "1.5")]
    bridges = tuple(
        Resource(f"bridge{k}", tuple(range(4 * k, 4 * k + 4)), Fraction(25)) for k in range(4)
    )
    machine = Topology("two boxes", nodes, tuple(links), bridges)
    return to_schedule(Site(machine).algorithm("ring", "allreduce"), machine)


def written(folder: Path, **schedules: Schedule) -> Path:
    """A folder of schedules, as ``weft synth`` writes a frontier."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, schedule in schedules.items():
        write(folder / f"{name}.json", schedule)
    return folder


def library(
    folder: Path, spec: str, kind: str, names: tuple[str, str], grid: tuple[int, ...] = GRID
) -> Path:
    """A library of two plans, made by hand: one schedule in LL below 256 KiB, one above."""
    machine = topology(spec)
    schedules = {name: classic(spec, name, kind) for name in names}
    written(folder / "schedules", **schedules)
    times = {
        name: tuple(_time(schedule, protocol, size) for size in grid)
        for (name, schedule), protocol in zip(schedules.items(), ("LL", "Simple"), strict=True)
    }
    collective = make(kind, machine.ranks)
    bound = bounds(machine, collective)
    chosen = tuple(times[names[size >= 1 << 18]][k] for k, size in enumerate(grid))
    ideas = tuple(
        simulate(schedules[names[size >= 1 << 18]], size).time_us if size < 1 << 26 else None
        for size in grid
    )
    tuned = Tuned(
        collective,
        bound.to_json(),
        grid,
        tuple(float(lower_bound_us(bound, size)) for size in grid),
        chosen,
        ideas,
        tuple(Candidate(f"classic:{name}", times[name], name == "ring", name) for name in names),
        (
            TunedPlan(
                "small",
                1,
                (1 << 18) - 1,
                f"classic:{names[0]}",
                "classic",
                "LL",
                schedule=f"schedules/{names[0]}.json",
            ),
            TunedPlan(
                "large",
                1 << 18,
                1 << 30,
                f"classic:{names[1]}",
                "classic",
                schedule=f"schedules/{names[1]}.json",
            ),
        ),
        ("made by hand",),
    )
    value = Library(
        spec.partition(":")[0], machine, 1, 1 << 30, {"by": "simulation"}, (tuned,), {"seed": 0}
    )
    (folder / MANIFEST).write_text(dumps(value), encoding="utf-8")
    return folder


def _time(schedule: Schedule, protocol: str, size: int) -> float:
    options = CompileOptions(protocol=Protocol(protocol))
    program = lower_schedule(schedule, options)
    return simulate_program(program, schedule.topology, size, most_operations=50_000).time_us
