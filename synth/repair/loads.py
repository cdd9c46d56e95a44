"""What ways of chunks load: one row of a matrix for each row of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Floats, Ints
from weft.dsl.base.unique_rows import rows_of

from ..fabric.fabric import fabric_of
from .torn import Torn
from .trees import Way


def load_matrix(torn: Torn, ways: Sequence[Way]) -> Any:
    """Loads of the machine's rows (links, then resources) by one grain on each way, in grains per
    GB/s: a sparse matrix, shape (rows, ways)."""
    from scipy.sparse import csc_matrix

    topology, start = torn.left.topology, torn.schedule.route_start
    links = [
        np.concatenate(
            [
                torn.moved[rows_of(start, way.kept)[1]],
                np.array([i for new in way.fresh for i in new.transfer.route], np.int64),
            ]
        )
        for way in ways
    ]
    way = np.repeat(np.arange(len(ways)), [len(x) for x in links])
    fabric = fabric_of(topology)
    position, row = fabric.resources_of(np.concatenate([np.zeros(0, np.int64), *links]))
    shape = (fabric.resources, len(ways))
    return csc_matrix((1 / fabric.GBps[row], (row, way[position])), shape=shape)


def heights(torn: Torn, ways: Sequence[Way]) -> Floats:
    """Steps of each way, shape (ways,)."""
    step = torn.schedule.step
    return np.array(
        [
            max([int(step[way.kept].max(initial=-1)), *(new.transfer.step for new in way.fresh)])
            + 1.0
            for way in ways
        ]
    )


def plain_of(torn: Torn) -> Ints:
    """The chunk of the plain collective that each chunk is a piece of."""
    c = torn.schedule.collective
    found: Ints = (np.cumsum(c.grains) - c.grains) // c.factor
    return found
