"""Files for JAX: the permutations are the script's rounds, read back, and every fault is found."""

import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_moves import random_algorithm

from weft.backends.formats.p2p.check import check_script
from weft.backends.formats.p2p.compile import compile_script
from weft.backends.formats.p2p.format import JaxFile
from weft.backends.formats.p2p.judge import judge
from weft.backends.formats.p2p.permutes import (
    cost_of,
    permuted,
    read_rounds,
    scripted,
    write_rounds,
)
from weft.backends.formats.p2p.read import permutes_in, read_script
from weft.dsl.base.errors import BadFile
from weft.synth.engines.classic.text import named_algorithm

NAMES = [
    "ring{collective=allreduce,ranks=4}",
    "bruck{collective=allgather,ranks=5}",
    "one_shot{ranks=3}",
    "two_step{on=dgx-a100:nodes=2}",
]


def ring(ranks=4, kind="allreduce"):
    return compile_script(
        named_algorithm(f"classic:ring{{collective={kind},ranks={ranks}}}").algorithm
    )


@pytest.mark.parametrize("name", NAMES)
def test_files_are_read_as_they_were_written(name):
    script = compile_script(named_algorithm(f"classic:{name}").algorithm)
    text = JaxFile().write(script)
    assert read_script(text, "file") == script
    assert judge(text, "file") == (script, [])
    held = permutes_in(text, len(script.ranks), "file")
    assert write_rounds(held) == write_rounds(permuted(script))


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**6), st.booleans())
def test_random_programs_become_permutations_and_scripts_again(seed, in_place):
    noun = random_algorithm(seed, ranks=2 + seed % 5, chunks=4, moves=25, in_place=in_place)
    script = compile_script(noun)
    rounds = permuted(script)
    again = read_rounds(write_rounds(rounds), len(script.ranks), "file")
    assert write_rounds(again) == write_rounds(rounds)
    assert scripted(again, len(script.ranks)) == script.ranks
    for one in rounds:
        for permute in one.permutes:
            for side in (0, 1):
                assert len({route.pair[side] for route in permute}) == len(permute)
    cost = cost_of(rounds)
    moved = sum(m.part.count for own in script.ranks for one in own for m in one.sends)
    assert cost.chunks == moved <= cost.padded


def test_a_ring_is_what_one_would_write():
    adding, *_, last = write_rounds(permuted(ring(3)))
    assert adding == (
        ("0 > 1: i[2] -> o[2]; 1 > 2: i[0] -> o[0]; 2 > 0: i[1] -> o[1]",),
        ("0: o[1] = o[1] + i[1]; 1: o[2] = o[2] + i[2]; 2: o[0] = o[0] + i[0]",),
    )
    assert last == (("0 > 1: o[2] -> o[2]; 1 > 2: o[0] -> o[0]; 2 > 0: o[1] -> o[1]",), ())


def test_padding_counts_what_is_sent_for_nothing():
    uneven = [(("0 > 1: i[0:3] -> o[0:3]; 1 > 0: i[0] -> o[3]",), ())]
    cost = cost_of(read_rounds(uneven, 2, "test"))
    assert (cost.permutes, cost.chunks, cost.padded) == (1, 4, 6)
    assert cost.padding == 0.5


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("1 > 2: ", "0 > 2: ", "rank 0 sends twice"),
        ("1 > 2: ", "1 > 0: ", "receives twice"),
        ("3 > 0: ", "9 > 0: ", "rank 9 sends; there are 4"),
        (" -> ", " => ", "is not messages such as"),
        ("0: o[", "7: o[", "is not work such as"),
    ],
)
def test_what_is_no_permutation_is_refused(old, new, words):
    text = JaxFile().write(ring())
    head, mark, body = text.partition("PROGRAM = (")
    assert old in body
    with pytest.raises(BadFile, match=words):
        read_script(head + mark + body.replace(old, new, 1), "file")


def test_a_wave_that_needs_its_own_results_is_refused():
    script = ring(2, "reduce_scatter")
    text = JaxFile().write(script)
    rounds = permutes_in(text, 2, "file")
    work = next(
        f'"{wave}"' for _, waves in write_rounds(rounds) for wave in waves if wave.count(":") == 2
    )
    operation = work.split(": ")[1].split(";")[0]
    twice = work.replace(operation, f"{operation}, {operation}", 1)
    with pytest.raises(BadFile, match="in one wave needs what the wave writes"):
        read_script(text.replace(work, twice, 1), "file")


def test_other_chunks_are_found_wrong():
    """Every permutation with one chunk number changed: the judge's proof fails."""
    script = ring(3)
    texts = write_rounds(permuted(script))
    changed = 0
    for number, (permutes, waves) in enumerate(texts):
        for k, text in enumerate(permutes):
            for a, b in (("[0]", "[1]"), ("[1]", "[2]"), ("[2]", "[0]")):
                other = text.replace(a, b, 1)
                if other == text:
                    continue
                rounds = list(texts)
                rounds[number] = ((*permutes[:k], other, *permutes[k + 1 :]), waves)
                made = scripted(read_rounds(tuple(rounds), 3, "test"), 3)
                wrong = type(script)(
                    script.name, script.collective, script.in_place, script.scratch, made
                )
                assert check_script(wrong), other
                changed += 1
    assert changed > 8


def test_edited_code_is_told_apart():
    text = JaxFile().write(ring())
    (found,) = judge(text.replace('mode="drop"', 'mode="clip"'), "file")[1]
    assert "edited" in found.message
