"""Logs of runs of nccl-tests with a debug log, in the forms that public threads show.

The forms are those of: Azure/msccl#42 (the executor, a V100 box), NVIDIA/nccl#1453 (Hydra's labels,
rows cut by the log, numbers for algorithms), microsoft/mscclpp#114 (Open MPI's labels),
ROCm/rccl#1137 (RCCL reads a folder of its own), NVIDIA/dgx-spark-playbooks#103 (the head of 2.17
and later), and ROCm/rccl#930 (columns before 2.13). Hosts, numbers and times are ours.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

HEAD = (
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     "
    "time   algbw   busbw #wrong"
)


def devices(gpus: int, hosts: int, name: str) -> list[str]:
    """The lines of the ranks, one process for each."""
    found = []
    for rank in range(gpus * hosts):
        host, device = divmod(rank, gpus)
        found.append(
            f"#  Rank {rank:2d} Group  0 Pid {5000 + rank:6d} on  node-{host} device {device:2d} "
            f"[0x{16 + device:02x}] {name}"
        )
    return found


def row(size: int, us: float, in_place: float) -> tuple[str, str, str]:
    """The three parts of a row: sizes, out of place, in place."""
    halves = (
        f"{t:9.2f} {size / t / 1e3:7.2f} {size / t / 1e3:7.2f}      0" for t in (us, in_place)
    )
    return (f"{size:12d} {size // 4:13d}     float     sum      -1", *halves)  # type: ignore[return-value]


def log_text(
    test: str,
    times: Mapping[int, tuple[float, float]],
    *,
    gpus: int,
    hosts: int = 1,
    name: str = "NVIDIA A100-SXM4-80GB",
    before: Sequence[str] = (),
    said: Callable[[int], Iterable[str]] = lambda _: (),
    label: str = "",
    cut: bool = False,
    warm: bool = True,
) -> str:
    """The output of a run.

    ``before``: lines of the log before the table; ``said``: what it says at a size; ``label``:
    before every line; ``cut``: rows are cut by what it says, as where both go to one stream.
    """
    loops = "warmup iters: 5 iters: 20" if warm else "warmup iters: 0 iters: 1"
    lines = [f"# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) {loops} graph: 0", "#"]
    lines += ["# Using devices", *devices(gpus, hosts, name), "#"]
    lines += [f"node-0:5000:5100 [0] NCCL INFO {one}" for one in before]
    lines += [HEAD, "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)"]
    for size, (us, in_place) in times.items():
        first, out, inn = row(size, us, in_place)
        told = [f"node-0:5000:5000 [0] NCCL INFO {one}" for one in said(size)]
        if cut and told:
            lines += [first + label + told[0], *told[1:], f"  {out}", *told, f"  {inn}"]
        else:
            lines += [*told, first + out + inn]
    lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 1.0", "#"]
    lines += [f"# Collective test concluded: {test}_perf", ""]
    return "\n".join(label + line for line in lines)
