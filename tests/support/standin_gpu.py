"""A GPU that is not there: memory, streams, events, graphs and kernels, as strict as can be.

What is put on a stream happens later: when somebody waits for something, one thing that may happen
next, of all streams, is picked at random, until nobody waits. So whoever reads too early reads old
numbers, or poison. Errors are found when things happen, and raised wherever anybody waits.

Host threads (the ranks) share the machine; when all of them wait and nothing can happen any more,
that is a deadlock, and is told at once.
"""

from __future__ import annotations

import itertools
import random
import re
import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

POISON = 0xA5
NULL = 0


class Violation(RuntimeError):
    """A rule was broken."""


class Deadlock(Violation):
    """Everybody waits."""


Moves = list[Callable[[], None]]


@dataclass(eq=False)
class Op:
    """Something on a stream: what can happen of it now, and whether it is over."""

    text: str
    stream: Stream
    body: Callable[[], None] = lambda: None
    ready: Callable[[], bool] = lambda: True
    over: bool = False

    def moves(self) -> Moves:
        return [self._run] if self.ready() else []

    def _run(self) -> None:
        self.body()
        self.over = True

    def holds(self) -> list[tuple[int, int, bool]]:
        """Memory (first, end, is it written) in use while this is going on."""
        return []


class Machine:
    """All of it; ``seed`` decides what happens first."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.lock = threading.Condition(threading.RLock())
        self.local = threading.local()
        self.blocks: dict[int, np.ndarray] = {}
        self.numbers = itertools.count(1)
        self.streams: list[Stream] = []
        self.null = Stream(self, number=NULL)
        self.hosts = 1
        self.waiting: list[tuple[str, Callable[[], bool]]] = []
        self.error: BaseException | None = None
        self.allocated = 0
        self.kernels: list[int] = []

    def run(self, ranks: int, main: Callable[[int], None]) -> None:
        """``main`` on a thread of each rank; raises what the first to fail raised."""

        def body(rank: int) -> None:
            try:
                main(rank)
            except BaseException as error:
                with self.lock:
                    self.error = self.error or error
            finally:
                with self.lock:
                    self.hosts -= 1
                    self.lock.notify_all()

        self.hosts = ranks
        threads = [threading.Thread(target=body, args=(r,), daemon=True) for r in range(ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.hosts = 1
        if self.error:
            raise self.error

    def wait(self, until: Callable[[], bool], text: str) -> None:
        """Let things happen until something holds."""
        with self.lock:
            while True:
                if self.error:
                    raise self.error
                if until():
                    return
                if self._step():
                    continue
                mine = (text, until)
                self.waiting.append(mine)
                if len(self.waiting) >= self.hosts and not any(done() for _, done in self.waiting):
                    self.error = Deadlock(self._standstill())
                self.lock.notify_all()
                if not self.error:
                    self.lock.wait(10)
                self.waiting.remove(mine)

    def _standstill(self) -> str:
        heads = [stream.queue[0].text for stream in self.streams if stream.queue]
        return f"deadlock: {'; '.join(text for text, _ in self.waiting)}; at: {'; '.join(heads)}"

    def _step(self) -> bool:
        heads = [stream.queue[0] for stream in self.streams if stream.queue]
        moves = [move for head in heads for move in head.moves()]
        if not moves:
            return False
        try:
            self.rng.choice(moves)()
        except Exception as error:
            self.error = self.error or error
        for stream in self.streams:
            while stream.queue and stream.queue[0].over:
                stream.queue.popleft()
        self.lock.notify_all()
        return True

    def put(self, stream: Stream, make: Callable[[], Op]) -> None:
        """Put something on a stream, or into the graph that it records."""
        with self.lock:
            if stream.graph is not None:
                stream.graph.makers.append(make)
            else:
                stream.queue.append(make())
            self.lock.notify_all()

    def bytes_at(self, first: int, size: int) -> np.ndarray:
        """Memory by its address."""
        for base, block in self.blocks.items():
            if base <= first and first + size <= base + len(block):
                return block[first - base : first - base + size]
        raise Violation(f"{size} bytes at {first:#x} are no memory of the device, or freed")

    def touch(self, op: Op, first: int, end: int, write: bool) -> None:
        """Use memory, which must exist and be in no other use that is going on."""
        self.bytes_at(first, end - first)
        for stream in self.streams:
            other = stream.queue[0] if stream.queue else None
            if other is None or other is op:
                continue
            for a, b, written in other.holds():
                if first < b and a < end and (write or written):
                    raise Violation(f"{op.text} uses memory that is in use: {other.text}")

    @property
    def stream(self) -> Stream:
        """The current one of this thread."""
        stack = getattr(self.local, "stack", None)
        return stack[-1] if stack else self.null


class Stream:
    """A stream; without a number of its own a new one."""

    def __init__(self, machine: Machine, number: int | None = None) -> None:
        self.machine = machine
        self.ptr = next(machine.numbers) if number is None else number
        self.queue: deque[Op] = deque()
        self.graph: Graph | None = None
        machine.streams.append(self)

    def __enter__(self) -> Stream:
        if not hasattr(self.machine.local, "stack"):
            self.machine.local.stack = []
        self.machine.local.stack.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.machine.local.stack.pop()

    def synchronize(self) -> None:
        if self.graph is not None:
            raise Violation("a stream that records cannot be waited for")
        self.machine.wait(lambda: not self.queue, f"for stream {self.ptr}")

    def record(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.graph = self.graph
        self.machine.put(self, lambda: Op("record", self, lambda: setattr(event, "done", True)))
        return event

    def wait_event(self, event: Event) -> None:
        if event.graph is not self.graph:
            if self.graph is not None or event.graph is None or self.queue:
                raise Violation("a graph waits for what is outside, or the other way round")
            self.graph = event.graph  # forked: it records as well
            self.graph.streams.append(self)
        if self.graph is not None:  # a graph is replayed in the order in which it was recorded
            return
        self.machine.put(self, lambda: Op("wait for event", self, ready=lambda: event.done))

    def begin_capture(self) -> None:
        if self.ptr == NULL:
            raise Violation("the null stream cannot record")
        self.graph = Graph(self.machine, [self])

    def end_capture(self) -> Graph:
        graph = self.graph
        assert graph is not None
        for stream in graph.streams:
            stream.graph = None
        return graph


@dataclass(eq=False)
class Event:
    done: bool = False
    graph: Graph | None = None


@dataclass(eq=False)
class Graph:
    machine: Machine
    streams: list[Stream]
    makers: list[Callable[[], Op]] = field(default_factory=list)

    def launch(self, stream: Stream | None = None) -> None:
        stream = stream or self.machine.stream
        for make in self.makers:
            made = make()
            made.stream = stream
            with self.machine.lock:
                stream.queue.append(made)


class _Owner:
    """Whose end is the end of the memory, once its stream has come so far."""

    def __init__(self, machine: Machine, memory: np.ndarray) -> None:
        base, size = memory.__array_interface__["data"][0], len(memory)
        stream = machine.stream
        with machine.lock:
            machine.blocks[base] = memory
            machine.allocated += 1

        def free() -> None:
            with machine.lock:
                op = Op("free", stream)
                op.body = lambda: gone(op)
                stream.queue.append(op)

        def gone(op: Op) -> None:
            machine.touch(op, base, base + size, True)
            del machine.blocks[base]

        weakref.finalize(self, free)


@dataclass(frozen=True)
class _Data:
    ptr: int


class Array:
    """An array on the device: the host cannot see into it but by :meth:`get`."""

    def __init__(self, machine: Machine, host: np.ndarray, owner: object) -> None:
        self._machine, self._host, self._owner = machine, host, owner
        self.dtype, self.shape, self.ndim = host.dtype, host.shape, host.ndim
        self.size, self.nbytes, self.flags = host.size, host.nbytes, host.flags
        self.data = _Data(host.__array_interface__["data"][0])
        self.device = Device(0)

    def _seen(self, host: np.ndarray) -> Array:
        return Array(self._machine, host, self._owner)

    def __len__(self) -> int:
        return len(self._host)

    def __getitem__(self, key: Any) -> Array:
        return self._seen(self._host[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        out = self._seen(self._host[key])
        inputs = [value] if isinstance(value, Array) else []
        source, host = value._host if inputs else value, out._host  # not what owns the memory
        kernel(self._machine, "assign", inputs, [out], lambda: host.__setitem__(..., source))

    def reshape(self, *shape: int) -> Array:
        seen = self._host.view()
        seen.shape = shape if len(shape) > 1 or shape[0] != -1 else (self.size,)
        return self._seen(seen)

    def view(self, dtype: Any) -> Array:
        return self._seen(self._host.view(dtype))

    def copy(self) -> Array:
        made = empty(self._machine, self.size, self.dtype)
        made[...] = self
        return made

    def get(self) -> np.ndarray:
        self._machine.stream.synchronize()
        return self._host.copy()

    @property
    def span(self) -> tuple[int, int]:
        first, end = np.lib.array_utils.byte_bounds(self._host)
        return int(first), int(end)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "data": (self.data.ptr, False),
            "shape": self.shape,
            "typestr": self.dtype.str,
            "strides": self._host.strides,
            "version": 3,
        }


class Device:
    """The one that there is."""

    def __init__(self, number: int = 0) -> None:
        self.id = number

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def use(self) -> None:
        pass

    def synchronize(self) -> None:
        raise Violation("nothing may wait for the whole device")


def empty(machine: Machine, count: int, dtype: Any) -> Array:
    """New memory, full of poison."""
    dtype = np.dtype(dtype)
    memory = np.full(count * dtype.itemsize + 64, POISON, np.uint8)
    return Array(machine, memory[: count * dtype.itemsize].view(dtype), _Owner(machine, memory))


def asarray(machine: Machine, value: Any) -> Array:
    """What is on the device as it is; what is not, copied there."""
    if isinstance(value, Array):
        return value
    known = getattr(value, "__cuda_array_interface__", None)
    if known is None:
        value = np.ascontiguousarray(value)
        made = empty(machine, value.size, value.dtype)
        made[...] = value.copy()
        return made
    dtype = np.dtype(known["typestr"])
    count = int(np.prod(known["shape"]))
    seen = machine.bytes_at(known["data"][0], count * dtype.itemsize).view(dtype)
    return Array(machine, seen, value)


def kernel(
    machine: Machine, text: str, reads: list[Array], writes: list[Array], body: Callable[[], None]
) -> None:
    """Put a kernel on the current stream."""
    stream = machine.stream
    spans = [(*a.span, False) for a in reads] + [(*a.span, True) for a in writes]

    def make() -> Op:
        op = Op(text, stream)

        def run() -> None:
            for first, end, write in spans:
                machine.touch(op, first, end, write)
            body()

        op.body = run
        return op

    machine.put(stream, make)


_CHOICE = re.compile(r"\((.+?) ([<>]) (.+?) \|\| (.+?) != (.+?)\) \? (.+?) : (.+)")


class ElementwiseKernel:
    """A kernel of statements such as ``o0 = i0 + o1``, carried out by NumPy."""

    machine: Machine

    def __init__(
        self, reads: str, writes: str, code: str, name: str = "", preamble: str = ""
    ) -> None:
        self.reads, self.writes = (
            [x.split()[-1] for x in text.split(",") if x] for text in (reads, writes)
        )
        self.steps = [line.strip().split(" = ", 1) for line in code.split(";") if line.strip()]
        self.preamble, self.name = preamble, name

    def __call__(self, *arrays: Array) -> None:
        names = [*self.reads, *self.writes]
        if len(arrays) != len(names) or len({(a.shape, a.dtype) for a in arrays}) > 1:
            raise Violation("a kernel gets arrays of other shapes or types, or too few")
        for (a, first), (b, second) in itertools.product(
            enumerate(arrays[len(self.reads) :], len(self.reads)), enumerate(arrays)
        ):
            overlap = first.span[0] < second.span[1] and second.span[0] < first.span[1]
            if a != b and overlap and first.size:
                raise Violation("a kernel writes memory that it knows by two names")
        seen = {name: array._host for name, array in zip(names, arrays, strict=True)}
        writes = list(arrays[len(self.reads) :])

        def body() -> None:
            for out, text in self.steps:
                if out not in self.writes:
                    raise Violation(f"a kernel writes its input {out}")
                seen[out][...] = self._value(text, seen)

        self.machine.kernels.append(len(self.steps))
        kernel(self.machine, self.name, list(arrays[: len(self.reads)]), writes, body)

    def _value(self, text: str, seen: dict[str, np.ndarray]) -> np.ndarray:
        small = re.fullmatch(r"narrow\((.*)\)", text)
        text = small[1] if small else text
        if choice := _CHOICE.fullmatch(text):
            a, way, b, c, d, yes, no = choice.groups()
            text = f"where(({a} {way} {b}) | ({c} != {d}), {yes}, {no})"
        if ("wide" in text) and "wide(" not in self.preamble:
            raise Violation("wide is not defined")
        known = {
            "where": np.where,
            "__builtins__": {},
            "wide": lambda x: x.view(ml_dtypes.bfloat16).astype(np.float32),
        }
        value = eval(text, known, seen)
        return value.astype(ml_dtypes.bfloat16).view(np.uint16) if small else value
