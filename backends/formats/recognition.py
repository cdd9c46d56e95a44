"""Recognition of weft's own formats from a file's text, without loading the formats."""

from __future__ import annotations

import re
from collections.abc import Callable


def is_msccl_xml(text: str, data: object) -> bool:
    """Return True if the first element is ``algo``; comments may come before it."""
    first = re.search(r"<\s*([A-Za-z_]\w*)", text)
    begins = text.lstrip("\ufeff \t\r\n").startswith("<")
    return begins and first is not None and first[1] == "algo"


def is_mscclpp_plan(text: str, data: object) -> bool:
    """Return True if the JSON has the two keys that every plan has."""
    return isinstance(data, dict) and {"gpus", "collective"} <= data.keys()


def is_program(text: str, data: object) -> bool:
    """Return True for JSON with ``"weft": "program"``."""
    return isinstance(data, dict) and data.get("weft") == "program"


def is_script(text: str, data: object) -> bool:
    """Return True for a Python text that weft may have written, for any runtime of processes."""
    return data is None and '"weft": "script"' in text.replace("'", '"')


RECOGNIZERS: dict[str, Callable[[str, object], bool]] = {
    "msccl-xml": is_msccl_xml,
    "mscclpp-json": is_mscclpp_plan,
    "program": is_program,
    "mpi": is_script,
}
"""Tests of a text and its JSON (None: not JSON), by the format that reads what they accept.

Scripts of all runtimes are read alike, so that one format stands for them.
"""


def own_format(text: str, data: object) -> str | None:
    """Return the name of the format of weft that a file has; None for other files."""
    return next((name for name, accepts in RECOGNIZERS.items() if accepts(text, data)), None)
