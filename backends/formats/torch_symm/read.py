"""Read a plan back from its file by its syntax; nothing in it is executed."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.base.files import require_kind
from weft.dsl.base.integers import literal
from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.nouns.collective import Collective, Kind, make

from ..mscclpp.interpret import fit
from ..mscclpp.lower.emit import NAMES
from ..mscclpp.plan.model import FACTS, LIMITS, ExecutionPlan
from ..p2p.read import constants_in, require_constants
from .emit import Sums, places
from .program import plan_from
from .text import BETWEEN, parse_block

NAMED = ("HEADER", "RANKS", "MIN_BYTES", "MAX_BYTES", "ROWS", "PLACES", "CHUNKS", "PROGRAM")


@dataclass(frozen=True, slots=True)
class SymmProgram:
    """The plan in a file, the collective that it states, and the names in its code.

    ``specialised``: numbers are constants. ``vllm``: with the drop-in. ``sums``: by type, what the
    switch does.
    """

    plan: ExecutionPlan
    collective: Collective
    specialised: bool
    vllm: bool
    sums: Sums


def read_program(text: str, where: str) -> SymmProgram:
    """Return the contents of a file: well formed, not proved.

    Raises:
        BadFile: not such a file, or one that was edited into something else.
    """
    found = constants_in(text, where, _constants)
    require_constants(found, NAMED, where)
    header = found["HEADER"]
    require_kind(header, "torch-symm", where)
    try:
        steps = [
            [parse_block(line, f"{where}: rank {r} block {b}") for b, line in enumerate(blocks)]
            for r, blocks in enumerate(_lines(found["PROGRAM"], len(header["chunks"])))
        ]
        plan = plan_from(_head(header, found), header["chunks"], steps)
        _require_sizes(plan, found, where)
        collective = fit(_collective(header, len(plan.gpus)), plan)
        if found["PLACES"] != places(plan, collective):
            raise ValueError("PLACES does not fit the collective")
        sums = {str(name): tuple(ops) for name, ops in dict(header.get("sums", {})).items()}
        flags = bool(header["specialised"]), bool(header["vllm"])
        return SymmProgram(plan, collective, *flags, sums)
    except (KeyError, TypeError, ValueError, IndexError, UserError) as error:
        if isinstance(error, BadFile):
            raise
        raise BadFile(
            f"HEADER or PROGRAM make no sense: {getattr(error, 'message', error)}",
            where=where,
            hint="compile the file anew",
        ) from None


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Return the constants that the file assigns once, at its top level, by name."""
    bound = [
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    ]
    twice = [name for name in NAMED if bound.count(name) > 1]
    if twice:
        raise ValueError(f"{twice[0]} is bound more than once")
    found: dict[str, Any] = {}
    for node in tree.body:
        if not isinstance(node, ast.Assign):
            continue
        target, value = node.targets[0], node.value
        pairs = (
            list(zip(target.elts, value.elts, strict=False))
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
            else [(target, value)]
        )
        for one, given in pairs:
            if isinstance(one, ast.Name) and one.id in NAMED:
                found[one.id] = literal(given)
    return found


def _lines(program: Sequence[str], ranks: int) -> list[list[str]]:
    """Return the texts of each rank's blocks; a line begins with the number of the rank."""
    made: list[list[str]] = [[] for _ in range(ranks)]
    known = {str(rank): blocks for rank, blocks in enumerate(made)}
    for line in program:
        rank, colon, operations = line.partition(": ")
        if not colon or rank not in known:
            raise ValueError(f"{line[:40]!r} does not begin with a rank")
        known[rank] += operations.split(BETWEEN)
    return made


def _head(header: dict[str, Any], found: dict[str, Any]) -> ExecutionPlan:
    """Return the plan without its GPUs."""
    kind, packets = Kind(header["collective"]), header["protocol"] == "LL"
    return ExecutionPlan(
        str(header["name"]),
        NAMES.get(kind, str(kind)),
        str(header["protocol"]),
        bool(header["in_place"]),
        (),
        double_scratch=packets,
        alignment=FACTS.vector_bytes,
        min_bytes=int(found["MIN_BYTES"]),
        max_bytes=int(found["MAX_BYTES"]),
    )


def _require_sizes(plan: ExecutionPlan, found: dict[str, Any], where: str) -> None:
    """Require that numbers stated twice are the same."""
    sizes = [(g.input_chunks, g.output_chunks, g.scratch_chunks) for g in plan.gpus]
    most = tuple(map(max, zip(*sizes, strict=True)))
    if found["RANKS"] != len(plan.gpus) or found["CHUNKS"] != most or max(most) > LIMITS.chunks:
        raise BadFile("RANKS or CHUNKS do not fit HEADER", where=where, hint="compile it anew")


def _collective(header: dict[str, Any], ranks: int) -> Collective:
    kind = Kind(header["collective"])
    if kind is Kind.CUSTOM:
        return Collective.from_json(header["definition"], "HEADER")
    return make(kind, ranks, roots=tuple(header["roots"]))
