"""Capabilities of a switch beside forwarding: copy to several ports, sum several; and limits.

==================  ===========================================================================
``multicast``       one copy in, any set of its ports out, in one pass (NVSwitch 3, InfiniBand)
``reduces``         any set of ports in, one sum out (NVSwitch 3, SHARP, programmable switches)
``turns``           the sum of many ports goes out to many in the same pass: the switch may be the
                    root of an allreduce (SHARP, SwitchML; not NVSwitch)
``issuer_in_group`` the group of a cast contains the GPU that issues it, and its own copy crosses
                    the switch like all others (NVSwitch)
==================  ===========================================================================

Two spellings of a set of them: a list of these words in files, ``multicast+reduces`` on the command
line (``none`` for no capability).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..base.errors import BadFile, UnknownName, UserError
from ..base.files import Fields
from ..base.lazy_dataclass import Frozen
from ..base.record import without_empty
from ..base.spans import Span

CAPABILITIES = ("multicast", "reduces", "turns", "issuer_in_group")
"""The words, which are the names of fields of :class:`~weft.dsl.nouns.parts.Node`."""

NO_CAPABILITY = "none"

TYPES = tuple(
    "float16 bfloat16 float32 float64 float8_e4m3 float8_e5m2 int8 uint8 int16 uint16 int32 uint32 "
    "int64 uint64".split()
)
OPERATORS = ("sum", "min", "max", "and", "or", "xor")


class CastLimits(Frozen):
    """Bounds on the casts of one switch.

    Attributes:
        groups: how many different member sets it keeps at a time; None: any number.
        least: members of its smallest group.
        types: data types that it sums; empty: all.
        operators: of its reductions; empty: all.
    """

    groups: int | None = None
    least: int = 2
    types: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()

    def computes(self, operator: str, dtype: str) -> bool:
        """Return True if a reduction by an operator over a data type is within the limits."""
        known_type = not self.types or dtype in self.types
        return known_type and (not self.operators or operator in self.operators)

    def to_json(self) -> dict[str, Any]:
        """Return the keys that differ from no limit at all."""
        held = {
            "groups": self.groups,
            "least_group": None if self.least == NO_LIMITS.least else self.least,
            "types": self.types,
            "operators": self.operators,
        }
        return without_empty(held)


NO_LIMITS = CastLimits()


def read_limits(fields: Fields, where: str) -> CastLimits:
    """Parse the keys ``groups``, ``least_group``, ``types`` and ``operators`` of a switch.

    Raises:
        BadFile: a number out of range, or an unknown type or operator.
    """
    groups = fields.get("groups", (int, type(None)), None)
    least = fields.get("least_group", int, NO_LIMITS.least)
    if groups is not None and groups < 1:
        raise BadFile(f"groups is {groups}", where=where, hint="at least 1; leave it out for any")
    if least < NO_LIMITS.least:
        raise BadFile(f"least_group is {least}", where=where, hint="a group has 2 members or more")
    types = _listed(fields.get("types", list, []), "data type", TYPES, where)
    operators = _listed(fields.get("operators", list, []), "operator", OPERATORS, where)
    return CastLimits(groups, least, types, operators)


def _listed(data: list[Any], what: str, known: Iterable[str], where: str) -> tuple[str, ...]:
    for word in data:
        if word not in tuple(known):
            raise UnknownName(what, str(word)[:60], known, where=where)
    return tuple(dict.fromkeys(data))


def read_capabilities(words: Any, where: str | Span) -> frozenset[str]:
    """Parse a list of capabilities.

    Raises:
        BadFile: not a list of texts. UnknownName: a word that is none.
        UserError: ``turns`` without ``reduces``.
    """
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise BadFile(
            "the capabilities of a switch are a list of words",
            where=where,
            hint=", ".join(CAPABILITIES),
        )
    for word in words:
        if word not in CAPABILITIES:
            raise UnknownName("capability", word[:60], CAPABILITIES, where=where)
    if "turns" in words and "reduces" not in words:
        raise UserError(
            "a switch that does not reduce has no sum to turn", where=where, hint="add reduces"
        )
    return frozenset(words)


def as_fields(words: Iterable[str]) -> dict[str, Any]:
    """Return a set of capabilities as the fields of a node."""
    held = set(words)
    return {word: word in held for word in CAPABILITIES}
