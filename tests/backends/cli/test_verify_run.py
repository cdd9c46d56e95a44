"""``weft verify-run``: logs of six runtimes and versions say what ran, times what they are near."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from run_logs import log_text

from weft.backends.tune.folder import XmlFiles
from weft.backends.tune.library_model import library_model
from weft.dsl.importers.nccl_log import read_log
from weft.dsl.importers.nccl_tests import read_run
from weft.dsl.nouns.library import read
from weft.synth.time.program_time import ProgramClock

SIZES = (16 << 10, 64 << 10, 256 << 10)
READ = "MSCCL: Initialization finished"
NONE = "MSCCL: No external scheduler found, using internal implementation"


def made(folder: Path, group: str) -> Path:
    """A library of some H100s of a host, for the executor, of 16KiB to 256KiB."""
    from weft.backends.cli import main

    asked = ["tune", "-t", "dgx-h100", "--group", group, "-c", "allreduce", "-q", "--jobs", "1"]
    asked += ["--sizes", "16KiB:256KiB", "-e", "classic", "--protocols", "LL", "-o", str(folder)]
    assert main(asked) == 0
    return folder


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    return made(tmp_path_factory.mktemp("made") / "library", "0,1")


@pytest.fixture(scope="module")
def quad(tmp_path_factory) -> Path:
    """Four GPUs: files are predicted to take a third less than NCCL's own."""
    return made(tmp_path_factory.mktemp("made") / "quad", "0,1,2,3")


def file_us(folder: Path, size: int) -> float:
    """What is predicted of the file for a size, out of place."""
    made = read(folder)
    tuned = made.tuned[0]
    (file,) = [a.file for a in tuned.pick(size).artefacts if not a.in_place]
    program = XmlFiles(folder).program(file, tuned.collective)
    return ProgramClock(program, made.topology, library_model(made)).time_us(size)


def times(folder: Path, factor: float = 1.0) -> dict[int, tuple[float, float]]:
    """Times a factor from what is predicted of the files."""
    return {size: (factor * file_us(folder, size),) * 2 for size in SIZES}  # type: ignore[misc]


H100 = "NVIDIA H100 80GB HBM3"


@pytest.fixture
def verify(weft, tmp_path: Path):
    def asked(*texts: str, more: tuple[object, ...] = ()):
        paths = []
        for number, text in enumerate(texts):
            paths.append(tmp_path / f"{number}.txt")
            paths[-1].write_text(text)
        out = weft("verify-run", *paths, *more, "--json")
        return out, json.loads(out.out)

    return asked


def tuning(size: int) -> list[str]:
    return [f"AllReduce: {size} Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..15}}"]


def test_a_size_without_a_line_of_nccls_own_ran_the_file(verify, library: Path) -> None:
    """The executor: it reads a folder, and NCCL is silent where a file runs."""
    text = log_text(
        "all_reduce",
        times(library, 1.1),
        gpus=2,
        name=H100,
        before=["NCCL version 2.23.4+cuda12.4", NONE, READ],
        said=lambda size: tuning(size) if size == SIZES[-1] else [],
    )
    out, told = verify(text, more=("--library", library))
    assert (out.code, told["ran"]) == (0, "yes"), out.out
    rows = {(row["bytes"], row["in_place"]): row for row in told["runs"][0]["sizes"]}
    assert rows[SIZES[0], False]["ran"] == "file"
    assert rows[SIZES[0], False]["error"] == pytest.approx(1 / 1.1 - 1, abs=0.01)
    assert "ring ll" in rows[SIZES[-1], False]["why"]
    assert told["runs"][0]["library"] == "NCCL 2.23.4"


def test_nccls_own_at_every_size_is_a_no(verify, library: Path) -> None:
    text = log_text(
        "all_reduce", times(library), gpus=2, name=H100, before=["NCCL version 2.23.4"], said=tuning
    )
    out, told = verify(text, more=("--library", library))
    assert (out.code, told["ran"]) == (1, "no")
    assert {row["ran"] for row in told["runs"][0]["sizes"]} == {"own"}


def test_rows_that_the_log_cuts_are_put_together(verify, library: Path) -> None:
    """Hydra's labels; sizes, log, a half, log, the other half; algorithms by number."""
    mine = times(library)
    text = log_text(
        "all_reduce",
        mine,
        gpus=2,
        name=H100,
        before=["NCCL version 2.20.5+cuda12.3", "16 coll channels, 16 nvls channels"],
        said=lambda size: [f"{size} Bytes -> Algo 0 proto 1 time 37.798233"] * 2,
        label="[0] ",
        cut=True,
    )
    run = read_run(text, "log")
    assert [(r.bytes, r.us, r.in_place_us) for r in run.rows] == [
        (size, pytest.approx(us, abs=0.01), pytest.approx(us, abs=0.01))
        for size, (us, _) in mine.items()
    ]
    log = read_log(text)
    assert {(c.algorithm, c.protocol) for c in log.choices} == {("tree", "ll128")}
    assert log.channels == 16


def test_a_row_whose_end_is_missing_is_told_with_its_line() -> None:
    text = log_text("all_reduce", {8: (5.0, 5.0)}, gpus=2, said=tuning, cut=True)
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if line.split()[:1] == ["5.00"])
    with pytest.raises(Exception, match="not of the 13 columns") as error:
        read_run("\n".join(lines[:at] + lines[at + 1 :]), "log")
    assert "log:" in str(error.value.where)


@pytest.mark.parametrize(
    "label",
    [
        *("[1,0]<stdout>:", "0: ", " 0: ", "[0] ", "[12] "),
        *("2025-03-11T17:22:01.123Z ", "[2025-03-11 17:22:01] ", "> ", "\x1b[32m"),
        *("nccl-test-launcher-abc12 ", "[pod/launcher-x/main] 2025-03-11T17:22:01Z 0: "),
    ],
)
def test_labels_of_launchers_are_no_part_of_a_line(label: str) -> None:
    text = log_text("all_reduce", {8: (5.0, 6.0), 16: (7.0, 8.0)}, gpus=2, hosts=2, label=label)
    run = read_run(text, "log")
    assert run.hosts == ("node-0", "node-0", "node-1", "node-1")
    assert [r.in_place_us for r in run.rows] == [6.0, 8.0]


def test_tests_in_one_file_are_runs_of_their_own(weft, tmp_path: Path) -> None:
    """Faults are told with their line in the file."""
    first = log_text("all_reduce", {8: (5.0, 6.0), 16: (7.0, 8.0)}, gpus=2)
    second = log_text("all_gather", {8: (9.0, 9.0), 16: (9.5, 9.5)}, gpus=2)
    path = tmp_path / "both.txt"
    path.write_text("$ ./run\n" + first + "\n" + second)
    told = json.loads(weft("verify-run", path, "--json").out)
    assert [run["test"] for run in told["runs"]] == ["all_reduce", "all_gather"]
    assert told["runs"][1]["sizes"][0]["us"] == 9.0
    lines = path.read_text().splitlines()
    at = max(i for i, line in enumerate(lines) if line.split()[:1] == ["16"])
    path.write_text("\n".join([*lines[:at], lines[at][:70], *lines[at + 1 :]]))
    assert f"both.txt:{at + 1}" in weft("verify-run", path).err


def test_the_fork_names_files_and_numbers_them_as_an_algorithm() -> None:
    """microsoft/msccl: 2 is MSCCL; in NCCL from 2.13 on it is collnet_direct."""
    lines = [
        "MSCCL_XML_FILES set by environment to /shared/lib/msccl-xml/allreduce-1.xml.",
        "Parsed MSCCL Algorithm /shared/lib/msccl-xml/allreduce-1.xml successfully.",
        "Connected 1 MSCCL algorithms",
        "4096 Bytes -> Algo 2 proto 0 time 12.5",
    ]
    log = read_log("\n".join(f"h:1:2 [0] NCCL INFO {line}" for line in lines))
    assert log.by == ("msccl",)
    assert log.read == ("/shared/lib/msccl-xml/allreduce-1.xml",)
    assert [(c.bytes, c.algorithm) for c in log.choices] == [(4096, "msccl")]
    assert log.settings["MSCCL_XML_FILES"] == "/shared/lib/msccl-xml/allreduce-1.xml"
    plain = read_log("h:1:2 [0] NCCL INFO 4096 Bytes -> Algo 2 proto 0 time 12.5")
    assert [c.algorithm for c in plain.choices] == ["collnet_direct"]


def test_rccls_own_files_are_not_ours(verify, library: Path) -> None:
    text = log_text(
        "all_reduce",
        times(library, 3.0),
        gpus=2,
        name=H100,
        before=[
            "RCCL version 2.20.5-HEAD:eb8c1c1",
            NONE,
            "Using MSCCL files from /opt/rocm-6.2.0/lib/../share/rccl/msccl-algorithms",
            f"{READ}, localSize 400",
        ],
    )
    out, told = verify(text, more=("--library", library))
    assert (out.code, told["ran"]) == (1, "no"), out.out
    assert told["runs"][0]["library"] == "RCCL 2.20.5"
    assert told["runs"][0]["by"] == ["rccl"]


def test_several_gpus_in_a_process_get_no_file_and_it_is_said(verify, library: Path) -> None:
    why = "MSCCL doesn't support multiple GPUs in one process and is not available"
    text = log_text("all_reduce", times(library), gpus=2, name=H100, before=[why])
    out, told = verify(text, more=("--library", library))
    assert (out.code, told["ran"]) == (1, "no")
    assert told["why"] == why


def test_a_refused_file_is_the_reason(verify, library: Path) -> None:
    text = log_text("all_reduce", times(library), gpus=2, name=H100)
    warning = "MSCCL: algorithm /shared/lib/a.xml failed to initialize. Will be ignored."
    out, told = verify(text, f"h:1:2 [0] NCCL WARN {warning}\n", more=("--library", library))
    assert told["ran"] == "no"
    assert told["why"] == warning
    assert warning in out.err


def test_without_a_log_times_tell_where_predictions_differ(verify, library: Path) -> None:
    out, told = verify(
        log_text("all_reduce", times(library, 1.02), gpus=2, name=H100), more=("--library", library)
    )
    ran = {row["ran"] for row in told["runs"][0]["sizes"]}
    assert ran <= {"file, by its time", "not shown"}
    rows = told["runs"][0]["sizes"]
    apart = [r for r in rows if max(r["file_us"] / r["own_us"], r["own_us"] / r["file_us"]) > 1.15]
    assert (told["ran"] == "likely") == bool(apart)
    assert out.code == (0 if apart else 1)


def of_quad(factor: float, us: dict[int, float]) -> str:
    rows = {size: (factor * one,) * 2 for size, one in us.items()}
    return log_text("all_reduce", rows, gpus=4, name=H100)  # type: ignore[arg-type]


@pytest.fixture
def predicted(verify, quad: Path) -> dict[str, dict[int, float]]:
    """What is predicted of the quad's files and of NCCL's own, for each size."""
    _, told = verify(of_quad(1.0, dict.fromkeys(SIZES, 9.0)), more=("--library", quad))
    rows = told["runs"][0]["sizes"]
    return {key: {row["bytes"]: row[key] for row in rows} for key in ("own_us", "file_us")}


@pytest.mark.parametrize("proofs", [1, 2])
def test_a_run_without_the_library_does_not_count(verify, quad, predicted, proofs: int) -> None:
    """Each run counts by itself: the one before the library was there hides nothing."""
    after = [of_quad(0.95, predicted["file_us"])] * proofs
    texts = (of_quad(1.0, predicted["own_us"]), *after)
    out, told = verify(*texts, more=("--library", quad))
    names = [run["file"] for run in told["runs"]]
    of = f"by the time, at {6 * proofs} of {6 * proofs} sizes and placements that have a file"
    expected = f"{of} in {', '.join(names[1:])}; NCCL's own in {names[0]}"
    assert (out.code, told["ran"], told["why"]) == (0, "likely", expected)
    assert "(measured -5%)" in told["runs"][1]["sizes"][0]["why"]


def test_guesses_that_contradict_each_other_are_left_out(verify, quad, predicted, tmp_path) -> None:
    """Both runs look like NCCL's own, one 1.6 times the other: nothing was disturbed."""
    texts = [of_quad(factor, predicted["own_us"]) for factor in (1.0, 1.6)]
    texts.append(of_quad(1.0, {4 << 20: 90.0}))
    out, _ = verify(*texts, more=("--library", quad, "-o", tmp_path / "m.json"))
    assert "12 times" in out.err
    assert "disturbed" not in out.err
    assert (tmp_path / "m.json").exists()


def test_the_measured_machine_is_fitted_to_files_and_to_nccls_own(
    verify, library: Path, tmp_path: Path
) -> None:
    """Files that took a start of 9.9 µs more: the number is found by their own program."""
    out_file = tmp_path / "measured.json"
    model = {size: (us + 3.3, us + 3.3) for size, (us, _) in times(library).items()}
    text = log_text(
        "all_reduce",
        model,
        gpus=2,
        name=H100,
        before=[NONE, READ],
        said=lambda size: tuning(size) if size > SIZES[-1] else [],
    )
    proof = log_text(
        "all_reduce",
        {1 << 20: (50.0, 50.0)},
        gpus=2,
        name=H100,
        before=[NONE, READ],
        said=tuning,
        warm=False,
    )
    extra = "h:1:2 [0] NCCL INFO " + tuning(1 << 20)[0] + "\n"
    out, told = verify(text + extra, proof, more=("--library", library, "-o", out_file))
    assert out.code == 0, out.err
    found = {x["key"]: x["value"] for x in told["fitted"]}
    assert found["start.LL"] == pytest.approx(6.6 + 3.3, rel=0.15) or len(found) > 1
    assert told["median_error"]["fitted"] < told["median_error"]["default"]
    assert json.loads(out_file.read_text())["weft"] == "topology"
    assert "no call came before" in out.err


def test_what_cannot_be_verified(weft, library: Path, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("hello\n")
    assert "neither a table" in weft("verify-run", tmp_path / "x.txt").err
    failure = "# nThread 1 nGpus 1\nnode7: Test CUDA failure common.cu:958 'out of memory'\n"
    (tmp_path / "x.txt").write_text(failure)
    said = weft("verify-run", tmp_path / "x.txt").err
    assert "the test failed: node7: Test CUDA failure common.cu:958 'out of memory'" in said
    assert "x.txt:2" in said
    (tmp_path / "x.txt").write_text(f"{'9 ' * 5000}{failure}")
    assert len(weft("verify-run", tmp_path / "x.txt").err) < 500
    (tmp_path / "y.txt").write_text(log_text("sendrecv", {8: (5.0, 5.0)}, gpus=2))
    weft("verify-run", tmp_path / "y.txt", "--library", library, "-o", tmp_path / "m.json").ended(
        2, "hint: run it with NCCL_DEBUG=INFO"
    )
    (tmp_path / "y.txt").write_text(log_text("all_reduce", {8: (5.0, 5.0)}, gpus=4))
    weft("verify-run", tmp_path / "y.txt", "--library", library).ended(2, "4 GPUs")
    assert weft("verify-run", tmp_path / "y.txt", "-o", tmp_path / "m.json").code == 2
    assert weft("verify-run", tmp_path / "y.txt").code == 0
    assert weft("verify-run", tmp_path / "y.txt", "--library", tmp_path).code == 2


@pytest.mark.parametrize(
    ("columns", "test", "named"),
    [
        ("sum -1 8.0 1024.0 1792.0", "all_reduce", False),
        ("sum -1 8.0 1024.0 896.0", "reduce_scatter", False),
        ("sum 0 8.0 1024.0 1024.0", "", True),  # a reduce
        ("none -1 8.0 1024.0 896.0", "", True),  # an allgather or alltoall
    ],
)
def test_columns_tell_sums_where_no_test_is_named(columns: str, test: str, named: bool) -> None:
    text = log_text("all_reduce", {8192: (8.0, 8.0)}, gpus=8)
    lines = [line for line in text.splitlines() if "_perf" not in line]
    (at,) = [i for i, line in enumerate(lines) if line.split()[:1] == ["8192"]]
    lines[at] = f"  8192 2048 float {columns} 0 8.0 1024.0 1.0 0"
    run = read_run("\n".join(lines), "log")
    assert (run.test, run.named) == (test, named)


def test_without_a_library_the_table_says_times_alone(weft, tmp_path: Path) -> None:
    """No column of files, no verdict; without a machine it is said what predicts."""
    (tmp_path / "x.txt").write_text(log_text("all_reduce", {8: (5.0, 6.0)}, gpus=2, name=H100))
    bare = weft("verify-run", tmp_path / "x.txt").out
    assert bare.splitlines()[1].split() == ["size", "placement", "measured", "µs"]
    assert "name the machine" in bare
    told = weft("verify-run", tmp_path / "x.txt", "-t", "line:2").out
    assert told.splitlines()[1].split() == ["size", "placement", "measured", "µs", "own", "µs"]
    assert "name the machine" not in told


def test_a_row_without_a_time_is_left_out_and_said(weft, tmp_path: Path) -> None:
    rows = {8: (5.0, 6.0), 16: (0.001, 6.0), 32: (7.0, 6.0)}
    (tmp_path / "x.txt").write_text(log_text("all_reduce", rows, gpus=2, name=H100))
    ran = weft("verify-run", tmp_path / "x.txt")
    assert "a time of 0.00 µs, which no call takes: 1 row left out (16B)" in ran.err
    assert [line.split()[0] for line in ran.out.splitlines()[2:6:2]] == ["8B", "32B"]


def test_nccls_own_is_predicted_within_its_settings(weft, tmp_path: Path) -> None:
    """The log of a run says NCCL_PROTO: small messages then take no other protocol."""
    said = {"free": [], "held": ["NCCL_PROTO set by environment to simple"]}
    us = {}
    for name, before in said.items():
        path = tmp_path / f"{name}.txt"
        path.write_text(log_text("all_reduce", {8: (5.0, 6.0)}, gpus=2, name=H100, before=before))
        out = weft("verify-run", path, "-t", "line:2", "--json")
        us[name] = json.loads(out.out)["runs"][0]["sizes"][0]["own_us"]
    assert us["held"] > us["free"]
    assert "limited by NCCL_PROTO=simple" in weft("verify-run", path, "-t", "line:2").out


def test_a_run_on_a_part_of_a_machine_names_its_ranks(weft, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text(log_text("all_reduce", {8: (5.0, 6.0)}, gpus=2, name=H100))
    weft("verify-run", tmp_path / "x.txt", "-t", "full:4").ended(2, "--group")
    part = weft("verify-run", tmp_path / "x.txt", "-t", "full:4", "--group", "0,2", "--json")
    assert json.loads(part.out)["runs"][0]["sizes"][0]["own_us"] > 0
    assert weft("verify-run", tmp_path / "x.txt", "--group", "0,2").code == 2


def test_counts_of_one_rank_are_told_apart() -> None:
    """From 2.23 on an allgather's line has the bytes of one rank; nccl-tests those of all."""
    (one,) = read_log(
        "h:1:2 [0] NCCL INFO AllGather: 1024 Bytes -> Algo PAT proto SIMPLE channel{Lo..Hi}={0..3}"
    ).choices
    assert (one.message_bytes(8), one.algorithm, one.channels) == (8192, "pat", 4)
    assert replace(one, kind=None).message_bytes(8) == 1024
