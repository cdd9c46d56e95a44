"""Capabilities of single switches, by name: ``rail0:multicast+reduces+turns``.

In the text of a machine they are the option ``capable=``, on the command line
``--capable 'rail0=multicast+reduces+turns'``. ``rail0..3`` names four switches, ``none`` takes what
a switch can do away.

>>> from weft.dsl.catalogue import topology
>>> hub = topology("hub:4,capable=hub:multicast+reduces")
>>> hub.nodes[4].capabilities
('multicast', 'reduces')
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..base.errors import UserError
from ..base.spans import Span
from ..nouns.capabilities import parse_capabilities
from ..nouns.topology import Topology
from ..symmetry.symmetry import GUESSED, guess, is_automorphism
from .confined import confined, plain_machine
from .names import names_of

_RANGE = re.compile(r"(.*?)(\d{1,6})\.\.(\d{1,6})")
_EXAMPLE = "rail0:multicast+reduces+turns"
FLAG = "--capable"
"""Name of the flag that overrides capabilities; its texts have ``=`` where options have a colon."""


def capable(machine: Topology, asked: Iterable[tuple[str, Span | str]]) -> Topology:
    """Return the machine with the capabilities of some switches replaced.

    Args:
        machine: any.
        asked: texts ``NAME:WORD+WORD`` (or with ``=``), each with its place for messages.

    Raises:
        UnknownName: no such node or capability. UserError: not such a text, or a GPU.
    """
    plain = plain_machine(machine).machine
    names, found = names_of(plain), dict[int, frozenset[str]]()
    for text, where in asked:
        name, words = split_capable(text, where)
        able = parse_capabilities(words, where)
        for one in _each(name):
            node = names.node(one, where)
            if plain.nodes[node].stores:
                raise UserError(
                    f"{plain.nodes[node].name} is a GPU",
                    where=where,
                    hint="switches multicast and reduce",
                )
            found[node] = able
    made = plain.with_capabilities(found)
    made = made if plain is machine else confined(made)
    held = tuple(image for image in made.symmetries if is_automorphism(made, image))
    if not held and made.ranks <= GUESSED:
        held = guess(made)
    return replace(made, symmetries=held)


def split_capable(text: str, where: Span | str) -> tuple[str, str]:
    """Return the name and the words of ``rail0:multicast+reduces``; ``=`` stands for the colon.

    Raises:
        UserError: it has no such form.
    """
    parts = re.split(r"[:=]", text)
    if len(parts) != 2 or not all(part.strip() for part in parts):
        raise UserError(
            f"{text[:60]!r} names no switch with its capabilities",
            where=where,
            hint=_EXAMPLE.replace(":", "=") if where == FLAG else _EXAMPLE,
        )
    return parts[0].strip(), parts[1].strip()


def _each(name: str) -> Iterator[str]:
    """Yield the names of ``rail0..3``, or the one of any other text."""
    match = _RANGE.fullmatch(name)
    if match is None:
        yield name
        return
    yield from (f"{match[1]}{i}" for i in range(int(match[2]), int(match[3]) + 1))
