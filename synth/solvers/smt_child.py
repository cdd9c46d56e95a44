"""z3, called only here: decide a text in SMT-LIB's language."""

from __future__ import annotations

from typing import Any

from weft.dsl.base.answering import Say
from weft.dsl.base.errors import Missing

try:
    import z3  # an extra: only cross-checks need it
except ModuleNotFoundError:
    raise Missing(
        "exact{solver=z3} needs the Python package 'z3-solver'",
        hint="pip install 'weft[z3]', or leave the option out: CP-SAT answers the same",
    ) from None


def solve(question: Any, found: Say) -> Any:
    """Decide ``text`` within ``units`` of z3's resource count; the values of all constants."""
    context = z3.Context()  # counts from 0, whatever was solved before
    solver = z3.SolverFor("QF_LIA", ctx=context)
    solver.set("rlimit", question["units"])
    solver.set("random_seed", question["seed"])
    solver.from_string(question["text"])
    status = str(solver.check())
    statistics = solver.statistics()
    units = statistics.get_key_value("rlimit count") if "rlimit count" in statistics.keys() else 0
    values = _values(solver.model()) if status == "sat" else {}
    return {"status": status, "values": values, "units": units}


def _values(model: Any) -> dict[str, int]:
    """The values of all constants that have one; those without may have any."""
    found = {}
    for constant in model.decls():
        value = model[constant]
        found[constant.name()] = value.as_long() if z3.is_int(value) else int(z3.is_true(value))
    return found
