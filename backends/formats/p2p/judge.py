"""Judge an emitted file by its text: its rounds, and the code around them."""

from __future__ import annotations

from ...check.findings import Finding, Severity
from .check import check_script
from .emit import RUNTIMES, emit
from .emit_jax import NAME, emit_jax
from .model import Script
from .read import permutes_in, read_script, runtime_of


def judge(text: str, where: str) -> tuple[Script, list[Finding]]:
    """Return the script of a file, and the findings of the checker.

    The rounds are proved. The code that carries them out is not: a warning says so where it is not
    word for word what weft writes for these rounds.

    Raises:
        BadFile: not an emitted file.
    """
    script = read_script(text, where)
    found = check_script(script)
    runtime = runtime_of(text)
    again = None
    if runtime == NAME:
        again = emit_jax(script, permutes_in(text, len(script.ranks), where))
    elif runtime is not None and runtime in RUNTIMES:
        again = emit(script, runtime)
    if again is not None and _code(text) != _code(again):
        words = "the code that carries the rounds out was edited, or is of another version of weft"
        found.append(Finding("code", Severity.WARNING, f"{words}: it is not judged"))
    return script, found


def for_threads(text: str, where: str) -> str:
    """Return the text, or for JAX, whose code threads cannot run, a file of the same rounds."""
    return emit(read_script(text, where), "mpi") if runtime_of(text) == NAME else text


def _code(text: str) -> str:
    """Return all but the docstring of the module, which says where the script is from."""
    return text.split('"""', 2)[-1].strip()
