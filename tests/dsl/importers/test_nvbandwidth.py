"""Outputs of nvbandwidth, as text and as JSON, in the forms of its versions."""

import json
from fractions import Fraction
from typing import Any

import pytest

from weft.dsl.base.errors import BadFile
from weft.dsl.base.spans import Source
from weft.dsl.importers.recognized import read_any
from weft.dsl.machines.spec import parse_options
from weft.dsl.nouns.topology import Topology

GPUS = 3
Rows = list[list[float | None]]
CE = "memcpy CE GPU(row) {} GPU(column) {}bandwidth (GB/s)"


def square(rate: float, slow: float | None = None) -> Rows:
    """``rate`` for all pairs, and ``slow`` in row 0, column 1."""
    rows: Rows = [[None if i == j else rate for j in range(GPUS)] for i in range(GPUS)]
    rows[0][1] = slow or rate
    return rows


CASES: dict[str, list[tuple[str, Rows]]] = {
    "host_to_device_memcpy_ce": [
        ("memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)", [[55.0] * 3])
    ],
    "device_to_device_memcpy_read_ce": [(CE.format("->", ""), square(300, 50))],
    "device_to_device_memcpy_write_ce": [(CE.format("<-", ""), square(280, 40))],
    "device_to_device_bidirectional_memcpy_read_ce": [
        (CE.format("<->", part), square(rate))
        for part, rate in (("Read1 ", 140), ("Read2 ", 140), ("Total ", 280))
    ],
    "all_to_one_write_ce": [(CE.format("<-", ""), [[310.0] * 3])],
    "one_to_all_write_ce": [(CE.format("->", ""), [[300.0] * 3])],
    "device_to_device_latency_sm": [
        ("Device to Device Latency SM GPU(row) <-> GPU(column) (ns)", square(650))
    ],
    "device_local_copy": [("memcpy local GPU(column) bandwidth (GB/s)", [[1300.0] * 3])],
}


def cell(value: float | None, absent: str = "N/A") -> str:
    return absent if value is None else f"{value:.2f}"


def as_text(names: list[str], absent: str = "N/A", version: str = "v0.8") -> str:
    lines = [f"nvbandwidth Version: {version}", "Built from Git version: v1", "", "host1"]
    lines += [f"Device {i}: NVIDIA H100 80GB HBM3 (00000000:0{i}:00)" for i in range(GPUS)]
    for name in names:
        lines.append(f"Running {name}.")
        for title, rows in CASES[name]:
            lines += [title, "  " + "".join(f"{i:10d}" for i in range(GPUS))]
            lines += [
                f"{i:2d}" + "".join(f"{cell(x, absent):>10}" for x in row)
                for i, row in enumerate(rows)
            ]
            lines += ["", f"SUM {name} 1.00", ""]
    return "\n".join(lines)


def as_json(names: list[str]) -> str:
    def test(name: str) -> dict[str, Any]:
        tables = CASES[name]
        rows = [[cell(x) for x in row] for _, rows in tables for row in rows]
        return {
            "name": name,
            "status": "Passed",
            "bandwidth_description": tables[-1][0],
            "bandwidth_matrix": rows,
            "sum": 1.0,
        }

    waived = {"name": "multinode_bisect_write_ce", "status": "Waived"}
    body = {
        "version": "v0.8",
        "GPU Device list": [f"{i}: NVIDIA H100 (00000000:0{i}:00): (host1)" for i in range(GPUS)],
        "testcases": [*map(test, names), waived],
    }
    return json.dumps({"nvbandwidth": body}, indent=2)


def read(text: str, options: str = "") -> Topology:
    return read_any(text, "a.txt", parse_options("a.txt", Source("t", f"a.txt:{options}"), 6))


def rates(made: Topology) -> dict[tuple[int, int], Fraction]:
    return {(x.src, x.dst): x.bandwidth for x in made.links}


def test_rows_of_writes_send_and_rows_of_reads_receive() -> None:
    made = read(as_text([*CASES]))
    assert rates(made)[0, 1] == 40
    assert rates(made)[1, 0] == 280
    made = read(as_text([*CASES]), "test=read_ce")
    assert rates(made)[1, 0] == 50
    assert rates(made)[0, 1] == 300


def test_text_and_json_are_one_machine() -> None:
    made = read(as_text([*CASES]))
    assert made.digest() == read(as_json([*CASES])).digest()
    shared = {one.name: one.bandwidth for one in made.resources}
    # 280 + 280 alone and 280 together: one wire; 40 + 280 is not more than 280 by much.
    assert shared["pair 0-2"] == 280
    assert shared["out of 2"] == 300
    assert shared["into 2"] == 310
    assert {x.latency for x in made.links} == {Fraction(65, 100)}


@pytest.mark.parametrize("form", [as_text, as_json])
def test_one_test_is_enough(form: Any) -> None:
    made = read(form(["device_to_device_memcpy_read_ce"]))
    assert (made.ranks, len(made.links), made.resources) == (3, 6, ())
    assert any("pair was measured alone" in note for note in made.notes)


def test_old_versions_print_zeros_and_latencies_of_the_host() -> None:
    names = ["device_to_device_memcpy_write_ce", "device_to_device_latency_sm"]
    made = read(as_text(names, "0.00", "v0.4"))
    assert (len(made.links), {x.latency for x in made.links}) == (6, {0})


def test_a_copy_without_the_line_of_its_test_and_with_bars() -> None:
    text = as_text(["device_to_device_memcpy_write_ce"])
    table = text[text.index("memcpy CE") : text.index("SUM")]
    lines = [
        f"|{'|'.join(line.split())}|" if line[:1] == " " else line for line in table.splitlines()
    ]
    assert rates(read(table)) == rates(read("\n".join(lines))) == rates(read(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (as_text(["host_to_device_memcpy_ce"]), "expected a test between two GPUs"),
        (as_text(["one_to_all_write_ce"]), "expected a test between two GPUs"),
        (as_json(["device_local_copy"]), "expected a test between two GPUs"),
        ('{"nvbandwidth": {"error": "no driver"}}', "expected testcases"),
        (as_text(["device_to_device_memcpy_read_ce"]).replace("300.00", "fast"), "not a positive"),
        (as_text(["device_to_device_memcpy_read_ce"]).replace("300.00", "N/A"), "not measured"),
        (as_json([*CASES]).replace('"300.00"', '["1"]'), "not a positive"),
    ],
)
def test_what_is_not_a_machine(text: str, message: str) -> None:
    with pytest.raises(BadFile, match=message):
        read(text)


@pytest.mark.parametrize("listed", [5, {"0": 1}, "GPU", None, [None, 7]])
def test_lists_of_gpus_of_another_form(listed: object) -> None:
    data = json.loads(as_json([*CASES]))
    data["nvbandwidth"]["GPU Device list"] = listed
    assert rates(read(json.dumps(data))) == rates(read(as_json([*CASES])))


def test_a_row_of_zeros_of_p2p_bandwidth_latency_test() -> None:
    title = "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n   D\\D 0 1 2\n"
    whole = f"{title}  0 0.00 9.9 0.00\n  1 9.9 900.1 9.9\n  2 9.9 9.9 900.0\n"
    made = read(whole)
    assert (0, 2) not in rates(made)
    assert len(made.links) == 5
    assert any("1 direction not measured" in note for note in made.notes)
    with pytest.raises(BadFile, match=r"row or column of GPU 2 is 0\.00"):
        read(whole.replace("  2 9.9 9.9 900.0", "  2 0.00 0.00 900.0"))


P2P = "Unidirectional P2P=Enabled Bandwidth Matrix (GB/s)\n   D\\D 0 1\n  0 9.0 9.9\n  1 9.9 9.0\n"


@pytest.mark.parametrize("text", [as_text(["device_to_device_memcpy_write_ce"]), P2P])
def test_alpha_is_an_option_where_the_text_has_no_latency(text: str) -> None:
    assert {x.latency for x in read(text).links} == {0}
    made = read(text, "alpha=1us")
    assert {x.latency for x in made.links} == {1}
    assert "the text lacks latencies: alpha is 1us (alpha=)" in made.notes


@pytest.mark.parametrize("text", [as_text([*CASES]), P2P])
@pytest.mark.parametrize(
    ("beside", "name"),
    [
        (
            "\tGPU0\tGPU1\tNIC0\nGPU0\t X \tNV4\tPIX\nGPU1\tNV4\t X \tPIX\nNIC0\tPIX\tPIX\t X",
            "topo -m",
        ),
        ("GPU 0: NVIDIA H100 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s", "nvlink -s"),
    ],
)
def test_the_text_of_links_beside_measurements_is_left_out_with_a_note(
    text: str, beside: str, name: str
) -> None:
    note = f"the text of nvidia-smi {name} beside it is left out"
    assert not any(note in x for x in read(text).notes)
    for both in (f"{beside}\n\n{text}", f"{text}\n\n{beside}\n"):
        assert any(note in x for x in read(both).notes)
        assert rates(read(both)) == rates(read(text))


def test_pairs_of_zeros_have_what_was_measured_with_p2p_disabled() -> None:
    title = "Unidirectional P2P={} Bandwidth Matrix (GB/s)\n   D\\D 0 1\n"
    off = title.format("Disabled") + "  0 900.0 5.5\n  1 6.5 900.0\n"
    made = read(off + title.format("Enabled") + "  0 900.0 0.00\n  1 0.00 900.0\n")
    assert rates(made) == {(0, 1): Fraction(11, 2), (1, 0): Fraction(13, 2)}
    assert "2 directions of 0.00: as measured with P2P disabled" in made.notes
