"""Recognition of weft's own formats from a file's text, without loading the formats."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from weft.dsl.base.files import SCHEMA, read_bytes


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
    return data is None and _says(text, "script")


def is_torch_symm(text: str, data: object) -> bool:
    """Return True for a Python text that weft may have written for torch symmetric memory."""
    return data is None and _says(text, "torch-symm")


def is_torch_calls(text: str, data: object) -> bool:
    """Return True for a Python text of library calls that weft may have written."""
    return data is None and _says(text, "torch-calls")


def _says(text: str, noun: str) -> bool:
    """Test if a Python text names a noun of weft: in its HEADER, else anywhere.

    A text that weft may have written is read, and never executed as an algorithm of the user's.
    """
    header = _HEADER.search(text)
    return header[1] == noun if header else f'"weft": "{noun}"' in text.replace("'", '"')


_HEADER = re.compile(r"""^HEADER = \{\s*["']weft["']: ["']([\w-]+)["']""", re.MULTILINE)


GOAL = re.compile(r"(?:\s|//[^\n]*\n|/\*.*?\*/)*num_ranks\s+\d", re.DOTALL)

CHAKRA = re.compile(r"(?P<prefix>.*)\.\d{1,7}\.et", re.DOTALL)
"""Names of Chakra execution traces: ``PREFIX.RANK.et``."""


def is_chakra_et(text: str, data: object) -> bool:
    """Return True for the text of a set of Chakra execution traces (:func:`file_set`)."""
    return isinstance(data, dict) and data.get("weft") == "chakra-et"


def is_goal(text: str, data: object) -> bool:
    """Return True if the first word that is not a comment is GOAL's ``num_ranks``."""
    return data is None and bool(GOAL.match(text))


def file_set(files: Mapping[str, bytes]) -> str:
    """Return files, named without their common prefix, as one text: JSON with base64."""
    held = {name: base64.b64encode(data).decode() for name, data in files.items()}
    return json.dumps({"weft": "chakra-et", "schema": SCHEMA, "files": held}) + "\n"


def gathered(path: str) -> str | None:
    """Return the text of the set that a Chakra execution trace belongs to, from all its files.

    None: the path does not name one.

    Raises:
        BadFile: a file cannot be read.
    """
    named = CHAKRA.fullmatch(path)
    if named is None:
        return None
    prefix = Path(named["prefix"] + ".")
    files = sorted(
        other for other in prefix.parent.glob("*.et") if other.name.startswith(prefix.name)
    )
    members = {"." + other.name.removeprefix(prefix.name): other for other in files}
    ranks = {name: file for name, file in members.items() if re.fullmatch(r"\.\d{1,7}\.et", name)}
    return file_set({name: read_bytes(file) for name, file in ranks.items()})


RECOGNIZERS: dict[str, Callable[[str, object], bool]] = {
    "msccl-xml": is_msccl_xml,
    "mscclpp-json": is_mscclpp_plan,
    "chakra-et": is_chakra_et,
    "goal": is_goal,
    "program": is_program,
    "torch-symm": is_torch_symm,
    "torch-calls": is_torch_calls,
    "mpi": is_script,
}
"""Tests of a text and its JSON (None: not JSON), by the format that reads accepted ones.

Scripts of all runtimes are read alike, so that one format stands for them.
"""


def own_format(text: str, data: object) -> str | None:
    """Return the name of the format of weft that a file has; None for other files."""
    return next((name for name, accepts in RECOGNIZERS.items() if accepts(text, data)), None)
