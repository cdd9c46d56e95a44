"""Sketches for the verbs: by name or from a file, and what is odd about one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.dsl.collective import Collective
    from weft.dsl.sketch import Sketch
    from weft.dsl.topology import Topology


def read_sketch(text: str, topology: Topology, collective: Collective) -> Sketch:
    """The sketch of a name or file, on this machine and for this collective."""
    from weft.dsl.language import load_sketch

    return load_sketch(text, topology, collective)


def lint_sketch(text: str, where: str) -> list[str]:
    """What is wrong or odd in a sketch's text, with places."""
    from weft.dsl.language import lint

    return [str(remark) for remark in lint(text, where)]
