"""Programs on ranks that one process forks: what they are told, and what is heard of a failure.

With a package in the place of torch that costs nothing to load: none of it is used here.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from weft.backends.ranks.launcher import run_program
from weft.backends.ranks.torch import takes_gpus
from weft.dsl.base.errors import CheckFailed

PROGRAM = """
import os, time
from weft.backends.ranks.launcher import take_part

def came(on, plan, place, tell):
    number = int(os.environ["WEFT_RANK"])
    tell(f"heard {number}")
    if number == plan["fails"]:
        raise ArithmeticError("out of luck")
    (place / f"came-{number}").touch()
    while len(list(place.glob("came-*"))) < 3:
        time.sleep(0.01)
    yield None if number else [on, sorted(path.name for path in place.glob("came-*"))]

take_part(came)
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the module, which ranks find beside a torch that is empty."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()
    (tmp_path / "torch" / "distributed.py").write_text("def is_available():\n    return True\n")
    (tmp_path / "three_ranks.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setattr("weft.backends.ranks.launcher.find_spec", lambda name: name)
    return "three_ranks"


def test_every_rank_has_its_number_and_rank_0_leaves_what_was_found(program: str) -> None:
    heard: list[str] = []
    found = run_program(program, "torch", 3, {"fails": None}, 60, heard.append)
    assert found == ["torch", ["came-0", "came-1", "came-2"]]
    assert set(heard) <= {"heard 0", "heard 1", "heard 2"}


def test_a_rank_that_fails_ends_all_with_its_error(program: str) -> None:
    with pytest.raises(CheckFailed, match="ArithmeticError: out of luck"):
        run_program(program, "torch", 3, {"fails": 1}, 60, lambda _: None)


CLOSING = """
import os, time
from types import SimpleNamespace
from weft.backends.ranks.bench import ranks
from weft.backends.ranks.launcher import take_part

def close():
    if number:
        return
    if plan == "raises":
        raise RuntimeError("connection lost")
    time.sleep(600)

number = int(os.environ["WEFT_RANK"])
ranks.Bench = SimpleNamespace(from_json=lambda data: SimpleNamespace(
    timeout=1, units=SimpleNamespace(ranks=2)))
ranks.world_of = lambda *_: SimpleNamespace(rank=number, close=close)
ranks.attend = lambda *_: None if number else ["rows"]

def serve(on, given, *more):
    global plan
    plan = given
    yield from ranks.serve(on, given, *more)

take_part(serve)
"""


@pytest.mark.parametrize("closing", ["raises", "hangs"])
def test_times_of_a_bench_outlive_a_failed_closing(
    closing: Any, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.backends.ranks.launcher.STARTING", 4.0)
    (tmp_path / "closing.py").write_text(CLOSING)
    assert run_program("closing", "torch", 2, closing, 2, lambda _: None) == ["rows"]


# --- devices --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "nccl", "ranks", "taken"),
    [(0, True, 2, False), (1, True, 2, False), (2, True, 2, True), (8, False, 2, False)],
)
def test_ranks_that_would_share_a_gpu_use_the_host(
    gpus: int, nccl: bool, ranks: int, taken: bool
) -> None:
    """Four ranks on one H200 ended in "Duplicate GPU detected"."""
    cuda = SimpleNamespace(is_available=lambda: gpus > 0, device_count=lambda: gpus)
    dist = SimpleNamespace(is_nccl_available=lambda: nccl)
    assert takes_gpus(SimpleNamespace(cuda=cuda), dist, ranks) is taken
