"""Hand-made packings: trees by the quickest routes, cut at random, with the machine's group."""

import random
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np

from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import Collective, make
from weft.dsl.nouns.schedule import Schedule
from weft.dsl.nouns.topology import Topology
from weft.dsl.symmetry import symmetry
from weft.synth.base.meter import STEPS, Meter
from weft.synth.bounds import bounds
from weft.synth.engines.packing.order.plan import PackingPlan
from weft.synth.engines.packing.order.plan_quick import Group, identity, quick_packing
from weft.synth.engines.packing.trees.machine import TREE_EFFORT
from weft.synth.engines.packing.trees.model import Packing, trees_per_root
from weft.synth.engines.packing.trees.trees import pack

MACHINES = ("ring:8", "dgx1", "torus:4x4", "dgx-a100", "dgx-a100:nodes=2")
COPYING = ("allgather", "alltoall")
COMBINING = ("reduce_scatter", "allreduce")


def declared_group(machine: Topology) -> Group:
    """All elements of what the builder of a machine declares."""
    elements = symmetry.generate(symmetry.verified(machine)) or ()
    if not elements:
        return identity(machine)
    moved = [symmetry.link_image(machine, g) for g in elements]
    return np.array(elements, np.int32), np.array(moved, np.int32)


def quick(machine: Topology, collective: Collective, group: Group | None = None) -> Packing:
    """The quickest trees, with the bound on their rate."""
    known = bounds(machine, collective)
    return quick_packing(machine, collective, known.us_per_byte, known.certificate, group)


@cache
def named(name: str, kind: str, *, symmetric: bool = True) -> Packing:
    """The quickest trees on a machine of the catalogue; several tests look at the same."""
    machine = topology(name)
    group = declared_group(machine) if symmetric else None
    return quick(machine, make(kind, machine.ranks), group)


def mixed(packings: list[Packing], seed: int, most: int = 12) -> Packing:
    """Several packings of one problem and group, each with a random share of the data."""
    rng = random.Random(seed)
    parts = [rng.randint(1, most) for _ in packings]
    trees = tuple(
        replace(tree, weight=tree.weight * Fraction(part, sum(parts)))
        for packing, part in zip(packings, parts, strict=True)
        for tree in packing.trees
    )
    whole = replace(packings[0], trees=trees)
    return whole.rated()


def to_schedule(packing: Packing, segments: int = 1) -> Schedule:
    """The schedule of a packing in the order of its steps: correct, but not optimized."""
    return PackingPlan.of(packing).schedule(segments=segments)


def front(
    machine: Topology, collective: Collective, *, effort: float = 30
) -> list[tuple[int, int, Fraction]]:
    """(trees per root, height, rate as a part of the bound) of what :func:`pack` finds.

    Every entry has fewer trees, lower trees or a better rate than any other. For equal trees that
    is to be compared with one, two and the optimal number of trees per root of other tools.
    """
    found = {
        (packing.bound / packing.us_per_byte, trees_per_root(packing)[0], max(packing.heights))
        for trees in (0, *range(1, TREE_EFFORT.alone_trees + 1))
        for packing in pack(machine, collective, trees=trees, meter=Meter(round(effort * STEPS)))
    }
    return [
        (trees, height, rate)
        for rate, trees, height in sorted(found, reverse=True)
        if not any(
            r >= rate and t <= trees and h <= height and (r, t, h) != (rate, trees, height)
            for r, t, h in found
        )
    ]
