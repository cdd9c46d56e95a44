"""Numbers of a calibrated runtime model: value, mark, source, and replacement."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from weft.dsl.base.errors import UserError
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.topology import Topology
from weft.synth.time.calibrated import Certainty, ModelNumber, calibrated_model
from weft.synth.time.runtime_model import RuntimeModel

from .report import shown

PROTOCOLS = (".LL", ".LL128", ".Simple")
"""Ends of keys that are of one protocol."""


def assumed_json(model: RuntimeModel) -> dict[str, Any]:
    """Return the entries ``numbers`` and ``remarks`` of a model; none where it has none."""
    found: dict[str, Any] = {}
    if model.numbers:
        found["numbers"] = numbers_json(model.numbers)
    if model.remarks:
        found["remarks"] = list(model.remarks)
    return found


def assumed_text(model: RuntimeModel, protocol: str = "") -> str:
    """Return :func:`numbers_text` of a model, with its remarks; empty where it has neither."""
    return "\n".join(filter(None, (numbers_text(model.numbers, protocol), *model.remarks)))


def start_remark(model: RuntimeModel, protocol: Protocol) -> str:
    """Return in words how much of every time is the start of a call; empty without one."""
    start = model.protocol(protocol).start_us
    if not start:
        return ""
    mark = next((str(x.certainty) for x in model.numbers if x.key == f"start.{protocol}"), "")
    return f"the start of the call takes {float(start):g} µs of each ({mark}); -v lists the model"


def program_starts(topology: Topology) -> dict[str, float]:
    """Return µs of a call of a program before its first operation, by protocol, the least first.

    Empty for a machine of a family that is not known: this is an error where programs are timed.
    """
    try:
        model = calibrated_model(topology)
    except UserError:
        return {}
    starts = {str(one): float(model.protocol(one).start_us) for one in Protocol}
    return dict(sorted(starts.items(), key=lambda named: named[1]))


def schedule_remark(topology: Topology) -> str:
    """Return in words the costs of a program beside the time of its schedule by α and β."""
    starts = [f"{us:g} µs ({name})" for name, us in program_starts(topology).items()]
    if not starts:
        return ""
    return (
        f"times by α and β alone: a program's call also starts in {starts[0]} to {starts[-1]}; "
        "`weft compile` tells the time of the program"
    )


def numbers_of(model: RuntimeModel, protocols: Collection[Protocol]) -> list[ModelNumber]:
    """Return the numbers of some protocols, and those of none."""
    ends = tuple(f".{one}" for one in protocols)
    return [x for x in model.numbers if x.key.endswith(ends) or not x.key.endswith(PROTOCOLS)]


def assumed_numbers(model: RuntimeModel, protocols: Collection[Protocol]) -> list[ModelNumber]:
    """Return the numbers that are not published, of some protocols and of none."""
    return [x for x in numbers_of(model, protocols) if x.certainty is Certainty.ASSUMED]


def assumed_words(model: RuntimeModel, protocols: Collection[Protocol]) -> str:
    """Return the assumed numbers in a line; empty without any."""
    shown = [f"{x.key} {float(x.value):g}" for x in assumed_numbers(model, protocols)]
    return f"{', '.join(shown)}; --timing KEY=NUMBER replaces one" if shown else ""


def numbers_json(numbers: Sequence[ModelNumber]) -> list[dict[str, Any]]:
    """Return the entry ``numbers``."""
    return [
        {
            "key": one.key,
            "value": float(one.value),
            "certainty": str(one.certainty),
            "source": one.source,
            "replaced_by": one.replaced_by,
        }
        for one in numbers
    ]


def numbers_text(numbers: Sequence[ModelNumber], protocol: str = "") -> str:
    """Return a table, the least sure first; of one protocol (``.LL``) where it is named."""
    order = list(Certainty)[::-1]
    kept = [
        one
        for one in numbers
        if not protocol or one.key.endswith(protocol) or not one.key.endswith(PROTOCOLS)
    ]
    kept.sort(key=lambda one: (order.index(one.certainty), one.key))
    if not kept:
        return ""
    columns = ("number:key", "value:value:g", "is:certainty", "source:source")
    return f"{shown(numbers_json(kept), *columns)}\nanother number: {kept[0].replaced_by}"
