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
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from shlex import quote
from types import MappingProxyType
from typing import Any

from weft.dsl.base.arrays import distinct_values
from weft.dsl.base.files import SCHEMA
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective, Kind
from weft.dsl.nouns.placement import Placement

from ..templates import templates
from .model import Script
from .regular import code_of
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
