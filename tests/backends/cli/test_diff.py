"""``weft diff``: exit codes, kinds, and what is told of each."""

import json
from dataclasses import replace

import pytest

from weft.backends.report.sheets import RUN_TIMES
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.library import Candidate, Library, Tuned, TunedPlan, dumps
from weft.synth.bounds import bounds

RING = "classic:ring{collective=allreduce,ranks=4}"
DOUBLING = "classic:recursive_doubling{collective=allreduce,ranks=4}"


def sheets(ran) -> dict[str, dict[str, tuple]]:
    return {
        sheet["name"]: {c["what"]: (c["before"], c["after"]) for c in sheet["changes"]}
        for sheet in ran.json["sheets"]
    }


def test_equal_files_are_a_yes(weft, triangle, tmp_path):
    copy = tmp_path / "copy.json"
    copy.write_text(triangle.read_text())
    ran = weft("diff", triangle, copy)
    assert (ran.code, ran.out.strip()) == (0, "equal: schedule")
    assert weft("diff", triangle, copy, "--json").json["sheets"] == []
    assert weft("diff", "dgx1", "dgx1").code == 0


def test_schedules_are_timed_at_the_sizes(weft, triangle, tmp_path):
    other = tmp_path / "other.json"
    data = json.loads(triangle.read_text())
    data["segments"] = 4
    other.write_text(json.dumps(data))
    ran = weft("diff", triangle, other, "--size", "1MiB:2MiB", "--json")
    assert (ran.code, ran.json["status"], ran.json["kind"]) == (1, "different", "schedule")
    found = sheets(ran)
    assert found["facts"]["segments"] == (1, 4)
    told = [
        weft("simulate", f, "--size", "1MiB", "--json").json["sizes"][0]["us"]
        for f in (triangle, other)
    ]
    assert "µs at size" not in found or found["µs at size"]["1MiB"] == tuple(told)


def test_topologies_by_links(weft):
    ran = weft("diff", "ring:4", "ring:4,bw=50GB/s", "--json").ended(1)
    found = sheets(ran)
    assert len(found["GB/s"]) == 8
    assert set(found["GB/s"].values()) == {(25, 50)}
    assert set(found) == {"facts", "GB/s"}


def test_algorithms_and_xml_are_timed_on_a_machine(weft, tmp_path):
    assert "µs at size" not in sheets(weft("diff", RING, DOUBLING, "--json"))
    ran = weft("diff", RING, DOUBLING, "-t", "dgx1:nodes=1", "--size", "1MiB", "--json")
    assert ran.code == 2  # four ranks on a machine of eight
    files = []
    for name, what in (("ring", RING), ("doubling", DOUBLING)):
        files.append(tmp_path / f"{name}.xml")
        assert weft("compile", what, "--to", "msccl-xml", "-o", files[-1]).code == 0
    ran = weft("diff", *files, "-t", "full:4", "--size", "1MiB", "--json")
    found = sheets(ran)
    assert (ran.code, ran.json["kind"], len(found["µs at size"])) == (1, "msccl-xml", 1)
    assert found["instructions of a kind"]["rrcs"][1] is None
    assert weft("diff", files[0], files[0]).code == 0
    ran = weft("diff", *files, "-t", "full:4,family=h100", "--size", "1MiB", "--json")
    found = sheets(ran)
    for whole, run in zip(*(found[x]["1MiB"] for x in ("µs at size", RUN_TIMES)), strict=True):
        assert whole - run == pytest.approx(8.4)


def test_sketches_by_rules_and_not_by_layout(weft, tmp_path):
    shown = weft("sketch", "show", "dgx2_relay").out
    one, other = tmp_path / "a.sketch", tmp_path / "b.sketch"
    one.write_text(shown)
    other.write_text("\n\n" + shown.replace("chunks 2", "chunks   2"))
    assert weft("diff", one, other).code == 0
    other.write_text(shown.replace("chunks 2", "chunks 4"))
    ran = weft("diff", one, other)
    assert (ran.code, "chunks 4" in ran.out) == (1, True)


def library(us: float, candidate: str) -> Library:
    tuned = Tuned(
        make("allgather", 4),
        bounds(topology("ring:4"), make("allgather", 4)).to_json(),
        (1024, 2048),
        (1.0, 2.0),
        (us, 2 * us),
        (None, None),
        (Candidate("ring", (us, 2 * us)), Candidate("tree", (9.0, 9.0))),
        (TunedPlan("p", 1024, 2048, candidate, "classic"),),
    )
    return Library("lib", topology("ring:4"), 1024, 2048, {"by": "simulation"}, (tuned,))


def test_libraries_by_plans_and_times(weft, tmp_path):
    folders = []
    for name, made in (("a", library(3.0, "ring")), ("b", library(6.0, "tree"))):
        folders.append(tmp_path / name)
        folders[-1].mkdir()
        (folders[-1] / "library.json").write_text(dumps(made))
    assert weft("diff", folders[0], folders[0] / "library.json").code == 0
    ran = weft("diff", *folders, "--json")
    found = sheets(ran)
    assert (ran.code, ran.json["kind"]) == (1, "library")
    assert found["µs at size"] == {"allgather at 1KiB": (3, 6), "allgather at 2KiB": (6, 12)}
    assert found["plans"] == {
        f"allgather at {n}KiB": ("ring; Simple", "tree; Simple") for n in (1, 2)
    }


def test_libraries_on_different_grids_share_powers_of_two(weft, tmp_path):
    folders = []
    for name, grid in (("a", (1024, 1300, 2048)), ("b", (1024, 2048))):
        folders.append(tmp_path / name)
        folders[-1].mkdir()
        made = library(3.0, "ring")
        us = tuple(float(n) for n in grid)
        tuned = replace(
            made.tuned[0],
            grid=grid,
            bound_us=us,
            chosen_us=us,
            idea_us=us,
            candidates=(Candidate("ring", us),),
        )
        (folders[-1] / "library.json").write_text(dumps(replace(made, tuned=(tuned,))))
    assert "µs at size" not in sheets(weft("diff", *folders, "--json"))


def test_results_of_a_bench(weft, tmp_path):
    def result(us: float) -> str:
        entry = {"name": "ring", "bytes": 1024, "us": us, "least_us": 1.0}
        return json.dumps({"schema": 1, "status": "ok", "on": "mpi", "sizes": [entry]})

    one, other, broken = (tmp_path / f"{n}.json" for n in "abc")
    one.write_text(result(2.0))
    other.write_text(result(3.0))
    broken.write_text(json.dumps({"schema": 1, "status": "ok", "sizes": [1]}))
    ran = weft("diff", one, other, "--json")
    assert (ran.code, ran.json["kind"]) == (1, "result")
    assert sheets(ran) == {"µs at size": {"ring 1KiB": (2, 3)}}
    assert weft("diff", one, broken).code == 2


def test_values_of_results_that_diff_knows_nothing_of_are_compared(weft, triangle, tmp_path):
    data = weft("simulate", triangle, "--size", "1MiB", "--json").json
    one, other = tmp_path / "a.json", tmp_path / "b.json"
    for file, value in ((one, 1), (other, 2)):
        new = {"slack": {"us": value}, "hops": value}
        sizes = [{**entry, **new} for entry in data["sizes"]]
        file.write_text(json.dumps({**data, "seconds": value, "rule": value, "sizes": sizes}))
    assert sheets(weft("diff", one, other, "--json")) == {
        "facts": {"rule": (1, 2)},
        "slack.us at size": {"1MiB": (1, 2)},
        "hops at size": {"1MiB": (1, 2)},
    }


def test_a_wrong_schedule_is_compared_and_not_timed(weft, triangle, tmp_path):
    other = tmp_path / "other.json"
    data = json.loads(triangle.read_text())
    data["transfers"] = {k: v[:-1] if v else v for k, v in data["transfers"].items()}
    other.write_text(json.dumps(data))
    assert "transfers" in weft("diff", triangle, other).ended(1, "not simulated: it is wrong").out


def test_equal_plans_of_other_names_and_numbers_are_equal(weft, tmp_path):
    one = library(3.0, "ring")
    tuned = one.tuned[0]
    cut = tuple(replace(tuned.plans[0], name=f"q{n}", low=n, high=2 * n - 1) for n in (1024,))
    last = replace(tuned.plans[0], name="q9", low=2048)
    other = replace(one, tuned=(replace(tuned, plans=(*cut, last)),))
    for name, made in (("a", one), ("b", other)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "library.json").write_text(dumps(made))
    found = sheets(weft("diff", tmp_path / "a", tmp_path / "b", "--json"))
    assert set(found) == {"facts"}
