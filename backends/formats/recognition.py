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


def _says(text: str, noun: str) -> bool:
    """Test if a Python text names a noun of weft: in its HEADER, else anywhere.

    A text that weft may have written is read, and never executed as an algorithm of the user's.
    """
    header = _HEADER.search(text)
    return header[1] == noun if header else f'"weft": "{noun}"' in text.replace("'", '"')


_HEADER = re.compile(r"""^HEADER = \{\s*["']weft["']: ["']([\w-]+)["']""", re.MULTILINE)


GOAL = re.compile(r"(?:\s|//[^\n]*\n|/\*.*?\*/)*num_ranks\s+\d", re.DOTALL)
"""First word of a GOAL file, after comments."""

CHAKRA = re.compile(r"(?P<prefix>.*)\.\d{1,7}\.et", re.DOTALL)
"""Names of Chakra execution traces: ``PREFIX.RANK.et``."""


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


def _of_kind(kind: str) -> Callable[[str, object], bool]:
    """Return a test for JSON with that kind in its key ``weft``."""
    return lambda _, data: isinstance(data, dict) and data.get("weft") == kind


def _naming(noun: str) -> Callable[[str, object], bool]:
    """Return a test for a Python text that weft may have written, of that kind."""
    return lambda text, data: data is None and _says(text, noun)


RECOGNIZERS: dict[str, Callable[[str, object], bool]] = {
    "msccl-xml": is_msccl_xml,
    "mscclpp-json": lambda _, data: (
        isinstance(data, dict) and {"gpus", "collective"} <= data.keys()
    ),
    "chakra-et": _of_kind("chakra-et"),
    "goal": lambda text, data: data is None and GOAL.match(text) is not None,
    "program": _of_kind("program"),
    "torch-symm": _naming("torch-symm"),
    "torch-calls": _naming("torch-calls"),
    "mpi": _naming("script"),
}
"""Tests of a text and its JSON (None: not JSON), by the format that reads accepted ones.

Scripts of all runtimes are read alike, so that one format stands for them.
"""


def own_format(text: str, data: object) -> str | None:
    """Return the name of the format of weft that a file has; None for other files."""
    return next((name for name, accepts in RECOGNIZERS.items() if accepts(text, data)), None)
