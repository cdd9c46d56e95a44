"""The checker finds every kind of mistake, and knows nothing of how scripts are made."""

from dataclasses import replace

import pytest

from weft.backends.formats.p2p.check import check_script
from weft.backends.formats.p2p.compile import compile_script
from weft.backends.formats.p2p.emit import emit
from weft.backends.formats.p2p.execute import execute
from weft.backends.formats.p2p.model import Script
from weft.backends.formats.p2p.text import parse, write
from weft.dsl.nouns.collective import make
from weft.synth.engines.classic.text import named_algorithm


def script(lines: list[list[str]], kind: str = "allgather", scratch: int = 0, **more) -> Script:
    collective = make(kind, len(lines))
    code = tuple(tuple(parse(line) for line in own) for own in lines)
    return Script("test", collective, False, (scratch,) * len(lines), code, **more)


RIGHT = [["i[0] > 1, o[1] < 1; o[0] = i[0]"], ["i[0] > 0, o[0] < 0; o[1] = i[0]"]]


def test_what_is_right_is_proved():
    assert check_script(script(RIGHT)) == []


WRONG = [
    ("form", "a message to or from 2", [["i[0] > 2, o[1] < 1; o[0] = i[0]"], RIGHT[1]]),
    ("form", "a message to or from 0", [["i[0] > 0, o[1] < 1; o[0] = i[0]"], RIGHT[1]]),
    ("bounds", "o[2:3] is not inside its 2", [["i[0] > 1, o[2] < 1; o[0] = i[0]"], RIGHT[1]]),
    ("form", "different numbers of rounds", [RIGHT[0], [*RIGHT[1], ""]]),
    ("form", "terms of different lengths", [["i[0] > 1, o[1] < 1; o[0:2] = i[0]"], RIGHT[1]]),
    ("pairs", "does not match", [["i[0] > 1; o[0] = i[0]"], RIGHT[1]]),
    ("pairs", "does not match", [["i[0] > 1, o[1] < 1, o[1] < 1; o[0] = i[0]"], RIGHT[1]]),
    (
        "room",
        "rank 0 o[1] is received while it is sent",
        [["o[1] > 1, o[1] < 1; o[0] = i[0]"], RIGHT[1]],
    ),
    ("result", "rank 0 o[0] does not end", [["i[0] > 1, o[1] < 1"], RIGHT[1]]),
    ("result", "rank 1 o[0] does not end", [["o[0] > 1, o[1] < 1; o[0] = i[0]"], RIGHT[1]]),
    (
        "result",
        "rank 0 i[0] is overwritten",
        [["i[0] > 1, o[1] < 1; o[0] = i[0], i[0] = o[1]"], RIGHT[1]],
    ),
    ("result", "rank 0 o[0] does not end", [["i[0] > 1, o[1] < 1; o[0] = i[0] + o[1]"], RIGHT[1]]),
]


@pytest.mark.parametrize(("check", "words", "lines"), WRONG)
def test_mistakes_are_named(check, words, lines):
    found = check_script(script(lines))
    assert found
    assert {f.check for f in found} == {check}
    assert any(words in f.message for f in found), [str(f) for f in found]


def test_work_that_reads_what_it_writes_shifted_is_refused():
    lines = [["i[0] > 1, o[1] < 1; o[0] = i[0], s[0:2] = s[1:3]"], RIGHT[1]]
    found = check_script(script(lines, scratch=3))
    assert [f.check for f in found] == ["room"]


def test_a_round_less_or_a_term_less_is_always_found():
    whole = compile_script(named_algorithm("classic:ring{collective=allreduce,ranks=4}").algorithm)
    for rank in range(4):
        for number, one in enumerate(whole.ranks[rank]):
            for kind in ("sends", "recvs", "work"):
                if getattr(one, kind):
                    own = list(whole.ranks[rank])
                    own[number] = replace(one, **{kind: getattr(one, kind)[1:]})
                    ranks = list(whole.ranks)
                    ranks[rank] = tuple(own)
                    assert check_script(replace(whole, ranks=tuple(ranks))), (rank, write(one))


def test_what_the_checker_refuses_runs_wrong_and_the_other_way_round():
    """Permuted right-hand sides: the proof and the execution agree on every one."""
    whole = compile_script(named_algorithm("classic:ring{collective=allgather,ranks=3}").algorithm)
    agreed = {True: 0, False: 0}
    for number in range(whole.rounds):
        for chunk in range(3):
            own = list(whole.ranks[0])
            text = write(own[number]).replace("o[2]", f"o[{chunk}]")
            own[number] = parse(text)
            changed = replace(whole, ranks=(tuple(own), *whole.ranks[1:]))
            good = not check_script(changed)
            assert execute(emit(changed, "mpi"), whole.collective, lengths=(5,)).ok is good, text
            agreed[good] += 1
    assert min(agreed.values()) > 0
