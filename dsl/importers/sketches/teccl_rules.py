"""Translation of a TE-CCL input to a sketch: collective, size and chunks."""

from __future__ import annotations

import re
import textwrap

from ...base.units import format_bytes
from ...language.format import format
from ...language.parse import parse
from ...nouns.topology import Topology
from ..taccl_sketch import TacclRemark
from ..teccl import TecclInput
from .taccl_rules import Imported


def teccl_sketch(asked: TecclInput, topology: Topology, name: str) -> Imported:
    """Translate an input for its machine, with remarks on differences to TE-CCL."""
    pieces = f"{asked.chunks} chunk{'s' * (asked.chunks > 1)} of {format_bytes(asked.chunk)}"
    each = "each GPU for each other" if asked.kind == "alltoall" else "each GPU"
    said = (
        f"TE-CCL's input {name}: {asked.kind} on {topology.name} ({topology.ranks} GPUs), "
        f"{pieces} on {each}."
    )
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    lines = [
        *(f"# {line}" for line in textwrap.wrap(said, 94)),
        f"sketch {plain if plain[:1].isalpha() else f'teccl{plain}'}",
        f"collective {asked.kind}",
        f"size {asked.message(topology.ranks)}B",
        f"chunks {asked.chunks}",
    ]
    remarks = (
        TacclRemark(
            "InstanceParams",
            "TE-CCL counts time in whole epochs, and small α as 0; here time is continuous",
        ),
    )
    return Imported(format(parse("\n".join(lines) + "\n", name)), remarks)
