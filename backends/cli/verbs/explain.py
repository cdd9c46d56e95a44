"""``weft explain``: conflicts and costs of a sketch's rules, bottleneck of a schedule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from weft.dsl.base.errors import UserError
from weft.dsl.base.tables import count, facts, microseconds, number, table
from weft.dsl.base.units import SizeRange, format_bytes
from weft.dsl.language.elaborate import elaborate, machine_text
from weft.dsl.language.load import find_sketch
from weft.dsl.language.parse import parse
from weft.dsl.nouns.problem import check_connected
from weft.synth.base.engine import Budget
from weft.synth.bounds import bounds
from weft.synth.explain.conflicts import find_conflict, prove_conflict
from weft.synth.explain.costs import costs
from weft.synth.explain.critical import WaitReason, gap_words, what_binds
from weft.synth.explain.within import Possibility, explain_within
from weft.synth.fabric.occupancy import resource_name
from weft.synth.judge.verify import require_valid

from ...report.report import problem_json
from ...report.sizes import TEXT
from ..flags.search import ExplainFlags
from ..flags.values import split_arguments
from ..inputs.inputs import read_problem
from ..inputs.machines import read_topology
from ..inputs.sketches import read_sketch
from ..nouns.noun import FileKind, require_given, schedule_of
from ..nouns.subjects import read_subject
from ..output.console import Console, Exit

if TYPE_CHECKING:
    from weft.dsl.nouns.sketch import Rule
    from weft.synth.explain.conflicts import Conflict
    from weft.synth.explain.costs import SketchCosts
    from weft.synth.explain.critical import Binding, ChainLink
    from weft.synth.explain.within import Dropped, Within, WithinAnswer

    from ..nouns.noun import Subject


DEFAULT_SIZE = SizeRange(1 << 20, 1 << 20)

WITHIN_EXIT = {
    Possibility.POSSIBLE: Exit.DONE,
    Possibility.IMPOSSIBLE: Exit.NO,
    Possibility.UNDECIDED: Exit.NOTHING_FOUND,
}


def run(args: ExplainFlags, console: Console) -> int:
    if args.file is not None:
        subject = read_subject(args.file)
        if subject.kind is not FileKind.SKETCH:
            return _schedule(subject, args, console)
        args = _of_sketch(args)
    require_given(
        ("-t/--topology", args.topology),
        ("-c/--collective", args.collective),
        ("-s/--sketch", args.sketch),
    )
    assert args.sketch is not None
    if args.size and (args.at or (args.within and args.size.low < args.size.high)):
        raise UserError(
            "expected one message size, got "
            + ("--at and --size" if args.at else "a range for --within"),
            where="--size",
            hint="leave out --size, and name one with --at",
        )
    topology, collective = read_problem(args, args.sketch)
    sketch = read_sketch(args.sketch, topology, collective, console)
    if not sketch.rules:
        raise UserError(f"the sketch {sketch.name} lacks rules", where=args.sketch)
    check_connected(topology, collective)
    both_ends = tuple(dict.fromkeys(sketch.size or (DEFAULT_SIZE.low,)))
    sizes = args.size.powers() if args.size else (args.at,) if args.at else both_ends
    data = {**problem_json(topology, collective), "sketch": sketch.name}
    size, limits = args.at or sizes[0], Budget(args.effort, seconds=args.time)
    plain = sketch.at(size)
    conflict = find_conflict(topology, collective, plain)
    if conflict is None and args.within is not None:
        found = explain_within(topology, collective, sketch, size, args.within, limits)
        console.result(within_text(sketch.name, found), {**within_json(found), **data})
        return WITHIN_EXIT[found.answer.verdict]
    if conflict is None:
        conflict = prove_conflict(topology, collective, plain, limits)
    if conflict is not None:
        console.result(
            conflict_text(sketch.name, conflict),
            {
                "status": "infeasible",
                **data,
                "conflict": [rule.label for rule in conflict.rules],
                "where": [str(rule.span) if rule.span else None for rule in conflict.rules],
                "why": conflict.why,
                "cures": [rule.label for rule in conflict.cures],
            },
        )
        return Exit.NO
    each = [costs(topology, collective, sketch, size) for size in sizes]
    text = "\n\n".join(map(cost_text, each))
    console.result(text, {"status": "ok", **data, "sizes": list(map(cost_json, each))})
    return Exit.DONE


def _of_sketch(args: ExplainFlags) -> ExplainFlags:
    """Return the flags of a sketch given as the file: machine and collective from its text."""
    assert args.file is not None
    if args.file == "-":
        told = "expected the file of a sketch, got stdin, which is read once"
        raise UserError(told, where="-", hint="-t TOPO -c COLL -s -")
    if args.sketch is not None:
        raise UserError("two sketches", where=args.file, hint="name it once, without -s")
    name, arguments = split_arguments(args.file)
    source = find_sketch(name)
    tree = parse(source.text, source.name)
    machine = args.topology or machine_text(tree, arguments) or None
    collective = args.collective
    if machine and collective is None:
        collective = elaborate(tree, read_topology(machine), arguments).collective or None
    return replace(args, sketch=args.file, file=None, topology=machine, collective=collective)


# --- schedules ------------------------------------------------------------------------------------


def _schedule(subject: Subject, args: ExplainFlags, console: Console) -> int:
    given = (args.topology, args.group, args.collective, args.root, args.roots, args.sketch)
    if any(one is not None for one in (*given, args.at, args.within)):
        raise UserError(
            "a schedule has its own machine and collective",
            where=args.file,
            hint="leave out -t, -c, -s, --group, --root, --at and --within",
        )
    schedule = schedule_of(subject, "weft explain SKETCH explains a sketch")
    require_valid(schedule)
    bound = bounds(schedule.topology, schedule.collective)
    made_for = SizeRange(schedule.bytes, schedule.bytes) if schedule.bytes else DEFAULT_SIZE
    size: SizeRange = args.size or made_for
    found = [what_binds(schedule, n, bound) for n in size.powers()]
    text = "\n\n".join(map(binding_text, found))
    console.result(
        text,
        {
            "status": "ok",
            **problem_json(schedule.topology, schedule.collective),
            "sizes": list(map(binding_json, found)),
        },
    )
    return Exit.DONE


def conflict_text(name: str, conflict: Conflict) -> str:
    """Return the explanation of a conflict: the rules at their lines, the reason, and remedies."""
    rules = conflict.rules
    lines = {str(rule.span): rule.span for rule in rules if rule.span is not None}
    those = "this cannot hold" if len(rules) == 1 else "these exclude each other"
    shown = [span.render() for span in lines.values()]
    shown += [f"  {rule.label}" for rule in rules if rule.span is None]
    if len(rules) > len(lines):
        shown.append(f"that is: {named(rules, len(rules))}")
    head = f"no schedule obeys the sketch {name}; {those}:"
    return "\n".join(
        [head, *shown, "", f"because   {conflict.why}", f"cure      {_cure(conflict)}"]
    )


def _cure(conflict: Conflict) -> str:
    if len(conflict.rules) == 1 and conflict.cures:
        return "without it the others leave every chunk a way"
    if conflict.cures == conflict.rules:
        return "any one of them may go"
    if conflict.cures:
        return f"leave out {named(conflict.cures)}; the others are in the way elsewhere too"
    return "one of them has to go, and then there is another conflict"


def named(rules: Iterable[Rule], most: int = TEXT.named_rules) -> str:
    """Return the labels of rules, the first ones of many."""
    labels = list(dict.fromkeys(rule.label for rule in rules))
    more = f"; … {len(labels) - most} more" if len(labels) > most else ""
    return "; ".join(labels[:most]) + more


# --- a time ---------------------------------------------------------------------------------------


def within_text(name: str, found: Within) -> str:
    """Return the lines that make a time impossible at their places, and the time without each."""
    asked = f"{microseconds(float(found.within_us))} µs at {format_bytes(found.bytes)}"
    answer = found.answer
    if answer.verdict is Possibility.POSSIBLE:
        took = [f"{microseconds(answer.us or 0.0)} µs", *_remarks(answer)]
        return f"{asked} is possible under the sketch {name}: a plan takes {', '.join(took)}"
    if answer.verdict is Possibility.UNDECIDED:
        return (
            f"not decided whether {asked} is possible under the sketch {name}: {answer.why}\n"
            "a larger --effort may decide"
        )
    if not found.core:
        return (
            f"no schedule takes {asked}, whatever the lines of the sketch {name}\n"
            f"because   {answer.why}{_open(answer)}"
        )
    rules = [rule for one in found.core for rule in one.unit]
    places = {str(rule.span): rule.span.render() for rule in rules if rule.span}
    several = len(found.core) > 1
    end = (
        "any one of them may go, as far as the others of them are concerned"
        if several
        else "without it the machine allows that time"
    )
    if not found.minimal:
        kept = [one.unit for one in found.core if not one.needed]
        labels = "; ".join(named(unit, 1) for unit in kept)
        end = f"not decided within the effort whether this is needed: {labels}"
    rows = [(named(one.unit, 1), *_without(one)) for one in found.core]
    return "\n".join(
        [
            f"no schedule under the sketch {name} takes {asked}; "
            f"{'these lines together make' if several else 'this line makes'} it impossible:",
            *places.values(),
            "",
            f"because   {answer.why}{_open(answer)}",
            f"minimal   {end}",
            "",
            table(("the sketch without", "takes µs", "at least µs", ""), rows),
        ]
    )


def _open(answer: WithinAnswer) -> str:
    return f"\nopen      {answer.beyond}: not excluded" if answer.beyond else ""


def _remarks(answer: WithinAnswer) -> list[str]:
    remarks = ["the least in whole chunks"] if answer.least else []
    if answer.us and answer.simulated_us and answer.simulated_us > answer.us * (1 + 1e-9):
        remarks.append(f"{microseconds(answer.simulated_us)} simulated: there nothing waits")
    return remarks


def _without(one: Dropped) -> tuple[str, str, str]:
    """Return the time without a statement, the bound on it, and remarks."""
    bound = microseconds(float(one.bound_us)) if one.bound_us else "-"
    match one.answer.verdict:
        case Possibility.POSSIBLE:
            us = one.answer.us
            return microseconds(us or 0.0), bound, ", ".join(_remarks(one.answer))
        case Possibility.UNDECIDED:
            return "-", bound, "not decided"
        case _:
            return "-", bound, "too long still: other lines are in the way"


def within_json(found: Within) -> dict[str, Any]:
    """Return the answer; ``status`` is ok, infeasible or unknown."""
    status = {Possibility.POSSIBLE: "ok", Possibility.IMPOSSIBLE: "infeasible"}

    def facts_of(answer: WithinAnswer) -> dict[str, Any]:
        return {
            "verdict": str(answer.verdict),
            "us": number(answer.us),
            "least": answer.least,
            "simulated_us": number(answer.simulated_us),
            "why": answer.why,
            "beyond": answer.beyond,
        }

    return {
        "status": status.get(found.answer.verdict, "unknown"),
        "bytes": found.bytes,
        "within_us": number(found.within_us),
        **facts_of(found.answer),
        "pieces": list(found.pieces),
        "minimal": found.minimal,
        "core": [
            {
                "labels": [rule.label for rule in one.unit],
                "where": str(span) if (span := one.unit[0].span) else None,
                "line": span.line if span else None,
                "text": span.text if span else None,
                "needed": one.needed,
                "without": {**facts_of(one.answer), "bound_us": number(one.bound_us)},
            }
            for one in found.core
        ],
    }


# --- costs ----------------------------------------------------------------------------------------


def cost_text(costs: SketchCosts) -> str:
    """Return the bound under all rules, a line for each statement, and the cost of the dearest
    one."""
    whole = float(costs.all_rules.us)
    rows = [
        (
            named(cost.unit, 1),
            microseconds(float(cost.without.us)),
            microseconds(whole - float(cost.without.us)),
        )
        for cost in costs.each
    ]
    least = float(costs.no_rules.us)
    ends = ("no rules at all", microseconds(least), microseconds(whole - least))
    return "\n".join(
        [
            f"at {format_bytes(costs.bytes)} no schedule that obeys the sketch takes less than "
            f"{microseconds(whole)} µs:",
            f"  {costs.all_rules.certificate.text}",
            "",
            table(("without", "at least µs", "saves µs"), [*rows, ends]),
            "",
            _dearest(costs),
        ]
    )


def _dearest(costs: SketchCosts) -> str:
    best = costs.each[0]
    saves = costs.all_rules.us - best.without.us
    if saves <= 0:
        loss = costs.all_rules.us - costs.no_rules.us
        return "no single rule raises the bound" if loss > 0 else "the rules do not raise the bound"
    share = float(saves / costs.all_rules.us)
    return (
        f"{named(best.unit, 1)} costs most: {share:.1%} of the time. Without it:\n"
        f"  {best.without.certificate.text}"
    )


def cost_json(costs: SketchCosts) -> dict[str, Any]:
    """Return one entry of ``sizes``."""
    return {
        "bytes": costs.bytes,
        "us": number(costs.all_rules.us),
        "certificate": costs.all_rules.certificate.text,
        "without_rules_us": number(costs.no_rules.us),
        "rules": [
            {
                "labels": [rule.label for rule in cost.unit],
                "where": str(cost.unit[0].span) if cost.unit[0].span else None,
                "us_without": number(cost.without.us),
                "saves_us": number(costs.all_rules.us - cost.without.us),
                "certificate": cost.without.certificate.text,
            }
            for cost in costs.each
        ],
    }


def binding_text(found: Binding) -> str:
    """Return time, bound, busiest resource, gap in words, and chain as text."""

    s, time = found.schedule, found.simulation.time_us
    head = facts(
        [
            (
                "schedule",
                f"{s.collective} on {s.topology.name}, "
                f"{format_bytes(found.simulation.message_bytes)}",
            ),
            ("time", f"{microseconds(time)} µs"),
            (
                "busiest",
                f"{found.name}: {microseconds(found.busy_us)} µs, {found.share:.1%} of the time",
            ),
            ("bound", f"{microseconds(found.bound_us)} µs"),
            ("", found.certificate.text),
            *(("gap" if i == 0 else "", line) for i, line in enumerate(gap_words(found))),
        ]
    )
    if not found.chain:
        return f"{head}\n\nno single chain: each transfer is made in {count(s.segments, 'slice')}"
    rows: list[tuple[object, ...]] = [
        (
            microseconds(link.start_us),
            microseconds(link.end_us),
            int(s.chunk[link.transfer]),
            f"{s.src[link.transfer]} -> {s.dst[link.transfer]}",
            _why(found, link),
        )
        for link in found.chain
    ]
    if len(rows) > TEXT.chain_transfers:
        half = TEXT.chain_transfers // 2
        rows = [*rows[:half], ("…", "", "", "", ""), *rows[-half:]]
    title = f"what the time is made of, {count(len(found.chain), 'transfer')}:"
    return f"{head}\n\n{title}\n" + table(("from µs", "to µs", "chunk", "hop", "starts when"), rows)


def _why(found: Binding, link: ChainLink) -> str:

    s, j = found.schedule, link.freed_by
    if link.waits is WaitReason.START:
        return "the clock starts"
    if link.waits is WaitReason.DATA:
        return f"its data has come from {s.src[j]}"
    hop = f"{s.src[j]} -> {s.dst[j]}"
    return f"chunk {s.chunk[j]} ({hop}) has left {resource_name(s.topology, link.resource)}"


def binding_json(found: Binding) -> dict[str, Any]:
    """Return one entry of ``sizes``."""
    run, s = found.simulation, found.schedule
    return {
        "bytes": run.message_bytes,
        "us": number(run.time_us),
        "bound_us": number(found.bound_us),
        "of_bound": number(run.of_bound),
        "certificate": {"kind": found.certificate.kind, "text": found.certificate.text},
        "busiest": {"name": found.name, "us": number(found.busy_us), "share": number(found.share)},
        "gap": gap_words(found),
        **({} if found.in_chunks is None else {"in_chunks": found.in_chunks.to_json()}),
        "chain": [
            {
                "transfer": link.transfer,
                "chunk": int(s.chunk[link.transfer]),
                "src": int(s.src[link.transfer]),
                "dst": int(s.dst[link.transfer]),
                "start_us": number(link.start_us),
                "end_us": number(link.end_us),
                "waits": str(link.waits),
                "for": resource_name(s.topology, link.resource) if link.resource >= 0 else None,
                "after": link.freed_by if link.freed_by >= 0 else None,
            }
            for link in found.chain
        ],
    }
