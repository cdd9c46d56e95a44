"""Inputs of TACCL and TE-CCL, read unchanged for ``weft synth`` and ``weft sketch import``.

TACCL has a topology and a sketch; TE-CCL has one file for machine and question.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.base.files import parse_json, read_text
from weft.dsl.catalogue import file_of, imported, paired
from weft.dsl.importers.taccl import is_taccl_topology
from weft.dsl.importers.taccl_sketch import TacclSketch, looks_like_sketch, read_taccl_sketch
from weft.dsl.importers.teccl import looks_like_teccl
from weft.dsl.machines.host_file import host_names
from weft.dsl.machines.spec import parse_spec

from ..flags.values import split_arguments
from .machines import read_topology

if TYPE_CHECKING:
    from weft.dsl.nouns.topology import Topology


def sketch_in(path: str | None) -> TacclSketch | None:
    """Return the TACCL sketch in a file; None for other files and for ``-``, which is read once.

    Raises:
        UserError: other JSON, a wrong sketch, or one with parameters.
    """
    file, arguments = split_arguments(path or "-")
    if file == "-" or not _is_file(file):
        return None
    text = read_text(file)
    if not text.lstrip().startswith("{") or looks_like_teccl(parse_json(text, file)):
        return None
    sketch = parse_sketch(text, file)
    if arguments:
        raise UserError("a TACCL sketch has no parameters", where=path, hint=f"change it in {file}")
    return sketch


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False


def parse_sketch(text: str, where: str) -> TacclSketch:
    """Parse a TACCL sketch.

    Raises:
        BadFile: it is not a TACCL sketch, or a wrong one.
    """
    data = parse_json(text, where)
    if isinstance(data, dict) and "gpus_per_node" in data:
        raise BadFile(
            "expected a TACCL sketch, got a TACCL topology", where=where, hint="give it to -t"
        )
    if not looks_like_sketch(data):
        raise BadFile(
            "not a TACCL sketch",
            where=where,
            hint="a TACCL sketch has the keys nnodes, intranode_sketch, symmetry_offsets …",
        )
    return read_taccl_sketch(data, where, name_of(where))


def machine_with(text: str, sketch: TacclSketch, *, split: bool = False) -> Topology:
    """Return the machine of a sketch: from a TACCL topology, or another one with as many nodes.

    Raises:
        UserError: unknown machine; ``split`` of a machine without connections to split.
    """
    path = file_of(text)
    if path is not None:
        content = read_text(path)
        if is_taccl_topology(content):
            return paired(content, text, sketch, split=split)
    if split:
        raise UserError(
            "--nic-split needs a TACCL topology, whose NICs it divides",
            where=text,
            hint="give a TACCL topology file to -t, or leave --nic-split out",
        )
    return (
        read_topology(_with_nodes(text, sketch.nodes)) if path is None else imported(content, text)
    )


def _with_nodes(text: str, nodes: int) -> str:
    """Return the name of a machine with the sketch's number of nodes, unless it states one."""
    spec = parse_spec(text)
    if nodes == 1 or spec.name not in host_names() or spec.has("nodes"):
        return text
    return f"{text}{',' if ':' in text else ':'}nodes={nodes}"


def name_of(where: str) -> str:
    """Return the name of a sketch from its path."""
    return "stdin" if where == "<stdin>" else Path(where).stem
