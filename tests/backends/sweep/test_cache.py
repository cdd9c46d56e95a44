"""Answers by content: found again exactly when nothing differs, and never believed unread."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from weft.backends.jobs.job import digest
from weft.backends.sweep.body import believable, solve
from weft.backends.sweep.cache import (
    Cache,
    _unkept,
    default_folder,
    entries,
    is_sealed,
    remove,
    seal,
)
from weft.backends.sweep.question import Label, SketchSource, SweepQuestion, problem_of
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.problem import Objective, Problem

CODE = "c0de"


def question(
    machine: str = "ring:4",
    kind: str = "allgather",
    engine: str = "classic",
    size: int = 4096,
    effort: float = 10.0,
    seed: int = 0,
    threads: int = 2,
    sketch: SketchSource | None = None,
) -> SweepQuestion:
    there = topology(machine)
    problem = Problem(there, make(kind, there.ranks), None, Objective.TIME, size)
    label = Label(machine, kind, "", engine, size, "time", seed)
    return SweepQuestion.of(
        label, problem, sketch, engine, effort=effort, seconds=None, threads=threads
    )


ASKED = question()
RING = SketchSource("s", "sketch s\nforbid links 0 -> 1\n")


@pytest.mark.parametrize(
    "other",
    [
        question("torus:2x2"),
        question("ring:5"),
        question(kind="allreduce"),
        question(size=8192),
        question(engine="classic{algorithm=ring}"),
        question(engine="packing"),
        question(seed=1),
        question(threads=1),
        question(sketch=RING),
        question(sketch=replace(RING, arguments=(("nodes", 2),))),
    ],
)
def test_every_part_of_a_question_is_in_its_key(other: SweepQuestion) -> None:
    assert other.core(CODE) != ASKED.core(CODE)
    assert other.key(CODE) != ASKED.key(CODE)


def test_the_code_and_the_budget_are_in_the_key_and_names_are_not() -> None:
    assert ASKED.core("other") != ASKED.core(CODE)
    longer = question(effort=20.0)
    assert (longer.core(CODE), longer.key(CODE) == ASKED.key(CODE)) == (ASKED.core(CODE), False)
    renamed = replace(ASKED, label=replace(ASKED.label, topology="./ring.json"))
    assert renamed.key(CODE) == ASKED.key(CODE)


def test_the_same_engine_in_other_words_is_the_same_question() -> None:
    plain, spelled = question(engine="exact"), question(engine="exact{ chunks = 0 }")
    assert plain.key(CODE) == spelled.key(CODE)


@pytest.fixture(scope="module")
def answer() -> dict[str, Any]:
    return solve(ASKED.argument())


def test_an_answer_is_kept_for_its_budget_and_a_proved_one_for_all(
    tmp_path: Path, answer: dict[str, Any]
) -> None:
    assert answer["status"] == "feasible"
    cache = Cache(tmp_path, CODE)
    assert cache.get(ASKED, believable) is None
    cache.put(ASKED, answer)
    assert cache.get(ASKED, believable) == answer
    assert cache.get(question(effort=20.0), believable) is None
    assert replace(cache, code="upgraded").get(ASKED, believable) is None
    cache.put(ASKED, {**answer, "status": "optimal"})
    found = cache.get(question(effort=20.0), believable)
    assert found is not None
    assert found["schedules"] == answer["schedules"]


def rewritten(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """An entry with another content and the seal that fits it."""
    data = json.loads(path.read_text())
    change(data["result"])
    head = {name: data[name] for name in ("weft", "schema", "key", "code")}
    data["seal"] = seal([head, data["result"]])
    path.write_text(json.dumps(data))


def drop_a_transfer(result: dict[str, Any]) -> None:
    schedule = json.loads(result["schedules"][0])
    for column in schedule["transfers"].values():
        if isinstance(column, list):
            column.pop()
    result["schedules"] = [json.dumps(schedule)]


def other_machine(result: dict[str, Any]) -> None:
    faster = json.loads(result["schedules"][0])
    faster["topology"]["links"][0][2] = 1000
    result["schedules"] = [json.dumps(faster)]


def boast(result: dict[str, Any]) -> None:
    result["value"] /= 2


def lose_the_schedule(result: dict[str, Any]) -> None:
    result["schedules"] = []


@pytest.mark.parametrize("change", [drop_a_transfer, other_machine, boast, lose_the_schedule])
def test_what_is_stored_is_not_trusted(
    tmp_path: Path, answer: dict[str, Any], change: Callable[[dict[str, Any]], None]
) -> None:
    cache = Cache(tmp_path, CODE)
    cache.put(ASKED, answer)
    [entry] = entries(tmp_path)
    rewritten(entry.path, lambda _: None)
    assert cache.get(ASKED, believable) == answer
    rewritten(entry.path, change)
    assert cache.get(ASKED, believable) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b[: len(b) // 2],
        lambda b: b"",
        lambda b: b"\xff" + b,
        lambda b: b"[]",
        lambda b: b.replace(b'"feasible"', b'"optimal" '),
        lambda b: b'{"weft": "result"}',
        lambda b: b.replace(b"4096", b"8192"),
    ],
)
def test_damaged_files_are_as_good_as_none(
    tmp_path: Path, answer: dict[str, Any], damage: Callable[[bytes], bytes]
) -> None:
    cache = Cache(tmp_path, CODE)
    cache.put(ASKED, answer)
    [entry] = entries(tmp_path)
    whole = entry.path.read_bytes()
    entry.path.write_bytes(damage(whole))
    assert cache.get(ASKED, believable) is None
    cache.put(ASKED, answer)
    assert entry.path.read_bytes() == whole
    remove(entry)
    remove(entry)
    assert list(entries(tmp_path)) == []


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WEFT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".cache" / "weft"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert default_folder() == tmp_path / "x" / "weft"
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "w"))
    assert default_folder() == tmp_path / "w"


def test_a_question_survives_the_way_into_a_process() -> None:
    data = json.loads(json.dumps(ASKED.argument()))
    there = topology("ring:4")
    assert problem_of(data) == Problem(there, make("allgather", 4), None, Objective.TIME, 4096)
    ruled = problem_of({**data, "sketch": {"name": "s", "text": RING.text, "arguments": []}})
    assert ruled.sketch is not None
    assert [rule.label for rule in ruled.sketch.rules] != []


def test_the_body_says_what_is_refused_infeasible_and_found() -> None:
    refused = solve(question(engine="classic{algorithm=bruck}", kind="allreduce").argument())
    assert refused["status"] == "refused"
    assert refused["why"]
    whole = SketchSource("s", "sketch s\nforbid links 0 -> 1\nforbid links 0 -> 3\n")
    infeasible = solve(question(engine="exact", sketch=whole).argument())
    assert infeasible["status"] == "infeasible"
    assert "0" in infeasible["why"]


def test_what_another_wrote_is_not_believed(
    tmp_path: Path, answer: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody forges an answer without the user's key, whatever it says: here that it is optimal."""
    cache = Cache(tmp_path, CODE)
    cache.put(ASKED, answer)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    assert cache.get(ASKED, believable) is None
    cache.put(ASKED, {**answer, "status": "optimal"})
    assert cache.get(ASKED, believable) is not None
    monkeypatch.undo()
    assert cache.get(ASKED, believable) == answer
    file, _ = cache._proved(ASKED)
    data = json.loads(file.read_text())
    assert data["result"]["status"] == "optimal"
    head = {name: data[name] for name in ("weft", "schema", "key", "code")}
    for forged in (None, 5, "", [], digest([head, data["result"]])):
        file.write_text(json.dumps({**data, "seal": forged}))
        assert cache.get(question(effort=20.0), believable) is None


@pytest.mark.parametrize("state", ["unreadable", "relative", "open"])
def test_without_a_key_of_ones_own_nothing_is_read_later(
    tmp_path: Path, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if state == "open":
        (tmp_path / "weft").mkdir()
        (tmp_path / "weft" / "key").write_bytes(b"known to all")
        (tmp_path / "weft" / "key").chmod(0o644)
    place = {"unreadable": "/proc/nobody", "relative": "here", "open": str(tmp_path)}[state]
    monkeypatch.setenv("XDG_STATE_HOME", place)
    _unkept.cache_clear()
    made = seal([1])
    assert is_sealed([1], made)
    assert not is_sealed([2], made)
    _unkept.cache_clear()
    assert not is_sealed([1], made)
