"""Sheets of schedules, which ``weft diff`` compares."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from weft.dsl.base.units import format_bytes
from weft.dsl.nouns import schedule
from weft.dsl.nouns.schedule import Schedule
from weft.synth.fabric.fabric import fabric_of
from weft.synth.fabric.occupancy import links_used

from ..formats.listings import Sheet, Value, digest_of
from .sheets import MOST_LISTED, link_names, plain

UNIT = 1 << 20
"""Message size in bytes for which the load of links is stated."""


def schedule_sheets(s: Schedule) -> dict[str, Sheet]:
    """Return facts, the load of every link and shared resource, and all transfers."""
    made = s.provenance
    facts: dict[str, Value] = {
        "collective": str(s.collective),
        "topology": s.topology.name,
        "machine": s.topology.digest()[:16],
        "chunks": s.collective.factor,
        "steps": s.steps,
        "rounds": sum(s.rounds) or None,
        "transfers": len(s),
        **({"casts": len(s.casts)} if len(s.casts) else {}),
        "segments": s.segments,
        "planned order": s.planned,
        "made for bytes": s.bytes,
        **{key: plain(made.get(key)) for key in ("engine", "found_by", "seed")},
        "digest": digest_of(schedule.dumps(replace(s, provenance={}))),
    }
    sheets: dict[str, Sheet] = {"facts": facts, f"bytes of {format_bytes(UNIT)}": _loads(s)}
    if len(s) <= MOST_LISTED:
        sheets["transfers"] = _transfers(s)
    if 0 < len(s.casts) <= MOST_LISTED:
        sheets["casts"] = _casts(s)
    return sheets


def _loads(s: Schedule) -> Sheet:
    """Return the bytes over each link and resource that is used."""
    t = s.topology
    fabric = fabric_of(t)
    links, _, chunk = links_used(s)
    position, rows = fabric.resources_of(links)
    grains = s.collective.grains[chunk[position]]
    load = np.zeros(fabric.resources)
    np.add.at(load, rows, grains)
    load *= UNIT / s.collective.message_chunks
    names = [*link_names(t), *(f"shared {r.name}" for r in t.resources)]
    return {name: float(x) for name, x in zip(names, load, strict=True) if x}


def _casts(s: Schedule) -> Sheet:
    """Return every cast with its links."""
    names = link_names(s.topology)
    sheet: dict[str, Value] = {}
    for i, one in enumerate(s.casts):
        ends = " -> ".join(",".join(map(str, x)) for x in (one.sources, one.destinations))
        does = "adds" if one.reduce else "stores"
        way = ", ".join(names[k] for k in one.links)
        sheet[f"cast {i}"] = f"step {one.step}: chunk {one.chunk} {ends} {does} over {way}"
    return sheet


def _transfers(s: Schedule) -> Sheet:
    """Return every transfer with its time and links."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for one in s:
        way = ",".join(map(str, one.route))
        kind = "+>" if one.reduce else "->"
        name = f"chunk {one.chunk}: {one.src} {kind} {one.dst}"
        found[name].append(f"step {one.step + 1} over {way}")
    return {name: "; ".join(sorted(steps)) for name, steps in found.items()}
