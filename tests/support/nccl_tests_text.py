"""Texts in the form of nccl-tests, written from times that a test chooses."""

from collections.abc import Iterable


def nccl_tests_text(
    test: str,
    rows: Iterable[tuple[int, float]],
    *,
    gpus: int,
    hosts: int = 1,
    together: bool = True,
) -> str:
    """The output of a run: (bytes, µs) rows; ``together``: one process has a host's GPUs."""
    lines = ["# nThread 1 nGpus 8 minBytes 8 maxBytes 1 step: 2(factor)", "#", "# Using devices"]
    for rank in range(gpus * hosts):
        host, device = divmod(rank, gpus)
        pid = 100 + (host if together else rank)
        lines.append(
            f"#  Rank {rank:2d} Group  0 Pid {pid:6d} on  host{host} device {device:2d} [0x07] GPU"
        )
    columns = "time   algbw   busbw #wrong"
    lines += ["#", f"#  size  count  type  redop  root  {columns}  {columns}"]
    for size, us in rows:
        half = f"{us:.6g}  {size / us / 1e3:.2f}  0.00  0"
        lines.append(f"  {size}  {size // 4}  float  sum  -1  {half}  {half}")
    lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 1", "#"]
    return "\n".join([*lines, f"# Collective test concluded: {test}_perf", ""])
