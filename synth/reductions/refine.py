"""Chunk scaling: the same schedule on finer chunks."""

from __future__ import annotations

import numpy as np

from weft.dsl.schedule import Schedule


def refine(schedule: Schedule, pieces: int) -> Schedule:
    """Every chunk cut into ``pieces``, each taking the same way; rounds grow with them.

    Rounds per chunk stay the same. Pieces of a chunk stay together inside a step.
    """
    if pieces == 1:
        return schedule
    columns = schedule.columns()
    lengths = columns["route_lengths"]
    inside = np.tile(np.arange(pieces, dtype=np.int32), len(schedule))
    repeat = {k: np.repeat(columns[k], pieces) for k in ("src", "dst", "step", "reduce")}
    routes = np.split(columns["route_links"], np.cumsum(lengths)[:-1]) if len(schedule) else []
    links = [route for route in routes for _ in range(pieces)]
    return Schedule.from_columns(
        schedule.topology, schedule.collective.split(pieces),
        np.repeat(columns["chunk"], pieces) * pieces + inside,
        repeat["src"], repeat["dst"], repeat["step"], repeat["reduce"],
        np.repeat(lengths, pieces), np.concatenate([*links, np.zeros(0, np.int32)]),
        rounds=tuple(r * pieces for r in schedule.rounds), provenance=schedule.provenance,
    )  # fmt: skip
