"""torch.distributed: gloo for tensors on the host, NCCL for tensors on GPUs."""

from __future__ import annotations

# --- in every file for torch from here on ---
import time  # isort: skip
from collections.abc import Sequence
from typing import Any

Ends = Sequence[tuple[Any, int]]


class Torch:
    """A process group of torch.distributed; ranks are those in the group.

    gloo ends a process, from C++, that receives a message longer than its buffer, and takes a
    shorter one without a word. So, where waiting has an end, every message is announced by one of
    ``NOTE`` bytes that says its length, type and call, and only what fits is received.
    """

    NOTE = 64

    def __init__(self, group: Any = None) -> None:
        import torch  # here, so that the file can be read where there is no torch
        import torch.distributed as dist

        self.torch: Any = torch
        self.dist: Any = dist
        self.group = group
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self.timeout: float | None = None
        self.call = ""
        named = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}
        self.operators = {op: getattr(torch, name) for op, name in named.items()}

    def agree(self, call: str) -> None:
        """What messages are announced with, besides their length."""
        self.call = call

    def exchange(self, number: int, sends: Ends, recvs: Ends) -> None:
        """Post all receives and sends of a round, then wait for them."""
        here = f"rank {self.rank}, round {number}"
        if self.timeout is not None:
            notes = [(self._note(x), peer) for x, peer in sends]
            heard = [(self._note(x).zero_(), peer) for x, peer in recvs]
            self._through(2 * number, notes, heard, here)
            for (array, peer), (note, _) in zip(recvs, heard, strict=True):
                came, due = bytes(note.tolist()).decode().strip(), self._text(array)
                if came != due:
                    raise RuntimeError(
                        f"{here}: rank {peer} sends {came}, {due} are due: do all "
                        "ranks call with the same sizes and types?"
                    )
        self._through(2 * number + 1, sends, recvs, here)

    def _text(self, array: Any) -> str:
        kind = str(array.dtype).removeprefix("torch.")
        call = self.call.split(", ", 1)[-1]
        return f"{array.numel()} elements of {kind}, {call}"[: self.NOTE]

    def _note(self, array: Any) -> Any:
        text = self._text(array).ljust(self.NOTE).encode()
        return self.torch.tensor(list(text), dtype=self.torch.uint8, device=array.device)

    def _through(self, tag: int, sends: Ends, recvs: Ends, here: str) -> None:
        dist, group = self.dist, self.group
        begun = [(dist.irecv, x, peer, "from") for x, peer in recvs]
        begun += [(dist.isend, x, peer, "to") for x, peer in sends]
        posts = [dist.P2POp(do, x, self._globally(peer), group, tag) for do, x, peer, _ in begun]
        ways = [f"{way} rank {peer}" for _, _, peer, way in begun]
        try:
            works = dist.batch_isend_irecv(posts)
        except RuntimeError as error:
            raise RuntimeError(f"{here}: {error} ({', '.join(ways)})") from error
        self._wait(works, ways, here)

    def _globally(self, peer: int) -> int:
        """Messages name ranks of the job, not of the group."""
        return peer if self.group is None else int(self.dist.get_global_rank(self.group, peer))

    def _wait(self, works: list[Any], ways: list[str], here: str) -> None:
        end = None if self.timeout is None else time.monotonic() + self.timeout
        late: list[str] = []
        cause: RuntimeError | None = None
        names = ways if len(works) == len(ways) else [", ".join(ways)]  # NCCL: one for all
        for name, work in zip(names, works, strict=True):
            try:
                self._wait_for(work, end if cause is None else 0.0)
            except RuntimeError as error:
                cause = cause or error
                late.append(name)
        if cause is not None and "imed out" in str(cause):
            after = "the group's time-out" if self.timeout is None else f"{self.timeout:g} s"
            raise TimeoutError(
                f"{here}: after {after} still waiting for messages {', '.join(late)}"
            ) from cause
        if cause is not None and "onnection" in str(cause):
            raise ConnectionError(
                f"{here}: a rank has ended or given up, among those of messages {', '.join(late)}"
            ) from cause
        if cause is not None:
            raise RuntimeError(f"{here}: {cause} ({', '.join(late)})") from cause

    def _wait_for(self, work: Any, end: float | None) -> None:
        if end is None:
            work.wait()
        else:  # what is through already takes no time
            from datetime import timedelta

            work.wait(timedelta(seconds=max(end - time.monotonic(), 0.01)))

    def combine(self, op: str, out: Any, a: Any, b: Any) -> None:
        """``out = a op b``."""
        self.operators[op](a, b, out=out)

    def copy(self, out: Any, a: Any) -> None:
        """``out = a``."""
        out.copy_(a)

    def empty(self, count: int, like: Any) -> Any:
        """New memory."""
        return self.torch.empty(count, dtype=like.dtype, device=like.device)

    def flat(self, array: Any) -> Any:
        """The tensor in one dimension, if it is contiguous."""
        return array.view(-1) if array.is_contiguous() else None

    def span(self, array: Any) -> tuple[int, int]:
        """The bytes it spans; torch has no negative strides."""
        first = array.data_ptr()
        steps = zip(array.shape, array.stride(), strict=True)
        last = sum((size - 1) * step for size, step in steps)
        return first, first + (last + 1) * array.element_size() if array.numel() else first

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.dist.barrier(group=self.group)

    def clock(self) -> float:
        """Seconds."""
        if self.torch.cuda.is_initialized():
            self.torch.cuda.synchronize()
        return time.perf_counter()
