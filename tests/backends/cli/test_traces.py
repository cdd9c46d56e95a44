"""``weft show --format perfetto`` and ``weft run --trace``: files for the Perfetto UI."""

import json

import pytest
from jobs import RUNTIMES

from weft.backends.ranks.job import KIND, load
from weft.backends.report.trace_check import faults

RING = "classic:ring{collective=allreduce,ranks=4}"


def events_of(path) -> list[dict]:
    text = path.read_text()
    assert faults(text) == []
    return json.loads(text)["traceEvents"]


def names(events: list[dict], what: str = "process_name") -> list[str]:
    return [e["args"]["name"] for e in events if e["name"] == what]


def test_a_schedule_becomes_a_trace_of_its_simulation(weft, triangle, tmp_path):
    out = tmp_path / "trace.json"
    shown = weft("show", triangle, "--format", "perfetto", "--size", "3MiB", "-o", out, "--json")
    told = weft("simulate", triangle, "--size", "3MiB", "--json").json["sizes"][0]
    assert (shown.code, shown.json["bytes"], shown.json["format"]) == (0, 3 << 20, "perfetto")
    assert shown.json["us"] == told["us"]
    slices = [e for e in events_of(out) if e["ph"] == "X"]
    assert max(e["ts"] + e["dur"] for e in slices) == pytest.approx(told["us"], abs=1e-3)


def test_a_trace_goes_to_stdout(weft, triangle):
    assert faults(weft("show", triangle, "--format", "perfetto").ended(0).out) == []


def test_a_program_needs_a_machine(weft, tmp_path):
    out = tmp_path / "trace.json"
    weft("show", RING, "--format", "perfetto", "-o", out).ended(2, "-t TOPO")
    assert not out.exists()
    assert weft("show", RING, "-t", "ring:4", "--format", "perfetto", "-o", out).code == 0
    assert [n for n in names(events_of(out)) if n.startswith("rank")] == [
        f"rank {r} (gpu{r})" for r in range(4)
    ]
    assert weft("show", RING, "-t", "ring:4", "--format", "perfetto", "-o", out).code == 2
    weft("show", RING, "-t", "ring:8", "--format", "perfetto", "-o", out, "-f").ended(2)
    assert events_of(out)  # the old one is whole


# --- measured -------------------------------------------------------------------------------------


@pytest.fixture
def script(weft, tmp_path):
    path = tmp_path / "ring.py"
    assert weft("compile", RING, "--to", "mpi", "-o", path).code == 0
    return path


@pytest.mark.parametrize("on", ["numpy", *RUNTIMES])
def test_rounds_are_recorded_and_shown_beside_the_prediction(weft, script, tmp_path, on):
    record, out = tmp_path / "measured.json", tmp_path / "trace.json"
    run = script if on != "torch" else RING
    flags = ("--size", "4KiB,8KiB", "--dtype", "int32", "--repeat", 1)
    ran = weft("run", run, "--on", on, *flags, "--trace", record, "--json")
    assert (ran.code, ran.json["trace"]) == (0, str(record))
    recording = load(json.loads(record.read_text()), str(record))
    assert (recording.on, recording.ranks) == (on, 4)
    assert [call.bytes for call in recording.calls] == [4096, 8192]
    for call in recording.calls:
        for rank, watch in enumerate(call.ranks):
            assert [one.round for one in watch.rounds] == list(range(1, 7))
            assert {one.to for one in watch.rounds} == {((rank + 1) % 4,)}
            assert {one.source for one in watch.rounds} == {((rank - 1) % 4,)}
            assert 0 <= watch.rounds[0].start_us
            assert watch.rounds[-1].end_us <= watch.us
    shown = weft(
        "show", RING, *"-t ring:4 --format perfetto --measured".split(), record, "-o", out, "--json"
    )
    assert (shown.code, shown.json["bytes"]) == (0, 8192)
    events = events_of(out)
    groups = {name.split(":")[0] for name in names(events)}
    assert groups == {"predicted", "measured"}
    rounds = [e for e in events if e.get("cat") == "round"]
    assert len(rounds) == 4 * 6
    weft(
        "show", RING, "-t", "ring:4", "--format", "perfetto", "--measured", record, "--size", "1MiB"
    ).ended(2, "4KiB, 8KiB")


def test_a_recording_never_overwrites_unasked(weft, script, tmp_path):
    record = tmp_path / "measured.json"
    record.write_text("mine")
    flags = ("--size", "1KiB", "--dtype", "int32", "--trace", record)
    assert weft("run", script, *flags).code == 2
    assert record.read_text() == "mine"
    assert weft("run", script, *flags, "-f").code == 0
    assert json.loads(record.read_text())["weft"] == KIND


def test_gpus_are_not_watched(weft, script, tmp_path):
    weft("run", script, "--on", "nccl", "--trace", tmp_path / "a.json").ended(
        2, "cannot record rounds"
    )


BROKEN = {
    "another kind": lambda d: d.update(weft="schedule"),
    "an unknown key": lambda d: d.update(calls=[]),
    "a time that is none": lambda d: d["calls"][0]["ranks"][0].update(us=-1),
    "rounds that overlap": lambda d: d["calls"][0]["ranks"][0]["rounds"][1].update(start_us=0),
    "a rank that is not there": lambda d: d["calls"][0]["ranks"][0]["rounds"][0].update(to=[9]),
    "a missing key": lambda d: d["calls"][0].pop("dtype"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_recording_is_refused(weft, how, tmp_path):
    path = tmp_path / "measured.json"
    rounds = [
        {"round": i, "start_us": i, "end_us": i + 1.0, "to": [1], "source": [1]} for i in (1, 2)
    ]
    ranks = [{"us": 4, "rounds": rounds}, {"us": 4, "rounds": []}]
    data = {
        "weft": KIND,
        "schema": 1,
        "on": "mpi",
        "collective": "allreduce",
        "calls": [{"bytes": 8, "dtype": "int32", "ranks": ranks}],
    }
    load(data, "here")
    BROKEN[how](data)
    path.write_text(json.dumps(data))
    weft("show", RING, "-t", "ring:4", "--format", "perfetto", "--measured", path).ended(2)


# --- drawings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["dot", "svg"])
def test_machines_and_schedules_are_drawn(weft, triangle, tmp_path, form):
    start = {"dot": "digraph", "svg": "<svg"}[form]
    machine = weft("show", "dgx-a100:nodes=2", "--format", form)
    assert (machine.code, machine.out.startswith(start)) == (0, True)
    out = tmp_path / f"drawing.{form}"
    drawn = weft("show", triangle, "--format", form, "--size", "3MiB", "-o", out, "--json")
    told = weft("simulate", triangle, "--size", "3MiB", "--json").json["sizes"][0]
    assert (drawn.code, drawn.json["us"]) == (0, told["us"])
    assert out.read_text().startswith(start)
    assert "3MiB" in out.read_text()
    weft("show", "dgx2_relay", "--format", form).ended(2, "this is a sketch")


# --- text -----------------------------------------------------------------------------------------


def test_with_a_size_the_text_tells_times(weft, triangle):
    plain = weft("show", triangle)
    timed = weft("show", triangle, "--size", "3MiB")
    told = weft("simulate", triangle, "--size", "3MiB", "--json").json["sizes"][0]
    assert timed.out.startswith(plain.out.rstrip("\n"))
    assert f"time  {told['us']:,.3f} µs at 3MiB" in timed.out
    assert "over time" in timed.out
    weft("show", "dgx1", "--size", "1MiB").ended(2, "takes no time")
