"""Times of NCCL's or RCCL's own programs, at the sizes of a race, for comparison with the plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weft.dsl.base.units import format_binary
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.library import RuntimeTimes
from weft.dsl.nouns.library_fields import Times
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.runtime import MSCCLPP
from weft.dsl.nouns.topology import Topology
from weft.synth.bounds import BOUND_EFFORT, runtime_bound
from weft.synth.time.calibrated import CALIBRATED, NCCL, ModelChoice, calibrated_model

from ..deploy.settings import is_amd
from .baselines import VERSIONS, Baseline, BaselineTime, SwitchSums, best_of, nccl_baselines
from .cast_plans import asked_of
from .options import TuneOptions

RCCL = "rccl"


def library_of(topology: Topology, runtime: str) -> str:
    """Return the library that runs where files are for ``runtime``: RCCL on AMD's machines."""
    return RCCL if is_amd(topology) or runtime == RCCL else NCCL


def runtime_times(
    topology: Topology, collective: Collective, grid: Sequence[int], options: TuneOptions
) -> RuntimeTimes | None:
    """Return the runtime's own times, at powers of two and both ends of the grid.

    None where the model of time lacks such programs, for collectives that the runtime lacks, and
    for those with a layout or root of their own.
    """
    if options.model != CALIBRATED or options.measuring is not None:
        return None
    library = library_of(topology, options.wanted.runtime)
    if not _usual(collective):
        return None
    found = nccl_baselines(topology, collective.kind, library)
    programs = [one for one in found if isinstance(one, Baseline)]
    apart = [one for one in found if isinstance(one, SwitchSums)]
    if not programs:
        return None
    timed = [n & (n - 1) == 0 or n in (grid[0], grid[-1]) for n in grid]
    best = [best_of(programs, n) if known else None for n, known in zip(grid, timed, strict=True)]
    return RuntimeTimes(
        VERSIONS[library],
        tuple("" if one is None else one.how for one in best),
        _us(best),
        tuple(None if one is None else one.start_us for one in best),
        ", ".join(dict.fromkeys(one.time(1).how for one in apart)),
        _us([best_of(apart, n) for n in grid]) if apart else (),
    )


def _usual(collective: Collective) -> bool:
    """Return True if the baselines are for this collective: from root 0, chunks of one size."""
    if collective.kind is Kind.CUSTOM or collective.sizes:
        return False
    return collective.roots in ((), (0,))


def _us(times: Sequence[BaselineTime | None]) -> Times:
    return tuple(None if one is None else one.us for one in times)


def plan_starts(
    topology: Topology, protocols: Sequence[Protocol], options: TuneOptions
) -> tuple[float, ...]:
    """Return the µs of a call before the first operation, by the protocol of each size's plan.

    Empty where the model of time lacks a start.
    """
    if options.model != CALIBRATED or options.measuring is not None:
        return ()
    model = calibrated_model(topology, options.wanted.runtime)
    return tuple(float(model.protocol(one).start_us) for one in protocols)


def least_times(
    topology: Topology, collective: Collective, grid: Sequence[int], options: TuneOptions
) -> tuple[float, ...]:
    """Return the least µs of any program of the runtime at each size; empty on large machines, and
    where plans are measured or timed by data sheets, by which it is the bound of schedules."""
    timed = options.model == CALIBRATED and options.measuring is None
    if not timed or topology.ranks > BOUND_EFFORT.program_ranks:
        return ()
    choice, names = ModelChoice(options.model), raced_runtimes(topology, collective, options)
    return tuple(
        min(runtime_bound(topology, collective, n, name, choice).us for name in names) for n in grid
    )


def raced_runtimes(
    topology: Topology, collective: Collective, options: TuneOptions
) -> tuple[str, ...]:
    """Return the runtimes whose programs are in a race: plans in which switches compute are
    MSCCL++'s, beside programs that are timed by the runtime's model."""
    switches = asked_of(topology, collective, options)
    return (options.wanted.runtime, *([MSCCLPP] if switches else []))


def remarks(
    grid: Sequence[int], chosen: Sequence[float], own: RuntimeTimes | None
) -> Iterator[str]:
    """Yield the runtime's own programs, and the sizes at which one is quicker than every plan."""
    if own is None:
        return
    yield f"compared with {own.name}: {_ranges(grid, own.how)}"
    for name, told, times in (
        (own.name, "by itself", own.us),
        (own.apart, "(a time only)", own.apart_us),
    ):
        known = [
            (n, us < mine)
            for n, mine, us in zip(grid, chosen, times or own.us, strict=True)
            if us is not None
        ]
        ahead = [n for n, quicker in known if quicker]
        if name and ahead:
            yield (
                f"{name} {told} is quicker than any plan at {len(ahead)} of {len(known)} sizes, "
                f"{format_binary(ahead[0])} to {format_binary(ahead[-1])}: leave those to it"
            )


def _ranges(grid: Sequence[int], how: Sequence[str]) -> str:
    """Return the programs that run from each size on: ``tree LL, 8 rings Simple from 64MiB``."""
    parts: list[str] = []
    last = ""
    for size, one in zip(grid, how, strict=True):
        if one and one != last:
            parts.append(f"{one} from {format_binary(size)}" if last else one)
            last = one
    return ", ".join(parts)
