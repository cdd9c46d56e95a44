"""Tuning and libraries in Python."""

from __future__ import annotations

import sys
from dataclasses import replace
from fractions import Fraction

import pytest

import weft


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


def test_an_outcome_is_simulated_by_its_fastest_schedule_at_each_size():
    found = weft.synthesize(weft.problem("dgx1", "allgather"), "exact", effort=20)
    sizes = ["16KiB", "1MiB"]
    least = [
        min(weft.simulate(point.schedule, size).time_us for point in found.points) for size in sizes
    ]
    assert [one.time_us for one in weft.simulate(found, sizes)] == least
    with pytest.raises(weft.WeftError, match="no schedule"):
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
