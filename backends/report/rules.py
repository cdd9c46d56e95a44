"""Rules that exclude each other, and what rules cost, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from weft.dsl.base.tables import microseconds, number, table
from weft.dsl.base.units import format_bytes

if TYPE_CHECKING:
    from weft.dsl.nouns.sketch import Rule
    from weft.synth.explain.conflicts import Conflict
    from weft.synth.explain.costs import Cost, Costs

MOST = 3
"""Rules of one statement that are told by name."""


def conflict_text(name: str, conflict: Conflict) -> str:
    """Why no schedule obeys, the rules at their lines, and what would help."""
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
        return f"leave out {named(conflict.cures, MOST)}; the others are in the way elsewhere too"
    return "one of them has to go, and then there is another conflict"


def conflict_json(conflict: Conflict) -> dict[str, Any]:
    """Keys of the object: labels, where they stand, why, and those whose loss is enough."""
    return {
        "conflict": [rule.label for rule in conflict.rules],
        "where": [str(rule.span) if rule.span else None for rule in conflict.rules],
        "why": conflict.why,
        "cures": [rule.label for rule in conflict.cures],
    }


def named(rules: Iterable[Rule], most: int = MOST) -> str:
    """Labels of rules, the first ones of many."""
    labels = list(dict.fromkeys(rule.label for rule in rules))
    more = f"; … {len(labels) - most} more" if len(labels) > most else ""
    return "; ".join(labels[:most]) + more


# --- costs ----------------------------------------------------------------------------------------


def cost_text(costs: Costs) -> str:
    """The bound under all rules, a line for each statement, and what the dearest one costs."""
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


def _dearest(costs: Costs) -> str:
    best = costs.each[0]
    saves = costs.all_rules.us - best.without.us
    if saves <= 0:
        loss = costs.all_rules.us - costs.no_rules.us
        return (
            "no rule costs anything by itself" if loss > 0 else "the rules cost nothing"
        ) + " that the bounds show"
    share = float(saves / costs.all_rules.us)
    return (
        f"{named(best.unit, 1)} costs most: {share:.1%} of the time. Without it:\n"
        f"  {best.without.certificate.text}"
    )


def cost_json(costs: Costs) -> dict[str, Any]:
    """One entry of ``sizes``."""
    return {
        "bytes": costs.bytes,
        "us": number(costs.all_rules.us),
        "certificate": costs.all_rules.certificate.text,
        "without_rules_us": number(costs.no_rules.us),
        "rules": [_one(cost, costs) for cost in costs.each],
    }


def _one(cost: Cost, costs: Costs) -> dict[str, Any]:
    return {
        "labels": [rule.label for rule in cost.unit],
        "where": str(cost.unit[0].span) if cost.unit[0].span else None,
        "us_without": number(cost.without.us),
        "saves_us": number(costs.all_rules.us - cost.without.us),
        "certificate": cost.without.certificate.text,
    }
