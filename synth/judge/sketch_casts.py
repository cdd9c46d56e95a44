"""Casts of a schedule against a sketch: part of :mod:`.sketch_rules`, with the same meanings.

A cast is a hop from each of its sources to each of its other destinations: *forbid* must name none
of these pairs and none of its links, and one *only* must name them all, or all its links. *switch
reduce, multicast, off, groups*: what the passes of casts through that switch do. Numbers of chunks
and of steps are of the whole schedule. All other rules are about transfers; a schedule with casts
does not keep them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from weft.dsl.nouns.casts import cast_name
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.sketch import (
    CastPolicy,
    Chunks,
    ChunksBySize,
    Forbid,
    MaxSteps,
    Only,
    Rule,
    Sketch,
    SwitchPolicy,
)

from .casts import switch_passes


def casts_broken(schedule: Schedule, sketch: Sketch) -> Iterator[tuple[Rule, str]]:
    """Yield each rule that a cast breaks, and how."""
    if not len(schedule.casts):
        return
    only = [rule for rule in sketch.rules if isinstance(rule, Only)]
    for i, one in enumerate(schedule.casts):
        name, links = cast_name(one, i), frozenset(one.links)
        pairs = frozenset((s, d) for s in one.sources for d in one.destinations if s != d)
        if only and not any(pairs <= r.pairs or links <= r.links for r in only):
            yield only[0], f"{name}: no such rule names all its hops"
        for rule in sketch.rules:
            if isinstance(rule, Forbid) and (pairs & rule.pairs or links & rule.links):
                yield rule, f"{name}: forbidden"
    for rule in sketch.rules:
        if isinstance(rule, CastPolicy):
            yield from ((rule, text) for text in _beyond(schedule, rule))
        elif not _kept(rule):
            yield rule, "the rule is about transfers, and the schedule has casts"


def _kept(rule: Rule) -> bool:
    """Return True if casts cannot break a rule, or it was looked at."""
    if isinstance(rule, SwitchPolicy):
        return rule.limit is None
    return isinstance(rule, Only | Forbid | Chunks | ChunksBySize | MaxSteps)


def _beyond(schedule: Schedule, rule: CastPolicy) -> Iterator[str]:
    """Yield uses of a switch by casts that the rule does not allow."""
    groups: set[frozenset[int]] = set()
    name = schedule.topology.nodes[rule.switch].name
    for i, one in enumerate(schedule.casts):
        for switch, before, after in switch_passes(schedule.topology, one):
            if switch != rule.switch:
                continue
            sides = {"reduces": before, "multicast": after}
            used = {word: side for word, side in sides.items() if len(side) > 1}
            stray = () if rule.allowed is None else sorted(used.keys() - rule.allowed)
            for word in stray:
                does = "sums" if word == "reduces" else "copies"
                yield f"{cast_name(one, i)}: {name} {does}"
            if used:
                groups.add(frozenset(chain.from_iterable(used.values())))
    if rule.groups is not None and len(groups) > rule.groups:
        yield f"the casts use {len(groups)} groups of {name}"
