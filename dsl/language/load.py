"""Loading of sketches (from the catalogue, a path, standard input) and their promises.

The head comment of a sketch may promise the quality of a schedule within a time:

>>> promised(parse("# Promise: allgather of 1MiB within 2% of the bound in 5s.\\nsketch x\\n"))
Promise(collective='allgather', bytes=1048576, gap=Fraction(1, 50), seconds=5.0, ruled=False)
"""

from __future__ import annotations

import os
import re
from fractions import Fraction
from functools import cache
from importlib import resources

from ..base.errors import BadFile, UnknownName, UserError, require_type
from ..base.files import read_text
from ..base.lazy_dataclass import Frozen
from ..base.spans import Source
from ..base.units import parse_bytes, parse_microseconds
from .ast import SketchTree
from .parse import parse

SUFFIX = ".sketch"
FORM = "Promise: allgather of 1MiB within 2% of the bound in 5s."
_PROMISE = re.compile(
    r"Promise: (?P<collective>\w+) of (?P<size>\w+) within (?P<percent>\d+(\.\d+)?)% of the bound"
    r"(?P<ruled> under its rules)? in (?P<time>\w+)\."
)


def load_sketch(name_or_path: str) -> SketchTree:
    """Return the sketch of a name of the catalogue, or of a file; ``-`` is standard input.

    Raises:
        UnknownName: neither a name of the catalogue nor a file. BadFile: an unreadable file.
        SyntaxProblem, SeveralErrors: a text that does not parse.
    """
    source = find_sketch(name_or_path)
    return parse(source.text, source.name)


def find_sketch(name_or_path: str) -> Source:
    """Return the text that :func:`load_sketch` parses, unchanged."""
    name = require_type(name_or_path, str, "sketch", 'weft.load_sketch("ndv2_relay")').strip()
    if name in catalogue_names():
        return Source(
            f"sketches/{name}{SUFFIX}",
            (resources.files("weft") / "sketches" / f"{name}{SUFFIX}").read_text(encoding="utf-8"),
        )
    if name == "-":
        return Source("<stdin>", read_text(name))
    if os.path.exists(name):
        return Source(name, read_text(name))
    if os.sep in name or name.endswith(SUFFIX):
        raise BadFile("no such file", where=name)
    raise UnknownName("sketch", name, catalogue_names())


def sketch_names() -> dict[str, str]:
    """Return the sketches of the catalogue with the comment at the head of each."""
    return {name: about(load_sketch(name)) for name in catalogue_names()}


def about(tree: SketchTree) -> str:
    """Return the comment above the ``sketch`` line as running text: machine, idea, source."""
    return " ".join(line.lstrip("#").strip() for line in tree.trivia.above if line)


@cache
def catalogue_names() -> tuple[str, ...]:
    """Return the names of the sketches of the catalogue; none of them is parsed."""
    folder = resources.files("weft") / "sketches"
    files = (file.name for file in folder.iterdir())
    return tuple(sorted(f.removesuffix(SUFFIX) for f in files if f.endswith(SUFFIX)))


class Promise(Frozen):
    """Promised result of ``weft synth``.

    It finds a schedule of ``collective`` for messages of ``bytes`` within ``seconds`` that takes at
    most 1 + ``gap`` times the bound of the machine, or, where ``ruled``, the bound under the rules
    of the sketch (``weft explain``).
    """

    collective: str
    bytes: int
    gap: Fraction
    seconds: float
    ruled: bool


def promised(tree: SketchTree) -> Promise | None:
    """Return the promise of a sketch with default parameters; None if it has none.

    Raises:
        UserError: a line that begins like a promise and cannot be parsed.
    """
    text = about(tree)
    if "Promise:" not in text:
        return None
    match = _PROMISE.search(text)
    if match is None:
        raise UserError("this promise cannot be read", where=tree.span, hint=f"write it: {FORM}")
    return Promise(
        match["collective"],
        parse_bytes(match["size"]),
        Fraction(match["percent"]) / 100,
        float(parse_microseconds(match["time"]) / 10**6),
        match["ruled"] is not None,
    )
