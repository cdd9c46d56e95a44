"""An engine of another package: found by its entry point; listed, run, raced, judged like ours."""

from pathlib import Path

import pytest
from command import Weft
from toy_packages import install

from weft.dsl.base.registry import ENGINES
from weft.dsl.nouns.schedule import read
from weft.synth.judge.verify import verify

TOY = '''
from dataclasses import dataclass
from typing import ClassVar

from weft.dsl.nouns.hops import find_hops
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.synth.base.engine import Outcome, Point, Status
from weft.synth.bounds import bounds
from weft.synth.fabric.occupancy import rounds_per_chunk


@dataclass(frozen=True)
class Toy:
    """Every block straight to every rank."""

    name: ClassVar[str] = "toy"
    cites: ClassVar[str] = "the back of an envelope"
    forgets: int = 0

    @classmethod
    def availability(cls):
        return None

    def refuses(self, problem):
        return None if str(problem.collective.kind) == "allgather" else "allgather only"

    def solve(self, problem, budget, observer):
        straight = {(h.src, h.dst): h.route for h in reversed(find_hops(problem.topology).hops)}
        moves = [Transfer(u, u, v, route) for (u, v), route in straight.items()][self.forgets:]
        schedule = Schedule.of(problem.topology, problem.collective, moves)
        limit = bounds(problem.topology, problem.collective)
        point = Point(schedule, schedule.steps, 0, 1, limit.rounds_per_chunk, limit.certificate,
                      rate=rounds_per_chunk(schedule))
        observer.incumbent(point)
        return Outcome(Status.FEASIBLE, (point,), ("straight",))
'''


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution on the path with one engine; the folder to write to."""
    engines = {"toy": "weft_toy_engine:Toy"}
    install(tmp_path / "site", monkeypatch, {"weft_toy_engine": TOY}, {"weft.engines": engines})
    return tmp_path / "out"


@pytest.mark.usefixtures("toy")
def test_it_is_listed_with_its_options(weft: Weft) -> None:
    assert ENGINES.plugins() == ("toy",)
    found = {e["name"]: e for e in weft("list", "engines", "--json").json["engines"]}
    assert found["toy"]["available"]
    assert found["toy"]["summary"] == "Every block straight to every rank."
    options = weft("list", "engines", "--options", "--json").json["options"]
    assert [o for o in options if o["engine"] == "toy"] == [
        {"engine": "toy", "option": "forgets", "default": "0", "doc": "an integer"}
    ]


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter", "allreduce"])
@pytest.mark.parametrize("engine", ["toy", "portfolio{engines=toy}"])
def test_it_solves_also_through_reductions(
    toy: Path, weft: Weft, collective: str, engine: str
) -> None:
    weft("synth", "-t", "full:4", "-c", collective, "-e", engine, "-o", str(toy))
    for path in toy.iterdir():
        schedule = read(path)
        assert verify(schedule).ok
        assert schedule.provenance["engine"] == engine
        assert schedule.provenance.get("found_by", "toy") == "toy"


def test_it_takes_part_in_every_race(
    toy: Path, weft: Weft, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nobody names it: here none of our own engines is thought likely."""
    monkeypatch.setattr("weft.synth.engines.portfolio.engine.likely", lambda *_: iter(()))
    weft("synth", "-t", "full:4", "-c", "allgather", "-o", str(toy))
    assert {read(path).provenance["found_by"] for path in toy.iterdir()} == {"toy"}


def test_it_is_judged(toy: Path, weft: Weft) -> None:
    weft("synth", "-t", "full:4", "-c", "allgather", "-e", "toy{forgets=1}", "-o", str(toy)).ended(
        70, "'toy' of weft-toy 1.0 gave a wrong answer: its schedule is wrong: chunk"
    )
    assert not toy.exists()
