"""Pages that consist of text: a machine with its drawing, a collective, a sketch, a script."""

from __future__ import annotations

from collections import Counter

from weft.dsl.nouns.topology import Topology

from .listing import MOST_CHARACTERS
from .machine import machine_map
from .machine_facts import bounds_section, machine_tiles
from .page import figure
from .sheet import Facts, head, listing_section, sheet

MOST_KINDS = 12
"""Largest number of kinds of links that are listed."""


def topology_page(topology: Topology, text: str, name: str) -> Facts:
    """Return the page of a machine: drawing and facts."""
    machine = {"id": "machine", "title": "The machine", "part": "machine"}
    return sheet(
        "topology",
        topology.name,
        [
            head([("file", name), *_links(topology)], machine_tiles(topology)),
            machine,
            bounds_section(topology),
            listing_section(_parts(text), "In full"),
        ],
        subtitle=name,
        maps=[machine_map(topology)],
    )


def text_page(kind: str, title: str, text: str, name: str) -> Facts:
    """Return the page of anything else, with the text of ``weft show``."""
    facts = listing_section(_parts(text), "In full")
    return sheet(kind, title, [_short(name), facts and {**facts, "open": True}], subtitle=name)


def _links(topology: Topology) -> list[tuple[str, str]]:
    """Return the kinds of links with their number and bandwidth."""
    kinds = Counter(
        (topology.nodes[x.src].kind, topology.nodes[x.dst].kind, x.bandwidth)
        for x in topology.links
    )
    return [
        (f"{a} → {b}", f"{number} of {figure(float(width))} GB/s")
        for (a, b, width), number in kinds.items()
    ][:MOST_KINDS]


def _short(name: str) -> Facts:
    return head([("file", name)])


def _parts(text: str) -> Facts:
    """Return a text, or its beginning with a note on the rest."""
    shown = text[:MOST_CHARACTERS]
    notes = []
    if len(shown) < len(text):
        notes.append(
            f"{len(text) - len(shown):,} further characters are left out; weft show prints them"
        )
    return {"parts": [{"title": "text", "text": shown}], "notes": notes}
