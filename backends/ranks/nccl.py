"""Ranks on the GPUs of this process, connected by NCCL, several per GPU if GPUs are few."""

from __future__ import annotations

import os
import time
import types
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from weft.dsl.base.arrays import AnyArray
from weft.dsl.base.errors import Missing

from ..formats.p2p.data import Exam
from ..formats.p2p.execute import arguments, loaded, wrong_result
from .job import Case, Done, RankJob, RankReport
from .rank import restored

SETTINGS = {
    "NCCL_MULTI_RANK_GPU_ENABLE": "1",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_MAX_CTAS": "2",
    # Kernels of ranks wait for each other: none may stand in another's queue.
    "CUDA_DEVICE_MAX_CONNECTIONS": "32",
}
"""The environment in which several ranks can share a GPU; a user's own settings stay."""

MULTI_RANK = 23000
"""The first version of NCCL that puts several ranks on one GPU."""


def unusable(ranks: int) -> Missing | None:
    """Return the reason why that many ranks cannot run on this machine, or None."""
    try:
        import cupy
        from cupy.cuda import nccl
    except ImportError:
        return Missing("CuPy is not installed", hint="pip install 'weft[cuda]'")
    if not cupy.cuda.is_available():
        return Missing("CuPy sees no GPU", hint="--on numpy runs the same file on threads")
    if not nccl.available:
        return Missing("CuPy finds no NCCL", hint="pip install nvidia-nccl-cu12")
    gpus, version = cupy.cuda.runtime.getDeviceCount(), nccl.get_version()
    if ranks > gpus and version < MULTI_RANK:
        return Missing(
            f"{ranks} ranks on {gpus} GPUs need NCCL 2.30; this is {version}",
            hint="a newer NCCL, or LD_PRELOAD=…/libnccl.so.2 of one",
        )
    return None


def run_on_gpus(job: RankJob) -> dict[int, RankReport]:
    """Return the reports of all ranks of a job, whose cases are run one after the other.

    Raises:
        Missing: no GPU, no CuPy, or no NCCL that does.
    """
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    missing = unusable(job.ranks)
    if missing:
        raise missing
    programs = [loaded(piece.text) for piece in job.pieces]
    groups = {count: _Ranks(count) for count in sorted({p.units.ranks for p in job.pieces})}
    done: list[list[Done | None]] = [[] for _ in range(job.ranks)]
    for case in job.cases:
        piece = job.pieces[case.piece]
        ranks = groups[piece.units.ranks]
        every = getattr(programs[case.piece], f"{piece.function}_of_all")
        first = job.ranks - ranks.count  # a group of the last ones, as on other runtimes
        found = ranks.case(every, case, case.exam(piece.units))
        for rank in range(job.ranks):
            done[rank].append(found[rank - first] if rank >= first else None)
    for ranks in groups.values():
        ranks.close(programs)
    return {rank: RankReport(rank, tuple(own)) for rank, own in enumerate(done)}


class _Ranks:
    """Some ranks, their GPUs and communicators."""

    def __init__(self, count: int) -> None:
        import cupy
        from cupy.cuda import nccl

        self.cupy, self.count = cupy, count
        self.devices = [r % cupy.cuda.runtime.getDeviceCount() for r in range(count)]
        self.comms = nccl.NcclCommunicator.initAll(self.devices)

    def case(self, every: Any, case: Case, exam: Exam) -> list[Done]:
        """Run a case: the call that is compared, then those that are timed."""
        hosts = [arguments(exam, rank, case.in_place) for rank in range(self.count)]
        before = [None if send is None else send.copy() for send, _ in hosts]
        wrong: list[str | None] = [None] * self.count
        seconds: list[float] = []
        for turn in range(1 + case.repeat):
            if turn:
                for rank, (send, recv) in enumerate(hosts):
                    restored(exam, rank, send, recv, before[rank], in_place=case.in_place)
            arrays = list(self._on_devices(hosts))
            self._wait()
            begin = time.perf_counter()
            every([a for a, _ in arrays], [b for _, b in arrays], self.comms)
            self._wait()
            seconds += [time.perf_counter() - begin] if turn else []
            if turn in (0, case.repeat):
                for rank, (send, recv) in enumerate(arrays):
                    mine = self._host(send), self._host(recv)
                    kept = None if case.in_place else before[rank]
                    wrong[rank] = wrong[rank] or wrong_result(exam, rank, *mine, kept)
        return [Done(text, tuple(seconds)) for text in wrong]

    def _on_devices(
        self, hosts: Sequence[tuple[AnyArray | None, AnyArray | None]]
    ) -> Iterator[Any]:
        for device, pair in zip(self.devices, hosts, strict=True):
            with self.cupy.cuda.Device(device):
                yield on_gpu(*pair)

    def _host(self, array: Any) -> AnyArray | None:
        host: AnyArray | None = None if array is None else self.cupy.asnumpy(array)
        return host

    def _wait(self) -> None:
        """Wait until all GPUs are done."""
        for device in sorted(set(self.devices)):
            with self.cupy.cuda.Device(device):
                self.cupy.cuda.get_current_stream().synchronize()

    def close(self, programs: Sequence[types.ModuleType]) -> None:
        """Destroy the communicators, also in the caches of programs."""
        for comm in self.comms:
            for program in programs:
                program.forget(comm)
            comm.destroy()


def on_gpu(send: AnyArray | None, recv: AnyArray | None) -> tuple[Any, Any]:
    """Return both arrays on the device, sharing memory if they share it on the host."""
    import cupy

    if send is None or recv is None or not np.shares_memory(send, recv):
        return _copied(cupy, send), _copied(cupy, recv)
    big, small = (send, recv) if len(send) > len(recv) else (recv, send)
    at = (small.ctypes.data - big.ctypes.data) // big.itemsize
    whole = _copied(cupy, big)
    part = whole[at : at + len(small)]
    return (whole, part) if big is send else (part, whole)


def _copied(cupy: Any, array: AnyArray | None) -> Any:
    return None if array is None else cupy.asarray(array)
