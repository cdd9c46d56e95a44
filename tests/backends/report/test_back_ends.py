"""Which back end for whom: by machine and framework, and nothing that is not there."""

import re
from pathlib import Path

import pytest

from weft.backends.cli.flags.machines import FRAMEWORKS
from weft.backends.report.back_ends import WHY, advice, back_ends
from weft.dsl.base.registry import BACKENDS
from weft.dsl.catalogue import topology

PAGE = Path(__file__).parents[3] / "docs" / "back-ends.md"


PCIE = """\tGPU0\tGPU1\tGPU2\tGPU3
GPU0\t X \tPHB\tSYS\tSYS
GPU1\tPHB\t X \tSYS\tSYS
GPU2\tSYS\tSYS\t X \tPHB
GPU3\tSYS\tSYS\tPHB\t X
"""
"""A box of four GPUs without NVLink, as nvidia-smi prints it."""


@pytest.mark.parametrize(
    ("machine", "framework", "best"),
    [
        ("dgx-h100", None, "msccl-xml"),
        ("gb200-nvl72", "nccl", "mscclpp-json"),
        ("dgx1", "nccl", "msccl-xml"),
        ("mi300x", "cupy", "msccl-xml"),
        ("dgx-h100", "jax", "jax"),
        ("torus:4x4", None, "jax"),
        ("torus:4x4", "torch", "torch"),
        ("dgx-a100", "mpi", "mpi"),
        (PCIE, None, "msccl-xml"),
        ("ring:4,family=a100", "torch", "msccl-xml"),
    ],
)
def test_the_best_comes_first(machine, framework, best, tmp_path):
    if machine is PCIE:
        (tmp_path / "box.txt").write_text(machine)
        machine = f"{tmp_path / 'box.txt'}"
    found = advice(topology(machine), framework)
    assert found[0].fits
    assert found[0].back_end.format == best
    assert [one.fits for one in found] == sorted((one.fits for one in found), reverse=True)


def test_what_does_not_fit_says_why():
    by_runtime = {one.back_end.runtime: one for one in advice(topology("mi300x"))}
    refused = {name: one.why for name, one in by_runtime.items() if not one.fits}
    assert all(refused.values())
    assert any("for NVIDIA's GPUs" in why for why in refused.values())
    assert any("these GPUs are AMD's" in why for why in refused.values())


def test_a_machine_without_a_family_gets_no_kernels_of_libraries():
    for one in advice(topology("ring:8")):
        loads = one.back_end.format in ("msccl-xml", "mscclpp-json")
        assert one.fits is not (loads or one.back_end.format == "torch-symm")


def test_every_framework_has_a_back_end_everywhere():
    assert {name for one in back_ends() for name in one.frameworks} == set(FRAMEWORKS)
    for machine in ("dgx1", "dgx-h100:nodes=2", "torus:4x4", "mi250", "full:3"):
        for framework in ("torch", "jax", "mpi"):
            assert advice(topology(machine), framework)[0].fits


def test_all_formats_of_this_version_are_there():
    assert {one.format for one in back_ends()} == set(BACKENDS.builtin) - {"program"}
    assert set(WHY) & set(BACKENDS.builtin) == {
        one.format for one in back_ends() if one.format in WHY
    }


def test_the_page_of_the_command_line_has_a_row_for_every_format():
    _, _, section = PAGE.with_name("cli.md").read_text("utf-8").partition("## What `compile` makes")
    rows = [
        line.split("|")[1] for line in section.partition("\n## ")[0].splitlines() if "|" in line
    ]
    assert set(re.findall(r"`([a-z-]+)`", "".join(rows))) == set(BACKENDS.builtin) | {"--to"}


def test_the_page_has_this_table():
    rows = [
        tuple(cell.strip() for cell in line.strip("|").split("|"))
        for line in PAGE.read_text("utf-8").splitlines()
        if line.startswith("| `")
    ]
    for one in back_ends():
        cells = (f"`{one.format}`", one.runtime, one.takes, one.tried, one.hardware)
        assert cells in rows, one
    assert len(rows) == len(back_ends())
    assert all(re.fullmatch(r"`[a-z-]+`", format) for format, *_ in rows)
