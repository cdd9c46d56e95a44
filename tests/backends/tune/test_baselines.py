"""NCCL's and RCCL's own programs, against published times of nccl-tests and rccl-tests."""

from pathlib import Path

import pytest
from rccl_files import allpairs

from weft.backends.check.checker import check_program
from weft.backends.check.findings import errors
from weft.backends.tune import baselines
from weft.backends.tune.baselines import Baseline, SwitchSums, best_of, nccl_baselines
from weft.backends.tune.effort import TuneEffort
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import Kind
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.runtime import RCCL
from weft.synth.time.calibrated import calibrated_model
from weft.synth.time.program_time import ProgramClock


@pytest.mark.parametrize(
    ("machine", "runtime", "size", "measured"),
    [
        # microsoft/superbenchmark tests/data/nccl_allreduce.log: 8 A100
        ("dgx-a100", "nccl", 1 << 20, 74.78),
        ("dgx-a100", "nccl", 1 << 30, 8159.5),
        # NVIDIA/dgxc-benchmarking nccl/README.md: 8 H100
        ("dgx-h100", "nccl", 1 << 10, 16.94),
        # NVIDIA/nccl-tests issue 309: two hosts of H100
        ("dgx-h100:nodes=2", "nccl", 1 << 10, 29.75),
    ],
)
def test_allreduce_is_within_a_fifth_of_published_times(
    machine: str, runtime: str, size: int, measured: float
) -> None:
    found = best_of(nccl_baselines(topology(machine), Kind.ALLREDUCE, runtime), size)
    assert found is not None
    assert found.us == pytest.approx(measured, rel=0.2)


def test_the_program_of_rcclss_file_is_right_and_has_its_published_times() -> None:
    machine = topology("mi300x")
    program = allpairs(8, 4, Protocol.LL)
    assert not errors(check_program(program, RCCL))
    clock = ProgramClock(program, machine, calibrated_model(machine, "rccl"))
    assert clock.time_us(1 << 10) == pytest.approx(13.67, rel=0.02)
    assert clock.time_us(64 << 10) == pytest.approx(14.25, rel=0.03)


def test_what_switches_sum_is_told_apart() -> None:
    found = best_of(nccl_baselines(topology("dgx-h100"), Kind.ALLREDUCE), 1 << 30)
    assert found is not None
    assert found.how == "NVLS"
    assert found.apart
    assert not best_of(nccl_baselines(topology("dgx-a100"), Kind.ALLREDUCE), 1 << 30).apart  # type: ignore[union-attr]


def test_switches_sum_only_where_all_gpus_are_on_them(tmp_path: Path) -> None:
    """One of eight B200 lost its NVLinks; H100 NVL have bridges between two cards, no switch."""
    lost = [
        " ".join(
            "X" if a == b else "NV18" if 2 not in (a, b) else "NODE" if a // 4 == b // 4 else "SYS"
            for b in range(8)
        )
        for a in range(8)
    ]
    pairs = [
        " ".join("X" if a == b else "NV12" if a // 2 == b // 2 else "SYS" for b in range(8))
        for a in range(8)
    ]
    whole = [" ".join("X" if a == b else "NV18" for b in range(8)) for a in range(8)]
    for name, rows, summed in (
        ("NVIDIA B200", lost, False),
        ("NVIDIA H100 NVL", pairs, False),
        ("NVIDIA B200", whole, True),
    ):
        file = tmp_path / "topo.txt"
        lines = [f"GPU{g} {row} 0-31 {g // 4}" for g, row in enumerate(rows)]
        head = " ".join(f"GPU{g}" for g in range(8))
        file.write_text("\n".join([f"GPU 0,1,2,3,4,5,6,7: {name}", f"\t{head}", *lines]) + "\n")
        found = nccl_baselines(topology(f"{file}:nodes=2,nics=8"), Kind.ALLREDUCE)
        assert any(isinstance(one, SwitchSums) for one in found) is summed


def test_collectives_that_nccl_lacks_have_no_baseline() -> None:
    assert nccl_baselines(topology("dgx-a100"), Kind.SCATTER) == ()


@pytest.mark.parametrize(
    ("size", "measured"),
    [(128 << 10, 40.09), (256 << 10, 46.58), (512 << 10, 58.37), (2 << 20, 78)],
)
def test_a_process_with_all_gpus_launches_more_channels_for_larger_messages(
    size: int, measured: float
) -> None:
    """Broadcast on 8 A100 with -g 8 (superbenchmark), as allgather and reduce: host, not wires."""
    together = best_of(nccl_baselines(topology("dgx-a100"), Kind.BROADCAST, "nccl", 8), size)
    alone = best_of(nccl_baselines(topology("dgx-a100"), Kind.BROADCAST), size)
    assert together is not None
    assert alone is not None
    assert together.us == pytest.approx(measured, rel=0.17)
    assert alone.us < measured


@pytest.mark.parametrize("kind", [Kind.ALLGATHER, Kind.ALLREDUCE])
def test_rings_through_many_hosts_take_the_time_of_those_through_some(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = []
    for most in (20_000, 1 << 40):
        monkeypatch.setattr(baselines, "EFFORT", TuneEffort(ring_messages=most))
        rings = nccl_baselines(topology("dgx-h100:nodes=6"), kind)[0]
        assert isinstance(rings, Baseline)
        assert (rings.longer is None) == (most > 20_000)
        times.append(
            [rings.run_us(size, p) for size in (1 << 10, 64 << 20) for p in rings.protocols]
        )
    assert times[0] == pytest.approx(times[1], rel=0.02)


@pytest.mark.parametrize("kind", [Kind.ALLGATHER, Kind.ALLREDUCE, Kind.ALLTOALL])
def test_programs_whose_ranks_are_not_joined_are_none_of_the_baselines(kind: Kind) -> None:
    assert nccl_baselines(topology("line:3"), kind) == ()
    joined = nccl_baselines(topology("full:3"), kind)
    assert all(one.time(8).us > 0 for one in joined)
    assert joined
