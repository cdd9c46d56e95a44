"""The text that a file of ours was imported from, kept in it for machines of more such hosts.

A machine of one host lacks NICs, so ``box.json:nodes=4`` reads the text again, with the options of
its import and those that are new.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base.errors import BadFile, UserError
from ..base.files import Fields
from ..base.spans import Source
from ..machines.confined import in_hosts, plain_machine
from ..machines.spec import MachineSpec, parse_options
from ..nouns.topology import Topology

OF_ANY = frozenset({"capable", "dead", "family", "loopback", "without"})
"""Options of every machine, which need no text."""


def machine_again(
    data: dict[str, Any],
    where: str,
    options: MachineSpec,
    read: Callable[[str, str, MachineSpec], Topology],
) -> Topology:
    """Return the machine of a file of ours; with options of importers, of its text read again.

    Raises:
        BadFile: the machine was changed since, or no text was kept. Else as the importer.
    """
    made = Topology.from_json(data, where)
    asked = [key for key in options.keys if key not in OF_ANY]
    if not asked:
        if not options.has("loopback"):
            return made
        return in_hosts(plain_machine(made).machine, options)
    if "imported" not in data:
        raise UserError(
            f"{where} is a machine of its own, and takes no {asked[0]}=",
            where=options.keys[asked[0]],
            hint="files of weft topo import keep their text and take its options; "
            f"known: {', '.join(sorted(OF_ANY))}",
        )
    fields = Fields(data["imported"], f"{where}: imported")
    text, given = fields.get("text", str), fields.get("options", str)
    if fields.get("digest", str) != made.digest():
        raise BadFile(
            f"the machine was changed after its import, and {asked[0]}= is of its text",
            where=where,
            hint="import the text with these options, and change that",
        )
    old = parse_options(options.name, Source(f"{where}: imported", given), 0)
    merged = MachineSpec(
        options.name,
        options.positional,
        old.options | options.options,
        old.keys | options.keys,
        options.source,
        options.known,
    )
    return read(text, where, merged)
