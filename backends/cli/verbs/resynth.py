"""``weft resynth``: re-synthesize a library for a degraded machine."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.dsl.base.errors import BadFile, BadTopology, UserError
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.tables import count
from weft.dsl.base.units import SizeRange, format_bytes
from weft.dsl.machines.failures import degraded, require_whole
from weft.dsl.nouns.collective import Kind, make
from weft.dsl.nouns.library import read as read_library
from weft.dsl.nouns.program import protocol_of
from weft.dsl.nouns.runtime import RUNTIMES
from weft.dsl.nouns.schedule import read as read_schedule
from weft.synth.fabric.occupancy import us_per_byte
from weft.synth.judge.verify import require_valid
from weft.synth.repair.mend import REPAIR_EFFORT, repairs
from weft.synth.time.calibrated import DATASHEET

from ...compile.analyses.unroll import same_question
from ...compile.variants import variant_of
from ...report.report import shown
from ...tune.options import Warm, provenance, timing_of
from ..flags.search import PLACES, ResynthFlags
from ..flags.values import LIMITS
from ..inputs.inputs import named_down
from ..inputs.models import timed_machine
from ..output.console import Console
from .tune import check_library_output, finish, options_of, tuned

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from weft.dsl.machines.failures import Degraded
    from weft.dsl.nouns.collective import Collective
    from weft.dsl.nouns.library import Library, Tuned

    from ...compile.variants import Variant
    from ...tune.options import TuneOptions


def run(args: ResynthFlags, console: Console) -> int:
    check_library_output(args)
    old = read_library(args.library)
    old = replace(old, topology=timed_machine(old.topology, args))
    downs = named_down(args, old.topology)
    if not downs:
        raise UserError(
            "nothing is down",
            where=args.library,
            hint="--down, --down-nic or --down-rank say what is",
        )
    left = degraded(old.topology, downs)
    asked = [_still(one.collective, left) for one in old.tuned]
    for one in asked:
        try:
            require_whole(left, one)
        except BadTopology as error:
            raise BadTopology(f"{one.name or one.kind}: {error.message}", hint=error.hint) from None
    console.say("Read", f"{old.topology.name} {left.summary()}")
    args = as_before(args, old)
    options = replace(options_of(args, left.topology, asked), sizes=SizeRange(old.low, old.high))
    each = _asked(args, old, left, asked, options, console)
    made, pool = tuned(left.topology, each, len(asked), args.jobs, console)
    library = replace(
        old,
        name=left.topology.name,
        topology=left.topology,
        timing=timing_of(options),
        tuned=tuple(m.tuned for m in made),
        provenance={
            **provenance(options, args.sketch),
            "resynth_of": old.name,
            "down": [down.name for down in left.downs],
            "survivors": list(left.survivors),
        },
    )
    pairs = list(zip(old.tuned, library.tuned, strict=False))  # fewer where interrupted
    losses = {after.name: _losses(before, after) for before, after in pairs}
    if _clock(old.timing) != _clock(library.timing):
        console.warn("the old library was timed in another way: nothing is said of losses")
        losses = {}
    return finish(
        library,
        [m.files for m in made],
        args,
        console,
        pool,
        more="\n\n".join(_loss_text(name, rows) for name, rows in losses.items()),
        facts={
            "down": [down.name for down in left.downs],
            "losses": {name: [asdict(r) for r in rows] for name, rows in losses.items()},
        },
    )


def as_before(args: ResynthFlags, old: Library) -> ResynthFlags:
    """Return the flags, completed from the old library where they are not given."""
    files = [a for one in old.tuned for plan in one.plans for a in plan.artefacts]
    if args.target is None:
        told = "msccl" if args.measure else old.timing.get("runtime")
        usual = str(told) if told in RUNTIMES else "msccl"
        args = replace(args, target=next((a.target for a in files if a.target), usual))
        if not args.protocols and told == args.target:
            names = old.timing.get("protocols", ())
            args = replace(args, protocols=tuple(str(protocol_of(name)) for name in names))
    if args.model is None and not args.measure:
        model = DATASHEET if old.timing.get("by") == "simulation" else None
        args = replace(args, model=old.timing.get("model", model))
    if args.placement is None:
        places = tuple(sorted({a.in_place for a in files if a.target}))
        word = next((word for word, found in PLACES.items() if found == places), "both")
        args = replace(args, placement=word)
    if args.to is None and not args.measure:
        args = replace(args, to=",".join(dict.fromkeys(a.format for a in files)) or None)
    return args


def _asked(
    args: ResynthFlags,
    old: Library,
    left: Degraded,
    asked: Sequence[Collective],
    options: TuneOptions,
    console: Console,
) -> Iterator[tuple[Collective, TuneOptions]]:
    """Yield every collective with the options that know its old plans, mended."""
    # Forms for another runtime may exceed the limits of this one: then all forms race.
    alike = options.measuring or _clock(old.timing) == _clock(timing_of(options))
    protocols = options.raced_protocols
    for before, one in zip(old.tuned, asked, strict=True):
        known = dict.fromkeys(  # moved to a raced protocol where theirs is not one
            replace(form, protocol=protocol_of(name))
            for form in map(variant_of, before.plans)
            for name in ([str(form.protocol)] if str(form.protocol) in protocols else protocols)
        )
        forms = tuple(known) if alike else ()
        warm = _mended(Path(args.library), before, left, forms, console)
        yield one, replace(options, warm=warm, forms=forms)


def _still(collective: Collective, left: Degraded) -> Collective:
    if not left.dead_ranks:
        return collective
    if collective.kind is Kind.CUSTOM:
        raise UserError(
            f"{collective.name or 'a custom collective'} needs all of its ranks",
            hint="describe that of the others, and tune it",
        )
    new = {rank: i for i, rank in enumerate(left.survivors)}
    multi = collective.kind.name.startswith("MULTIROOT")
    roots = [new[r] for r in collective.roots if r in new]
    if collective.roots and (not roots or (not multi and len(roots) < len(collective.roots))):
        raise UserError(f"the root of {collective.kind} is gone", hint="tune it with another root")
    return make(collective.kind, len(left.survivors), roots=roots)


def _mended(
    folder: Path, before: Tuned, left: Degraded, forms: Sequence[Variant], console: Console
) -> dict[str, Warm]:
    """Return the plans' schedules repaired for the degraded machine, with their variants.

    Schedules that cannot be repaired are left out, and so are variants that do not race.

    Raises:
        BadFile: a schedule is not one of this library.
    """
    if left.dead_ranks:
        return {}
    found: dict[str, Warm] = {}
    mendable = 0
    for plan in before.plans:
        root = folder if folder.is_dir() else folder.parent
        form = variant_of(plan)
        try:
            old = read_schedule(root / plan.schedule)
        except UserError as error:
            console.warn(f"{plan.name} is not mended: {error.message}: {plan.schedule}")
            continue
        if not same_question(old.collective, before.collective):
            told = f"{old.collective}, which is not the library's {before.name}"
            raise BadFile(told, where=plan.schedule)
        if old.topology.digest() != left.whole.digest():
            told = f"made for {old.topology.name}, not the library's machine"
            raise BadFile(told, where=plan.schedule)
        try:
            ways = dict(repairs(old, left, REPAIR_EFFORT))
        except UserError as error:
            console.detail(f"         {plan.name} cannot be mended: {error.message}")
            continue
        for word, mended in ways.items():
            require_valid(mended)
            known = form if mended is next(iter(ways.values())) and form in forms else None
            found[f"{word} {plan.name}"] = Warm(mended, known)
        # The best order on the old machine may not be the best on this one.
        word, best = min(
            ways.items(),
            key=lambda way: (len(way[1]) >= LIMITS.ordered_ratio * len(old), us_per_byte(way[1])),
        )
        if best.priority is not None and not len(best.casts):
            found[f"{word} {plan.name} by steps"] = Warm(replace(best, priority=None, stride=0))
        mendable += 1
    console.say("Mended", f"{mendable} of {len(before.plans)} schedules of {before.name}")
    return found


@dataclass(frozen=True, slots=True)
class SlowdownAtSize:
    """Times at one size: µs of plan and bound, before and after.

    ``was_start_us``, ``start_us``: of the plan's before its first operation.
    """

    bytes: int
    was_us: float
    us: float
    was_bound_us: float
    bound_us: float
    was_start_us: float = 0.0
    start_us: float = 0.0


def _clock(timing: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the key of comparable library times: simulated or measured, runtime, model."""
    return tuple(timing.get(key) for key in ("by", "runtime", "on", "model"))


def _losses(before: Tuned, after: Tuned) -> list[SlowdownAtSize]:
    """Return the losses at sizes timed in both; at powers of two only, where there are any."""
    was = {size: at for at, size in enumerate(before.grid)}
    rows = [
        SlowdownAtSize(
            size,
            before.chosen_us[was[size]],
            after.chosen_us[at],
            before.bound_us[was[size]],
            after.bound_us[at],
            before.start_at(was[size]),
            after.start_at(at),
        )
        for at, size in enumerate(after.grid)
        if size in was
    ]
    return [row for row in rows if not row.bytes & (row.bytes - 1)] or rows


def _loss_text(name: str, losses: list[SlowdownAtSize]) -> str:
    starts = any(x.start_us or x.was_start_us for x in losses)
    rows = [
        {
            **asdict(x),
            "loss": _more(x.us, x.was_us),
            **({"run": _more(x.us - x.start_us, x.was_us - x.was_start_us)} if starts else {}),
            "rose": _more(x.bound_us, x.was_bound_us),
            "over": x.us / x.bound_us if x.bound_us else None,
        }
        for x in losses
    ]
    text = shown(
        rows,
        *("size:bytes", "was µs:was_us", "is µs:us", "loss:loss", "without starts:run"),
        *("bound rose:rose", "over bound:over:.2f"),
    )
    return f"{name}:\n{text}{_farther(losses)}"


def _farther(losses: list[SlowdownAtSize]) -> str:
    """Return a hint to search longer where the old plans were nearer the bound; else nothing."""
    known = [x for x in losses if x.bound_us and x.was_us and x.was_bound_us]
    worse = [
        x for x in known if x.us * x.was_bound_us > LIMITS.longer_ratio * x.was_us * x.bound_us
    ]
    if not worse:
        return ""
    most = max(worse, key=lambda x: x.us * x.was_bound_us / (x.was_us * x.bound_us))
    ratio = most.us * most.was_bound_us / (most.was_us * most.bound_us)
    sizes = f"{count(len(worse), 'size')} of {len(losses)}"
    return (
        f"\nat {sizes} farther from the bound than before, "
        f"at {format_bytes(most.bytes)} {ratio:.2f} times: `weft tune` with the same --down "
        "searches longer"
    )


def _more(new: float, old: float) -> str:
    return f"{new / old - 1:+.1%}" if old else "-"
