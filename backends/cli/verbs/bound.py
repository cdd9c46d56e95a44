"""``weft bound``: lower bounds on any schedule, each with its certificate."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from weft.dsl.base.errors import UserError
from weft.dsl.base.tables import exact, facts, number, rounded
from weft.dsl.base.units import SizeRange, format_bytes
from weft.dsl.nouns.problem import check_connected
from weft.synth.bounds import BOUND_EFFORT, ROOTED, binding, bounds
from weft.synth.bounds.in_chunks import ChunkBound, chunk_bound, own_chunk_bound
from weft.synth.bounds.programs import runtime_bound
from weft.synth.bounds.switch_gain import switch_gain

from ...report.model_numbers import program_starts, schedule_remark
from ...report.reached_rates import reached_rates, switches_json
from ...report.report import problem_json, shown
from ..flags.search import BoundFlags
from ..inputs.inputs import message_note, read_problem
from ..inputs.models import chosen_model
from ..nouns.noun import require_given, schedule_of
from ..nouns.subjects import read_subject
from ..output.console import Console, Exit
from ..work.relay_hint import relay_hint

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.dsl.nouns.collective import Collective
    from weft.dsl.nouns.schedule import Schedule
    from weft.dsl.nouns.topology import Topology
    from weft.synth.bounds import Bounds

NOT_COUNTED = (
    "chunks of one size, copied or summed into one rank each, up to "
    f"{BOUND_EFFORT.chunk_ranks} ranks and {BOUND_EFFORT.whole_chunks} chunks"
)
"""Which questions :func:`chunk_bound` answers."""

PARTS = (("start", "start"), ("α", "alpha"), ("bytes", "bytes"))
"""Parts of the least time of a program: heads, and keys."""


def run(args: BoundFlags, console: Console) -> int:
    topology, collective, size, schedule = _problem(args)
    check_connected(topology, collective)
    bound = bounds(topology, collective)
    name = collective.name or str(collective.kind)
    sizes = [_at(bound, one) for one in size.powers()] if size else []
    programs = _programs(args, topology, collective, size)
    whole = _in_chunks(args, topology, collective, schedule, size)
    for more in (programs, whole):
        for row, one in zip(sizes, more, strict=False):
            row |= one
    remark = "" if programs else schedule_remark(topology)
    gain, rates = switch_gain(topology, collective), reached_rates(topology, collective)
    brought = [one.words for one in (gain, rates) if one is not None]
    hint = relay_hint(args, collective, bound)
    if hint:
        console.say("Hint", hint)
    if args.collective and (note := message_note(args.collective, collective)):
        console.say("Size", note)
    if not sizes:
        console.detail(remark)
    console.result(
        _text(f"{name} on {topology.name}", bound, sizes, remark, brought),
        {
            "status": "ok",
            **problem_json(topology, collective),
            "bound": bound.to_json(),
            "sizes": sizes,
            **({"relays": hint} if hint else {}),
            **switches_json(topology, collective),
            **(programs[-1] if programs else {}),
            "program_start_us": program_starts(topology),
        },
    )
    return Exit.DONE


def _problem(
    args: BoundFlags,
) -> tuple[Topology, Collective, SizeRange | None, Schedule | None]:
    if args.file is None:
        require_given(("-t/--topology", args.topology), ("-c/--collective", args.collective))
        return *read_problem(args), args.size, None
    given = (args.topology, args.group, args.collective, args.root, args.roots)
    if any(one is not None for one in given) or args.down or args.down_nic or args.down_rank:
        raise UserError(
            "a schedule has its own machine and collective",
            where=args.file,
            hint="leave out -t, -c, --group, --root and --down",
        )
    schedule = schedule_of(read_subject(args.file), "-t TOPO -c COLL state the problem otherwise")
    size = SizeRange(schedule.bytes, schedule.bytes) if schedule.bytes else None
    return schedule.topology, schedule.collective, args.size or size, schedule


def _in_chunks(
    args: BoundFlags,
    topology: Topology,
    collective: Collective,
    schedule: Schedule | None,
    size: SizeRange | None,
) -> list[dict[str, Any]]:
    """Return the least times in whole chunks at each size, as entry ``in_chunks``; none where
    neither pieces nor a schedule are named."""
    find: Callable[[int], ChunkBound | None]
    if args.pieces is not None:
        if size is None:
            told = "expected a message size, got none: whole chunks take a time at a size"
            raise UserError(told, where="--pieces", hint="--size 1MiB")
        if collective.factor > 1 or collective.sizes:
            raise UserError(
                "expected a schedule or --pieces, got both: the schedule has pieces of its own",
                where="--pieces",
                hint="leave out --pieces, or name -t and -c",
            )
        find = partial(chunk_bound, topology, collective.split(args.pieces))
    elif schedule is not None and size is not None:
        find = partial(own_chunk_bound, schedule)
    else:
        return []
    found = [find(one) for one in size.powers()]
    if args.pieces is not None and None in found:
        raise UserError(
            f"expected a collective and a machine whose whole chunks can be counted, got "
            f"{collective} on {topology.name}",
            where="--pieces",
            hint=NOT_COUNTED,
        )
    return [{"in_chunks": one.to_json()} for one in found if one is not None]


def _programs(
    args: BoundFlags, topology: Topology, collective: Collective, size: SizeRange | None
) -> list[dict[str, Any]]:
    """Return the least times of programs at each size, as entry ``runtime``; none where no runtime
    is named."""
    choice = chosen_model(args)
    if args.runtime is None:
        return []
    if size is None:
        told = "expected a message size, got none: programs of a runtime take a time at a size"
        raise UserError(told, where="--runtime", hint="--size 1MiB")
    found = []
    for one in size.powers():
        asked = (topology, collective, one, args.runtime, choice)
        at_best = runtime_bound(*asked, best=True)
        entry = runtime_bound(*asked).to_json() | {"at_best_us": number(at_best.us)}
        found.append({"runtime": entry})
    return found


def _at(bound: Bounds, size: int) -> dict[str, Any]:
    value, certificate = binding(bound, size)
    least = float(value)
    return {
        "bytes": size,
        "us": number(least),
        "algbw_GBps": number(size / least / 1000) if least else None,
        "certificate": {"kind": certificate.kind, "text": certificate.text},
    }


def _text(
    title: str, bound: Bounds, sizes: list[dict[str, Any]], remark: str, brought: list[str]
) -> str:
    """Return the bounds, and those at sizes; ``remark``: what no bound counts, ``brought``: what
    switches that compute bring."""
    latency, algbw, least = bound.latency_us, bound.algbw_GBps, bound.rounds_per_chunk
    rooted = ""
    if one := bound.rooted:  # it holds for some schedules only
        ps = rounded(one.us_per_byte * 10**6)
        rooted = f"at least {ps} ps/B for {ROOTED}: {one.certificate.text}"
    head = facts(
        [
            ("problem", title),
            ("latency", f"at least {rounded(latency)} µs"),
            ("", bound.latency_certificate.text),
            ("steps", f"at least {bound.steps}"),
            ("", bound.steps_certificate.text),
            ("bandwidth", f"at most {rounded(algbw)} GB/s algbw" if algbw else "nothing must move"),
            (
                "",
                f"at least {exact(least)} round{'' if least == 1 else 's'} per chunk"
                if algbw
                else "",
            ),
            ("", f"{bound.certificate.kind}: {bound.certificate.text}" if algbw else ""),
            ("tight", _tightness(bound) if algbw else None),
            ("", rooted),
            *(("" if i else "switches", words) for i, words in enumerate(brought)),
            *(
                ("with latency", _beyond(bound, one.certificate.text))
                for one in bound.composite[-1:]
            ),
        ]
    )
    parts = [head]
    if sizes:
        columns = ["size:bytes", "at least µs:us", "at most GB/s:algbw_GBps", "by:certificate.kind"]
        columns += ["whole chunks µs:in_chunks.us:us"]
        columns += ["any program µs:runtime.us:us", "protocol:runtime.protocol"]
        columns += [f"{x}:runtime.binds.{y}_us" for x, y in PARTS] + ["by:runtime.binds.argument"]
        parts.append(shown(sizes, *columns, "at best µs:runtime.at_best_us"))
        if last := sizes[-1].get("runtime"):
            size, reached = format_bytes(sizes[-1]["bytes"]), f"what {last['protocol']} reaches"
            told = f"programs of {last['name']} at {size}, with {reached} of bandwidths, and its α"
            parts.append(f"{told}: {last['binds']['text']}")
        if whole := sizes[-1].get("in_chunks"):
            size, told = format_bytes(sizes[-1]["bytes"]), whole["certificate"]["text"]
            parts.append(f"{whole['holds_for']}, at {size}: {told}")
        used = {s["certificate"]["text"]: s["certificate"]["kind"] for s in sizes}
        said = {one.certificate.text for one in bound.composite[-1:]}
        parts += [t for t, kind in used.items() if kind in ("composite", "reach") and t not in said]
        parts += [remark] if remark else []
    return "\n\n".join(parts)


def _beyond(bound: Bounds, text: str) -> str:
    """Return the text that a composite certificate adds to that of the bandwidth."""
    said = bound.certificate.text
    return f"moreover: {text[len(said) :].lstrip('. ')}" if text.startswith(said) else text


def _tightness(bound: Bounds) -> str | None:
    if bound.attainable is None:
        return None
    if bound.tight:
        return f"yes, {bound.remark}" if bound.remark else "yes"
    return f"{rounded(bound.attainable * 10**6)} ps/B is known to be attained: {bound.remark}"
