"""Pairs of ranks that a sketch allows each chunk to use, and the symmetries that it demands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.dsl.base.arrays import Bools, distinct_values
from weft.dsl.base.errors import UserError
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.sketch import Forbid, Only, Relay, Sketch, Symmetry
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry.orbits import Orbits, orbits_under


def orbits_for(topology: Topology, sketch: Sketch) -> Orbits:
    """Return the symmetry group that a sketch demands; without such a rule the identity.

    Raises:
        UserError: it leaves some ranks where they are.
    """
    rules = [r for r in sketch.rules if isinstance(r, Symmetry)]
    found = orbits_under(topology, [rule.image for rule in rules])
    if found is None:
        raise UserError(
            "some move of the sketch's symmetry leaves ranks where they are",
            where=str(rules[0].span or rules[0].label),
            hint="moves that move every rank, such as rotations",
        )
    return found


def same_for_all(topology: Topology, collective: Collective, sketch: Sketch) -> Bools | None:
    """The pairs that every chunk may cross, if the rules are the same for all chunks.

    None where they are not, or where they are about single links.
    """
    hops = [r for r in sketch.rules if isinstance(r, Only | Forbid)]
    if any(r.links for r in hops):
        return None
    starts = np.zeros((collective.chunks, collective.ranks), bool)
    starts[collective.pre.chunks, collective.pre.ranks] = True
    usable = np.ones((topology.ranks, topology.ranks), bool)
    only = [r for r in hops if isinstance(r, Only)]
    if only:
        usable = _named(only, topology.ranks)
    usable &= ~_named([r for r in hops if isinstance(r, Forbid)], topology.ranks)
    barred = [off_relays(topology, sketch, row) for row in np.unique(starts, axis=0)]
    # A relay binds a chunk in its home only; here all others keep to it, too.
    bound = np.logical_or.reduce(barred)
    relays = [r for r in sketch.rules if isinstance(r, Relay)]
    free = _named(relays, topology.ranks)
    if relays and any((bound & free & bad).any() for bad in barred):
        return None
    found: Bools = usable & ~bound
    return found


def _named(rules: Sequence[Only | Forbid | Relay], ranks: int) -> Bools:
    found = np.zeros((ranks, ranks), bool)
    for rule in rules:
        pairs = rule.through if isinstance(rule, Relay) else rule.pairs
        if pairs:
            found[tuple(np.array(sorted(pairs)).T)] = True
    return found


def off_relays(topology: Topology, sketch: Sketch, starts: Bools) -> Bools:
    """Pairs (ranks, ranks) that a chunk of these starts may not cross, for relays stand elsewhere.

    A chunk leaves a host where all rules allow it that name one of its starts there. A sum has
    many starts: it is enough that one of them may.
    """
    ranks = topology.ranks
    rules = [r for r in sketch.rules if isinstance(r, Relay)]
    host = np.unique(np.array([str(h) for h in topology.host_of]), return_inverse=True)[1]
    away = host[:, None] != host[None, :]
    bad = np.zeros((ranks, ranks), bool)
    for home in distinct_values(host[starts]).tolist() if rules else ():
        mine = np.flatnonzero(starts & (host == home)).tolist()
        free = np.zeros((ranks, ranks), bool)
        for start in mine:
            named = [_named([r], ranks) for r in rules if start in r.sources]
            free |= np.logical_and.reduce(named) if named else True  # by all rules
        bad |= away & (host == home)[:, None] & ~free
    return bad
