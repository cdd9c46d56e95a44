"""Common parts of all pages: head, ordered sections, and words for a problem."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from weft import __version__
from weft.dsl.base.tables import rounded
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.topology import Topology
from weft.synth.bounds import Bounds
from weft.synth.time.runtime_model import RuntimeModel

from ..model_numbers import assumed_numbers, numbers_of
from .chart import Series, size_charts
from .page import byte_words, microseconds

Facts = dict[str, Any]


def sheet(
    kind: str,
    title: str,
    sections: Iterable[Facts | None],
    *,
    subtitle: str = "",
    views: Sequence[Facts] = (),
    maps: Sequence[Facts] = (),
    pair: bool = False,
) -> Facts:
    """Return a whole page; sections that are None are left out."""
    return {
        "kind": kind,
        "title": title,
        "subtitle": subtitle,
        "version": __version__,
        "sections": [one for one in sections if one is not None],
        "views": list(views),
        "maps": list(maps),
        "pair": pair,
    }


def head(
    facts: Iterable[tuple[str, object]], tiles: Iterable[Facts] = (), notes: Sequence[str] = ()
) -> Facts:
    """Return the first section: figures in large type, then facts; empty ones are left out."""
    return {
        "id": "facts",
        "title": "In short",
        "part": "head",
        "tiles": list(tiles),
        "facts": [(name, str(value)) for name, value in facts if value not in ("", None, ())],
        "notes": list(notes),
    }


def tile(name: str, value: str, more: str = "") -> Facts:
    """Return one figure in large type."""
    return {"name": name, "value": value, "more": more}


def problem_facts(topology: Topology, collective: Collective) -> list[tuple[str, object]]:
    """Return machine and collective in words."""
    shared = len(topology.resources)
    machine = f"{topology.name}: {topology.ranks} GPUs, {topology.hosts} host"
    machine += f"{'s' if topology.hosts > 1 else ''}, {len(topology.links)} links"
    if shared:
        machine += f", {shared} shared resource{'s' if shared > 1 else ''}"
    return [("collective", collective), ("topology", machine)]


def provenance_facts(provenance: Mapping[str, Any]) -> list[tuple[str, object]]:
    """Return engine, seed, versions, and all other provenance in the file."""

    def words(value: Any) -> str:
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            return ", ".join(value)
        return value if isinstance(value, str) else json.dumps(value, default=str)

    return [
        (str(key).replace("_", " "), words(value))
        for key, value in provenance.items()
        if key not in _PROOFS
    ]


_PROOFS = ("bound", "certificate")
"""Provenance keys of a file's own proof of optimality, shown in the section on bounds."""


def own_proof(provenance: Mapping[str, Any]) -> list[tuple[str, Sequence[str]]]:
    """Return the certificate that the engine wrote into the file."""
    told = provenance.get("certificate")
    if not isinstance(told, str) or not told:
        return []
    bound = provenance.get("bound")
    rounds = "round" if str(bound) == "1" else "rounds"
    said = f"At least {bound} {rounds} per chunk in this number of steps: " if bound else ""
    return [("Proof by the engine", [f"{said}{told}."])]


def certificate_section(bound: Bounds, parts: Sequence[tuple[str, Sequence[str]]] = ()) -> Facts:
    """Return the bounds and their proofs in words."""
    algbw = bound.algbw_GBps
    found: list[tuple[str, Sequence[str]]] = [
        *parts,
        (
            "Latency",
            [f"At least {rounded(bound.latency_us)} µs: {bound.latency_certificate.text}."],
        ),
    ]
    if algbw:
        tight = f" The bound is tight: {bound.remark}." if bound.tight and bound.remark else ""
        found.append(
            (
                "Bandwidth",
                [f"At most {rounded(algbw)} GB/s algbw. {bound.certificate.text}.{tight}"],
            )
        )
    return {
        "id": "bound",
        "title": "Why not faster: the bound",
        "part": "certificate",
        "parts": found,
    }


def curves_section(
    several: Sequence[Series | None], bound: Series | None, after: str = ""
) -> Facts | None:
    """Return the charts and table of times; curves that are None are left out."""
    curves = [one for one in several if one]
    if not any(one.points for one in curves):
        return None
    lines = [*curves, *([bound] if bound else [])]
    sizes = sorted({a for one in lines for a, _ in one.points})
    known = [dict(one.points) for one in lines]
    rows = [[byte_words(n), *(microseconds(one.get(n)) for one in known)] for n in sizes]
    charts = size_charts(curves, bound)
    names = [one.name for one in lines]
    return charts_section("sizes", "Time over size", charts, names, rows, after)


def table_section(
    id: str,
    title: str,
    head: Sequence[str],
    rows: Sequence[Any],
    after: str = "",
    *,
    numbers: bool = False,
) -> Facts:
    """Return a table; ``numbers``: all columns but the first are right-aligned."""
    told = {"head": list(head), "rows": rows, "after": after, "numbers": numbers}
    return {"id": id, "title": title, "part": "table", **told}


def charts_section(
    id: str,
    title: str,
    charts: Sequence[Facts],
    names: Sequence[str] = (),
    rows: Sequence[Any] = (),
    after: str = "",
    **more: Any,
) -> Facts:
    """Return charts with the table of their numbers, if any; ``first``: the head of its rows."""
    found = {"id": id, "title": title, "part": "charts", "charts": list(charts), "after": after}
    first = {"first": more.pop("first")} if "first" in more else {}
    table = {"table": {"names": list(names), "rows": rows, **first}} if names else {}
    return {**found, **table, **more}


def views_section(title: str = "Machine and time", intro: str = "") -> Facts:
    """Return the section in which the views are shown."""
    return {"id": "views", "title": title, "part": "views", "intro": intro}


def listing_section(facts: Facts | None, title: str = "Program") -> Facts | None:
    """Return the code, rank by rank."""
    if facts is None or not (facts["parts"] or facts["notes"]):
        return None
    return {"id": "program", "title": title, "part": "listing", "open": False, **facts}


def assumed_section(model: RuntimeModel, protocols: Collection[Protocol]) -> Facts | None:
    """Return the assumed numbers of some protocols; None where a model has none and no remarks."""
    numbers = assumed_numbers(model, protocols)
    if not numbers and not model.remarks:
        return None
    others = len(numbers_of(model, protocols)) - len(numbers)
    after = [f"{one[:1].upper()}{one[1:]}." for one in model.remarks]
    if others:
        after.append(
            f"The {others} other numbers are given, published, or fitted to published times: "
            "weft topo show -v lists them with their sources."
        )
    return table_section(
        "assumed",
        "Assumptions of the times of programs",
        ("number", "value", "why", "replaced by"),
        [[x.key, f"{float(x.value):g}", x.source, x.replaced_by] for x in numbers],
        " ".join(after),
    )
