"""The topology of what was measured."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np

from weft.dsl.nouns.parts import Medium
from weft.dsl.nouns.timing import MachineTiming
from weft.dsl.nouns.topology import BANDWIDTHS, Link, Node, Resource, Topology
from weft.dsl.symmetry.symmetry import GUESSED, guess
from weft.synth.time.calibrated import family_medium

from .call_fit import CallNumbers, call_numbers
from .model import AlphaBeta, CallPath, Findings, LinkClass
from .noise import ALIKE

GB_PER_S = 1e-3
"""GB/s that one byte per µs is."""


def topology_of(name: str, found: Findings, family: str = "") -> Topology:
    """Return a link for every direction, with hosts for groups, and what is shared.

    Links of one class are exactly equal, and numbers have the digits that are known: equal links
    are what symmetry is made of. What calls tell is in the numbers of the runtime model, and what
    is uncertain in the notes. ``family``: of the machine, which names the class of its links.

    Raises:
        UnknownName: no such family.
    """
    host = {rank: number for number, group in enumerate(found.groups) for rank in group}
    several = len(found.groups) > 1
    nodes = tuple(Node(f"rank{r}", host=host[r] if several else None) for r in range(found.ranks))
    costs = {
        flow: (
            _bandwidth(1 / one.line.beta, one.line.beta_error),
            rounded(one.line.alpha, one.line.alpha_error),
        )
        for one in found.classes
        for flow in one.flows
    }
    flows = sorted(costs)
    links = tuple(Link(a, b, *costs[a, b]) for a, b in flows)
    place = {flow: i for i, flow in enumerate(flows)}
    resources = tuple(
        Resource(
            one.name, tuple(sorted(place[f] for f in one.flows)), _bandwidth(one.rate, one.error)
        )
        for one in found.shared
    )
    calls = numbers_of_calls(found, family)
    timing = MachineTiming(family, tuple(one.given() for one in calls.told))
    notes = (*notes_of(found), *calls.remarks)
    made = Topology(name, nodes, links, resources, notes=notes, timing=timing)
    return replace(made, symmetries=guess(made)) if made.ranks <= GUESSED else made


def numbers_of_calls(found: Findings, family: str) -> CallNumbers:
    """Return the numbers of the runtime model that the times of calls tell; none without calls.

    Raises:
        UnknownName: no such family.
    """
    inner = family_medium(family)
    media = {CallPath.INSIDE: inner} if inner else {}
    if len(found.groups) > 1:
        media[CallPath.BETWEEN] = Medium.NETWORK
    near = {rank: number for number, group in enumerate(found.groups) for rank in group}
    if not found.calls:
        return CallNumbers()
    lines: dict[CallPath, list[AlphaBeta]] = {}
    for (a, b), line in found.line_of().items():
        lines.setdefault(CallPath.INSIDE if near[a] == near[b] else CallPath.BETWEEN, []).append(
            line
        )
    alphas = {way: float(np.median([x.alpha for x in some])) for way, some in lines.items()}
    rates = {way: 1 / float(np.median([x.beta for x in some])) for way, some in lines.items()}
    return call_numbers(found.calls, media, alphas, rates)


def notes_of(found: Findings) -> tuple[str, ...]:
    """Return notes on the precision of the findings."""
    every = len(found.classes) == 1
    lines = [_class_note(one, every) for one in found.classes]
    lines.append(
        f"times spread by {found.noise:.1%} from sweep to sweep ({found.sweeps[0]} sweeps over "
        f"pairs, {found.sweeps[1]} over what they share); links that differ by less than "
        f"{ALIKE:.0%}, or than the noise, count as alike"
    )
    lines.append(
        "the two directions of a pair have half of their α each: without a common clock "
        "only the sum can be measured"
    )
    if found.sum_rate is not None:
        lines.append(f"a rank sums {rounded_text(found.sum_rate * GB_PER_S)} GB/s by itself")
    if found.overhead:
        cost = rounded_text(found.overhead)
        lines.append(
            f"when all ranks send, each message costs all of them {cost} µs, for which a "
            f"topology has no word: --overhead {cost}us of weft simulate and weft bench"
        )
    return (*lines, *found.remarks)


def _class_note(one: LinkClass, every: bool) -> str:
    line = one.line
    which = "all" if every else "the" if len(one.flows) > 1 else ""
    first = f"{one.flows[0][0]} to {one.flows[0][1]}"
    names = f"{which} {len(one.flows)} directions{'' if every else f' like {first}'}"
    unsure = "; its bandwidth is the least that fits" if line.beta_error > 0.45 else ""
    return (
        f"{names if len(one.flows) > 1 else first}: α known to {line.alpha_error:.1%}, "
        f"bandwidth to {line.beta_error:.1%}; times are off the line by {line.residual:.0%} "
        f"in the median, at most by {line.worst:.0%}{unsure}"
    )


def _bandwidth(rate: float, error: float) -> Fraction:
    least, most = BANDWIDTHS
    return min(max(rounded(rate * GB_PER_S, error), least), most)


def rounded(value: float, error: float) -> Fraction:
    """Return the value with the digits that its relative error leaves: two to four."""
    digits = min(4, max(2, math.ceil(-math.log10(max(error, 1e-9)))))
    return Fraction(f"{value:.{digits - 1}e}")


def rounded_text(value: float) -> str:
    """Two digits, for people."""
    return f"{float(np.format_float_positional(value, 2, fractional=False)):g}"
