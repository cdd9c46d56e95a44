"""Run compiled programs on a real GPU: ``python tests/gpu/check_nccl.py``.

1. *Virtual ranks*: 16 ranks in one process; messages are copies on the device, ordered by events.
   Any GPU, no NCCL.
2. *NCCL*: 2, 4 and 8 ranks, on as many GPUs as there are; if they are fewer, NCCL 2.30 or later is
   told to put several ranks on one (experimental in NCCL). Results are compared, and times printed
   beside those of NCCL's own allreduce. Times of ranks that share a GPU say nothing of several.

Exit code 0: all right; 1: something is wrong; 4: there is no GPU, or no CuPy. ``--stand-in`` runs
all of it on the stand-in of ``tests/support``, which needs neither.
"""

import argparse
import faulthandler
import itertools
import os
import sys
import time
import types
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from weft.backends.formats.p2p.compile import compile_script
from weft.backends.formats.p2p.data import Exam, type_named, units_of
from weft.backends.formats.p2p.emit import function_of
from weft.backends.formats.p2p.execute import aliases, arguments, loaded
from weft.backends.formats.p2p.format import CupyNcclFile
from weft.backends.formats.p2p.model import Script
from weft.backends.ranks.nccl import SETTINGS, on_gpu, unusable
from weft.synth.engines.classic.text import named_algorithm

PROGRAMS = (
    "ring{collective=allreduce,ranks=N}",
    "one_shot{ranks=N}",
    "two_shot{collective=allreduce,ranks=N}",
    "swing{ranks=N}",
    "ring{collective=allgather,ranks=N}",
    "ring{collective=reduce_scatter,ranks=N}",
    "spread_out{ranks=N}",
    "binomial{collective=broadcast,ranks=N}",
)


@dataclass(eq=False)
class Exchange:
    """What virtual ranks have posted in the group that is open."""

    depth: int = 0
    sends: list[tuple[int, int, Any, Any]] = field(default_factory=list)
    recvs: list[tuple[int, int, Any, Any]] = field(default_factory=list)

    def carry(self) -> None:
        """Copy all messages: after what both streams have done, before what they do next."""
        waiting: dict[tuple[int, int], list[tuple[Any, Any, Any]]] = {}
        for source, target, array, stream in self.sends:
            entry = (array, stream, stream.record())
            waiting.setdefault((source, target), []).append(entry)
        for source, target, array, stream in self.recvs:
            given, sender, ready = waiting[source, target].pop(0)
            with stream:
                stream.wait_event(ready)
                array[...] = given
            sender.wait_event(stream.record())
        assert not any(waiting.values())
        self.sends.clear()
        self.recvs.clear()


@dataclass(eq=False)
class Virtual:
    """The communicator of a virtual rank."""

    exchange: Exchange
    rank: int
    ranks: int

    def start(self) -> None:
        """Open a group."""
        self.exchange.depth += 1

    def end(self) -> None:
        """Carry out the outermost group."""
        self.exchange.depth -= 1
        if not self.exchange.depth:
            self.exchange.carry()

    def send(self, array: Any, peer: int, stream: Any) -> None:
        """Post a message."""
        self.exchange.sends.append((self.rank, peer, array, stream))

    def recv(self, array: Any, peer: int, stream: Any) -> None:
        """Post a receive."""
        self.exchange.recvs.append((peer, self.rank, array, stream))


def programs(ranks: int) -> Iterator[tuple[str, Script, types.ModuleType]]:
    """The compiled files of some algorithms."""
    for pattern in PROGRAMS:
        name = pattern.replace("N", str(ranks))
        script = compile_script(named_algorithm(f"classic:{name}").algorithm)
        yield name, script, loaded(CupyNcclFile().write(script))


def wrong(
    program: Any, script: Script, comms: list[Any], devices: list[int], exam: Exam, in_place: bool
) -> str | None:
    """Call it once on all ranks; what is wrong with the result, or None."""
    import cupy

    arrays = []
    for rank, device in enumerate(devices):
        with cupy.cuda.Device(device):
            arrays.append(on_gpu(*arguments(exam, rank, in_place)))
    every = getattr(program, f"{function_of(script.collective)}_of_all")
    every([a for a, _ in arrays], [b for _, b in arrays], comms)
    for rank, device in enumerate(devices):
        with cupy.cuda.Device(device):
            result = arrays[rank][1]
            found = exam.wrong(rank, None if result is None else cupy.asnumpy(result))
        if found:
            return found
    return None


def check(title: str, comms: list[Any], devices: list[int], lengths: list[int]) -> int:
    """All programs, types, lengths and placements on these ranks; how many are wrong."""
    failed = 0
    for name, script, program in programs(len(comms)):
        units = units_of(script.collective)
        places = (False, True) if aliases(units) else (False,)
        cases = itertools.product(number_types(), lengths, places)
        found = []
        for dtype, length, in_place in cases:
            exam = Exam(units, length, type_named(dtype))
            text = wrong(program, script, comms, devices, exam, in_place)
            if text:
                found.append(f"{dtype}, {length} a unit, in place {in_place}: {text}")
        for comm in comms:
            program.forget(comm)
        print(f"{title:<22} {name:<44} {'WRONG ' + found[0] if found else 'right'}", flush=True)
        failed += bool(found)
    return failed


def quickest(action: Any, streams: list[Any], times: int = 10) -> float:
    """Seconds of the quickest of some calls, after two that warm up."""
    best = float("inf")
    for turn in range(times + 2):
        begin = time.perf_counter()
        action()
        for stream in streams:
            stream.synchronize()
        if turn > 1:
            best = min(best, time.perf_counter() - begin)
    return best


def number_types() -> tuple[str, ...]:
    """The types that are tried."""
    import cupy

    some = ("float32", "float16", "float64", "int32", "int8")
    return (*some, "bfloat16") if int(cupy.__version__.split(".")[0]) >= 14 else some


def compare(comms: list[Any], devices: list[int], length: int) -> None:
    """Times of our allreduces beside NCCL's own, from the call to the end of all streams."""
    import cupy

    arrays, streams = [], []
    for device in devices:
        with cupy.cuda.Device(device):
            arrays.append(cupy.zeros(length, "float32"))
            streams.append(cupy.cuda.Stream(non_blocking=True))
            cupy.cuda.get_current_stream().synchronize()
    rows = [("NCCL's own", quickest(partial(own_allreduce, comms, arrays, streams), streams))]
    for name, script, program in programs(len(comms)):
        if function_of(script.collective) != "allreduce":
            continue
        ours = partial(program.allreduce_of_all, arrays, arrays, comms)
        rows.append((name, quickest(ours, [current(device) for device in devices])))
        for comm in comms:
            program.forget(comm)
    for name, seconds in rows:
        print(f"{4 * length:>12} {len(comms):>6} {1e6 * seconds:>10.1f}  {name}", flush=True)


def own_allreduce(comms: list[Any], arrays: list[Any], streams: list[Any]) -> None:
    """NCCL's, of all ranks."""
    from cupy.cuda import nccl

    nccl.groupStart()
    for comm, array, stream in zip(comms, arrays, streams, strict=True):
        ptr = array.data.ptr
        comm.allReduce(ptr, ptr, array.size, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream.ptr)
    nccl.groupEnd()


def current(device: int) -> Any:
    """The stream that is the current one of a GPU."""
    import cupy

    with cupy.cuda.Device(device):
        return cupy.cuda.get_current_stream()


def main(argv: list[str] | None = None) -> int:
    """Check all; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8], help="of NCCL")
    parser.add_argument("--virtual", type=int, default=16, help="virtual ranks")
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=[1, 1000, 100_003], help="elements of a unit"
    )
    parser.add_argument(
        "--timed",
        type=int,
        nargs="*",
        default=[256, 1 << 18, 1 << 24],
        help="elements of timed calls",
    )
    parser.add_argument("--limit", type=float, default=600, help="seconds after which it is ended")
    parser.add_argument("--stand-in", action="store_true", help="no GPU is needed")
    args = parser.parse_args(argv)
    with ExitStack() as stack:
        if args.stand_in:
            from standin_nccl import installed

            stack.enter_context(installed())
        else:  # what hangs, hangs in C
            faulthandler.dump_traceback_later(args.limit, exit=True)
            stack.callback(faulthandler.cancel_dump_traceback_later)
            for name, value in SETTINGS.items():
                os.environ.setdefault(name, value)
        return run(args)


def run(args: argparse.Namespace) -> int:
    """Both parts; the exit code."""
    if no_gpu := unusable(0):
        print(f"Nothing was checked: {no_gpu.message}", file=sys.stderr)
        return 4
    import cupy
    from cupy.cuda import nccl

    exchange = Exchange()
    comms: list[Any] = [Virtual(exchange, r, args.virtual) for r in range(args.virtual)]
    failed = check(f"{args.virtual} virtual ranks", comms, [0] * args.virtual, args.lengths)
    gpus = cupy.cuda.runtime.getDeviceCount()
    for ranks in args.ranks:
        if missing := unusable(ranks):
            print(f"NCCL, {ranks} ranks: not run: {missing.message}")
            continue
        devices = [rank % gpus for rank in range(ranks)]
        comms = nccl.NcclCommunicator.initAll(devices)
        failed += check(f"NCCL, {ranks} ranks", comms, devices, args.lengths)
        print(f"\n{'bytes':>12} {'ranks':>6} {'µs':>10}  by")
        for length in args.timed:
            compare(comms, devices, length)
        for comm in comms:
            comm.destroy()
    print(f"\n{failed} programs are WRONG" if failed else "\nAll programs are right.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
