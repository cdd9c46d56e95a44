"""Run kernels for torch symmetric memory with all ranks in one launch: any CUDA device will do.

    python tests/gpu/check_symm_virtual.py [--ranks 2 4 8] [FILE …]

Without files, classic algorithms are compiled for these numbers of ranks. Every rank's memory is a
part of one allocation, and the second axis of the grid is the rank. This tests addresses, flags,
packets, sums and order at device scope; nothing of it is between GPUs.
Exit code 0: all right; 1: something is wrong; 4: nothing was checked.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from symm_programs import expected, loaded, require_cuda, write

LAUNCHES = 5
LENGTHS = (4, 1028, 1 << 17)
"""Words of a chunk: some are no whole number of tiles."""


def launched(m: ModuleType, length: int, device: str = "cuda") -> list[Any]:
    """Launch a program of tables on random integers; the inputs and outputs of all ranks."""
    import torch

    code, flags = m.assembled()
    size = 4 * length
    packed = 4 if m.HEADER["protocol"] == "LL" else 1
    sizes = [n * size * (packed if k == 2 else 1) for k, n in enumerate(m.CHUNKS)] + [4 * flags]
    sizes = [-(-n // 16) * 16 for n in sizes]
    starts = [sum(sizes[:k]) for k in range(4)]
    memory = torch.zeros(m.RANKS, sum(sizes), dtype=torch.uint8, device=device)
    bases = [memory[r].data_ptr() + s for r in range(m.RANKS) for s in starts]
    lines = [x for blocks in code for x in [*blocks, *[()] * (m.BLOCKS - len(blocks))]]
    flat = [[x for op in line for x in (len(op) + 1, *op)] for line in lines]
    begins = [sum(map(len, flat[:k])) for k in range(len(flat) + 1)]
    tables = [
        torch.tensor(x, dtype=torch.int32, device=device)
        for x in ([n for one in flat for n in one], begins)
    ]
    addresses = torch.tensor(bases, dtype=torch.int64, device=device)
    kind = m.tl.int32
    found = []
    for launch in range(LAUNCHES):
        sides = [
            [
                memory[r, starts["ios".index(b)] + first * size :][: count * size].view(torch.int32)
                for r, sides in enumerate(m.PLACES)
                for b, first, count in sides[k : k + 1]
            ]
            for k in (0, 1)
        ]
        torch.manual_seed(launch)
        for one in sides[0]:
            one.copy_(torch.randint(-99, 99, one.shape, dtype=torch.int32))
        given = [one.cpu().numpy() for one in sides[0]]
        half = sizes[2] // 2 if packed > 1 else 0
        shape = (m.BLOCKS, kind, kind, "sum", m.TILE, device == "cuda")
        m.run[m.BLOCKS, m.RANKS](*tables, 0, addresses, length, half, *shape, num_warps=m.WARPS)
        if device == "cuda":
            torch.cuda.synchronize()
        found.append((given, [one.cpu().numpy() for one in sides[1]]))
    return found


def classic(folder: Path, numbers: list[int]) -> list[tuple[str, Path]]:
    """Write the files of classic algorithms, of tables: a kernel of constants is for one rank."""
    made = []
    for number in numbers:
        folder.joinpath(str(number)).mkdir()
        made += write(folder / str(number), number)
    return [(name, path) for name, path in made if not name.endswith("constants")]


def main() -> int:
    """Run all programs on all numbers of ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("files", nargs="*", metavar="FILE", help="a file of --to torch-symm")
    args = parser.parse_args()
    require_cuda()
    import torch

    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, path in [(x, Path(x)) for x in args.files] or classic(Path(folder), args.ranks):
            m = loaded(path)
            for length in LENGTHS:
                right = all(
                    np.array_equal(out, expected(m.HEADER["collective"], given, rank))
                    for given, outs in launched(m, length)
                    for rank, out in enumerate(outs)
                )
                wrong += not right
                told = "right" if right else "WRONG"
                sys.stdout.write(f"{name}, {4 * length} bytes a chunk: {told}\n")
    sys.stdout.write(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}: "
        + (f"{wrong} wrong\n" if wrong else "all results right, ranks in one launch\n")
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
