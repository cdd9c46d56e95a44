"""Tuning and libraries in Python."""

import re
import sys
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import weft
from weft.backends.cli import main
from weft.dsl.nouns.topology import Link, Topology, gpu
from weft.dsl.nouns.workload import Workload, WorkloadOperation


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> weft.Library:
    folder = tmp_path_factory.mktemp("tuned") / "library"
    asked = {"sizes": "64KiB:128KiB", "engines": ["classic"], "effort": 0.1, "jobs": 1}
    made = weft.tune("line:2", "allgather", output=folder, **asked)
    assert (folder / "library.json").is_file()
    made_folder = weft.Library.load(folder)
    assert made_folder == made
    assert dict(made_folder.files) == dict(made.files)
    return made


def test_a_tuned_library_has_its_files(library, tmp_path):
    assert repr(library).startswith("<Library on line:2: allgather (")
    schedule = library.schedule("allgather", "100KiB")
    assert weft.verify(schedule)
    plan = library.of("allgather").pick(100 << 10)
    assert library.text(plan.artefacts[0].file).startswith("<algo ")
    library.write(tmp_path / "again")
    assert weft.Library.load(tmp_path / "again" / "library.json") == library


def test_what_is_not_in_a_library_is_told(library, tmp_path):
    with pytest.raises(weft.WeftError, match="it has allgather"):
        library.schedule("alltoall", "100KiB")
    with pytest.raises(weft.WeftError, match="tuned for"):
        library.schedule("allgather", "1GiB")
    with pytest.raises(weft.WeftError, match="no such file"):
        weft.Library.load(tmp_path / "none")


def test_wrong_arguments_of_tuning_are_told():
    with pytest.raises(weft.WeftError, match="each once"):
        weft.tune("ring:4", ["allgather", "allgather"])
    with pytest.raises(weft.WeftError, match=r"(?s)unknown engine.*hint: "):
        weft.tune("ring:4", "allgather", engines=["clasic"])
    with pytest.raises(weft.WeftError, match="unknown engine 'clasic'"):
        weft.tune("ring:4", "allgather", engines="clasic")
    with pytest.raises(weft.WeftError, match="a message of -1 bytes"):
        weft.problem("ring:4", "allgather", size=-1)
    with pytest.raises(weft.WeftError, match=r"(?s)effort.*hint: "):
        weft.tune("ring:4", "allgather", effort="3")  # type: ignore[arg-type]
    with pytest.raises(weft.WeftError, match=r"(?s)within.*hint: .*0\.03"):
        weft.tune("ring:4", "allgather", within="3 %")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def outcome() -> weft.Outcome:
    return weft.synthesize(weft.problem("ring:4", "allgather"), "classic")


SMALL = 60_000


def test_notebooks_show_small_pages_without_script(library, outcome):
    schedule = outcome.points[0].schedule
    for shown in (weft.topology("dgx1"), schedule, outcome, library):
        html = shown._repr_html_()
        assert html is not None
        assert len(html) < SMALL
        assert "<script" not in html
        assert html.count("<div") == html.count("</div>")
    assert "150 GB/s" in weft.topology("dgx1")._repr_html_()
    assert "links by use" in schedule._repr_html_()
    assert "of bound" not in outcome._repr_html_()
    assert "64 KiB" in library._repr_html_()


def test_results_of_compiling_print_in_a_line(outcome):
    made = weft.compile(outcome.points[0].schedule, "msccl-xml")
    calls = weft.compile(outcome.points[0].schedule, "mpi")
    for one in (made, made.made, calls, calls.program):
        assert len(repr(one)) < 200, repr(one)


@pytest.mark.parametrize("to", ["chakra-et", "goal", "msccl-xml"])
def test_what_is_compiled_is_written_as_the_command_writes_it(outcome, to, tmp_path, monkeypatch):
    schedule = outcome.points[0].schedule
    weft.write_schedule(tmp_path / "s.json", schedule)
    made = weft.compile(schedule, to, sizes=[1 << 20])
    ours, other = tmp_path / "ours", tmp_path / "other"
    ours.mkdir()
    other.mkdir()
    monkeypatch.chdir(ours)
    made.write("x")
    monkeypatch.chdir(other)
    assert main(["compile", "../s.json", "--to", to, "--size", "1MiB", "-o", "x", "-q"]) == 0
    written = [{x.name: x.read_bytes() for x in folder.iterdir()} for folder in (ours, other)]
    assert written[0] == written[1] != {}
    with pytest.raises(weft.WeftError, match="the file exists"):
        made.write(ours / "x")
    made.write(ours / "x", force=True)


@pytest.mark.parametrize(
    ("sizes", "same"),
    [([1 << 20], "1MiB"), (np.array([1024, 2048]), "1KiB:2KiB"), ((1024, 4096), "1KiB:4KiB")],
)
def test_lists_of_sizes_are_ranges(outcome, sizes, same):
    made = [weft.compile(outcome.points[0].schedule, sizes=one).text for one in (sizes, same)]
    assert made[0] == made[1]
    assert "maxBytes" in made[0]


def test_an_outcome_is_simulated_by_its_fastest_schedule_at_each_size():
    found = weft.synthesize(weft.problem("dgx1", "allgather"), "exact", effort=20)
    sizes = ["16KiB", "1MiB"]
    least = [
        min(weft.simulate(point.schedule, size).time_us for point in found.points) for size in sizes
    ]
    assert [one.time_us for one in weft.simulate(found, sizes)] == least
    with pytest.raises(weft.WeftError, match="expected schedules"):
        weft.simulate(replace(found, points=()), "1MiB")


def test_sketches_and_rates_print_in_a_line(outcome):
    assert repr(weft.load_sketch("ndv2_relay")) == "<SketchTree ndv2_relay: 3 rules, of nodes>"
    odd = replace(outcome.points[0], rate=Fraction(151601348, 838860775))
    assert "2 steps with 0.1807 rounds" in repr(replace(outcome, points=(replace(odd, steps=2),)))


def test_large_machines_are_shown_in_words():
    assert weft.topology("torus:10x10")._repr_html_() is None


def test_names_in_a_view_are_text():
    named = replace(weft.topology("ring:4"), name="<img src=x>")
    assert "<img" not in named._repr_html_()


def test_tables_for_pandas(library, outcome):
    pytest.importorskip("pandas")
    schedule = outcome.points[0].schedule
    points = outcome.to_pandas()
    assert list(points["steps"]) == [p.steps for p in outcome.points]
    assert set(points["found_by"]) == {"classic"}
    rates = [p.rounds_per_chunk for p in outcome.points]
    assert list(points["rounds_per_chunk"]) == [float(rate) for rate in rates]
    assert list(points["rounds_per_chunk_exact"]) == [str(rate) for rate in rates]
    times = weft.simulate(schedule, "64KiB:1MiB").to_pandas()
    assert list(times["bytes"]) == [1 << k for k in range(16, 21)]
    assert times["time_us"].is_monotonic_increasing
    assert len(weft.simulate(schedule, "1MiB").to_pandas()) == 1
    assert len(schedule.to_pandas()) == len(schedule)
    frame = library.to_pandas()
    assert set(frame["collective"]) == {"allgather"}
    assert (frame["time_us"] >= frame["bound_us"]).all()
    numbers = {"bound", "rounds_per_chunk", "algbw_GBps", "time_us", "bound_us", "gain"}
    for table in (points, times, frame):
        assert all(table[name].dtype.kind == "f" for name in numbers & set(table.columns))


def test_without_pandas_the_error_says_what_to_install(outcome, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(weft.WeftError, match=r"(?s)not installed.*pip install 'weft\[pandas\]'"):
        outcome.to_pandas()


# --- commands as functions ------------------------------------------------------------------------


def pairs():
    groups = {"a": (0, 1), "b": (2, 3)}
    work = [WorkloadOperation(n, "allreduce", group=g, bytes=1000) for n, g in groups.items()]
    return Workload("pairs", tuple(work))


def test_commands_take_nouns_and_answer_with_the_keys_of_json(outcome):
    ring, schedule = weft.topology("ring:4"), outcome.points[0].schedule
    work = pairs()
    bound = weft.plan(work, topology=ring, bound=True)
    assert bound["bound"]["us"] == pytest.approx(0.74)
    assert bound.ok
    assert "bound    0." in repr(bound)
    placed = weft.place(work, ring, {"x": 2, "y": 2})
    assert placed["placements"][0]["rank_order"] == [0, 1, 2, 3]
    assert ("Read", "pairs; ring:4: 4 ranks, 1 host, 8 links") in placed.notes
    lost = weft.failures(ring, weft.make("allgather", 4), size=np.int64(1 << 20))
    assert lost["bytes"] == 1 << 20
    assert "the clock starts" in weft.explain(schedule, size="1MiB").text
    assert weft.diff(schedule, schedule).ok
    assert not weft.diff("ring:4", "ring:5").ok
    assert weft.show(ring)["kind"] == "topology"
    drawn = weft.show(schedule, "svg")
    assert drawn.text.startswith("<svg")
    assert repr(drawn).startswith("<Answer: svg")


def test_libraries_are_deployed_and_judged(library, tmp_path):
    guide = weft.deploy(library, launcher="slurm", at="/shared/weft", output=tmp_path / "job")
    assert guide["status"] == "ok"
    assert (tmp_path / "job" / "run-slurm.sbatch").is_file()
    with pytest.raises(weft.WeftError, match=r"cut off|do not reach|no path"):
        weft.resynth(library, tmp_path / "again", down=["gpu0-gpu1"])
    (tmp_path / "log.txt").write_text("nothing\n")
    with pytest.raises(weft.WeftError, match="log"):
        weft.verify_run(tmp_path / "log.txt", library=library)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: weft.plan(pairs(), topolgy="ring:4"), "did you mean 'topology'"),
        (lambda: weft.plan(pairs()), "hint: topology=TOPO names one"),
        (lambda: weft.place(pairs(), "ring:4"), 'hint: axes="tp=8,dp=4" names them'),
        (lambda: weft.failures("ring:4", "allgather", size="1KiB:1MiB"), 'size="1MiB"'),
        (lambda: weft.diff(3.5j, "ring:4"), "or library, got complex"),
        (lambda: weft.diff("ring:4", "allgather.xml"), "no such file"),
        (lambda: weft.show("ring:4", "gif"), "unknown value of format: 'gif'"),
        (lambda: weft.profile("x.json", on="nothing"), "unknown value of on: 'nothing'"),
        (
            lambda: weft.synthesize(weft.problem("ring:4", "allgather", objective="time")),
            'hint: size="1MiB"',
        ),
        (lambda: weft.explain(topology="ring:4"), "collective="),
        (lambda: weft.plan(), "expected a workload, got none"),
        (lambda: weft.verify_run(), "expected a log of nccl-tests, got none"),
        (lambda: weft.plan(pairs(), topology="ring:4", effort="x"), '--> effort="x"'),
        (lambda: weft.place(pairs(), "ring:4", axes={"x": 0}), '--> axes="x=0"'),
        (lambda: weft.problem("ring:4", "allgather", size=1.5), "whole number of bytes, got 1.5"),
        (lambda: weft.problem("ring:4", "allgather", size=float("nan")), "bytes, got nan"),
        (lambda: weft.problem("ring:4", "allgather", message_us=-0.5), "expected 0 µs or more"),
        (lambda: weft.problem("ring:4", "allgather", size=b"1MiB"), "cannot be of type bytes"),
        (lambda: weft.rail_planner("dgx9"), "unknown topology"),
    ],
)
def test_errors_of_the_library_name_arguments_not_options(call, told):
    with pytest.raises(weft.WeftError) as error:
        call()
    assert told in str(error.value)
    assert not re.search(r"(^|\s)--?[a-z]", str(error.value))


# --- numbers of NumPy -----------------------------------------------------------------------------

RING = weft.topology("ring:4")


def ring_of(width, latency=1, lanes=1):
    graph = pytest.importorskip("networkx").cycle_graph(4)
    for one in graph.edges.values():
        one |= {"bandwidth": width, "latency": latency, "lanes": lanes}
    return weft.Topology.from_networkx(graph).digest()


def operation(**more):
    return Workload("w", (WorkloadOperation("a", **more),)).to_json()


TAKES = {
    "size of a problem": (1 << 20, lambda x: weft.problem(RING, "allgather", size=x).bytes),
    "whole size": (2.0**20, lambda x: weft.problem(RING, "allgather", size=x).bytes),
    "bandwidth of an edge": (22.7, ring_of),
    "latency of an edge": (0.7, lambda x: ring_of(25, x)),
    "lanes of an edge": (2, lambda x: ring_of(25, 1, x)),
    "ends of a link": (
        22.7,
        lambda x: Topology("p", (gpu(0), gpu(1)), (Link(0, 1, x, x), Link(1, 0, x, x))).digest(),
    ),
    "budget": (3, lambda x: weft.Budget(x, seed=x, seconds=x)),
    "ranks": (4, lambda x: weft.make("allgather", x, chunks=x)),
    "group": (1, lambda x: RING.restricted_to([0, x]).digest()),
    "options": (2, lambda x: weft.CompileOptions(instances=x, lanes=x, count=x)),
    "bytes": (9, lambda x: operation(kind="allreduce", group=(0, x), bytes=x)),
    "matrix": (9, lambda x: operation(kind="alltoallv", group=(0, 1), matrix=((0, x), (x, 0)))),
    "time": (0.7, lambda x: operation(kind="compute", us=x)),
    "axes": (
        2,
        lambda x: Workload("w", (WorkloadOperation("a", "compute", us=1),), (("x", x),)).to_json(),
    ),
}


WHOLE, BROKEN = (np.int64, np.uint32, np.array), (np.float64, np.float32, np.array)


@pytest.mark.parametrize(
    ("what", "kind"),
    [(w, k) for w, (x, _) in TAKES.items() for k in (WHOLE if isinstance(x, int) else BROKEN)],
)
def test_numbers_of_numpy_are_numbers(what, kind):
    value, made = TAKES[what]
    assert repr(made(kind(value))) == repr(made(value))


def test_times_and_programs_take_sizes_of_numpy(outcome):
    schedule = outcome.points[0].schedule
    program = weft.compile_schedule(schedule)
    sizes = np.array([1 << 16, 1 << 20])
    for one, more in ((schedule, {}), (program, {"topology": RING})):
        expected = [weft.simulate(one, int(m), **more).time_us for m in sizes]
        assert [t.time_us for t in weft.simulate(one, sizes, **more)] == expected
        for size in (np.array(1 << 20), np.float32(1 << 20), 1048576.0):
            assert weft.simulate(one, size, **more).time_us == expected[1]
    assert weft.simulate_program(program, RING, np.uint64(1 << 20)).time_us == expected[1]
