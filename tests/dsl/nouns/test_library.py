"""The noun Library: reads what it writes; refuses gaps, overlaps, paths that leave its folder."""

import json
from dataclasses import replace
from typing import Any

import pytest

from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.library import (
    Artefact,
    Candidate,
    Library,
    PlanChange,
    RuntimeTimes,
    Tuned,
    TunedPlan,
    dump,
    dumps,
    load,
)
from weft.dsl.nouns.topology import Topology, both_ways, gpu
from weft.synth.bounds import bounds

PAIR = Topology("pair", (gpu(0), gpu(1)), both_ways(0, 1, 25, "0.7"))


def plan(name: str, low: int, high: int, candidate: str = "ring") -> TunedPlan:
    file = Artefact("msccl-xml", f"msccl-xml/{name}.xml", "msccl")
    return TunedPlan(
        name,
        low,
        high,
        candidate,
        "classic",
        "LL",
        2,
        1,
        {"spread": "chains"},
        f"schedules/{name}.json",
        (file,),
    )


def tuned(*plans: TunedPlan) -> Tuned:
    candidates = (Candidate("ring", (2.0, None, 9.0), True), Candidate("tree", (1.0, 3.0, 12.0)))
    return Tuned(
        make("allgather", 2),
        bounds(PAIR, make("allgather", 2)).to_json(),
        (1024, 2048, 4096),
        (0.5, 1.0, 2.0),
        (1.0, 3.0, 9.0),
        (0.9, None, 8.0),
        candidates,
        plans,
        ("a remark",),
    )


GOOD = Library(
    "pair",
    PAIR,
    1024,
    4096,
    {"by": "simulation"},
    (tuned(plan("a", 1024, 3000, "tree"), plan("b", 3001, 4096)),),
    {"seed": 0},
)


def test_what_is_written_is_read() -> None:
    again = load(json.loads(dumps(GOOD)))
    assert again == GOOD
    assert dumps(again) == dumps(GOOD)


def test_a_plan_is_picked_by_size_both_ends_included() -> None:
    one = GOOD.of("allgather")
    assert [one.pick(n).name for n in (1024, 3000, 3001, 4096)] == ["a", "a", "b", "b"]
    for outside in (1023, 4097):
        with pytest.raises(UserError, match="tuned for"):
            one.pick(outside)
    with pytest.raises(UserError, match="got broadcast"):
        GOOD.of("broadcast")


def test_the_baseline_is_the_quickest_of_its_candidates() -> None:
    assert GOOD.of("allgather").baseline_us() == (2.0, None, 9.0)


@pytest.mark.parametrize(
    ("plans", "message"),
    [
        ((plan("a", 1024, 3000), plan("b", 3002, 4096)), "a gap between a"),
        ((plan("a", 1024, 3000), plan("b", 3000, 4096)), "an overlap between a"),
        ((plan("a", 1024, 4095),), "not for 1024 to 4096"),
        ((plan("a", 1024, 4096, "nobody"),), "nobody"),
        ((), "without plans"),
    ],
)
def test_ranges_have_no_gap_and_no_overlap(plans: tuple[TunedPlan, ...], message: str) -> None:
    with pytest.raises(BadFile, match=message):
        replace(GOOD, tuned=(tuned(*plans),))


COMPARED = replace(
    tuned(plan("a", 1024, 3000, "tree"), replace(plan("b", 3001, 4096), protocol="Simple")),
    start_us=(0.5, 0.5, 1.0),
    runtime=RuntimeTimes(
        "NCCL 2.23",
        ("ring LL", "", "ring Simple"),
        (2.0, None, 7.0),
        (1.0, None, 1.0),
        "NVLS",
        (5.0, 5.0, 5.0),
    ),
)


def test_the_runtimes_own_times_are_kept_and_only_written_where_they_are_known() -> None:
    library = replace(GOOD, tuned=(COMPARED,))
    assert load(json.loads(dumps(library))) == library
    assert not {"runtime", "start_us"} & set(dump(GOOD)["tuned"][0])


def test_what_counted_for_more_than_it_takes_is_kept_and_never_for_less() -> None:
    ring, tree = GOOD.tuned[0].candidates

    def library(*counted: float | None) -> Library:
        candidates = (replace(ring, counted_us=counted), tree)
        return replace(GOOD, tuned=(replace(GOOD.tuned[0], candidates=candidates),))

    assert load(json.loads(dumps(library(2.0, None, 9.5)))) == library(2.0, None, 9.5)
    assert "counted_us" not in dump(GOOD)["tuned"][0]["candidates"][0]
    for wrong in ((1.9, None, 9.5), (2.0, 3.0, 9.5), (2.0,)):
        with pytest.raises(BadFile, match=r"counts as quicker|differ in length"):
            library(*wrong)


def test_a_gain_is_told_with_and_without_the_starts_of_calls() -> None:
    first, unknown, last = (COMPARED.gain(i) for i in range(3))
    assert first is not None
    assert (first.us, first.ratio, first.run_ratio) == (1.0, 2.0, 2.0)
    assert unknown is None
    assert last is not None
    assert (last.us, last.ratio, last.run_ratio) == (-2.0, 7 / 9, 6 / 8)
    assert GOOD.tuned[0].gain(0) is None


def test_changes_are_the_sizes_where_algorithm_and_protocol_change() -> None:
    assert COMPARED.changes() == (
        PlanChange(3001, "algorithm", "tree", "ring"),
        PlanChange(3001, "protocol", "LL", "Simple"),
    )
    assert [c.what for c in GOOD.tuned[0].changes()] == ["algorithm"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"start_us": (1.0,)},
        {"runtime": RuntimeTimes("NCCL", ("ring",), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))},
        {"runtime": RuntimeTimes("NCCL", ("ring",) * 3, (1.0,), (0.0, 0.0, 0.0))},
    ],
)
def test_columns_of_the_runtime_have_the_length_of_the_grid(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadFile, match="differ in length"):
        replace(GOOD, tuned=(replace(tuned(*GOOD.tuned[0].plans), **wrong),))


@pytest.mark.parametrize("path", ["../up.json", "/etc/passwd", "a/../../b", "a\\b"])
def test_files_stay_in_the_folder(path: str) -> None:
    data = dump(GOOD)
    data["tuned"][0]["plans"][0]["schedule"] = path
    with pytest.raises(BadFile, match="outside the library"):
        load(data)


@pytest.mark.parametrize("wrong", ["x", -1.0, True, float("inf")])
def test_times_are_times(wrong: object) -> None:
    data = dump(GOOD)
    data["tuned"][0]["candidates"][0]["us"][0] = wrong
    with pytest.raises(BadFile, match="times in µs"):
        load(data)


def test_unknown_keys_are_errors() -> None:
    data = dump(GOOD)
    data["tuned"][0]["gird"] = []
    with pytest.raises(BadFile, match="unknown key 'gird'"):
        load(data)


@pytest.mark.parametrize(
    ("key", "wrong", "message"),
    [
        ("instances", 0, "0 instances"),
        ("segments", 10**13, "segments"),
        ("protocol", "Simpel", "Simple"),
    ],
)
def test_a_plan_is_compiled_in_a_way_that_there_is(key: str, wrong: object, message: str) -> None:
    data = dump(GOOD)
    data["tuned"][0]["plans"][0][key] = wrong
    with pytest.raises(UserError) as told:
        load(data)
    assert message in f"{told.value} {told.value.hint}"


@pytest.mark.parametrize(
    ("path", "wrong", "key"),
    [
        (("timing", "within"), "a\nb", "within"),
        (("timing", "by"), "guess", "by"),
        (("timing", "runtime"), "nosuch", "nosuch"),
        (("timing", "protocols"), ["Simpel"], "Simpel"),
        (("timing", "on"), "a\nb", "on"),
        (("timing", "tune"), 1, "tune"),
        (("provenance", "seed"), "a\x1b[2J", "seed"),
        (("tuned", 0, "bound", "rounds_per_chunk"), True, "rounds_per_chunk"),
        (("tuned", 0, "bound", "seconds_per_byte"), "-1", "seconds_per_byte"),
        (("tuned", 0, "bound", "steps"), -1, "steps"),
        (("tuned", 0, "bound", "certificate", "data"), "junk", "data"),
        (("tuned", 0, "bound", "certificate", "text"), None, "text"),
        (("tuned", 0, "candidates", 0, "us"), [1e308, None, 1], "us"),
        (("tuned", 0, "candidates", 0, "us"), [1e-300, None, 1], "us"),
        (("tuned", 0, "candidates", 0, "us"), [2**63, None, 1], "us"),
        (("tuned", 0, "candidates", 0, "source"), "a\nb", "source"),
    ],
)
def test_what_is_no_claim_is_refused_with_its_key(
    path: tuple[str | int, ...], wrong: object, key: str
) -> None:
    data = json.loads(dumps(GOOD))
    place: Any = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = wrong
    with pytest.raises(BadFile) as told:
        load(data)
    assert key in told.value.message
    assert str(path[0]) in (told.value.where or "")


def test_a_bound_without_a_key_is_refused() -> None:
    for key in dump(GOOD)["tuned"][0]["bound"].keys() - {"reach"}:
        data = json.loads(dumps(GOOD))
        del data["tuned"][0]["bound"][key]
        with pytest.raises(BadFile, match=f"{key!r} is missing"):
            load(data)


def test_a_library_has_every_collective_once() -> None:
    with pytest.raises(BadFile, match="twice"):
        replace(GOOD, tuned=GOOD.tuned * 2)
    with pytest.raises(BadFile, match="without a collective"):
        replace(GOOD, tuned=())
