"""``weft tuner``: the quickest measured algorithm for each size, and no file of predictions."""

import csv
import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_logs import log_text

from weft.backends.fleet.evidence import EFFORT
from weft.backends.fleet.tuner import LARGEST, TunerSetting, TunerTime, tuner_lines
from weft.dsl.nouns.collective import Kind

SIZES = (1024, 65536, 1 << 20, 1 << 26)
RING = {1024: 10.0, 65536: 20.0, 1 << 20: 60.0, 1 << 26: 900.0}
TREE = {1024: 14.0, 65536: 12.0, 1 << 20: 61.0, 1 << 26: 1800.0}


@pytest.fixture
def runs(tmp_path: Path):
    """A file of a run: times by size, and how it tells what ran."""

    def made(
        name: str, times, *, tuning: str = "", env: str = "", test: str = "all_reduce"
    ) -> Path:
        text = log_text(
            test,
            {size: (us, us) for size, us in times.items()},
            gpus=8,
            hosts=2,
            before=[f"{one.replace('=', ' set by environment to ')}." for one in env.split()],
            said=lambda size: (
                [f"AllReduce: {size} Bytes -> Algo {tuning} channel{{Lo..Hi}}={{0..7}}"]
                if tuning
                else []
            ),
        )
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return made


def rows(text: str) -> list[list[str]]:
    return [row for row in csv.reader(text.splitlines()) if not row[0].startswith("#")]


def test_the_quickest_is_taken_and_all_sizes_are_covered(weft, runs, tmp_path: Path) -> None:
    out_file = tmp_path / "nccl_tuner.conf"
    out = weft(
        "tuner",
        runs("ring.txt", RING, tuning="RING proto LL"),
        runs("tree.txt", TREE, tuning="TREE proto LL"),
        *("-o", out_file),
    ).ended(0)
    text = out_file.read_text()
    assert rows(text) == [
        ["allreduce", "0", "65535", "ring", "ll", "8", "2", "16", "-1", "-1"],
        ["allreduce", "65536", str((1 << 26) - 1), "tree", "ll", "8", "2", "16", "-1", "-1"],
        ["allreduce", str(1 << 26), str(LARGEST), "ring", "ll", "8", "2", "16", "-1", "-1"],
    ]
    assert all(len(line) < 256 for line in text.splitlines())
    assert f"NCCL_TUNER_CONFIG_FILE={out_file}" in out.err


def test_what_ran_is_told_by_environment_or_by_words(weft, runs) -> None:
    ring = runs("ring.txt", RING, env="NCCL_ALGO=Ring NCCL_PROTO=LL")
    tree = runs("tree.txt", TREE)
    out = weft("tuner", ring, f"{tree}:algorithm=tree,protocol=simple,channels=16", "--json").ended(
        0
    )
    told = json.loads(out.out)["lines"]
    assert [(x["algorithm"], x["protocol"], x["channels"]) for x in told] == [
        ("ring", "ll", None),
        ("tree", "simple", 16),
        ("ring", "ll", None),
    ]
    assert "takes one" in out.err


def test_predictions_are_refused_in_words(weft, tmp_path: Path) -> None:
    asked = ("simulate", "classic:ring{collective=allreduce,ranks=4}", "-t", "ring:4", "--json")
    (tmp_path / "predicted.json").write_text(weft(*asked).out)
    weft("tuner", tmp_path / "predicted.json").ended(2, "times of a model, not measured")
    (tmp_path / "library.json").write_text("{}")
    weft("tuner", tmp_path).ended(2, "a library has times of schedules")


def test_a_bench_on_nccl_is_measured_and_one_on_mpi_is_not_nccls(weft, tmp_path: Path) -> None:
    def bench(name: str, on: str, factor: float) -> Path:
        sizes = [
            {"name": who, "bytes": size, "us": factor * us}
            for size, us in RING.items()
            for who in ("NCCL", "ours")
        ]
        data = {"schema": 1, "on": on, "collective": "allreduce", "ranks": 8, "sizes": sizes}
        (tmp_path / name).write_text(json.dumps(data))
        return tmp_path / name

    a, b = bench("a.json", "nccl", 1.0), bench("b.json", "nccl", 2.0)
    out = weft("tuner", f"{a}:algorithm=ring,protocol=ll", f"{b}:algorithm=tree,protocol=ll").ended(
        0
    )
    assert rows(out.out) == [
        ["allreduce", "0", str(LARGEST), "ring", "ll", "-1", "-1", "8", "-1", "-1"]
    ]
    weft("tuner", f"{bench('c.json', 'mpi', 1.0)}:algorithm=ring,protocol=ll").ended(
        2, "NCCL's own algorithms"
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("", "nothing tells which algorithm"),
        (":algorithm=ring", "nothing tells which protocol"),
        (":algorithm=fast,protocol=ll", "no algorithm of tuner files"),
        (":algorithm=ring,protocol=ll", "nothing to choose between"),
        (":algoritm=ring", "expected an option of a file"),
    ],
)
def test_what_says_too_little(weft, runs, words: str, told: str) -> None:
    weft("tuner", f"{runs('x.txt', RING)}{words}").ended(2, told)


def test_tuners_are_not_asked_about_an_alltoall(weft, runs) -> None:
    path = runs("x.txt", RING, test="alltoall")
    weft("tuner", f"{path}:algorithm=ring,protocol=ll").ended(2, "not asked about alltoall")


SETTINGS = st.sampled_from(
    [TunerSetting(a, p) for a in ("ring", "tree", "nvls") for p in ("ll", "simple")]
)
TIMES = st.dictionaries(
    st.integers(1, 1 << 30),
    st.dictionaries(SETTINGS, st.floats(1, 1e6), min_size=2, max_size=6),
    min_size=1,
    max_size=8,
)


@given(TIMES)
def test_lines_join_and_none_is_much_slower_than_the_best(
    measured: dict[int, dict[TunerSetting, float]],
) -> None:
    times = [
        TunerTime(Kind.ALLREDUCE, 8, 1, size, us, setting, "x")
        for size, known in measured.items()
        for setting, us in known.items()
    ]
    lines = tuner_lines(times)
    assert lines[0].low == 0
    assert lines[-1].high == LARGEST
    assert all(a.high + 1 == b.low and a.setting != b.setting for a, b in pairwise(lines))
    for size, known in measured.items():
        (line,) = [x for x in lines if x.low <= size <= x.high]
        assert known[line.setting] <= EFFORT.stay_ratio * min(known.values())


@pytest.mark.parametrize("channels", ["0", "-5", "x", "99999", "²", "9" * 5000])
def test_channels_that_are_no_number_of_channels_are_refused(weft, runs, channels: str) -> None:
    tree = runs("tree.txt", TREE)
    weft("tuner", f"{tree}:algorithm=tree,protocol=simple,channels={channels}").ended(
        2, f"channels: expected 1 to 128, got {channels[:20]!r}"
    )
