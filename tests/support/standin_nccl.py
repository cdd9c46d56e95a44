"""CuPy and its NCCL without a GPU, for the wires of emitted files: modules to put in place.

NCCL's rules are enforced (NCCL user guide, point-to-point and group calls):

* outside a group a call is a group of its own, and a stream does one group after another: two ranks
  that send to each other first wait for ever;
* a message goes when the groups of both ends have begun, and a group is over with all its messages;
* messages match by their order between two ranks; their counts and types must be equal;
* until the group is over, nobody else reads or writes what it receives, nor writes what it sends;
* at the first message of a pair ``groupEnd`` itself waits until the other end is posted.
"""

from __future__ import annotations

import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from standin_gpu import (
    POISON,
    Array,
    Device,
    ElementwiseKernel,
    Event,
    Machine,
    Moves,
    Op,
    Stream,
    Violation,
    asarray,
    empty,
)

TYPES = {"NCCL_UINT8": 1, "NCCL_INT32": 2, "NCCL_FLOAT16": 6, "NCCL_FLOAT32": 7, "NCCL_FLOAT64": 8}
Name = bytes | tuple[int, ...]
"""Of a communicator: from CuPy 14 on bytes (cupy/cupy pull request 9438), before signed numbers."""

BYTES = {1: 1, 2: 4, 6: 2, 7: 4, 8: 8}


@dataclass(eq=False)
class End:
    """One end of a message; ``other`` once it is matched."""

    rank: int
    peer: int
    ptr: int
    count: int
    dtype: int
    sends: bool
    group: Group | None = None
    other: End | None = None
    done: bool = False

    @property
    def size(self) -> int:
        return self.count * BYTES[self.dtype]

    def __str__(self) -> str:
        return f"{self.count} {'to' if self.sends else 'from'} rank {self.peer}"


@dataclass(eq=False)
class Clique:
    """What the communicators of a job share."""

    ranks: int
    lines: dict[tuple[int, int, bool], deque[End]] = field(default_factory=dict)
    ready: set[tuple[int, int, bool]] = field(default_factory=set)
    sums: list[list[Sum]] = field(default_factory=list)

    def match(self, end: End) -> None:
        """The k-th send of a rank to another meets its k-th receive."""
        way = (end.rank, end.peer) if end.sends else (end.peer, end.rank)
        others = self.lines.setdefault((*way, not end.sends), deque())
        if not others:
            self.lines.setdefault((*way, end.sends), deque()).append(end)
            return
        end.other = others.popleft()
        end.other.other = end
        if (end.count, end.dtype) != (end.other.count, end.other.dtype):
            raise Violation(f"rank {end.rank} posts {end}, rank {end.peer} {end.other}")

    def left(self) -> list[End]:
        return [end for line in self.lines.values() for end in line]


class Group(Op):
    """What one communicator does between groupStart and groupEnd."""

    def __init__(self, machine: Machine, clique: Clique, stream: Stream, ends: list[End]) -> None:
        super().__init__(f"rank {ends[0].rank}: {', '.join(map(str, ends))}", stream)
        self.machine, self.ends, self.begun = machine, ends, False
        for end in ends:
            end.group = self
            clique.match(end)

    def moves(self) -> Moves:
        if not self.begun:
            return [self._begin]
        # A message is put down once, as a move of its sender.
        return [lambda e=e: self._carry(e) for e in self.ends if e.sends and self._goes(e)]

    def _goes(self, end: End) -> bool:
        return not end.done and end.other is not None and end.other.group.begun

    def holds(self) -> list[tuple[int, int, bool]]:
        if not self.begun:
            return []
        return [(e.ptr, e.ptr + e.size, not e.sends) for e in self.ends]

    def _begin(self) -> None:
        spans = [(e.ptr, e.ptr + e.size, not e.sends) for e in self.ends]
        for k, (first, end, written) in enumerate(spans):
            self.machine.touch(self, first, end, written)
            for a, b, other in spans[:k]:
                if first < b and a < end and (written or other):
                    raise Violation(f"{self.text}: received where something is sent or received")
        for e in self.ends:
            if not e.sends:
                self.machine.bytes_at(e.ptr, e.size)[:] = POISON
        self.begun = True

    def _carry(self, end: End) -> None:
        other = end.other
        self.machine.bytes_at(other.ptr, other.size)[:] = self.machine.bytes_at(end.ptr, end.size)
        end.done = other.done = True
        for group in (self, other.group):
            group.over = all(e.done for e in group.ends)


class Sum(Op):
    """A rank's part in NCCL's own allreduce."""

    def __init__(self, machine: Machine, clique: Clique, stream: Stream, rank: int, a: Any) -> None:
        super().__init__(f"rank {rank}: allReduce", stream)
        self.args, self.machine, self.clique = a, machine, clique
        places = [calls for calls in clique.sums if all(s.rank != rank for s in calls)]
        if not places:
            clique.sums.append([])
            places = clique.sums[-1:]
        self.rank, self.calls = rank, places[0]
        self.calls.append(self)

    def moves(self) -> Moves:
        here = len(self.calls) == self.clique.ranks
        return [self._sum] if here and all(s.stream.queue[0] is s for s in self.calls) else []

    def _sum(self) -> None:
        dtype = {6: "f2", 7: "f4", 8: "f8", 2: "i4"}[self.args[3]]
        size = self.args[2] * BYTES[self.args[3]]
        views = [self.machine.bytes_at(s.args[0], size).view(dtype) for s in self.calls]
        total = np.sum(views, axis=0, dtype=dtype)
        for s in self.calls:
            self.machine.bytes_at(s.args[1], size).view(dtype)[:] = total
            s.over = True


class Nccl:
    """The module ``cupy.cuda.nccl`` of a major version of CuPy, but for its names."""

    def __init__(self, machine: Machine, major: int) -> None:
        self.machine, self.major = machine, major
        self.local = threading.local()
        self.cliques: dict[Any, Clique] = {}
        self.groups = 0

    def start(self) -> None:
        self.local.depth = getattr(self.local, "depth", 0) + 1
        if self.local.depth == 1:
            self.local.posted = []

    def end(self) -> None:
        self.local.depth -= 1
        if not self.local.depth:
            self._begin(self.local.posted)

    def post(self, clique: Clique, stream: int, what: Any) -> None:
        self.start()
        self.local.posted.append((clique, stream, what))
        self.end()

    def _begin(self, posted: list[tuple[Clique, int, Any]]) -> None:
        """Connect what was never connected, then put each rank's part on its stream."""
        parts: dict[tuple[int, int], tuple[Clique, int, list[Any]]] = {}
        for clique, stream, what in posted:
            key = (id(clique), what.rank if isinstance(what, End) else what[0])
            same = parts.setdefault(key, (clique, stream, []))
            if same[1] != stream:
                raise Violation("one group of one communicator on two streams")
            same[2].append(what)
        self._connect(posted)
        for clique, ptr, whats in parts.values():
            stream = next(s for s in self.machine.streams if s.ptr == ptr)
            self.groups += 1
            self.machine.put(stream, self._maker(clique, stream, whats))

    def _maker(self, clique: Clique, stream: Stream, whats: list[Any]) -> Callable[[], Op]:
        if isinstance(whats[0], End):
            fields = [(e.rank, e.peer, e.ptr, e.count, e.dtype, e.sends) for e in whats]
            return lambda: Group(self.machine, clique, stream, [End(*f) for f in fields])
        return lambda: Sum(self.machine, clique, stream, *whats[0])

    def _connect(self, posted: list[tuple[Clique, int, Any]]) -> None:
        wanted = []
        with self.machine.lock:
            for clique, _, what in posted:
                if isinstance(what, End):
                    way = (what.rank, what.peer) if what.sends else (what.peer, what.rank)
                    clique.ready.add((*way, what.sends))
                    wanted.append((clique, (*way, not what.sends)))
        text = "in groupEnd, to connect " + ", ".join(
            str(what) for _, _, what in posted if isinstance(what, End)
        )
        self.machine.wait(lambda: all(way in clique.ready for clique, way in wanted), text)

    def communicator(self) -> type:
        nccl = self

        class NcclCommunicator:
            def __init__(self, ranks: int, name: Name, rank: int) -> None:
                if type(name) is not (bytes if nccl.major >= 14 else tuple):
                    raise TypeError(f"Argument 'commId' has incorrect type (got {type(name)})")
                self.clique = nccl.cliques.setdefault(name, Clique(ranks))
                self.rank = rank

            @classmethod
            def initAll(cls, devices: Sequence[int]) -> list[NcclCommunicator]:
                name = nccl.unique_id()
                return [cls(len(devices), name, rank) for rank in range(len(devices))]

            def destroy(self) -> None:
                pass

            def rank_id(self) -> int:
                return self.rank

            def size(self) -> int:
                return self.clique.ranks

            def send(self, ptr: int, count: int, dtype: int, peer: int, stream: int) -> None:
                self._post(peer, End(self.rank, peer, ptr, count, dtype, True), stream)

            def recv(self, ptr: int, count: int, dtype: int, peer: int, stream: int) -> None:
                self._post(peer, End(self.rank, peer, ptr, count, dtype, False), stream)

            def allReduce(self, *args: int) -> None:
                nccl.post(self.clique, args[-1], (self.rank, args))

            def _post(self, peer: int, end: End, stream: int) -> None:
                if peer == self.rank or not 0 <= peer < self.clique.ranks:
                    raise Violation(f"rank {self.rank} talks to {peer}")
                nccl.post(self.clique, stream, end)

        return NcclCommunicator

    def unique_id(self) -> Name:
        """Return a name as CuPy 14 does; CuPy 13's are of signed numbers."""
        first = next(self.machine.numbers)
        if self.major >= 14:
            return first.to_bytes(8, "little") + bytes([255] * 120)
        return (first, *([-1] * 127))

    def left(self) -> list[End]:
        """Posted and never matched."""
        return [end for clique in self.cliques.values() for end in clique.left()]


@dataclass(frozen=True)
class Standin:
    """A machine with its NCCL, and the modules to import them by."""

    machine: Machine
    nccl: Nccl
    modules: dict[str, types.ModuleType]


class _Comm4:
    """A communicator as nccl4py has it."""

    def __init__(self, comm: Any) -> None:
        self._comm, self.rank, self.nranks = comm, comm.rank_id(), comm.size()

    def send(self, array: Array, peer: int, *, stream: int) -> None:
        assert array.dtype == np.uint8
        self._comm.send(array.data.ptr, array.size, TYPES["NCCL_UINT8"], peer, stream)

    def recv(self, array: Array, peer: int, *, stream: int) -> None:
        assert array.dtype == np.uint8
        self._comm.recv(array.data.ptr, array.size, TYPES["NCCL_UINT8"], peer, stream)


def standin(seed: int = 0, major: int = 14) -> Standin:
    """A new machine, with a major version of CuPy."""
    machine = Machine(seed)
    nccl = Nccl(machine, major)

    class OwnStream(Stream):
        def __init__(self, non_blocking: bool = False) -> None:
            super().__init__(machine)

        @staticmethod
        def from_external(handle: Any) -> Stream:
            ptr = handle.__cuda_stream__()[1]
            return next(s for s in machine.streams if s.ptr == ptr)

    OwnStream.null = machine.null

    def zeros(count: int, dtype: Any) -> Array:
        made = empty(machine, count, dtype)
        made[...] = 0
        return made

    fake = types.SimpleNamespace(
        nccl=_module(
            "cupy.cuda.nccl",
            available=True,
            get_version=lambda: 23203,
            groupStart=nccl.start,
            groupEnd=nccl.end,
            get_unique_id=nccl.unique_id,
            NCCL_SUM=0,
            NcclCommunicator=nccl.communicator(),
            **TYPES,
        ),
        core=_module("nccl.core", group_start=nccl.start, group_end=nccl.end, Communicator=_Comm4),
    )
    cuda = _module(
        "cupy.cuda",
        Stream=OwnStream,
        Device=Device,
        Event=Event,
        nccl=fake.nccl,
        get_current_stream=lambda: machine.stream,
        is_available=lambda: True,
        runtime=types.SimpleNamespace(getDeviceCount=lambda: 1),
    )
    cupy = _module(
        "cupy",
        __version__=f"{major}.2.0",
        cuda=cuda,
        empty=lambda n, dtype: empty(machine, n, dtype),
        zeros=zeros,
        asarray=lambda value: asarray(machine, value),
        asnumpy=lambda array: array.get(),
        byte_bounds=lambda array: array.span,
        ndarray=Array,
        ElementwiseKernel=type("ElementwiseKernel", (ElementwiseKernel,), {"machine": machine}),
    )
    own = _module("nccl", core=fake.core)
    made = (cupy, cuda, fake.nccl, own, fake.core)
    return Standin(machine, nccl, {module.__name__: module for module in made})


def _module(name: str, **names: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__dict__.update(names)
    return module


@contextmanager
def installed(seed: int = 0, major: int = 14) -> Iterator[Standin]:
    """A machine that ``import cupy`` finds, for as long."""
    made = standin(seed, major)
    before = {name: sys.modules.get(name) for name in made.modules}
    sys.modules.update(made.modules)
    try:
        yield made
    finally:
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module
