"""Readers of what other programs write about a machine, one file per format.

Which format a text is in shows in the text itself. Each reader notes on the topology what it had
to assume (α is in none of these formats, nor is the fabric between boxes).
"""

from __future__ import annotations

from ..errors import BadFile
from ..files import parse_json
from ..machines.spec import Spec
from ..topology import Topology
from ..topology_json import load


def read_any(text: str, where: str, options: Spec) -> Topology:
    """A topology from a text of any known format.

    Raises:
        BadFile: none of them, or not readable. BadTopology: an impossible machine.
    """
    start = text.lstrip("\ufeff \t\r\n")
    if start.startswith(("{", "[")):
        return load(parse_json(text, where), where)
    raise BadFile("not a format that is known", where=where)
