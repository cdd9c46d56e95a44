"""What pages say is what the simulator and the bounds say; they are small, equal and closed."""

import itertools
import json
import re
from dataclasses import replace

import numpy as np
import patterns
import pytest
from pages import classic, library, sharing, written

from weft.backends.cli import main
from weft.backends.compile.compile import lower_schedule
from weft.backends.report.html.bench_page import convergence_section
from weft.backends.report.html.code import chunks_moved, runs, same_ranks
from weft.backends.report.html.lanes import Bars, LaneRow, density, lane
from weft.backends.report.html.library_page import library_page, middle, size_words
from weft.backends.report.html.page import (
    BUDGETS,
    byte_words,
    fitted,
    microseconds,
    render,
    script_json,
)
from weft.backends.report.html.program_page import ShownProgram, baselines, program_page
from weft.backends.report.html.schedule import loads_of, schedule_view
from weft.backends.report.html.schedule_page import Shown, frontier_page, pair_page, schedule_page
from weft.backends.report.html.text_page import topology_page
from weft.backends.report.layout import layout
from weft.backends.report.sizes import LIMITS, PageLimits
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.library import read
from weft.dsl.nouns.schedule import write
from weft.synth.bounds import bounds, lower_bound_us
from weft.synth.engines.classic.place import Site
from weft.synth.time.calibrated import CALIBRATED, DATASHEET, MODELS, ModelChoice
from weft.synth.time.schedule_time import simulate

SIZE = 1 << 20


def view_of(schedule, most=26_000):
    bound = bounds(schedule.topology, schedule.collective)
    return schedule_view(Shown.of("x", schedule, SIZE, bound).look, "x", most)


def unpacked(row):
    """(start, end, item, kind) of the bars of a row, in ticks."""
    found, start = [], 0
    for i in range(0, len(row["b"]), 4):
        start += row["b"][i]
        found.append((start, start + row["b"][i + 1], row["b"][i + 2], row["b"][i + 3]))
    return found


@pytest.mark.parametrize(
    ("spec", "name", "kind", "segments"),
    [
        ("dgx1", "ring", "allgather", 1),
        ("dgx-a100:nodes=2,nics=8,4", "ring", "allreduce", 1),
        ("ndv2:nodes=2", "pairwise", "alltoall", 1),
        ("dgx1", "ring", "allgather", 3),
        ("", "", "", 1),
        ("", "", "", 2),
    ],
)
def test_bars_are_what_the_simulator_says(spec, name, kind, segments):
    from dataclasses import replace

    schedule = replace(classic(spec, name, kind) if spec else sharing(), segments=segments)
    view, run = view_of(schedule), simulate(schedule, SIZE)
    scale = run.time_us / LIMITS.ticks
    assert view["us"] == run.time_us
    total = np.zeros(len(run.busy_us))
    for row in view["lanes"][0]["rows"]:
        bars = unpacked(row)
        assert all(a[1] <= b[0] + 1 for a, b in itertools.pairwise(bars))
        total[row["l"]] = sum(end - start for start, end, _, _ in bars) * scale
        assert row["u"] == pytest.approx(run.busy_us[row["l"]] / run.time_us, abs=1e-4)
    np.testing.assert_allclose(total, run.busy_us, atol=scale * (len(schedule) * segments + 1))
    assert len(view["items"][0]["set"]) == len(schedule)
    chunks = sorted(view["items"][0]["set"])
    assert chunks == sorted(schedule.chunk.tolist())


def test_bound_and_facts_are_those_of_the_problem():
    schedule = classic("dgx1", "ring", "allgather")
    facts = view_of(schedule)["facts"]
    bound = bounds(schedule.topology, schedule.collective)
    assert facts["bound_us"] == float(lower_bound_us(bound, SIZE))
    assert facts["time_us"] == simulate(schedule, SIZE).time_us


def test_bytes_over_links_add_up():
    schedule = sharing()
    look = Shown.of("x", schedule, SIZE, bounds(schedule.topology, schedule.collective)).look
    loads = loads_of(look)
    links = len(schedule.topology.links)
    each = SIZE / schedule.collective.message_chunks
    assert loads.moved[:links].sum() == pytest.approx(each * len(schedule.route_links))
    for row, resource in enumerate(schedule.topology.resources, links):
        assert loads.moved[row] == loads.moved[list(resource.links)].sum()
    speed = np.array([float(x) for x in schedule.topology.capacities()]) * 1000
    np.testing.assert_allclose(loads.moved / speed, loads.busy_us, rtol=1e-9)


def test_too_many_bars_are_counted_and_shaded():
    schedule = classic("dgx1", "ring", "allgather")
    view = view_of(schedule, most=20)
    chart = view["lanes"][0]
    assert not chart["whole"]
    assert sum(len(row["b"]) // 4 for row in chart["rows"]) <= 20
    assert all(len(row["d"]) == LIMITS.cells for row in chart["rows"])
    assert "are drawn one by one" in view["notes"][0]
    assert len(view["items"][0]["set"]) == chart["kept"] < len(schedule)


def test_density_is_the_share_of_each_cell():
    bars = Bars(*(np.array(x) for x in ([0, 0], [0.0, 5.0], [2.5, 5.0], [0, 1], [0, 0])))
    cells = density(bars, 0, 10.0)
    quarter = LIMITS.cells // 4
    assert cells == "9" * quarter + "0" * quarter + "9" * (2 * quarter)
    chart = lane("t", "links", [LaneRow("a", 0, 0.75)], bars, 10.0)
    assert chart["whole"]
    assert unpacked(chart["rows"][0]) == [(0, 5000, 0, 0), (10000, 20000, 1, 0)]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ring", "allgather"),
        ("ring", "allreduce"),
        ("recursive_doubling", "allreduce"),
        ("pairwise", "alltoall"),
    ],
)
def test_chunks_of_a_program_are_those_of_its_schedule(name, kind):
    schedule = classic("dgx1", name, kind)
    program = lower_schedule(schedule)
    moved = chunks_moved(program)
    code = [x for rank in program.ranks for block in rank for x in block.code]
    assert len(moved) == len(code)
    sent = [0] * schedule.collective.chunks
    for labels, one in zip(moved, code, strict=True):
        if one.op.sends:
            assert labels
            for chunk in labels:
                sent[chunk] += 1
    assert sent == np.bincount(schedule.chunk, minlength=len(sent)).tolist()


def test_ranks_that_do_the_same_are_listed_once():
    ring = lower_schedule(classic("ring:8", "ring", "allgather"))
    groups = same_ranks(ring)
    assert sorted(r for _, ranks in groups for r in ranks) == list(range(8))
    assert len(groups) < 8


@pytest.mark.parametrize(
    "spec", ["dgx1", "dgx2:nodes=2", "ndv2:nodes=2", "dgx-a100:nodes=8", "torus:4x4", "ring:8"]
)
def test_nodes_are_apart_and_inside(spec):
    machine = topology(spec)
    found = layout(machine)
    spots = np.array(found.spots)
    assert (spots > 0).all()
    assert (spots < [found.width, found.height]).all()
    apart = np.hypot(*(spots[:, None] - spots[None]).transpose(2, 0, 1))
    np.fill_diagonal(apart, 99)
    assert apart.min() > 20


def test_words():
    assert runs([0, 1, 2, 5, 7, 8]) == "0–2, 5, 7–8"
    assert [byte_words(x) for x in (1 << 20, 1500, 3)] == ["1 MiB", "1.465 KiB", "3 B"]
    assert [microseconds(x) for x in (7.5166, 31234.5, 2.5e7)] == ["7.517 µs", "31.23 ms", "25 s"]
    assert size_words((1 << 18) - 1) == "below 256 KiB"
    assert size_words(1 << 18) == "256 KiB"
    assert 1 << 10 <= middle(1 << 10, 1 << 20) <= 1 << 20


def test_equal_questions_have_equal_pages():
    schedule = classic("dgx1", "ring", "allgather")
    pages = {render(schedule_page(Shown.of("x", schedule))) for _ in range(2)}
    assert len(pages) == 1


EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&\"'"


def test_names_cannot_break_out(tmp_path):
    from dataclasses import replace

    schedule = classic("dgx1", "ring", "allgather").with_provenance(note=EVIL, certificate=EVIL)
    machine = replace(schedule.topology, name=EVIL)
    text = render(schedule_page(Shown.of(EVIL, replace(schedule, topology=machine))))
    assert "<img" not in text
    assert "alert(1)</script>" not in text
    assert len(re.findall("<script", text)) == len(re.findall("</script", text)) == 2
    block = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert block
    assert json.loads(block[1])["views"][0]["title"] == EVIL
    assert script_json(EVIL).isascii()
    assert not set("<>&") & set(script_json(EVIL))


def test_nothing_comes_from_elsewhere():
    text = render(schedule_page(Shown.of("x", classic("dgx1", "ring", "allgather"))))
    outside = set(re.findall(r"https?://[^\"' )]+", text))
    assert outside == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<[a-z][^>]* on[a-z]+=", text)
    assert not re.search(r"<(link|img|iframe|script src)", text)


def show(*arguments):
    return main(["show", *map(str, arguments), "--format", "html"])


def test_the_command_writes_whole_files(tmp_path, capsys):
    path, out = tmp_path / "ring.json", tmp_path / "ring.html"
    write(path, classic("dgx1", "ring", "allgather"))
    assert show(path, "-o", out, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["bytes"] == out.stat().st_size
    assert told["file"] == str(out)
    assert show(path, "-o", out) == 2
    assert show(path, "-o", out, "-f") == 0
    capsys.readouterr()
    assert show(path) == 0
    assert capsys.readouterr().out == out.read_text()


def test_refusals(tmp_path, capsys):
    folder = tmp_path / "none"
    folder.mkdir()
    assert show(folder) == 2
    path = tmp_path / "ring.json"
    write(path, classic("dgx1", "ring", "allgather"))
    assert show(path, "dgx1") == 2
    assert main(["show", str(path), "dgx1"]) == 2
    assert "a second file says nothing about text" in capsys.readouterr().err
    assert main(["show", str(path), "--log", "x", "--format", "perfetto"]) == 2
    assert show(path, "--measured", "x") == 2
    assert show(path, "--log", path) == 2
    assert "log of a search" in capsys.readouterr().err
    bad = tmp_path / "bad.json"
    bad.write_text('{"status": "ok", "sizes": [{"bytes": 1}]}')
    assert show(bad) == 2
    written(
        folder, a=classic("dgx1", "ring", "allgather"), b=classic("ring:8", "ring", "allgather")
    )
    assert show(folder) == 2
    assert "several problems" in capsys.readouterr().err


def test_results_of_simulate_and_bench(tmp_path, capsys):
    path = tmp_path / "ring.json"
    write(path, classic("dgx1", "ring", "allgather"))
    assert main(["simulate", str(path), "--size", "1KiB:1MiB", "--json"]) == 0
    (tmp_path / "sim.json").write_text(capsys.readouterr().out)
    assert show(tmp_path / "sim.json") == 0
    assert "lower bound" in capsys.readouterr().out
    entry = {"least_us": 1.0, "turns": 3, "algbw_GBps": 1.0, "busbw_GBps": 1.0, "wrong": None}
    sizes = [{"name": n, "bytes": b, "us": b / 100, **entry} for n in "ab" for b in (1024, 4096)]
    for one in sizes[:2]:
        one |= {"predicted_us": 11.0, "error": 0.1}
    data = {
        "schema": 1,
        "status": "ok",
        "on": "mpi",
        "collective": "allgather",
        "ranks": 2,
        "dtype": "float32",
        "sizes": sizes,
    }
    (tmp_path / "bench.json").write_text(json.dumps(data))
    assert show(tmp_path / "bench.json") == 0
    text = capsys.readouterr().out
    assert "a, predicted" in text
    assert "b, measured" in text
    assert "+10 %" in text


def test_the_log_of_a_search_becomes_stairs(tmp_path, capsys):
    out, log = tmp_path / "ar.json", tmp_path / "search.log"
    command = ["synth", "-t", "ring:4", "-c", "allgather", "--objective", "time", "--size", "1MiB"]
    command += ["--effort", "20", "-o", str(out), "--log", str(log), "-q"]
    assert main(command) == 0
    assert main(command) == 2  # both files are there
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert lines[0]["weft"] == "log"
    assert lines[-1]["status"]
    found = [one for one in lines if "found" in one]
    assert found[-1]["us"] >= found[-1]["least_us"] > 0  # what was asked for, not rounds
    assert all("µs" in one["found"] for one in found)
    capsys.readouterr()
    assert show(out, "--log", log) == 0
    page = capsys.readouterr().out
    assert "Course of the search" in page
    assert "µs" in page[page.index("Course of the search") :]


def test_a_library(tmp_path, capsys):
    folder = library(tmp_path / "lib", "dgx1", "allreduce", ("recursive_doubling", "ring"))
    assert show(folder) == 0
    text = capsys.readouterr().out
    assert show(folder / "library.json") == 0
    assert capsys.readouterr().out == text
    for words in ("plans by size", "below 256 KiB", "baseline ring", 'data-goto="1"'):
        assert words in text
    (folder / "schedules" / "ring.json").unlink()
    assert show(folder) == 0
    assert 'data-goto="1"' not in capsys.readouterr().out


def of_section(page, name):
    return next((one for one in page["sections"] if one["id"] == name), None)


@pytest.fixture(scope="module")
def mi250(tmp_path_factory):
    """A schedule and a library of one machine, for pages by each model."""
    folder = tmp_path_factory.mktemp("mi250") / "lib"
    made = library(folder, "mi250", "allgather", ("ring", "direct"))
    return classic("mi250", "ring", "allgather"), read(made)


@pytest.mark.parametrize("model", MODELS)
def test_pages_say_what_times_of_programs_assume(mi250, model):
    """Each assumed number with what replaces it; and the start that times by α and β lack."""
    schedule, made = mi250
    shown = Shown.of("ring", schedule, choice=ModelChoice(model))
    program = ShownProgram(
        "ring", lower_schedule(schedule), schedule.topology, SIZE, choice=shown.choice
    )
    tuned = replace(made, timing={"by": "simulation", "runtime": "msccl", "model": model})
    pages = [
        schedule_page(shown),
        frontier_page("folder", [shown, shown]),
        pair_page(shown, shown),
        program_page(program),
        library_page(tuned, [], "library"),
    ]
    for page in pages:
        section = of_section(page, "assumed")
        if model == DATASHEET:
            assert section is None
            continue
        rows = {row[0]: row for row in section["rows"]}
        assert rows["local"][1:3] == [
            "5",
            "memory ÷ compute units ÷ 3 accesses of a die, as for MI300X",
        ]
        assert "--timing local=…" in rows["local"][3]
        assert not any(key.startswith(("start.", "cap.")) for key in rows)  # published
    notes = [bool(of_section(page, "facts")["notes"]) for page in pages[:2]]
    assert notes == [model == CALIBRATED] * 2


def test_everything_else_has_a_page(tmp_path, capsys):
    for subject in (
        "dgx1",
        "torus:4x4",
        "ndv2_relay",
        "classic:ring{collective=allreduce,ranks=4}",
    ):
        assert show(subject) == 0, subject
        assert "</html>" in capsys.readouterr().out


@pytest.mark.slow
def test_64_ranks_stay_below_a_megabyte(tmp_path, capsys):
    for name, kind in (("pairwise", "alltoall"), ("ring", "allreduce")):
        path, out = tmp_path / f"{kind}.json", tmp_path / f"{kind}.html"
        write(path, classic("dgx-a100:nodes=8", name, kind))
        assert show(path, "-o", out) == 0
        assert out.stat().st_size < 1_000_000


def test_pages_of_machines_have_their_figures():
    machine = topology("torus:4x6")
    page = topology_page(machine, "text", "torus:4x6")
    tiles = {one["name"]: one["value"] for one in of_section(page, "facts")["tiles"]}
    # Each of 4 columns has two cables from rows 0 … 2 to rows 3 … 5: one in the middle, one round.
    assert tiles == {"GPUs": "24", "out of a GPU": "100 GB/s", "bisection": "200 GB/s"}
    rows = {row[0]: row[1] for row in of_section(page, "bounds")["rows"]}
    assert rows["broadcast"] == "100 GB/s"
    assert len(rows) == 5
    assert "Bounds of every schedule" in render(page)


@pytest.mark.parametrize("per_bar", [3, 15, 70, 500])
@pytest.mark.parametrize("bars", [500, 3_000, 90_000])
def test_a_page_is_the_fullest_that_fits(per_bar, bars, monkeypatch):
    """Also where page sizes that cannot fit are not tried. A tenth of the limit, for small bars."""

    def page(most):
        return {"views": ["b" * per_bar * min(most, bars)], "sections": [], "title": "bars"}

    largest = len(render(page(0)).encode()) + LIMITS.page_bytes // 10
    monkeypatch.setattr("weft.backends.report.html.page.LIMITS", PageLimits(page_bytes=largest))
    _, text = fitted(page)
    sizes = [len(render(page(most)).encode()) for most in BUDGETS]
    fitting = [k for k, size in enumerate(sizes) if size <= largest]
    assert len(text.encode()) == sizes[fitting[0] if fitting else -1]


def test_classics_that_are_too_large_are_not_written(monkeypatch):
    """512 ranks: their moves are counted, not recorded; what small machines show stays."""

    def refused(self, name, kind, **options):
        raise AssertionError(f"{name} {kind} was written")

    small = topology("ring:8")
    assert [one.name for one in baselines(small, make("allgather", 8))]
    monkeypatch.setattr(Site, "algorithm", refused)
    large = topology("dgx-h100:nodes=64")
    assert baselines(large, make("allgather", 512)) == []


def test_a_log_whose_times_are_all_zero_is_not_drawn():
    log = '{"weft": "log"}\n{"seconds": 1, "found": "x", "us": 0, "least_us": 0}\n{"seconds": 2}'
    schedule = patterns.ring_allgather(4, 1)
    section = convergence_section(log, "log", schedule)
    assert (section["charts"], len(section["table"]["rows"])) == ([], 1)
