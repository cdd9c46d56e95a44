"""``weft simulate``: MSCCL XML on a machine that the command line names; what schedules lack."""

import re
from pathlib import Path

import pytest
from command import Weft
from msccl_files import EACH, SAMPLES


def test_numbers_by_hand(weft: Weft, exchange: Path) -> None:
    """A message of 3 MB: every link of 25 GB/s carries one third, 40 µs, and α is 0.7."""
    base = ("simulate", exchange, "--size", "3MB", "--json", "--model", "datasheet")
    found = weft(*base, "-t", "ring:3").json
    assert (found["collective"], found["ranks"], found["protocol"]) == ("allgather", 3, "Simple")
    (size,) = found["sizes"]
    assert size == pytest.approx(
        {
            "bytes": 3_000_000,
            "us": 40.7,
            "algbw_GBps": 3000 / 40.7,
            "busbw_GBps": 2000 / 40.7,
            "of_bound": 1,
        }
    )

    def us(*options: object) -> float:
        return float(weft(*base, *options).json["sizes"][0]["us"])

    assert us("-t", "ring:3,bw=50GB/s") == pytest.approx(20.7)
    assert us("-t", "hub:3") == pytest.approx(80.7)  # two messages through each port
    assert us("-t", "ring:3", "--overhead", "2us") == pytest.approx(44.7)
    assert us("-t", "full:5", "--group", "4,0,2") == pytest.approx(40.7)


def test_the_table_and_the_sizes_of_the_file(weft: Weft, exchange: Path) -> None:
    lines = weft("simulate", exchange, "-t", "ring:3").out.splitlines()
    head = "size µs algbw GB/s busbw GB/s of bound over runtime's bound"
    assert lines[0].split() == head.split()
    assert lines[1].split()[0] == "1KiB"
    assert lines[-1].split()[0] == "64MiB"
    assert len(lines) == 18


def test_payloads_of_the_runtime(weft: Weft, exchange: Path) -> None:
    """Under LL the links take 80 µs, and α is paid in each iteration, of 32 or 16 KiB: a thread
    block that sends and receives does one after the other."""

    def us(*options: object) -> float:
        found = weft(
            "simulate",
            exchange,
            *"-t ring:3 --size 3MB --protocol LL --model datasheet --json".split(),
            *options,
        )
        return float(found.json["sizes"][0]["us"])

    assert us() == pytest.approx(80 + 31 * 0.7)
    assert us("--target", "executor") == us()
    assert us("--target", "rccl") == pytest.approx(80 + 62 * 0.7)
    # The own chunk is copied by another block, beside the messages.
    assert us("--local-bandwidth", "1GB/s") == pytest.approx(1000)


def test_what_programs_take_beside_is_told_of_schedules(weft: Weft, triangle: Path) -> None:
    found = weft("simulate", triangle, "--size", "3B", "--json")
    starts = found.json["program_start_us"]
    assert list(starts) == ["LL", "Simple", "LL128"]
    assert starts["LL"] == 6.6
    assert "a program's call also starts in 6.6 µs (LL) to 14 µs (LL128)" in found.err


def test_the_answer_is_shown_as_the_verb_printed_it(
    weft: Weft, triangle: Path, tmp_path: Path
) -> None:
    asked = ("simulate", triangle, "--size", "1KiB:64KiB")
    printed = weft(*asked).out
    answer, page = tmp_path / "answer.json", tmp_path / "page.html"
    answer.write_text(weft(*asked, "--json").out)
    assert weft("show", answer).out == printed
    assert weft("show", answer, "--json").json["kind"] == "result"
    assert weft("show", answer, "--format", "html", "-o", page).code == 0
    heads = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', page.read_text())
    assert heads == re.split(r"\s{2,}", printed.splitlines()[0].strip())
    answer.write_text('{"sizes": [{"bytes": 1024, "us": 3, "of_bound": "all"}]}')
    assert weft("show", answer).code == 2


@pytest.mark.parametrize("verb", ["explain", "check", "compile"])
def test_the_answer_is_not_a_file_of_other_verbs(
    weft: Weft, triangle: Path, tmp_path: Path, verb: str
) -> None:
    answer = tmp_path / "answer.json"
    answer.write_text(weft("simulate", triangle, "--json").out)
    weft(verb, answer).ended(2, "the output of `--json`", "`weft show` prints it")


def test_a_program_that_hangs_is_refused(weft: Weft, exchange: Path, tmp_path: Path) -> None:
    text = exchange.read_text().split("\n")
    sends = next(i for i, line in enumerate(text) if 'type="s"' in line)
    broken = tmp_path / "broken.xml"
    broken.write_text("\n".join(text[:sends] + text[sends + 1 :]))
    weft("simulate", broken, "-t", "ring:3").ended(1)


def test_a_program_that_hangs_above_a_size(weft: Weft, exchange: Path, tmp_path: Path) -> None:
    """Three chunks there, three chunks back, under Simple: they must travel together."""

    def step(s: int, op: str, offset: int) -> str:
        return (
            f'<step s="{s}" type="{op}" srcbuf="o" srcoff="{offset}" dstbuf="o" '
            f'dstoff="{offset}" cnt="3" depid="-1" deps="-1" hasdep="0"/>'
        )

    def rank(r: int) -> list[str]:
        return [
            f'<gpu id="{r}" i_chunks="3" o_chunks="6" s_chunks="0">',
            f'<tb id="0" send="{1 - r}" recv="{1 - r}" chan="0">',
            step(0, "s", 3 * r),
            step(1, "r", 3 - 3 * r),
            "</tb>",
            "</gpu>",
        ]

    head = (
        '<algo name="x" proto="Simple" nchannels="1" nchunksperloop="6" ngpus="2" '
        'coll="allgather" inplace="1" outofplace="0" minBytes="0" maxBytes="1073741824">'
    )
    file = tmp_path / "three.xml"
    file.write_text("\n".join([head, *(line for r in range(2) for line in rank(r)), "</algo>\n"]))
    base = ("simulate", file, "-t", "line:2", "--size")
    assert weft(*base, "1KiB:1MiB").code == 0
    weft(*base, "1KiB:64MiB").ended(
        1, "rank 0 tb 0 step 0 (s) waits for a free slot to rank 1", "a message of 8MiB"
    )


MACHINES = {
    "alltoall": "hub:8",
    "allgather": "hub:8",
    "allgather of two hosts": "full:4",
    "pairs": "hub:8",
    "chain": "full:4",
    "rings": "dgx-a100",
    "a2a2ll": "hub:8",
    "ag-1k-512k": "hub:8",
    "ag_hier_4_Simple": "full:4",
    "ap2ll": "hub:8",
    "ar_tree_12_LL": "full:4",
    "r48ll": "dgx-a100",
}


@pytest.mark.parametrize("name", EACH)
def test_files_of_others(weft: Weft, tmp_path: Path, name: str) -> None:
    """No time is below the bound, and more bytes never have less bandwidth."""
    file = tmp_path / "sample.xml"
    file.write_text(SAMPLES[name])
    found = weft("simulate", file, "-t", MACHINES[name], "--json").json["sizes"]
    assert all(0 < s["of_bound"] <= 1 for s in found)
    speed = [s["algbw_GBps"] for s in found]
    assert speed == sorted(speed)


def test_the_calibrated_model_counts_the_start_and_lists_its_numbers(
    weft: Weft, packets: Path
) -> None:
    base = ("simulate", packets, "-t", "ring:3,family=h200", "--size", "3B", "--json")
    found = weft(*base).json
    assert (found["model"], found["start_us"]) == ("calibrated", 6.6)
    assert found["sizes"][0]["us"] == pytest.approx(6.6 + 0.6 * 1.15, abs=0.01)
    numbers = {one["key"]: one for one in found["numbers"]}
    assert numbers["factor.nvlink"]["certainty"] == "assumed"
    assert all(one["source"] and one["key"] in one["replaced_by"] for one in numbers.values())
    told = weft(*base, "--model", "calibrated", "-v").err
    assert "alpha.nvlink.LL    0.6  published" in told
    assert "start.Simple" not in told
    sheet = weft(*base, "--model", "datasheet").json
    assert (sheet["model"], sheet["start_us"]) == ("datasheet", 0)
    assert sheet["sizes"][0]["us"] == pytest.approx(0.7, abs=0.01)


def test_numbers_of_the_calibrated_model_are_replaced(weft: Weft, packets: Path) -> None:
    base = ("simulate", packets, "-t", "ring:3,family=h200", "--size", "3B", "--json")
    given = ("--timing", "start.LL=3", "--timing", "alpha.nvlink.LL=1")
    assert weft(*base, *given).json["sizes"][0]["us"] == pytest.approx(4, abs=0.01)


def test_a_machine_file_replaces_numbers(weft: Weft, packets: Path, tmp_path: Path) -> None:
    box = tmp_path / "box.toml"
    box.write_text(
        'schema = 1\nname = "box"\ngpus = 3\nfamily = "a100"\n'
        '[timing]\nalpha.nvlink.LL = "2"\nsource = "measured"\n'
        '[[switch]]\nname = "s"\nbandwidth = "300GB/s"\nalpha = "0.35us"\nsource = "sheet"\n'
    )
    found = weft("simulate", packets, "-t", box, "--size", "3B", "--json", "--model", "calibrated")
    assert found.json["sizes"][0]["us"] == pytest.approx(8.6, abs=0.01)
    shown = weft("topo", "show", box, "--json").json["timing"]
    assert shown["family"] == "a100"
    (own,) = (one for one in shown["numbers"] if one["key"] == "alpha.nvlink.LL")
    assert (own["value"], own["certainty"], own["source"]) == (2, "given", "measured")
    box.write_text(box.read_text().replace("alpha.nvlink.LL", "alpha.nvlink.L"))
    weft("topo", "show", box).ended(2, "alpha.nvlink.L")


def test_flags_of_the_model_are_refused_where_nothing_is_timed_by_it(
    weft: Weft, exchange: Path, triangle: Path, tmp_path: Path
) -> None:
    """They had no effect, without a word."""
    goal = tmp_path / "exchange.goal"
    assert weft("compile", triangle, "--to", "goal", "--size", "1MiB", "-o", goal).code == 0
    for command in (
        ("show", triangle),
        ("show", triangle, "--size", "1MiB"),
        ("show", exchange),
        ("show", "ring:3", "--format", "dot", "-o", tmp_path / "ring.dot"),
        ("diff", exchange, exchange),
        ("diff", triangle, triangle, "-t", "ring:3"),
        ("compile", exchange, "-o", tmp_path / "again.xml"),
        ("simulate", goal, "-t", "ring:3"),
    ):
        for flags in (("--timing", "start.LL=3"), ("--model", "datasheet")):
            weft(*command, *flags).ended(2, f"error: {flags[0]} ")
    assert sorted(one.name for one in tmp_path.iterdir() if "again" in one.name) == []
