"""The levels that the phases of a sketch name, as a grid for hierarchical algorithms."""

from __future__ import annotations

from itertools import chain
from math import prod

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from weft.dsl.base.arrays import Ints
from weft.dsl.nouns.problem import Problem
from weft.dsl.nouns.sketch import Phases

from .grid import Grid

Groups = tuple[tuple[int, ...], ...]


def grid_of_phases(problem: Problem) -> Grid | None:
    """The grid whose lines are the groups of the sketch's phases, the first phase along axis 0.

    None where no phases are told, or their groups are no lines of a grid. Sums go inwards first,
    so for an allgather the last phase is the innermost. O(ranks · phases).
    """
    rules = problem.sketch.of(Phases) if problem.sketch else ()
    if not rules:
        return None
    told = [phase.groups for rule in rules if isinstance(rule, Phases) for phase in rule.phases]
    if str(problem.collective.kind) == "allgather":
        told.reverse()
    axes = list(dict.fromkeys(told))
    ranks = problem.topology.ranks
    place = np.array([_across(axes, axis, ranks) for axis in range(len(axes))])
    shape = tuple(int(x) + 1 for x in place.max(axis=1))
    strides = [prod(shape[:axis]) for axis in range(len(shape))]
    number = place.T @ strides
    if prod(shape) != ranks or len(np.unique(number)) != ranks:
        return None
    return Grid(shape, tuple(np.argsort(number).tolist()))


def _across(axes: list[Groups], axis: int, ranks: int) -> Ints:
    """Where each rank stands along an axis: all that the other axes join stand at one place."""
    others = chain.from_iterable(axes[:axis] + axes[axis + 1 :])
    pairs = np.array([(g[0], r) for g in others for r in g], np.int64).reshape(-1, 2)
    joined = coo_array((np.ones(len(pairs), bool), pairs.T), shape=(ranks, ranks))
    return np.asarray(connected_components(joined, directed=False)[1], np.int64)
