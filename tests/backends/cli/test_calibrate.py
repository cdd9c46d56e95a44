"""``weft topo calibrate``: numbers that texts tell are found again, and those they hide are not."""

import json
import re
from dataclasses import replace
from fractions import Fraction

import pytest
from nccl_tests_text import nccl_tests_text

from weft.backends.fleet.calibrate import FittedNumber
from weft.backends.tune.baselines import best_of, nccl_baselines
from weft.dsl.catalogue import topology
from weft.dsl.nouns.timing import TimingNumber

ASKED = ("-c", "allgather", "--objective", "time", "--size", "1MiB")

TESTS = {"allreduce": "all_reduce", "allgather": "all_gather"}
SIZES = tuple(1 << k for k in range(3, 31, 3))


def text(kind, *, together=False, machine="dgx-a100", more=(), sizes=SIZES, **numbers):
    """The text of a run on a machine whose numbers are not the defaults."""
    plain = topology(machine) if isinstance(machine, str) else machine
    own = tuple(
        TimingNumber(key.replace("_", "."), Fraction(str(x)), "") for key, x in numbers.items()
    )
    true = replace(plain, timing=plain.timing.with_numbers((*own, *more)))
    gpus = plain.ranks // plain.hosts
    options = nccl_baselines(true, kind, "nccl", gpus if together else 1)
    rows = [(size, best_of(options, size).us) for size in sizes]
    return nccl_tests_text(TESTS[kind], rows, gpus=gpus, hosts=plain.hosts, together=together)


@pytest.fixture
def calibrate(weft, tmp_path):
    def ask(*texts, machine="dgx-a100", more=()):
        paths = []
        for i, one in enumerate(texts):
            paths.append(tmp_path / f"{i}.txt")
            paths[-1].write_text(one)
        return weft("topo", "calibrate", machine, *paths, "--json", *more)

    return ask


def test_numbers_are_found_again(calibrate, tmp_path):
    """Two collectives with 2 steps and 1 tell start and α apart; one does not."""
    true = {"alpha_nvlink_LL": 2.5, "start_LL": 9, "reach_nvlink": 0.7}
    out, page, file = tmp_path / "m.json", tmp_path / "p.html", tmp_path / "box.json"
    box = topology("dgx-a100").restricted_to(range(2))
    file.write_text(json.dumps(box.to_json()))
    texts = {kind: text(kind, machine=box, sizes=SIZES[::2], **true) for kind in TESTS}
    both = calibrate(*texts.values(), machine=file, more=("-o", out, "--page", page))
    assert both.code == 0, both.err
    data = json.loads(both.out)
    found = {x["key"]: x["value"] for x in data["fitted"]}
    assert found["alpha.nvlink.LL"] == pytest.approx(2.5, rel=0.05)
    assert found["start.LL"] == pytest.approx(9, rel=0.05)
    assert found["reach.nvlink"] == pytest.approx(0.7, rel=0.02)
    assert data["median_error"]["fitted"] < 0.01 < data["median_error"]["default"]
    written = json.loads(out.read_text())["timing"]["numbers"]
    assert {key for key, _, _ in written} == set(found)
    assert all("0.txt" in source for _, _, source in written)
    assert "measured" in page.read_text()

    one = json.loads(calibrate(texts["allreduce"], machine=file).out)
    assert "alpha.nvlink.LL" in {x["key"] for x in one["fitted"]}
    kept = {x["key"]: x["why"] for x in one["kept"]}
    assert kept["start.LL"] == "the times cannot tell it from alpha.nvlink.LL"


def test_a_fit_that_is_further_from_the_times_is_doubted(calibrate):
    """Most times are those of the defaults, a third are 1.45 times as long."""
    lines = text("allreduce", machine="line:2").splitlines()
    for at in [i for i, line in enumerate(lines) if line.split()[:1] and line.split()[0].isdigit()][
        1::3
    ]:
        us = lines[at].split()[5]
        lines[at] = lines[at].replace(us, f"{float(us) * 1.45:.2f}", 1)
    ran = calibrate("\n".join(lines), machine="line:2")
    data = json.loads(ran.out)
    before, after = (data["median_error"][key] for key in ("default", "fitted"))
    assert before < after
    assert f"{before:.1%} before, {after:.1%} after" in data["doubt"]
    assert "further from the times than the defaults" in ran.err


@pytest.mark.parametrize(("factor", "many"), [(0.001, "2 of 2"), (None, "1 of 2")])
def test_times_that_no_numbers_explain_are_named(calibrate, factor, many):
    """Times in ms, and one of a disturbed run, were fitted without a word."""
    whole = text("allreduce", machine="line:2", sizes=SIZES[::9])
    pattern = r"(?m)^(  8 .*? -1 +)(\S+)" if factor is None else r"(?m)^(  \d.*? -1 +)(\S+)"
    ran = calibrate(
        re.sub(pattern, lambda m: f"{m[1]}{float(m[2]) * (factor or 1000):g}", whole),
        machine="line:2",
    )
    assert ran.code == 0, ran.err
    doubt = json.loads(ran.out)["doubt"]
    assert f"do not explain {many} times" in doubt
    assert "allreduce of 8B took" in doubt
    assert "0.txt:8)" in doubt
    assert "do not explain" in ran.err


def test_a_fit_tells_how_far_it_is_and_what_ran(weft, tmp_path):
    file = tmp_path / "0.txt"
    file.write_text(text("allreduce", machine="line:2", sizes=SIZES[::3]))
    ran = weft("topo", "calibrate", "line:2", file, "-v").ended(
        0, "what times depend on: number 1 of ", "fit to 4 times: 1 of "
    )
    assert "kept: no measured time depends on it" in ran.out
    assert re.search(r"fitted µs +error +what ran\n", ran.out)


def test_a_number_at_the_end_of_its_range_is_marked():
    ends = [("alpha.nvlink.LL", 8.0, 1.0), ("alpha.nvlink.LL", 0.5, 4.0), ("reach.nvlink", 1, 0.8)]
    assert all(FittedNumber(key, default, value=value).at_end for key, value, default in ends)
    assert not FittedNumber("alpha.nvlink.LL", 1.0, value=2.0).at_end


def test_repeated_rows_of_one_size_leave_the_others_their_part(calibrate):
    """A soak run prints a size thousands of times: each was simulated, and hid the other sizes."""
    whole = text("allreduce", machine="line:2", sizes=SIZES[::3], start_LL=9)
    row = next(line for line in whole.splitlines() if line.startswith("  8 "))
    ran = calibrate(whole.replace(row, "\n".join([row] * 600)), machine="line:2")
    assert ran.code == 0, ran.err
    data = json.loads(ran.out)
    assert len(data["sizes"]) == 603
    plain = json.loads(calibrate(whole, machine="line:2").out)
    assert data["fitted"] == plain["fitted"]


def test_one_process_for_all_gpus_hides_alpha(calibrate):
    ran = calibrate(
        text(
            "allgather",
            together=True,
            more=[TimingNumber("host.per_gpu", Fraction(6), "")],
            sizes=SIZES[::2],
        )
    )
    assert ran.code == 0, ran.err
    data = json.loads(ran.out)
    found = {x["key"]: x["value"] for x in data["fitted"]}
    assert found["host.per_gpu"] == pytest.approx(6, rel=0.03)
    assert "start.LL" in {x["key"] for x in data["kept"]}


@pytest.mark.parametrize(
    ("change", "message", "line"),
    [
        (
            lambda t: t.replace("Out of bounds values : 0 OK", "Out of bounds values : 4 FAILED"),
            "the test failed",
            24,
        ),
        (lambda t: t.replace("  0.00  0  ", "  0.00  7  ", 1), "results were wrong at 8 bytes", 14),
        (lambda t: t[: t.index("# Out of")], "not whole", 23),
        (lambda t: t.replace("Rank  3", "Rank  2"), "rank 2 is listed twice", 7),
        (lambda t: re.sub(r"(?m)^(  8 .*) 0$", r"\1 3", t), "wrong at 8 bytes in place (3)", 14),
        (lambda t: re.sub(r"(?m)^(  8  .*? -1 +)\S+", r"\1nan", t), "8 bytes, nan µs", 14),
        (lambda t: re.sub(r"(?m)^(  8  .*? -1 +)\S+", r"\g<1>1e400", t), "8 bytes, 1e400 µs", 14),
        (lambda t: re.sub(r"(?m)^  8 ", "  -8 ", t), "a row of -8 bytes", 14),
        (lambda t: t.replace("  64  ", "  4  ", 1), "sizes of several runs are mixed", 15),
        (
            lambda t: t.replace("all_reduce_perf", "sendrecv_perf"),
            "expected a test of a collective of weft",
            None,
        ),
        (lambda t: t.replace("host0 device  7", "host1 device  0"), "8 GPUs in 2 hosts", None),
    ],
)
def test_texts_that_tell_nothing(calibrate, change, message, line, tmp_path):
    ran = calibrate(change(text("allreduce")), more=("-o", tmp_path / "m.json"))
    assert ran.code == 2
    assert message in ran.err
    assert line is None or f"0.txt:{line}" in ran.err
    assert not (tmp_path / "m.json").exists()


@pytest.mark.parametrize("change", ["", "0.00"])
def test_a_text_without_times_is_named(calibrate, tmp_path, change):
    whole = text("allreduce", machine="line:2", sizes=(8,))
    none = re.sub(r"(?m)^  8 .*\n", "", whole)
    zero = re.sub(r"(?m)^(  8  .*? -1 +)\S+", r"\g<1>0.00", whole)
    ran = calibrate(zero if change else none, machine="line:2", more=("-o", tmp_path / "m.json"))
    assert ran.code == 2
    assert "no row with a time" in ran.err
    assert str(tmp_path / "0.txt") in ran.err
    assert not (tmp_path / "m.json").exists()


def test_times_of_first_calls_are_refused(calibrate):
    cold = text("allreduce", machine="line:2", sizes=(8,)).replace(
        "step: 2(factor)", "step: 2(factor) warmup iters: 0 iters: 20"
    )
    ran = calibrate(cold, machine="line:2")
    assert ran.code == 2
    assert "no call came before those that were timed" in ran.err
    assert "0.txt" in ran.err


def test_measurements_that_contradict_each_other(calibrate):
    ran = calibrate(text("allreduce"), text("allreduce", start_LL=40))
    assert ran.code == 2
    assert "0.txt:14" in ran.err
    assert "1.txt:14" in ran.err


def test_one_path_for_machine_and_page_is_refused(calibrate, tmp_path):
    """The page took the place of the machine."""
    out = tmp_path / "m.json"
    ran = calibrate(text("allreduce"), more=("-o", out, "--page", out, "-f"))
    assert ran.code == 2
    assert "name the same file" in ran.err
    assert not out.exists()


def test_the_reason_why_nothing_can_be_fitted_is_told(calibrate):
    other = text("allreduce").replace("all_reduce_perf", "sendrecv_perf")
    ran = calibrate(other, more=("-c", "gather"))
    assert ran.code == 2
    assert "no baseline of gather is known" in ran.err


def test_a_text_of_other_gpus_is_told(calibrate):
    few = text("allreduce", sizes=SIZES[::9])
    ran = calibrate(re.sub(r"\] GPU", "] NVIDIA H100 80GB HBM3", few))
    assert ran.code == 0, ran.err
    assert "measured on h100, fitted to a machine of a100" in ran.err


@pytest.mark.parametrize(
    ("numbers", "message", "where"),
    [
        ([["alpha.LL", "1", "mine"]], "unknown key of the runtime model 'alpha.LL'", "timing"),
        (
            [["start.LL", "9", "mine"], ["alpha.nvlink.LL", "-3/2", "mine"]],
            "alpha.nvlink.LL is -1.5, which is negative",
            "timing.numbers[1]",
        ),
    ],
)
def test_a_number_without_a_class_and_a_negative_one_are_told_with_their_file(
    weft, tmp_path, numbers, message, where
):
    file, out = tmp_path / "box.json", tmp_path / "ring.json"
    data = topology("dgx1").to_json()
    file.write_text(json.dumps({**data, "timing": {"family": "v100", "numbers": numbers}}))
    for verb in (("topo", "show", file), ("synth", "-t", file, *ASKED, "-o", out)):
        assert f"{file}: {where}" in re.sub(r"\s+", " ", weft(*verb).ended(2, message).err)
    assert not out.exists()
