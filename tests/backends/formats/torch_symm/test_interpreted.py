"""Files for torch symmetric memory, whole, under Triton's own interpreter with ranks as threads."""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import casts
import pytest
import symm_files
from random_moves import random_algorithm

from weft.backends.compile.compile import CompileOptions, lower_algorithm
from weft.backends.compile.prepare import artefact
from weft.backends.formats.torch_symm.format import TorchSymm
from weft.dsl.base.units import SizeRange
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.runtime import MSCCL
from weft.synth.engines.classic.text import named_algorithm

pytestmark = pytest.mark.skipif(
    find_spec("triton") is None or find_spec("torch") is None, reason="no torch or Triton"
)

HOST = Path(__file__).parents[3] / "support" / "symm_host.py"

ONE_LANE = CompileOptions(instances=1)

SMALL, LARGE = SizeRange(1, 1 << 10), SizeRange((1 << 10) + 1, 1 << 20)

CUSTOM = 8
"""The seed of a random algorithm."""

TYPES = [
    ("small", 1, 37, "bfloat16", True),
    ("large", 2, 11, "int32", True),
    ("gather", 3, 11, "float32", False),
    ("constants", 4, 5, "float16", False),
    ("custom", 5, 40, "int32", False),
    ("spoiled", 0, 37, "int32", False),
    ("sums", 5, 37, "bfloat16", True),
    ("sums", 6, 9, "int32", True),
    ("sums", 7, 9, "float32", False),
    ("copies", 8, 37, "float16", True),
    ("exchange", 9, 5, "float16", False),
]


def text(name: str, protocol: Protocol, sizes: SizeRange | None = None, **options: bool) -> str:
    algorithm = named_algorithm(name).algorithm
    program = lower_algorithm(algorithm, CompileOptions(protocol=protocol))
    return TorchSymm(**options).emit(program, MSCCL, sizes)  # type: ignore[arg-type]


def custom() -> str:
    """A file of a collective whose inputs have more chunks than its outputs."""
    algorithm = random_algorithm(CUSTOM, ranks=2, chunks=3, moves=4, in_place=False)
    assert algorithm.collective.input_chunks > algorithm.collective.output_chunks
    return TorchSymm().emit(lower_algorithm(algorithm), MSCCL, None)


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("symm")
    ring = "ring{collective=allreduce,ranks=2}"
    large = text(ring, Protocol.SIMPLE, LARGE)
    fence = symm_files.FENCES["a wait waits"]
    files = {
        "small": text("one_shot{ranks=2}", Protocol.LL, SMALL, vllm=True),
        "large": large,
        "gather": text("ring{collective=allgather,ranks=2}", Protocol.SIMPLE),
        "constants": text(ring, Protocol.LL, specialised=True),
        "sums": artefact(casts.two_shot(2), "torch-symm", ONE_LANE).text,
        "copies": artefact(casts.spread_all(2, "broadcast"), "torch-symm", ONE_LANE).text,
        "custom": custom(),
        "exchange": text("spread_out{ranks=2}", Protocol.SIMPLE),
        "spoiled": large.replace(fence.before, fence.after),
    }
    for name, one in files.items():
        (folder / f"{name}.py").write_text(one)
    (folder / "types.json").write_text(json.dumps(TYPES))
    done = subprocess.run(
        [sys.executable, HOST, folder],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_results_are_right_and_a_kernel_that_does_not_wait_is_found(facts: dict[str, Any]) -> None:
    results = facts["results"]
    assert "are wrong" in results.pop("spoiled int32")
    assert len(results) == len(TYPES) - 1
    assert set(results.values()) == {None}, results


def test_ends_and_calls_that_do_not_fit_are_refused(facts: dict[str, Any]) -> None:
    found = facts["refused"]
    assert found["shape"] == "[6, 5]"  # by torch's own fake tensors: nothing is launched
    assert re.fullmatch(
        r"16 bytes of torch.int32 on cpu do not fit \d+ of torch.float32 on cpu", found["type"]
    )
    assert found["size"].startswith("16384 bytes of torch.float32 on cpu do not fit")
    assert found["scalar"] == "the first dimension is cut into 1, and the shape is ()"
    assert found["thirds"] == "the first dimension is cut into 2, and the shape is (3, 2)"
    assert found["sum"].startswith("no sum of bool: types are float32, ")
    assert found["operator"].startswith("no avg of float32")
    assert found["ranks"] == "this program is for 2 ranks, not 3"
    assert found["no multicast"].startswith("torch has no multicast address for this memory: ")
    assert found["maximum"].startswith("no max of float32 by the switch, which does sum of float32")
    assert found["old"].endswith("for NVIDIA's GPUs of sm_90 and later, and this is an A100")


def test_a_file_that_is_run_without_a_gpu_says_so(facts: dict[str, Any]) -> None:
    assert facts["alone"] in ("", "no GPU: weft run FILE")


def test_the_drop_in_for_vllm_chooses_by_size(facts: dict[str, Any]) -> None:
    found = facts["vllm"]
    assert found["right"] == [True, True]
    assert found["protocols"] == ["LL", "Simple"]
    assert found["refused"] == [True, True, True]  # other types, strides, sizes
    assert found["closed"]


def test_the_check_with_all_ranks_in_one_launch_is_right_here_too(facts: dict[str, Any]) -> None:
    assert facts["virtual"] == [True] * len(facts["virtual"])
    assert len(facts["virtual"]) > 2
