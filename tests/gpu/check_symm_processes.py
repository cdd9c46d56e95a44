"""Run files for torch symmetric memory as processes: on one GPU that they share, or on several.

    TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES=1 python tests/gpu/check_symm_processes.py --ranks 2

This tests the whole file: torch's rendezvous, the kernel of tables and of constants, a CUDA graph
that is replayed, and torch.compile. Times of processes that share a GPU say nothing.
Exit code 0: all right; 1: something is wrong; 4: nothing was checked.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from symm_programs import expected, loaded, require_cuda, write

LENGTHS = (8, 1000, 65536)
REPLAYS = 5


def one_rank(rank: int, ranks: int, folder: str) -> None:
    """Run all files as one rank; the process ends with an exception where something is wrong."""
    import torch
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    for name, path in write(Path(folder, str(rank)), ranks):
        torch._dynamo.reset()  # its limit of 8 kinds of callables is for all files together
        module = loaded(path)
        end = module.Collective(torch.float32, most_bytes=4 * max(LENGTHS) * ranks * ranks)
        calls = {"called": end, "compiled": torch.compile(end, fullgraph=True)}
        for length in LENGTHS:
            if 4 * length * ranks * ranks > module.MAX_BYTES:
                continue  # packets are for small messages
            x = torch.randint(-9, 9, (length * ranks,), device="cuda").float()
            given: list[torch.Tensor] = [torch.empty(0)] * ranks
            dist.all_gather_object(given, x.cpu())
            arrays = [one.numpy() for one in given]
            wanted = torch.from_numpy(expected(module.HEADER["collective"], arrays, rank))
            for how, call in calls.items():
                assert torch.equal(call(x).cpu(), wanted), f"rank {rank}: {name} {how} {length}"
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = end(x)
        for _ in range(REPLAYS):
            graph.replay()
            torch.cuda.synchronize()
            assert torch.equal(out.cpu(), wanted), f"rank {rank}: {name} replayed"
        if rank == 0:
            sys.stdout.write(f"{name}: called, compiled and replayed, all right\n")
    dist.destroy_process_group()


def main() -> int:
    """Start the ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    ranks = parser.parse_args().ranks
    require_cuda()
    import torch

    if torch.cuda.device_count() < ranks:
        os.environ["TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(ranks):
            Path(folder, str(rank)).mkdir()
        try:
            torch.multiprocessing.spawn(one_rank, (ranks, folder), nprocs=ranks)
        except torch.multiprocessing.ProcessRaisedException as error:
            sys.stdout.write(f"{error}\n")
            return 1
    devices = min(ranks, torch.cuda.device_count())
    sys.stdout.write(f"{ranks} processes on {devices} × {torch.cuda.get_device_name()}: right\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
