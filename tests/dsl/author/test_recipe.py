"""Recipes: algorithms in Python files, by name and with options."""

from pathlib import Path

import pytest
from moves import achieves

from weft.dsl.author.recipe import Recipe, load, load_collective, program
from weft.dsl.author.standard import Allreduce, Broadcast, Reduce
from weft.dsl.base.errors import BadAlgorithm, BadFile, UnknownName, UserError
from weft.dsl.base.spans import Span
from weft.dsl.nouns.program import Protocol

TWO = """\
from weft import Allreduce, Broadcast, program


@program(lambda ranks=4: Allreduce(ranks, chunks=ranks), in_place=True)
def ring(p):
    for step in range(p.ranks - 1):
        for r in range(p.ranks):
            p.chunk(r, (r - step) % p.ranks).reduce_into(rank=(r + 1) % p.ranks)
    for step in range(p.ranks - 1):
        for r in range(p.ranks):
            p.chunk(r, (r + 1 - step) % p.ranks).copy_to(rank=(r + 1) % p.ranks)


@program(Broadcast, name="fan", instances=2, protocol="LL")
def star(p, reach: int = 1, label=""):
    for rank in range(1, p.ranks):
        if reach:
            p.chunk(0, 0, count=p.chunks).copy_to(rank=rank)
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "two.py"
    path.write_text(TWO)
    return str(path)


def test_a_file_of_several_is_asked_by_name(file: str) -> None:
    ring = load(f"{file}:ring")
    assert (ring.name, ring.collective.ranks, ring.in_place) == ("ring", 4, True)
    assert achieves(ring)
    assert load(f"{file}:ring{{ranks=6}}").collective.chunks == 6
    assert not load(f"{file}:ring", in_place=False).in_place
    star = load(f"{file}:star{{ranks=3,chunks=2,root=0,reach=2,label=x}}")
    assert (star.name, star.instances, star.protocol) == ("fan", 2, Protocol.LL)
    assert achieves(star)


def test_a_file_of_one_needs_no_name(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    path.write_text(TWO.partition("\n\n\n@program(Broadcast")[0])
    assert load(path).collective.ranks == load(str(path)).collective.ranks == 4
    assert load(f"{path}{{ranks=3}}").collective.ranks == 3


def test_options_come_from_the_collective_and_the_function() -> None:
    @program(Broadcast)
    def star(p, deep=False):  # type: ignore[no-untyped-def]
        p.chunk(0, 0).copy_to(rank=1)

    assert isinstance(star, Recipe)
    assert list(star.options) == ["ranks", "chunks", "root", "deep"]
    with pytest.raises(UserError, match="needs the option ranks"):
        star.build()
    with pytest.raises(UnknownName, match="unknown option of star 'rank'"):
        star.build(rank=2)

    @program(Allreduce(2), name="fixed")
    def swap(p):  # type: ignore[no-untyped-def]
        p.chunk(0, 0).reduce_into(rank=1).copy_to(rank=0)

    assert swap.options == {}
    assert achieves(swap.build())


def test_options_may_have_any_name_and_default(tmp_path: Path) -> None:
    path = tmp_path / "star.py"
    path.write_text(
        "from weft import *\n@program(Broadcast(3))\n"
        "def star(p, source=0, function=0, where=[1, 2]):\n"
        "    for rank in where:\n        p.chunk(source, 0).copy_to(rank=rank)\n"
    )
    assert achieves(load(f"{path}:star{{source=0,function=1}}"))
    with pytest.raises(UserError, match="unknown option of star 'where'"):
        load(f"{path}:star{{where=1}}")


@pytest.mark.parametrize(
    ("tail", "error", "says"),
    [
        ("", UserError, "defines 2 algorithms"),
        (":rang", UnknownName, "unknown algorithm 'rang'"),
        (":ring{ranks=four}", UserError, "ranks must be an integer, not 'four'"),
        (":ring{rank=4}", UnknownName, "unknown option of ring 'rank'"),
        (":star", UserError, "star needs the option 'ranks'"),
        (":star{ranks=2,reach=0}", BadAlgorithm, "output chunk 0 of rank 1 is never written"),
    ],
)
def test_wrong_questions(file: str, tail: str, error: type[UserError], says: str) -> None:
    with pytest.raises(error, match=says):
        load(file + tail)


def test_program_alone_before_a_function_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bare.py"
    path.write_text("from weft import program\n\n\n@program\ndef ring(p):\n    pass\n")
    with pytest.raises(UserError, match="@program before ring names no collective") as caught:
        load(str(path))
    assert isinstance(caught.value.where, Span)
    assert "@program(Allreduce" in caught.value.hint


def test_a_decorator_may_be_kept_and_used_twice(tmp_path: Path) -> None:
    path = tmp_path / "kept.py"
    path.write_text(
        "from weft import Broadcast, program\n\ndef two():\n    return Broadcast(2)\n\n"
        "down = program(two)\n\n@down\ndef star(p):\n    p.chunk(0, 0).copy_to(rank=1)\n"
    )
    assert achieves(load(str(path)))


BUILT = """\
from weft import Broadcast, Builder

p = Builder(Broadcast(2), name="pair")
p.chunk(0, 0).copy_to(rank=1)
"""


def test_a_file_may_build_its_algorithm_itself(tmp_path: Path) -> None:
    path = tmp_path / "built.py"
    path.write_text(BUILT)
    unfinished = load(str(path))  # a builder stands for its algorithm where there is nothing else
    path.write_text(BUILT + "one = p.algorithm()\n")
    finished = load(f"{path}:one")
    assert (unfinished.name, finished.name, load(str(path)).name) == ("pair",) * 3
    assert achieves(unfinished)
    assert achieves(finished)
    with pytest.raises(UnknownName, match="unknown algorithm 'p'"):
        load(f"{path}:p")


def test_what_is_written_already_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "built.py"
    path.write_text(BUILT)
    assert not load(str(path), in_place=False).in_place
    with pytest.raises(BadFile, match="p is already built out of place"):
        load(str(path), in_place=True)
    with pytest.raises(UserError, match="p takes no options"):
        load(f"{path}{{ranks=3}}")


def test_the_collective_of_a_file(tmp_path: Path, file: str) -> None:
    assert load_collective(f"{file}:ring{{ranks=3}}") == Allreduce(3, chunks=3)
    path = tmp_path / "built.py"
    path.write_text(BUILT)
    assert load_collective(str(path)) == Broadcast(2)
    path.write_text(BUILT + "from weft import Reduce\ncollective = Reduce(2)\n")
    assert load_collective(str(path)) == Reduce(2)
    assert load_collective(f"{path}:p") == Broadcast(2)
    with pytest.raises(UserError, match="defines 2 algorithms"):
        load_collective(file)


def test_classic_algorithms_are_not_in_files() -> None:
    with pytest.raises(BadFile, match="no such file") as caught:
        load("classic:ring{collective=allreduce,ranks=4}")
    assert "weft compile" in caught.value.hint
