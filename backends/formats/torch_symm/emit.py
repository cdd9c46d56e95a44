"""A plan as one Python file: its blocks as lines, a Triton kernel, and one rank's end of it.

The file needs torch and Triton, and nothing of weft.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from shlex import quote
from textwrap import wrap
from types import MappingProxyType
from typing import Any

from weft.dsl.base.errors import UserError
from weft.dsl.base.files import SCHEMA
from weft.dsl.nouns.collective import Collective, Kind

from ..mscclpp.lower.emit import kept_buffer
from ..mscclpp.plan.model import ExecutionPlan, PlanOp
from ..templates import templates
from .program import KERNEL_LIMITS, steps_of
from .text import CASTS, SUMS, write_blocks

OPERATORS = ("sum", "prod", "max", "min")
TYPES = ("float32", "int32", "float16", "bfloat16", "float64", "int64")
USUAL_TYPE = "bfloat16"
"""Type of a file that names none."""

WIDE = frozenset({"float64", "int64"})
"""Types that a packet, which has 4 bytes of data, does not hold."""

SCATTERED = frozenset({Kind.ALLTOALL, Kind.REDUCE_SCATTER, Kind.SCATTER})
"""Collectives whose input is a part for each rank."""

GATHERED = frozenset({Kind.ALLTOALL, Kind.ALLGATHER, Kind.GATHER})
"""Collectives whose output is a part of each rank."""

WHOLE = frozenset({Kind.ALLREDUCE, Kind.BROADCAST, Kind.REDUCE})
"""Collectives whose message is one part, so that it is filled up at its end alone."""

EXPECTED = MappingProxyType(
    {
        Kind.ALLREDUCE: "sum(inputs)",
        Kind.REDUCE: "sum(inputs)",
        Kind.REDUCE_SCATTER: "sum(inputs).view(RANKS, -1)[rank]",
        Kind.ALLGATHER: "torch.cat(inputs)",
        Kind.GATHER: "torch.cat(inputs)",
        Kind.ALLTOALL: "torch.cat([x.view(RANKS, -1)[rank] for x in inputs])",
        Kind.BROADCAST: "inputs[{root}]",
        Kind.SCATTER: "inputs[{root}].view(RANKS, -1)[rank]",
    }
)
"""Expressions of the results expected, for a file that is run by itself."""

SHAPES = MappingProxyType(
    {
        Kind.ALLGATHER: "the tensors of all ranks along the first dimension",
        Kind.GATHER: "the tensors of all ranks along the first dimension",
        Kind.REDUCE_SCATTER: "this rank's part of the first dimension, summed",
        Kind.SCATTER: "this rank's part of the first dimension",
        Kind.ALLTOALL: "part r of the first dimension is from rank r",
    }
)


Sums = Mapping[str, Sequence[str]]
"""Operators by type."""

NO_SUMS: Sums = MappingProxyType({})


def emit(
    plan: ExecutionPlan,
    collective: Collective,
    *,
    specialised: bool = False,
    vllm: bool = False,
    dtype: str = "",
    op: str = "sum",
    provenance: Iterable[str] = (),
    module: str = "",
    sums: Sums = NO_SUMS,
) -> str:
    """Return the text of the file.

    ``collective``: what the plan achieves, in its chunks. ``specialised``: numbers are constants
    of the kernel. ``vllm``: with a class that stands for vLLM's custom allreduce. ``dtype``,
    ``op``: what the file is for where its user names nothing else. ``sums``: by type, the operators
    that the switch has, where it sums.

    Raises:
        UserError: the plan has port channels, or an operation that the kernel has not.
    """
    kind = collective.kind
    module = module or re.sub(r"\W+", "_", plan.name).strip("_").lower() or "program"
    root = collective.roots[0] if collective.roots else 0
    summing = _uses(plan, {PlanOp.MULTICAST_REDUCE_STORE})
    head = header(plan, collective) | {"specialised": specialised, "vllm": vllm}
    if summing:
        head["sums"] = {name: tuple(ops) for name, ops in sums.items()}
    example = (f"torch.{dtype or USUAL_TYPE}", *([f'op="{op}"'] if op != "sum" else []))
    return (
        templates("weft.backends.formats.torch_symm")
        .get_template("torch_symm.py.j2")
        .render(
            title=f"{collective} by {plan.name}",
            barriers=_uses(plan, {PlanOp.BARRIER}),
            casts=_uses(plan, CASTS),
            summing=summing,
            module=module,
            file=quote(f"{module}.py"),
            ranks=len(plan.gpus),
            example=", ".join(example),
            shapes=SHAPES.get(kind, _same_or_row(collective)),
            provenance=wrap(
                "; ".join(line.rstrip(".") for line in provenance), KERNEL_LIMITS.line_width
            ),
            header=head,
            low=plan.min_bytes,
            high=plan.max_bytes,
            rows=_rows(collective),
            places=places(plan, collective),
            chunks=tuple(map(max, zip(*head["chunks"], strict=True))),
            message=collective.message_chunks,
            program=[write_blocks(rank, KERNEL_LIMITS.blocks_width) for rank in steps_of(plan)],
            packets=plan.packets,
            specialised=specialised,
            combining=adds(plan),
            operators=OPERATORS,
            dtype=dtype or USUAL_TYPE,
            op=op,
            exact=kind not in SCATTERED | GATHERED | WHOLE,
            vllm=vllm,
            expected=EXPECTED.get(kind, "").format(root=root) if op == "sum" else "",
            takes=(root,) if kind in (Kind.REDUCE, Kind.GATHER) else (),
        )
    )


def header(plan: ExecutionPlan, c: Collective) -> dict[str, Any]:
    """Return the header of the file, by which it can be judged without anything else."""
    said: dict[str, Any] = {
        "weft": "torch-symm",
        "schema": SCHEMA,
        "name": plan.name,
        "collective": str(c.kind),
        "roots": c.roots,
        "protocol": plan.protocol,
        "in_place": plan.in_place,
        "chunks": tuple((g.input_chunks, g.output_chunks, g.scratch_chunks) for g in plan.gpus),
    }
    if c.kind is Kind.CUSTOM:
        said["definition"] = c.to_json()
    return said


def _same_or_row(c: Collective) -> str:
    """Return the shape of a result that is neither scattered nor gathered, in words."""
    if c.kind is Kind.CUSTOM and c.input_chunks != c.output_chunks:
        return f"{c.output_chunks} parts in a row, each as large as the {c.input_chunks} of x"
    return "a tensor of the same shape"


def _rows(c: Collective) -> tuple[int, int]:
    """Return of how many parts the input and the output are, each filled up by itself."""
    return (
        c.ranks if c.kind in SCATTERED else 1,
        c.ranks if c.kind in GATHERED else 1,
    )


Place = tuple[str, int, int]


def places(plan: ExecutionPlan, c: Collective) -> tuple[tuple[Place, Place], ...]:
    """Return where each rank's input and output are: the buffer, the first chunk, the chunks."""
    sizes = max(1, c.input_chunks), max(1, c.output_chunks)
    if not plan.in_place:
        return ((("i", 0, sizes[0]), ("o", 0, sizes[1])),) * c.ranks
    kept = kept_buffer(c)
    found = []
    for rank in range(c.ranks):
        shift = c.in_place_shift(rank)
        first = (shift, 0) if str(kept) == "o" else (0, -shift)
        found.append(((str(kept), first[0], sizes[0]), (str(kept), first[1], sizes[1])))
    return tuple(found)


def adds(plan: ExecutionPlan) -> bool:
    """Return True if the plan combines data; else any type is moved as it is."""
    return _uses(plan, SUMS)


def _uses(plan: ExecutionPlan, words: AbstractSet[PlanOp]) -> bool:
    ops = (op for gpu in plan.gpus for block in gpu.blocks for op in block.ops)
    return any(op.op in words for op in ops)


def require_operator(plan: ExecutionPlan, dtype: str, op: str) -> None:
    """Require that a type has an operator in the kernel.

    Raises:
        UserError: it has not.
    """
    if op not in OPERATORS:
        raise UserError(
            f"expected an operator, got {op!r}", where="--to", hint=f"op={'|'.join(OPERATORS)}"
        )
    if op != "sum" and not adds(plan):
        raise UserError(
            f"op={op} says nothing about a program that only moves data",
            where="--to",
            hint="leave it out",
        )
    if dtype and not dtype.isidentifier():
        raise UserError(f"{dtype!r} is not a type of torch", where="--to", hint="dtype=bfloat16")
    known = [name for name in TYPES if not (plan.packets and name in WIDE)]
    if adds(plan) and dtype and dtype not in known:
        packed = dtype in WIDE
        why = f": a packet holds 4 bytes of data, and {dtype} has 8" if packed else ""
        hint = "--protocol Simple" if packed else f"dtype={'|'.join(known)}"
        raise UserError(f"torch-symm cannot do {op} of {dtype}{why}", where="--to", hint=hint)
