"""The meaning of a sketch's rules on hops and chunks: the length of hops, the switches they pass,
the chunks that a send means, and where a symmetry takes chunks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.dsl.base.arrays import Bools, Ints
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.hops import latency_units
from weft.dsl.nouns.sketch import FixedSend, Measure
from weft.dsl.nouns.topology import Topology

Routes = Sequence[Sequence[int]]
"""The links of each hop."""


def hop_lengths(topology: Topology, routes: Routes, measure: Measure) -> Ints:
    """The length of each hop: 1, or its α in units of the machine (:func:`.latency_units`)."""
    if measure is Measure.HOPS:
        return np.ones(len(routes), np.int64)
    alpha, _ = latency_units(topology)
    return np.array([alpha[list(route)].sum() for route in routes], np.int64)


def passing(topology: Topology, routes: Routes, switch: int) -> Bools:
    """Mask of the hops that pass a switch."""
    links = topology.links
    return np.array([any(links[i].dst == switch for i in route) for route in routes], bool)


def held_and_wanted(collective: Collective) -> tuple[Bools, Bools]:
    """Masks of the ranks that hold each chunk at the start, and that want it: (chunks, ranks)."""
    holds, wants = np.zeros((2, collective.chunks, collective.ranks), bool)
    holds[collective.pre.chunks, collective.pre.ranks] = True
    wants[collective.post.chunks, collective.post.ranks] = True
    return holds, wants


def chunks_meant(
    rule: FixedSend, holds: Bools, wants: Bools, pieces: int, *, combining: bool
) -> Bools:
    """Mask of the chunks that a fixed send means; those that have to move, if it must be."""
    meant = holds[:, rule.owner].copy()
    if rule.target is not None:
        meant &= wants[:, rule.target]
    if rule.piece is not None:
        meant &= np.arange(len(meant)) % pieces == rule.piece
    if rule.must and not combining:
        meant &= (wants & ~holds).any(axis=1)
    return meant


def chunk_images(holds: Bools, wants: Bools, move: Ints) -> Ints | None:
    """The image of each chunk where a symmetry moves the ranks: the k-th of those that start and
    end alike; None if there is none."""
    here: dict[bytes, list[int]] = {}
    ends = np.concatenate([holds, wants], axis=1)
    for c, row in enumerate(ends):
        here.setdefault(row.tobytes(), []).append(c)
    after = np.zeros_like(ends)
    after[:, np.concatenate([move, holds.shape[1] + move])] = ends
    turn: dict[bytes, int] = {}
    images = []
    for row in after:
        key = row.tobytes()
        place = turn[key] = turn.get(key, -1) + 1
        if place >= len(here.get(key, ())):
            return None
        images.append(here[key][place])
    return np.array(images, np.int64)
