"""What files for torch symmetric memory do in a process of torch: one line of JSON of facts.

The process has ``TRITON_INTERPRET=1``; see :mod:`triton_ranks` for what stands in. Its argument is
a folder of files of two ranks: ``small`` and ``large``, allreduces for small and other messages,
the first with the drop-in for vLLM; ``gather``, an allgather; ``constants``, specialised;
``custom``, of more chunks in than out; ``spoiled``, which does not wait; ``exchange``, an alltoall;
``sums`` and ``copies``, sums and copies of the switch; and ``types.json``: [file, seed,
elements, type, PTX], each to be called and compared with the definition.
"""

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "gpu"))

import check_symm_virtual
import numpy as np
import symm_programs
import torch
import triton_ranks
from torch._subclasses.fake_tensor import FakeTensorMode

RANKS = 2
LAUNCHES = 2


def refused(call: Callable[[], Any]) -> str:
    """The error of a call."""
    try:
        call()
    except ValueError as error:
        return str(error)
    return "no error"


def checked(folder: Path) -> dict[str, str | None]:
    """What is wrong with the results of each file and type."""
    return {
        f"{name} {dtype}": triton_ranks.wrong(
            folder / f"{name}.py", seed, length, dtype, LAUNCHES, ptx
        )
        for name, seed, length, dtype, ptx in json.loads((folder / "types.json").read_text())
    }


def refusals(folder: Path) -> dict[str, str]:
    """The errors of calls and ends that do not fit."""
    gather, found = triton_ranks.loaded(folder / "gather.py"), {}
    small = triton_ranks.loaded(folder / "small.py")
    exchange = triton_ranks.loaded(folder / "exchange.py")

    def rank(number: int) -> None:
        end = gather.Collective(torch.float32, device="cpu", most_bytes=1 << 10)
        thirds = exchange.Collective(torch.float32, device="cpu", most_bytes=1 << 10)
        with FakeTensorMode() as mode:
            fake = mode.from_tensor(torch.zeros(3, 5))
            found["shape"] = str(list(end(fake).shape))
        found["type"] = refused(lambda: end(torch.zeros(4, dtype=torch.int32)))
        found["scalar"] = refused(lambda: end(torch.zeros(())))
        found["thirds"] = refused(lambda: thirds(torch.zeros(3, 2)))
        found["size"] = refused(lambda: end(torch.zeros(1 << 12)))
        found["sum"] = refused(lambda: small.Collective(torch.bool, device="cpu"))
        found["operator"] = refused(lambda: small.Collective(torch.float32, "avg", device="cpu"))

    triton_ranks.on_threads(RANKS, 0, rank)
    triton_ranks.on_threads(
        RANKS + 1, 0, lambda _: found.update(ranks=refused(lambda: small.Collective(device="cpu")))
    )
    return found | switchless(folder)


def switchless(folder: Path) -> dict[str, str]:
    """The errors where no switch sums, or not that."""
    sums, found = triton_ranks.loaded(folder / "sums.py"), {}

    def rank(number: int) -> None:
        found["no multicast"] = refused(lambda: sums.Collective(device="cpu"))
        found["maximum"] = refused(lambda: sums.Collective(torch.float32, "max", device="cpu"))
        found["old"] = refused(lambda: sums.Collective(device="cuda:0"))

    cuda: Any = torch.cuda
    cuda.get_device_capability, cuda.get_device_name = lambda _: (8, 0), lambda _: "an A100"
    triton_ranks.on_threads(RANKS, 0, rank, multicast=False)
    return found


def vllm(folder: Path) -> dict[str, Any]:
    """What the drop-in does with tensors of several sizes and types, as rank 0 sees it."""
    small, found = triton_ranks.loaded(folder / "small.py"), {}

    def rank(number: int) -> None:
        one = small.CustomAllreduce(
            None, "cpu", 1 << 14, files=[folder / "large.py"], dtypes=(torch.bfloat16,)
        )
        few, many = (
            (torch.arange(n) % 8 + number).to(torch.bfloat16).reshape(2, -1) for n in (64, 2048)
        )
        with one.capture():
            sums = [one.custom_all_reduce(x) for x in (few, many)]
        right = [
            torch.equal(a, 2 * x + 1 - 2 * number) for a, x in zip(sums, (few, many), strict=True)
        ]
        ends = [one.should_custom_ar(x) for x in (few, many)]
        refused = (few.float(), few.t(), torch.zeros(1 << 14, dtype=torch.bfloat16))
        found[number] = {
            "right": right,
            "protocols": [type(end).__init__.__globals__["HEADER"]["protocol"] for end in ends],
            "refused": [one.custom_all_reduce(x) is None for x in refused],
        }
        one.close()
        found[number]["closed"] = one.custom_all_reduce(few) is None

    triton_ranks.on_threads(RANKS, 0, rank)
    assert found[0] == found[1], found
    return found[0]


def compiled(path: Path) -> list[bool]:
    """Whether a sum of two ranks is right inside one graph of torch.compile, call after call."""
    module, found = triton_ranks.loaded(path), []

    def rank(number: int) -> None:
        end = module.Collective(torch.float32, device="cpu", most_bytes=1 << 12)
        call = torch.compile(lambda x: end(2 * x) + 1, fullgraph=True, backend="aot_eager")
        x = torch.arange(64.0) + number
        wanted = 2 * (2 * torch.arange(64.0) + 1) + 1
        found.extend(torch.equal(call(x), wanted) for _ in range(LAUNCHES))

    triton_ranks.on_threads(RANKS, 0, rank)
    return found


def virtual(folder: Path) -> list[bool]:
    """Whether results are right where all ranks are in one launch, by the check for a GPU."""
    gather, found = triton_ranks.loaded(folder / "gather.py"), []

    def host(number: int) -> None:
        for given, outs in check_symm_virtual.launched(gather, 4, "cpu"):
            wanted = [symm_programs.expected("allgather", given, k) for k in range(RANKS)]
            found.extend(map(np.array_equal, outs, wanted))

    triton_ranks.on_threads(1, 0, host)
    return found


def alone(folder: Path) -> str:
    """Error text of a file that is run as a program where there is no GPU."""
    if torch.cuda.device_count():
        return ""
    try:
        runpy.run_path(str(folder / "gather.py"), run_name="__main__")
    except SystemExit as error:
        return str(error.code)
    return "nothing"


if __name__ == "__main__":
    where = Path(sys.argv[1])
    facts: dict[str, Any] = {
        "results": checked(where),
        "refused": refusals(where),
        "vllm": vllm(where),
        "alone": alone(where),
    }
    facts["virtual"] = virtual(where)
    sys.stdout.write(json.dumps(facts))
