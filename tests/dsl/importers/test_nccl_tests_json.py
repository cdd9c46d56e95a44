"""JSON and CSV of nccl-tests and rccl-tests beside the table of the same run."""

import json
from typing import Any

import pytest
from nccl_tests_text import nccl_tests_text

from weft.dsl.importers.nccl_log import read_log
from weft.dsl.importers.nccl_tests import NcclTestsRun, looks_like_nccl_tests, read_run
from weft.dsl.importers.recognized import read_any
from weft.dsl.machines.spec import parse_spec

ROWS = [(8, 10.5), (1 << 20, 40.2), (1 << 28, 1450.0)]


def halves(size: int, us: float) -> dict[str, float]:
    return {"time": us, "alg_bw": size / us / 1e3, "bus_bw": 1.5 * size / us / 1e3}


def nccl_json(processes: int = 1, gpus: int = 4, **other: Any) -> str:
    """``-J`` of nccl-tests: of each process the first device only, as its parser reads them."""
    devices = [
        {"rank": p * gpus, "group": 0, "pid": 70 + p, "hostname": f"h{p}", "device": 0}
        for p in range(processes)
    ]
    results = [
        {
            "size": size,
            "count": size // 4,
            "type": "float",
            "redop": "sum",
            "root": "    -1",
            "out_of_place": halves(size, us) | {"nwrong": 0.0},
            "in_place": halves(size, us + 1) | {"nwrong": None},
            "actual_iterations": 20,
        }
        for size, us in ROWS
    ]
    config = {"nthreads": 1, "ngpus": gpus, "warmup_iters": 5, "devices": devices}
    whole = {
        "version": 1,
        "args": ["./build/all_reduce_perf", "-g", str(gpus)],
        "config": config,
        "results": results,
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 1.0, "okay": "unchecked"},
    }
    return json.dumps(whole | other)


def rccl_records(gpus: dict[str, int], cycles: int = 1) -> list[dict[str, Any]]:
    found = []
    for cycle in range(cycles):
        for size, us in ROWS:
            for place in (0, 1):
                half = halves(size, us + place)
                record = {"name": "AllReduce", **gpus, "size": size, "type": "float"}
                record |= {"redop": "sum", "inPlace": place, "time": half["time"] + cycle}
                record |= {"algBw": half["alg_bw"], "busBw": half["bus_bw"], "wrong": "0"}
                found.append({"numCycle": cycle, **record})
    return found


def as_list(records: list[dict[str, Any]]) -> str:
    return "[\n" + ",\n".join(map(json.dumps, records)) + "\n]\n"


def as_lines(records: list[dict[str, Any]]) -> str:
    old = [{"#wrong" if k == "wrong" else k: v for k, v in one.items()} for one in records]
    return "\n".join(json.dumps(one, sort_keys=True) for one in old) + "\n"


def as_csv(records: list[dict[str, Any]], comma: str = ",") -> str:
    names = {"name": "collective", "wrong": "#wrong", "inPlace": "inplace", "algBw": "algbw"}
    head = [names.get(key, key).replace("busBw", "busbw") for key in records[0]]
    quoted = [[f'"{x}"' if isinstance(x, str) else str(x) for x in one.values()] for one in records]
    return "\n".join(comma.join(row) for row in [head, *quoted]) + "\n"


FORMS = [as_list, as_lines, as_csv, lambda x: as_csv(x, ", "), lambda x: json.dumps(x, indent=1)]


def times(run: NcclTestsRun) -> list[tuple[int, float, float | None]]:
    return [(row.bytes, row.us, row.in_place_us) for row in run.rows]


@pytest.mark.parametrize("form", FORMS)
def test_records_of_rccl_tests(form: Any) -> None:
    text = form(rccl_records({"gpus": 4}))
    assert looks_like_nccl_tests(text)
    run = read_run(text, "a.json")
    assert times(run) == [(size, us, us + 1) for size, us in ROWS]
    assert (run.test, len(run.hosts), run.gpus_per_process) == ("all_reduce", 4, 4)
    table = read_any(nccl_tests_text("all_reduce", ROWS, gpus=4), "a", parse_spec("a"))
    assert read_any(text, "a.json", parse_spec("a.json")).ranks == table.ranks == 4


def test_processes_and_cycles_of_rccl_tests() -> None:
    mpi = {"nodes": 2, "ranks": 4, "ranksPerNode": 2, "gpusPerRank": 2}
    run = read_run(as_list(rccl_records(mpi, cycles=3)), "a.json")
    assert run.hosts == ("host0",) * 4 + ("host1",) * 4
    assert run.gpus_per_process == 2
    assert [row.us for row in run.rows] == [us + 1 for _, us in ROWS]
    unknown = read_run(as_list(rccl_records(mpi | {"nodes": 1, "ranksPerNode": 4})), "a.json")
    assert unknown.hosts == ("",) * 8


@pytest.mark.parametrize("processes", [1, 2])
def test_one_object_of_nccl_tests(processes: int) -> None:
    run = read_run(nccl_json(processes), "a.json")
    assert times(run) == [(size, us, us + 1) for size, us in ROWS]
    assert run.hosts == tuple(f"h{p}" for p in range(processes) for _ in range(4))
    assert (run.test, run.gpus_per_process, run.warm) == ("all_reduce", 4, True)
    assert run.rows[1].where == "a.json: results[1]"


def test_a_column_of_zeros_makes_no_machine_impossible() -> None:
    text = nccl_tests_text("all_reduce", ROWS, gpus=4)
    assert read_any(text, "a", parse_spec("a")).ranks == 4  # the support writes busbw as 0.00


def test_gpus_of_one_measured_host_reach_each_other() -> None:
    text = nccl_tests_text("all_reduce", ROWS, gpus=2, hosts=2)
    made = read_any(text, "a", parse_spec("a"))
    assert (made.hosts, len(made.nodes)) == (2, 5)  # one fabric: the text tells no more


def test_the_environment_of_a_run_is_in_its_json() -> None:
    log = read_log(nccl_json(env=["HOME=/root", "NCCL_ALGO=Ring", "NCCL_PROTO=LL"]))
    assert log.settings == {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"}
    assert log.lines == 0


@pytest.mark.parametrize("dated", [False, True])
@pytest.mark.parametrize("each", [False, True])
def test_columns_of_each_call_and_of_the_time_of_day(each: bool, dated: bool) -> None:
    """``-I 1`` adds four columns to a half, ``-T 1`` a day and a time to a row."""
    more, last = "  9.9  12.0  11.9  3.41" * each, "  2026-11-28 07:41:45" * dated
    lines = []
    for line in nccl_tests_text("all_reduce", ROWS, gpus=4).splitlines():
        if line.startswith("#  size"):
            line = line.replace("#wrong", "#wrong" + "  i_min  i_max  i_p99  i_cv%" * each)
            line += "  timestamp" * dated
        elif line.startswith("  "):
            words = line.split()
            words[8] += more
            words[12] = f"N/A{more}{last}"
            line = "  ".join(words)
        lines.append(line)
    assert times(read_run("\n".join(lines), "a.txt")) == [(size, us, us) for size, us in ROWS]
