"""The programs that the checks of torch symmetric memory on a GPU run, as files."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

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
    """End the program where there is no CUDA device, torch or Triton."""
    try:
        import torch
        import triton  # noqa: F401
    except ImportError as error:
        sys.stderr.write(f"Nothing was checked: {error.name} is not installed\n")
        sys.exit(NOTHING)
    if not torch.cuda.is_available():
        sys.stderr.write("Nothing was checked: torch finds no CUDA device\n")
        sys.exit(NOTHING)


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
