"""Run files of torch and of JAX by NCCL, one process per rank, on GPUs that ranks may share.

    python tests/gpu/check_processes.py [--on torch jax] [--ranks 2 4]

NCCL until 2.29 refuses two ranks of one host on one GPU, so each process gives its host a name of
its own: messages then go through the network of NCCL, by sockets of this machine. Files of torch
test themselves when run; those of JAX are called here under ``jit`` on a mesh of all processes.
Results are compared with the definition; times of processes that share a GPU say nothing.
Exit code 0: all right; 1: something is wrong; 4: nothing was checked.
"""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from symm_programs import NAMES, NOTHING, expected, loaded, require_driver

SEPARATE_HOSTS = {
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_IB_DISABLE": "1",
    "NCCL_MNNVL_ENABLE": "0",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_MAX_CTAS": "2",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}
"""Every rank is on a host of its own, and leaves memory of the GPU to the others."""

SECONDS = 240
"""After which the processes of a file are ended: they wait for each other by turns of the GPU."""

LENGTHS = (1, 5, 1000, 65536)
"""Elements of a unit that JAX's files are called with."""


def free_port() -> str:
    """Return a port of this machine on which nobody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def processes(command: list[str], ranks: int) -> tuple[bool, str]:
    """Run a command once per rank; whether all ended well, and what they wrote."""
    meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": str(ranks)}
    started = []
    for rank in range(ranks):
        own = {"RANK": str(rank), "LOCAL_RANK": "0", "NCCL_HOSTID": f"rank{rank}"}
        env = {**os.environ, **SEPARATE_HOSTS, **meet, **own}
        pipe = subprocess.PIPE
        started.append(
            subprocess.Popen(command, env=env, stdout=pipe, stderr=subprocess.STDOUT, text=True)
        )
    texts = []
    for one in started:
        try:
            texts.append(one.communicate(timeout=SECONDS)[0])
        except subprocess.TimeoutExpired:
            for other in started:
                other.kill()
            texts.append(f"ended after {SECONDS} s\n" + one.communicate()[0])
    return all(one.returncode == 0 for one in started), "".join(texts)


def write(folder: Path, ranks: int, on: str) -> list[tuple[str, Path]]:
    """Write the files of all programs for some ranks."""
    from weft.backends.cli import main as weft

    made = []
    for at, name in enumerate(name.replace("=N", f"={ranks}") for name in NAMES):
        path = folder / f"{on}_{ranks}_{at}.py"
        assert weft(["compile", f"classic:{name}", "--to", on, "-o", str(path), "--quiet"]) == 0
        made.append((name, path))
    return made


def one_rank_of_jax(path: str) -> None:
    """Call a file's function as one process of several; ends with an error where it is wrong."""
    import functools

    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    at = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    jax.distributed.initialize(at, ranks, rank, local_device_ids=[0])
    assert jax.device_count() == ranks, f"{jax.device_count()} devices, {ranks} ranks"
    module = loaded(Path(path))
    kind = module.HEADER["collective"]
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    spec = PartitionSpec("x")
    inside = functools.partial(module.collective, axis_name="x")
    call = jax.jit(jax.shard_map(inside, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))
    for length in LENGTHS:
        units = 1 if kind == "allgather" else ranks
        chance = np.random.default_rng(length)
        given = chance.integers(-99, 99, (ranks, units * length)).astype(np.float32)
        x = jax.make_array_from_process_local_data(NamedSharding(mesh, spec), given[rank])
        found = np.asarray(call(x).addressable_shards[0].data)
        wanted = expected(kind, given, rank)
        assert np.array_equal(found, wanted), f"rank {rank}: {length} elements a unit"
    if rank == 0:
        sys.stdout.write(f"{jax.devices()[0].device_kind}, {jax.__version__}: right\n")


def nothing_on(on: str) -> str | None:
    """Return why files of this kind cannot be run here, or None."""
    if find_spec(on) is None:
        return f"{on} is not installed"
    ask = {
        "torch": "import torch; print(torch.cuda.device_count())",
        "jax": "import jax; print(sum(d.platform == 'gpu' for d in jax.devices()))",
    }[on]
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=False)
    if done.returncode or not int(done.stdout.split()[-1]):
        return f"{on} finds no CUDA device"
    return None


def main() -> int:
    """Run all files of all kinds on all numbers of ranks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--on", nargs="+", choices=("torch", "jax"), default=["torch", "jax"])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--as-rank", metavar="FILE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.as_rank:
        one_rank_of_jax(args.as_rank)
        return 0
    require_driver()
    absent = {on: why for on in args.on if (why := nothing_on(on))}
    if len(absent) == len(args.on):
        sys.stderr.write(f"Nothing was checked: {'; '.join(absent.values())}\n")
        return NOTHING
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for on in args.on:
            for ranks in args.ranks if on not in absent else ():
                for name, path in write(Path(folder), ranks, on):
                    own = [__file__, "--as-rank", str(path)] if on == "jax" else [str(path)]
                    right, text = processes([sys.executable, *own], ranks)
                    right = right and "WRONG" not in text
                    told = "right" if right else f"WRONG\n{text}"
                    sys.stdout.write(f"{on}, {ranks} processes, {name}: {told}\n")
                    sys.stdout.flush()
                    wrong += not right
    for why in absent.values():
        sys.stdout.write(f"Not run: {why}\n")
    sys.stdout.write(f"{wrong} files are WRONG\n" if wrong else "All files are right.\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
