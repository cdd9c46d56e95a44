"""Formulas give the lines they stand for, and are found where there are any."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.backends.formats.p2p.compile import compile_script
from weft.backends.formats.p2p.emit import code_of, emit, fit
from weft.backends.formats.p2p.model import Script
from weft.backends.formats.p2p.read import read_script
from weft.backends.formats.p2p.text import write
from weft.dsl.base.errors import BadFile
from weft.synth.engines.classic.text import named_algorithm

REGULAR = (
    "ring{collective=allreduce,ranks=8} ring{collective=reduce_scatter,ranks=7} "
    "biring{collective=allgather,ranks=6} "
    "recursive_doubling{collective=allreduce,ranks=8} "
    "direct{collective=allgather,ranks=5} one_shot{ranks=5} pairwise{ranks=6}"
).split()
IRREGULAR = ["binomial{collective=broadcast,ranks=6}", "swing{ranks=8}"]


def script(name: str) -> Script:
    return compile_script(named_algorithm(f"classic:{name}").algorithm)


def evaluated(lines: list[str], ranks: int) -> list[list[str]]:
    names: dict = {}
    exec("def code(r):\n" + "\n".join(f"    {line}" for line in lines), names)
    return [list(names["code"](rank)) for rank in range(ranks)]


@pytest.mark.parametrize("name", REGULAR)
def test_the_formulas_are_the_lines(name):
    made = script(name)
    lines = code_of(made)
    assert lines is not None
    assert evaluated(lines, len(made.ranks)) == [[write(x) for x in own] for own in made.ranks]
    assert read_script(emit(made, "mpi"), "file") == made


@pytest.mark.parametrize("name", IRREGULAR)
def test_what_is_not_regular_is_written_line_by_line(name):
    made = script(name)
    assert code_of(made) is None
    assert read_script(emit(made, "mpi"), "file") == made


def test_a_ring_is_three_statements():
    lines = code_of(script("ring{collective=allreduce,ranks=16}"))
    assert [line.split("(")[0] for line in lines if not line.startswith(" ")] == [
        "yield ",
        ")",
        "for step in range",
        "for step in range",
    ]
    assert "for step in range(14):" in lines
    assert "for step in range(15):" in lines


@given(st.data())
def test_every_shape_is_found_again(data):
    ranks = data.draw(st.sampled_from([2, 3, 4, 6, 8, 12, 16]))
    r = np.arange(ranks)
    g = data.draw(st.sampled_from([g for g in range(1, ranks + 1) if ranks % g == 0]))
    turn = data.draw(st.integers(0, ranks - 1))
    u = data.draw(
        st.sampled_from(
            [
                (r + turn) % ranks,
                (turn - r) % ranks,
                r // g * g + (r + turn) % g,
                (r + turn) % g,
                (r // g + turn) % (ranks // g),
                np.zeros_like(r),
                *([r ^ turn] if ranks in (2, 4, 8, 16) else []),
            ]
        )
    )
    base, factor = data.draw(st.integers(0, 40)), data.draw(st.integers(1, 5))
    column = base + factor * u
    found = fit(column)
    assert found is not None
    assert found.base == column.min()


def test_a_file_whose_function_does_more_than_count_is_refused():
    text = emit(script("ring{collective=allreduce,ranks=4}"), "mpi")
    at = text.index("    for step in range")
    harm = "    __import__('os').system('true')\n"
    with pytest.raises(BadFile, match="contains"):
        read_script(text[:at] + harm + text[at:], "file")
    with pytest.raises(BadFile, match="more than"):
        read_script(text.replace("range(3)", "range(1000000000)"), "file")
