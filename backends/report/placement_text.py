"""Placements of axes as text and as JSON: ranked, and what to paste for the best one."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from weft.dsl.base.tables import count, facts, number, table
from weft.synth.joint.axis_placement import AxisPlacement, PlacementRanking

_ORDERS_SHOWN = 8
"""Orders of one host in the table; ``--json`` has all that were solved."""


def placement_facts(found: PlacementRanking) -> dict[str, Any]:
    """Return the keys of ``weft place --json``."""
    rows = [
        {
            "matrix": [list(row) for row in one.matrix],
            "us": number(one.us),
            "exact": None if one.us is None else str(one.us),
            "rank_order": list(one.order),
            **({"reason": one.reason} if one.reason else {}),
        }
        for one in found.placements
    ]
    usual = found.default_us
    return {
        "axes": dict(found.axes),
        "levels": dict(zip(found.levels.names, found.levels.sizes, strict=True)),
        "placements": rows,
        "default": {"us": number(usual), "exact": None if usual is None else str(usual)},
    }


def placement_text(found: PlacementRanking) -> str:
    """Return the answer of ``weft place`` for people."""
    inside = " × ".join(found.levels.names)
    usual = tuple(range(len(found.levels.gpus)))
    best = found.best_us
    lost = sum(one.us is None for one in found.placements)
    head = [
        ("best", f"{float(best):,.3f} µs"),
        ("default", f"{_against(found.default_us, best)}: rank i on GPU i"),
        *([] if found.worst_us is None else [("worst", _against(found.worst_us, best))]),
    ]
    if lost:
        head.append(
            ("no time", f"{count(lost, 'placement')}: a group is not connected by its own ranks")
        )
    orders = len({one.matrix for one in found.placements}) < len(found.placements)
    rows = [
        (
            *((str(list(one.order)),) if orders else (" × ".join(map(str, x)) for x in one.matrix)),
            "-" if one.us is None else f"{float(one.us):,.1f}",
            "-" if one.us is None else f"{float(one.us / best):.2f}",
            "default" if one.order == usual else one.reason,
        )
        for at, one in enumerate(found.placements)
        if at < _ORDERS_SHOWN or one.order == usual or not orders
    ]
    columns = ("order of GPUs",) if orders else tuple(f"{name}: {inside}" for name, _ in found.axes)
    pasted = _pasted(found, found.placements[0])
    return "\n".join([facts(head), "", table((*columns, "µs", "over best", ""), rows), "", pasted])


def _against(us: Fraction | None, best: Fraction) -> str:
    if us is None:
        return "impossible, ranks of a group do not reach each other"
    return f"{float(us):,.3f} µs (×{float(us / best):.2f})"


def _pasted(found: PlacementRanking, best: AxisPlacement) -> str:
    """Return the rank order of the best placement, as Python that runtimes take.

    Arrays have the slowest axis first, so the axes come backwards.
    """
    names = tuple(name for name, _ in reversed(found.axes))
    shape = ", ".join(str(size) for _, size in reversed(found.axes))
    return "\n".join(
        [
            "# Megatron: start rank i on GPU order[i]. JAX, then torch:",
            f"order = {list(best.order)}",
            f"jax.sharding.Mesh(np.array(jax.devices())[order].reshape({shape}), {names})",
            f'DeviceMesh("cuda", torch.tensor(order).reshape({shape}), mesh_dim_names={names})',
        ]
    )
