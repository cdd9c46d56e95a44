"""A script as one Python file for JAX: its rounds as permutations, and the code for ``shard_map``.

The file needs JAX, and nothing of weft: it contains :mod:`.embedded.jax` from its marker on.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from weft.dsl.nouns.collective import Kind

from ..templates import templates
from .emit import PACKAGE, header, imports_of, module_of, sections_of, shape_of
from .model import LIMITS, Script
from .permutes import PermuteRound, cost_of, write_rounds

NAME = "jax"
"""Name of the runtime in files and on the command line."""

HELD = "\0"
"""A blank at which no line is broken."""

DOCS: Mapping[Kind, tuple[str, str]] = MappingProxyType(
    {
        Kind.ALLREDUCE: ("Sum the ``x`` of all ranks.", "The result has the shape of ``x``."),
        Kind.REDUCE: (
            "Sum the ``x`` of all ranks on rank {root}.",
            "The result has the shape of ``x``; on other ranks its values mean nothing.",
        ),
        Kind.REDUCE_SCATTER: (
            "Sum the ``x`` of all ranks; rank r gets the r-th part of its axis 0.",
            "Axis 0 is a multiple of {ranks}.",
        ),
        Kind.ALLGATHER: (
            "Return the ``x`` of all ranks, one after another along axis 0.",
            "Axis 0 of the result is {ranks} times that of ``x``.",
        ),
        Kind.GATHER: (
            "Return the ``x`` of all ranks, one after another along axis 0, on rank {root}.",
            "On other ranks the values mean nothing.",
        ),
        Kind.ALLTOALL: (
            "Send the r-th part of axis 0 to rank r, whose result has them in order.",
            "Axis 0 is a multiple of {ranks}.",
        ),
        Kind.BROADCAST: (
            "Return the ``x`` of rank {root} everywhere.",
            "The ``x`` of other ranks is not read.",
        ),
        Kind.SCATTER: (
            "Send the r-th part of axis 0 of rank {root} to rank r.",
            "Axis 0 is a multiple of {ranks}; the ``x`` of other ranks is not read.",
        ),
    }
)


def emit_jax(
    script: Script,
    rounds: Sequence[PermuteRound],
    provenance: Iterable[str] = (),
    module: str = "",
) -> str:
    """Return the text of the file; as :func:`.emit.emit`, with the rounds as permutations."""
    c, cost = script.collective, cost_of(rounds)
    machine = sections_of(("embedded/jax.py",))
    root = c.roots[0] if c.roots else 0
    units = "Axis 0 of ``x`` is a multiple of its {units} chunks."
    shape = shape_of(script)
    said = {"ranks": c.ranks, "root": root, "units": shape["input"] // shape["unit"]}
    doc, result = (text.format(**said) for text in DOCS.get(c.kind, ("", units)))
    return (
        templates(PACKAGE)
        .get_template("jax.py.j2")
        .render(
            title=f"{c} by {script.name}",
            rounds=script.rounds,
            permutes=cost.permutes,
            messages=script.messages,
            padding=f"{100 * cost.padding:.1f} %",
            module=module_of(script, module),
            ranks=c.ranks,
            combining=c.combining,
            grid=script.grid,
            provenance=list(provenance),
            imports=imports_of(machine),
            header=header(script) | {"runtime": NAME, "grid": script.grid},
            texts=[
                [[_lines(text) for text in part] for part in one] for one in write_rounds(rounds)
            ],
            shape=shape,
            doc=doc or f"Carry out {c}.",
            result=result,
            machine=machine.body,
        )
    )


def _lines(text: str) -> list[str]:
    """Return a text as lines of a literal, parts that fit a line unbroken; blanks stay at ends."""
    held = "; ".join(
        part.replace(" ", HELD) if len(part) < LIMITS.text_width else part
        for part in text.split("; ")
    )
    lines = textwrap.wrap(held, LIMITS.text_width, break_long_words=False, break_on_hyphens=False)
    lines = [line.replace(HELD, " ") for line in lines]
    return [f'"{line} "' for line in lines[:-1]] + [f'"{lines[-1]}"']
