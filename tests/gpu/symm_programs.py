"""The programs that the checks of torch symmetric memory on a GPU run, as files."""

import importlib.util
import sys
from collections.abc import Sequence
from ctypes import CDLL
from functools import reduce
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from weft.backends.compile.compile import CompileOptions, lower_algorithm
from weft.backends.formats.torch_symm.format import TorchSymm
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.runtime import MSCCL
from weft.synth.engines.classic.text import named_algorithm

NAMES = (
    "ring{collective=allreduce,ranks=N}",
    "two_shot{collective=allreduce,ranks=N}",
    "ring{collective=allgather,ranks=N}",
    "ring{collective=reduce_scatter,ranks=N}",
    "spread_out{ranks=N}",
)
NOTHING = 4
"""Exit code where nothing can be checked."""


def require_cuda() -> None:
    """End the program where there is no torch, Triton or CUDA device."""
    for name in ("torch", "triton"):
        if find_spec(name) is None:
            _end(f"{name} is not installed")
    require_driver()
    import torch

    if not torch.cuda.is_available():
        _end("torch finds no CUDA device")


def require_driver() -> None:
    """End the program where there is no CUDA driver: without loading torch, which takes seconds."""
    try:
        CDLL("libcuda.so.1")
    except OSError:
        _end("there is no CUDA driver")


def _end(why: str) -> NoReturn:
    sys.stderr.write(f"Nothing was checked: {why}\n")
    sys.exit(NOTHING)


def expected(kind: str, given: Sequence[Any], rank: int) -> Any:
    """Return what a rank must have, by the arrays (NumPy, one axis) that the ranks give."""
    ranks = len(given)
    if kind == "allreduce":
        return reduce(np.add, given)
    if kind == "allgather":
        return np.concatenate(given)
    if kind == "reduce_scatter":
        return reduce(np.add, given).reshape(ranks, -1)[rank]
    return np.concatenate([x.reshape(ranks, -1)[rank] for x in given])


def write(folder: Path, ranks: int) -> list[tuple[str, Path]]:
    """Write the files of all programs for some ranks: packets and signals, tables and constants."""
    made = []
    for name in (name.replace("=N", f"={ranks}") for name in NAMES):
        for protocol in (Protocol.SIMPLE, Protocol.LL):
            for specialised in (False, True):
                algorithm = named_algorithm(name).algorithm
                program = lower_algorithm(algorithm, CompileOptions(protocol=protocol))
                text = TorchSymm(specialised=specialised).emit(program, MSCCL, None)
                path = folder / f"program_{len(made)}.py"
                path.write_text(text)
                kind = "constants" if specialised else "tables"
                made.append((f"{name} {protocol} {kind}", path))
    return made


def loaded(path: Path) -> ModuleType:
    """Return the module of a file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
