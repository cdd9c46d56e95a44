"""Section of what the times on a page assume of the runtime, and what replaces each number."""

from __future__ import annotations

from collections.abc import Collection

from weft.dsl.nouns.program import Protocol
from weft.synth.time.runtime_model import RuntimeModel

from ..model_numbers import assumed_numbers, numbers_of
from .sheet import Facts


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
    return {
        "id": "assumed",
        "title": "What the times of programs assume",
        "part": "table",
        "head": ["number", "value", "why", "replaced by"],
        "rows": [[x.key, f"{float(x.value):g}", x.source, x.replaced_by] for x in numbers],
        "after": " ".join(after),
    }
