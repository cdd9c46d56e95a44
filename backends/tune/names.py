"""What plans are called: names that are safe in paths, in XML and in scripts."""

from __future__ import annotations

import re

from weft.dsl.nouns.collective import Collective

LONGEST = 40
"""Letters of a collective's name in that of a plan; MSCCL XML holds 63 in all."""


def stem_of(collective: Collective) -> str:
    """What all plans of a collective begin with: its own name may be any text."""
    label = re.sub(r"[^\w-]+", "_", collective.name, flags=re.ASCII).strip("_-")
    return label[:LONGEST] or str(collective.kind)


def plan_name(collective: Collective, place: int) -> str:
    """Of one plan and its files; plans are counted from 0 here."""
    return f"{stem_of(collective)}-{place + 1}"
