"""A script as one Python file: its rounds as data, and the code that carries them out.

The file needs NumPy (or CuPy, or torch) and its runtime, and nothing of weft: it contains
:mod:`.machine` and the modules of its wire from their markers on, under one block of imports.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import cache
from importlib import resources
from itertools import pairwise
from shlex import quote
from types import MappingProxyType
from typing import Any

import numpy as np

from weft.dsl.base.arrays import Ints, distinct_values
from weft.dsl.base.files import SCHEMA
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.placement import Placement

from ..templates import templates
from .model import LIMITS, ChunkRange, Round, Script
from .text import write

MARKER = re.compile(r"^# --- in every file.*---\n", re.MULTILINE)

_TRIAL = "embedded/trial.py"

TRIED = frozenset(
    {
        Kind.ALLREDUCE,
        Kind.REDUCE,
        Kind.REDUCE_SCATTER,
        Kind.ALLGATHER,
        Kind.GATHER,
        Kind.ALLTOALL,
        Kind.BROADCAST,
        Kind.SCATTER,
    }
)
"""Collectives whose files try themselves."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """Runtime that a file is written for.

    Attributes:
        title: its name in sentences. ``wire``: the modules of its wire, in order.
        command: how a job is started; ``{ranks}`` and ``{file}`` are filled in.
    """

    name: str
    title: str
    wire: tuple[str, ...]
    command: str

    @property
    def sections(self) -> tuple[str, ...]:
        """The modules of the wire, by the names under which they are files of this package."""
        return tuple(f"embedded/{name}.py" for name in self.wire)


RUNTIMES: Mapping[str, Runtime] = MappingProxyType(
    {
        "mpi": Runtime(
            "mpi", "MPI", ("arrays", "mpi"), "mpiexec -n {ranks} python -m mpi4py {file}"
        ),
        "torch": Runtime(
            "torch", "torch.distributed", ("torch",), "torchrun --nproc-per-node {ranks} {file}"
        ),
        "cupy-nccl": Runtime(
            "cupy-nccl", "NCCL", ("nccl",), "mpiexec -n {ranks} python -m mpi4py {file}"
        ),
    }
)

DOCS = MappingProxyType(
    {
        Kind.ALLREDUCE: ("Sum the ``send`` of all ranks into everybody's ``recv``.", ""),
        Kind.REDUCE: ("Sum the ``send`` of all ranks into the ``recv`` of rank {root}.", ""),
        Kind.REDUCE_SCATTER: (
            "Sum the ``send`` of all ranks; rank r gets the r-th part in ``recv``.",
            ", send {ranks} times that of recv",
        ),
        Kind.ALLGATHER: (
            "Put the ``send`` of all ranks, one after another, into everybody's ``recv``.",
            ", recv {ranks} times that of send",
        ),
        Kind.GATHER: (
            "Put the ``send`` of all ranks, one after another, into rank {root}'s ``recv``.",
            ", recv {ranks} times that of send",
        ),
        Kind.ALLTOALL: (
            "Send the r-th part of ``send`` to rank r, whose ``recv`` has them in order.",
            ", a multiple of {ranks}",
        ),
        Kind.BROADCAST: ("Copy the ``send`` of rank {root} into everybody's ``recv``.", ""),
        Kind.SCATTER: (
            "Send the r-th part of rank {root}'s ``send`` to the ``recv`` of rank r.",
            ", send {ranks} times that of recv",
        ),
    }
)


def emit(script: Script, runtime: str, provenance: Iterable[str] = (), module: str = "") -> str:
    """Return the text of the file; ``provenance``: lines that say where the script is from.

    ``module``: what the file will be called, without its suffix (default: after the script).

    The first lines of two files of one script and runtime differ in nothing but those.
    """
    c, to = script.collective, RUNTIMES[runtime]
    formulas = code_of(script)
    module = module_of(script, module)
    machine, wire, trial = (
        sections_of(x)
        for x in (("embedded/machine.py",), to.sections, (_TRIAL,) if tried(c) else ())
    )
    root = c.roots[0] if c.roots else 0
    said = {"ranks": c.ranks, "root": root}
    doc, lengths = (text.format(**said) for text in DOCS.get(c.kind, ("", "")))
    return (
        templates(PACKAGE)
        .get_template(f"{runtime}.py.j2")
        .render(
            title=f"{c} by {script.name}",
            to=to,
            rounds=script.rounds,
            messages=script.messages,
            module=module,
            function=function_of(c),
            kind=str(c.kind),
            root=root,
            ranks=c.ranks,
            combining=c.combining,
            command=to.command.format(ranks=c.ranks, file=quote(f"{module}.py")),
            provenance=list(provenance),
            imports=imports_of(machine, wire, trial, *([_YIELDS] if formulas else [])),
            header=header(script) | {"runtime": runtime},
            shape=shape_of(script),
            formulas=formulas,
            code=[[_quoted(write(x)) for x in own] for own in script.ranks],
            doc=doc or f"Carry out {c}.",
            lengths=lengths,
            machine=machine.body,
            wire=wire.body,
            trial=trial.body,
        )
    )


def module_of(script: Script, module: str) -> str:
    """Return the name of the file's module, without suffix: the one given, or one like the name."""
    return module or re.sub(r"\W+", "_", script.name).strip("_").lower() or "program"


PACKAGE = "weft.backends.formats.p2p"
"""The package whose templates these files are made of."""


def function_of(collective: Collective) -> str:
    """Return the name of the file's function: the collective's, unless it cannot be one there."""
    if collective.kind is not Kind.CUSTOM:
        return str(collective.kind)
    name = re.sub(r"\W+", "_", collective.name or str(collective.kind))
    if not name.isascii() or not name.isidentifier() or name in _taken():
        return "collective"
    return name


@cache
def _taken() -> frozenset[str]:
    """Return the names that files have already, and those of Python itself."""
    every = (file for one in RUNTIMES.values() for file in one.sections)
    found = {"CODE", "HEADER", "KEY", "SHAPE", "code", "connected", *keyword.kwlist, *dir(builtins)}
    for section in map(sections_of, ((f,) for f in (*every, "embedded/machine.py", _TRIAL))):
        for node in ast.parse("\n".join((*section.imports, section.body))).body:
            found |= {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
            names = getattr(node, "names", [])
            found |= {getattr(node, "name", ""), *(n.asname or n.name for n in names)}
    return frozenset(found)


def tried(collective: Collective) -> bool:
    """Return True if the file contains a test of itself."""
    return collective.kind in TRIED


def header(script: Script) -> dict[str, Any]:
    """Return the header of the file, by which it can be judged without anything else."""
    c = script.collective
    said: dict[str, Any] = {
        "weft": "script",
        "schema": SCHEMA,
        "name": script.name,
        "collective": str(c.kind),
        "roots": c.roots,
    }
    if c.kind is Kind.CUSTOM:
        said["definition"] = c.to_json()
    return said


def shape_of(script: Script) -> dict[str, Any]:
    """Return the arguments of the file's ``Shape``."""
    c = script.collective
    whole = not (c.input_chunks % c.factor or c.output_chunks % c.factor)
    return {
        "ranks": c.ranks,
        "input": c.input_chunks,
        "output": c.output_chunks,
        "unit": c.factor if whole else 1,
        "scratch": script.scratch,
        "shift": tuple(map(c.in_place_shift, range(c.ranks))) if script.in_place else None,
        "gives": _some(c.pre, c.ranks),
        "takes": _some(c.post, c.ranks),
    }


def _some(placement: Placement, ranks: int) -> tuple[int, ...] | None:
    """Return the ranks that it names; None for all."""
    named = tuple(distinct_values(placement.ranks).tolist())
    return None if len(named) == ranks else named


@dataclass(frozen=True, slots=True)
class Section:
    """Source that goes into files: the statements that import, and the rest."""

    imports: frozenset[str]
    body: str


_YIELDS = Section(frozenset({"from collections.abc import Iterator"}), "")
"""Additional section of a file whose rounds are formulas."""


@cache
def sections_of(files: tuple[str, ...]) -> Section:
    """Some modules of this package, from their markers on."""
    imports: set[str] = set()
    bodies = []
    for name in files:
        text = resources.files(PACKAGE).joinpath(name).read_text("utf-8")
        text = MARKER.split(text, 1)[1]
        lines = text.splitlines()
        tops = [
            node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        imports |= {ast.unparse(node) for node in tops}
        bodies.append("\n".join(lines[tops[-1].end_lineno :]).strip())
    return Section(frozenset(imports), "\n\n\n".join(bodies))


def imports_of(*sections: Section) -> str:
    """One block of imports: the standard library, then the rest; names of one module together."""
    modules: set[str] = set()
    names: dict[str, set[str]] = {}
    for line in frozenset().union(*(s.imports for s in sections)):
        module, _, wanted = line.removeprefix("from ").partition(" import ")
        if wanted:
            names.setdefault(module, set()).update(wanted.split(", "))
        else:
            modules.add(line)
    plain = sorted(line for line in modules if line.split()[1] in sys.stdlib_module_names)
    froms = {m: f"from {m} import {', '.join(sorted(n))}" for m, n in sorted(names.items())}
    ours = {m for m in froms if m.partition(".")[0] in sys.stdlib_module_names}
    plain += [line for m, line in froms.items() if m in ours]
    others = sorted(modules.difference(plain))
    others += [line for m, line in froms.items() if m not in ours]
    return "\n".join([*plain, "", *others] if others else plain)


def _quoted(line: str) -> str:
    return f'"{line}"'


# Write scripts whose ranks differ only in numbers as formulas in the rank, with loops.
#
# Before (a line for every rank and round)::
#
#     "o[3] > 1, o[2] < 3; o[2] = o[2] + i[2]",          and 23 more
#
# After::
#
#     for step in range(6):
#         yield f"o[{(r - step - 1) % 4}] > {(r + 1) % 4}, o[{(r - step - 2) % 4}] < …"
#
# Every number of a round (a peer, a chunk) is a column with one entry per rank, and becomes a
# formula in the rank r: ``base + factor * u``, where u is r turned, mirrored or flipped, among all
# ranks or among equal groups of neighbours. Rounds that follow each other and whose formulas change
# by a constant become a loop. The caller compares the evaluated formulas with the script; a script
# without formulas is written line by line.


class PeerFormula(StrEnum):
    """Formula of u in the rank r; c is the turn, g the ranks of a group."""

    CONSTANT = "0"
    TURNED = "(r + c) % ranks"
    MIRRORED = "(c - r) % ranks"
    FLIPPED = "r ^ c"
    INSIDE = "r // g * g + (r + c) % g"
    PLACE = "(r + c) % g"
    GROUP = "(r // g + c) % (ranks // g)"


@dataclass(frozen=True, slots=True)
class Formula:
    """``base + factor * u(r)``; u is as ``shape`` says, with ``turn``, modulo ``modulus``.

    ``groups``: ranks of a group, where u is about groups, else all of them.
    """

    shape: PeerFormula
    base: int
    factor: int = 0
    turn: int = 0
    modulus: int = 1
    groups: int = 1

    def key(self) -> tuple[PeerFormula, int, int, int]:
        """Return the part that must be equal in all rounds of a loop."""
        return self.shape, self.factor, self.modulus, self.groups


def code_of(script: Script) -> list[str] | None:
    """The body of the function that yields the lines of rank r; None without formulas."""
    patterns = []
    for rounds in zip(*script.ranks, strict=True):
        pattern = _pattern(rounds)
        if pattern is None:
            return None
        patterns.append(pattern)
    lines: list[str] = []
    at = 0
    while at < len(patterns):
        length, change = _run(patterns[at:])
        if length < LIMITS.loop_rounds:
            lines += _statement(patterns[at], None)
            at += 1
        else:
            lines.append(f"for step in range({length}):")
            lines += [f"    {line}" for line in _statement(patterns[at], change)]
            at += length
    return lines


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A round of all ranks: its line in pieces, with formulas between them."""

    text: tuple[str, ...]
    numbers: tuple[Formula, ...]


def _pattern(rounds: Sequence[Round]) -> _Pattern | None:
    """Return the pattern of one round; None if the ranks do different things in it."""
    pieces = [list(_pieces(one)) for one in rounds]
    texts = {tuple(text for text, _ in own) for own in pieces}
    if len(texts) > 1:
        return None
    numbers = []
    for column in zip(*pieces, strict=True):
        found = fit(np.array([number for _, number in column], np.int64))
        if found is None:
            return None
        numbers.append(found)
    return _Pattern(next(iter(texts)), tuple(numbers))


def _pieces(one: Round) -> Iterator[tuple[str, int]]:
    """Yield the line of a round as (text, number) pairs.

    The text of chunks ends in ``[`` and how many there are: it is the same on all ranks.
    """
    first = True
    for way, messages in (("> ", one.sends), ("< ", one.recvs)):
        for m in messages:
            yield from _part("" if first else ", ", m.part)
            yield f" {way}", m.peer
            first = False
    for place, work in enumerate(one.work):
        yield from _part(", " if place else "; ", work.into)
        for term, sign in zip(work.terms, (" = ", " + "), strict=False):
            yield from _part(sign, term)


def _part(before: str, part: ChunkRange) -> Iterator[tuple[str, int]]:
    yield f"{before}{part.buffer}[{part.count}", part.first


def fit(column: Ints) -> Formula | None:
    """Return the formula that gives a column, by the rank; the first of the simplest shape."""
    ranks = len(column)
    base = int(column.min())
    apart = column - base
    if not apart.any():
        return Formula(PeerFormula.CONSTANT, base)
    factor = int(np.gcd.reduce(apart))
    u, r = apart // factor, np.arange(ranks)
    groups = [g for g in range(2, ranks) if ranks % g == 0]
    tried: list[Formula] = [
        Formula(PeerFormula.TURNED, base, factor, int(u[0]), ranks),
        Formula(PeerFormula.MIRRORED, base, factor, int(u[0]), ranks),
        Formula(PeerFormula.FLIPPED, base, factor, int(u[0]), ranks),
    ]
    for g in groups:
        tried += [
            Formula(PeerFormula.INSIDE, base, factor, int(u[0]), g, g),
            Formula(PeerFormula.PLACE, base, factor, int(u[0]), g, g),
            Formula(PeerFormula.GROUP, base, factor, int(u[0]), ranks // g, g),
        ]
    return next((one for one in tried if (_values(one, r) == u).all()), None)


def _values(one: Formula, r: Ints) -> Ints:
    """u of every rank."""
    m, c, g = one.modulus, one.turn, one.groups
    result: Ints
    match one.shape:
        case PeerFormula.TURNED:
            result = (r + c) % m
        case PeerFormula.MIRRORED:
            result = (c - r) % m
        case PeerFormula.FLIPPED:
            result = r ^ c
        case PeerFormula.INSIDE:
            result = r // g * g + (r + c) % m
        case PeerFormula.PLACE:
            result = (r + c) % m
        case _:
            result = (r // g + c) % m
    return result


def _run(patterns: Sequence[_Pattern]) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Return the number of leading rounds that form a loop, and its changes of (base, turn)."""
    first = patterns[0]
    if len(patterns) < LIMITS.loop_rounds:
        return 1, ()
    change: tuple[tuple[int, int], ...] | None = None
    length = 1
    for before, after in pairwise(patterns):
        if after.text != first.text:
            break
        if any(a.key() != b.key() for a, b in zip(before.numbers, after.numbers, strict=True)):
            break
        step = tuple(_change(a, b) for a, b in zip(before.numbers, after.numbers, strict=True))
        if change is not None and step != change:
            break
        if any(
            turn and f.shape == PeerFormula.FLIPPED
            for (_, turn), f in zip(step, first.numbers, strict=True)
        ):
            break
        change, length = step, length + 1
    return length, change or ()


def _change(a: Formula, b: Formula) -> tuple[int, int]:
    return b.base - a.base, _centred(b.turn - a.turn, a.modulus)


def _centred(number: int, modulus: int) -> int:
    """Return the number of least magnitude that is the same modulo ``modulus``."""
    number %= modulus
    return number - modulus if 2 * number > modulus else number


def _statement(pattern: _Pattern, change: tuple[tuple[int, int], ...] | None) -> list[str]:
    """``yield f"…"``, on several lines where it is long."""
    changes = change or ((0, 0),) * len(pattern.numbers)
    pieces = []
    for text, number, (base, turn) in zip(pattern.text, pattern.numbers, changes, strict=True):
        start, bracket, count = text.partition("[")
        if bracket:
            pieces.append(start + "[" + _slice(number, int(count), base, turn) + "]")
        else:
            pieces.append(text + _braced(_expression(number, base, turn)))
    words: list[str] = []
    for piece in pieces:  # a new word begins with every message and every piece of work
        if piece.startswith((", ", "; ")) or not words:
            if words:
                words[-1] += piece[:2]
                piece = piece[2:]
            words.append(piece)
        else:
            words[-1] += piece
    return _yielded(words)


def _yielded(words: list[str]) -> list[str]:
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) > LIMITS.line_width - 10:
            lines.append("")
        lines[-1] += word
    texts = [f'{"f" if "{" in line else ""}"{line}"' for line in lines]
    if len(texts) == 1:
        return [f"yield {texts[0]}"]
    return ["yield (", *(f"    {text}" for text in texts), ")"]


def _slice(number: Formula, count: int, base: int, turn: int) -> str:
    first = _expression(number, base, turn)
    if count == 1:
        return _braced(first)
    end = _expression(replace(number, base=number.base + count), base, turn)
    return f"{_braced(first)}:{_braced(end)}"


def _braced(expression: str) -> str:
    return expression if expression.isdigit() else f"{{{expression}}}"


def _expression(number: Formula, base: int, turn: int) -> str:
    """Return the formula in r, and in step where it changes."""
    constant = _sum([(base, "step")], number.base)
    if number.shape == PeerFormula.CONSTANT:
        return constant
    m, g = number.modulus, number.groups
    fixed = _centred(number.turn, m) if number.shape != PeerFormula.FLIPPED else number.turn
    moved = [(turn, "step")]
    match number.shape:
        case PeerFormula.TURNED:
            u = _modulo([(1, "r"), *moved], fixed, m) if fixed or turn else "r"
        case PeerFormula.MIRRORED:
            u = _modulo([*moved, (-1, "r")], number.turn, m)
        case PeerFormula.FLIPPED:
            u = f"(r ^ {fixed})"
        case PeerFormula.INSIDE:
            u = f"(r // {g} * {g} + {_modulo([(1, 'r'), *moved], fixed, m)})"
        case PeerFormula.PLACE:
            u = _modulo([(1, "r"), *moved], fixed, m)
        case _:
            u = _modulo([(1, f"r // {g}"), *moved], fixed, m)
            u = f"r // {g}" if not fixed and not turn else u
    if number.factor != 1:
        alone = u.isalnum() or number.shape in (PeerFormula.FLIPPED, PeerFormula.INSIDE)
        u = f"{number.factor} * {u if alone else f'({u})'}"
    return u if constant == "0" else f"{u} + {constant}".replace("+ -", "- ")


def _modulo(terms: list[tuple[int, str]], constant: int, modulus: int) -> str:
    inside = _sum(terms, constant)
    return f"{inside if inside.isalnum() else f'({inside})'} % {modulus}"


def _sum(terms: list[tuple[int, str]], constant: int) -> str:
    """``r - step + 3``; the constant first where no term is positive."""
    parts = [(c, name) for c, name in terms if c]
    parts.sort(key=lambda x: x[0] < 0)
    if not parts or (parts[0][0] < 0 and constant >= 0):
        parts.insert(0, (constant, ""))
    elif constant:
        parts.append((constant, ""))
    text = ""
    for c, name in parts:
        size = f"{abs(c)}" if not name else name if abs(c) == 1 else f"{abs(c)} * {name}"
        sign = " - " if c < 0 else " + "
        text += (sign if text else "-" if c < 0 else "") + size
    return text
