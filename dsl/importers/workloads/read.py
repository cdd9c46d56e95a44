"""Reading of a workload from a file or a folder, in any format that weft knows."""

from __future__ import annotations

import re
from pathlib import Path

from ...base.errors import BadFile
from ...base.files import parse_json, read_text
from ...nouns.workload import Workload
from ...nouns.workload_file import load, load_csv, looks_like_csv


def read_workload(path: str) -> Workload:
    """Return the workload in a file, or of standard input for ``-``.

    Raises:
        BadFile: it is not one, or damaged.
    """
    where = "<stdin>" if path == "-" else path
    return workload_in(read_text(path), where)


def workload_in(text: str, where: str) -> Workload:
    """Return the workload of a text; its name is that of the file, where the text states none.

    Raises:
        BadFile: it is not one.
    """
    if re.match(r"\s*[\[{]", text):
        data = parse_json(text, where)
        name = Path(where).stem if where != "<stdin>" else "workload"
        return load(data, where, name)
    if looks_like_csv(text):
        return load_csv(text, where)
    raise BadFile(
        "not a workload",
        where=where,
        hint='a JSON object with "weft": "workload", or a CSV table with the columns name and kind',
    )
