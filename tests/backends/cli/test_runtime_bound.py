"""The least time of any program of a runtime, as verbs tell it."""

from pathlib import Path

import pytest
from command import Weft

from weft.backends.cli.flags import search
from weft.dsl.nouns import runtime

ASKED = ("bound", "-t", "dgx1", "-c", "allreduce", "--runtime", "msccl")


def test_bound_tells_it_with_its_parts(weft: Weft) -> None:
    found = weft(*ASKED, "--size", "1KiB", "--json").json
    one = found["runtime"]
    binds = one["binds"]
    assert (one["name"], one["protocol"]) == ("msccl", "LL")
    assert one["us"] == pytest.approx(9.263, abs=5e-4)
    assert (binds["start_us"], binds["alpha_us"], binds["argument"]) == (6.6, 2.64, "composite")
    assert binds["bytes_us"] == pytest.approx(one["us"] - 6.6 - 2.64)
    assert one["at_best_us"] < one["us"]
    assert found["sizes"][0]["runtime"] == one
    assert "7.5" in binds["text"]  # GB/s of a link of 25 that LL reaches


def test_a_range_of_sizes_has_columns(weft: Weft) -> None:
    told = weft(*ASKED, "--size", "1KiB:1GiB")
    head, first, *_ = told.out[told.out.index("size  ") :].splitlines()
    assert "any program µs  protocol" in head
    assert first.split()[4:9] == ["9.263", "LL", "6.600", "2.640", "0.023"]
    assert "programs of msccl at 1GiB, with what Simple reaches" in told.out
    sizes = weft(*ASKED, "--size", "1KiB:1GiB", "--json").json["sizes"]
    assert [one["runtime"]["protocol"] for one in sizes][::10] == ["LL", "LL128", "Simple"]


def test_by_the_data_sheet_it_is_the_bound_of_schedules(weft: Weft) -> None:
    found = weft(*ASKED, "--size", "64MiB", "--model", "datasheet", "--json").json
    assert found["runtime"]["us"] == found["sizes"][0]["us"]


def test_one_number_and_one_rank_are_questions_as_well(weft: Weft) -> None:
    one = weft(*ASKED, "--size", "4B", "--json").json["runtime"]
    assert one["us"] == pytest.approx(9.24, abs=5e-4)
    one = weft(*ASKED, "--group", "3", "--size", "1KiB", "--json").json["runtime"]
    assert one["us"] == one["at_best_us"] == 6.6  # no link is left: the start alone


def test_compile_and_simulate_tell_how_far_a_program_is_above_it(
    weft: Weft, tmp_path: Path
) -> None:
    file = tmp_path / "one.xml"
    name = "classic:one_shot{collective=allreduce,ranks=8}"
    asked = ("compile", name, "-t", "dgx-h100", "--size", "1KiB", "--protocol", "LL")
    weft(*asked, "--target", "executor", "-o", file).ended(
        0, "over the 7.342 µs that any program of executor takes at least (LL: start"
    )
    time = weft(*asked, "--target", "executor", "-o", file, "-f", "--json").json["time"]
    assert time["over_runtime"] == pytest.approx(time["program_us"] / time["runtime"]["us"])
    simulated = ("simulate", file, "-t", "dgx-h100", "--size", "1KiB", "--target", "executor")
    (size,) = weft(*simulated, "--json").json["sizes"]
    assert size["runtime"] == time["runtime"]
    assert size["over_runtime"] == time["over_runtime"] >= 1
    for more in (("--model", "datasheet"), ("--local-bandwidth", "1KB/s")):
        (size,) = weft(*simulated, *more, "--json").json["sizes"]
        assert "runtime" not in size


def test_an_optimal_program_is_called_so(weft: Weft, tmp_path: Path) -> None:
    file = tmp_path / "pair.xml"
    name = "classic:ring{collective=allgather,ranks=2}"
    machine = "line:2,family=h100"
    ran = weft("compile", name, "-t", machine, "--size", "1KiB", "--protocol", "LL", "-o", file)
    assert "this plan is optimal in this runtime" in ran.err
    ran = weft("simulate", file, "-t", machine, "--size", "1KiB:2KiB")
    assert "in this runtime: no program is quicker at 1KiB, 2KiB" in ran.err


def test_the_flag_takes_the_runtimes_that_have_a_model() -> None:
    assert search.TIMED == runtime.TIMED  # written twice: the flags load no noun
