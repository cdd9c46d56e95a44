"""Emitted files for torch symmetric memory, as they stand, on the host: Triton's own interpreter.

Every rank and every thread block is a thread (:mod:`turns`), so that blocks may wait for each
other, which Triton's interpreter alone does not allow: it runs a grid's blocks one after another.
Its process has ``TRITON_INTERPRET=1``. These stand in, and everything else is the file, torch and
Triton:

* memory: parts of torch's tensors on the host for ``torch.distributed._symmetric_memory``;
* the process group, for which ranks are threads;
* of the interpreter's operations: those on memory give turns away, and those on tiles are done in
  two portions, between which others run; of inline assembly the instructions of the files,
  those of the switch among them: it reads and writes one rank's memory after another.

What it shows: that Triton takes the kernel's text and its numbers (types, bits, rounding, wrapping,
masks), that host and kernel agree, and that results are right in these orders. What it does not:
anything of Triton's compiler, of threads within a block, or of memory that is not sequentially
consistent; for that there is the model of weak memory.
"""

import importlib.util
import inspect
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton.language as tl
import triton.runtime.interpreter as triton_interpreter
from triton.runtime.interpreter import TensorHandle
from turns import Deadlock, Turns

from weft.backends.formats.p2p.data import Exam, type_named, units_of
from weft.backends.formats.torch_symm.read import read_program

RELEASE, PACKET = "st.release.sys.global.b32 [$1], $2", "st.relaxed.sys.global.b64 [$1], $2"
"""The instructions that the files write in PTX; the second is done where operand 3 is not 0."""

FENCE, LOAD_REDUCE, STORE_ALL = "fence.proxy.alias", "multimem.ld_reduce", "multimem.st"
"""Those of files in which the switch sums and copies."""

SUMMED = {
    "f32": torch.float32,
    "f64": torch.float64,
    "f16x2": torch.float16,
    "bf16x2": torch.bfloat16,
    "s32": torch.int32,
    "s64": torch.int64,
    "u64": torch.int64,
}
"""Types of load-reduces."""

SWITCH, EACH = 1 << 50, 1 << 36
"""The first multicast address, and how far apart those of two allocations are."""


@dataclass(eq=False)
class Group:
    """A process group of threads, and what they have in symmetric memory."""

    turns: Turns
    ranks: int
    memory: dict[int, list[torch.Tensor]] = field(default_factory=dict)
    arrived: dict[int, int] = field(default_factory=dict)
    multicast: bool = True

    @property
    def rank(self) -> int:
        """The rank whose turn it is."""
        return int(self.turns.now[0])

    def barrier(self, group: object = None) -> None:
        """Wait for all ranks."""
        mine = self.arrived[self.rank] = self.arrived.get(self.rank, 0) + 1
        self.turns.give(lambda: all(self.arrived.get(r, 0) >= mine for r in range(self.ranks)))

    def empty(self, size: int, dtype: Any, device: Any) -> torch.Tensor:
        """Memory of this rank; full of numbers that are not 0."""
        made = torch.full((size,), 0xA5, dtype=dtype, device=device)
        self.memory.setdefault(self.rank, []).append(made)
        return made

    def rendezvous(self, tensor: torch.Tensor, group: object) -> Any:
        """The addresses of what all ranks allocated at this turn, for tensors of one size."""
        at = next(k for k, x in enumerate(self.memory[self.rank]) if x is tensor)
        self.barrier()
        every = [self.memory[rank][at] for rank in range(self.ranks)]
        assert len({x.numel() for x in every}) == 1
        switch = SWITCH + at * EACH if self.multicast else 0
        return SimpleNamespace(buffer_ptrs=[x.data_ptr() for x in every], multicast_ptr=switch)

    def granules(self, rank: int, addresses: Any) -> tuple[Any, Any]:
        """A rank's memory behind multicast addresses: all of it, and the bytes meant, 16 each."""
        offsets = addresses.astype(np.int64) - SWITCH
        assert not (offsets % 16).any()
        memory = self.memory[rank][int(offsets[0]) // EACH].numpy()
        return memory, (offsets % EACH)[:, None] + np.arange(16)

    def shared(self, address: int) -> bool:
        """Test whether an address is in symmetric memory."""
        return any(
            x.data_ptr() <= address < x.data_ptr() + x.numel()
            for tensors in self.memory.values()
            for x in tensors
        )


class Builder(triton_interpreter.InterpreterBuilder):  # type: ignore[misc]
    """The interpreter's operations, with turns at those on symmetric memory."""

    def __init__(self, group: Group) -> None:
        super().__init__()
        self.group, self.turns = group, group.turns
        self.stores, self.polled = 0, {}

    def create_get_program_id(self, axis: int) -> Any:
        """The number of the block, or the second axis."""
        at = np.array([self.turns.now[1][axis]], np.int32)
        return TensorHandle(at, tl.int32)

    def create_masked_load(
        self, ptrs: Any, mask: Any, other: Any, cache: Any, volatile: Any
    ) -> Any:
        """Read a tile in two portions; a poll that finds nothing new waits for a store."""
        plain = super().create_masked_load
        if not self.group.shared(int(ptrs.data.flat[0])):
            return plain(ptrs, mask, other, cache, volatile)
        if volatile:
            self._poll(int(ptrs.data.flat[0]))
        made = None
        for own in self._portions(mask.data):
            part = plain(ptrs, TensorHandle(own, mask.dtype), other, cache, volatile)
            if made is None:
                made = part
            else:
                made.data[own] = part.data[own]
            self.turns.give()
        return made

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, cache: Any) -> None:
        """Write a tile in two portions."""
        for own in self._portions(mask.data):
            self.turns.give()
            handle = TensorHandle(own, mask.dtype)
            super().create_masked_store(ptrs, value, handle, cache)
            self.stores += 1

    def create_atomic_rmw(
        self, op: Any, ptr: Any, value: Any, mask: Any, sem: Any, scope: Any
    ) -> Any:
        """Change a flag, or read it by adding 0."""
        if value.data.any() or "XCHG" in str(op):
            self.turns.give()
            self.stores += 1
        else:
            self._poll(int(ptr.data.flat[0]))
        return super().create_atomic_rmw(op, ptr, value, mask, sem, scope)

    def create_barrier(self) -> None:
        """Meet: the threads of a block are one here."""
        self.turns.give()

    def create_inline_asm(
        self, text: str, constraints: str, values: list[Any], kind: Any, pure: bool, pack: int
    ) -> Any:
        """The instructions that the files write in PTX; of others nothing is known here."""
        data = [one.data for one in values]
        if FENCE in text:  # memory is sequentially consistent here
            return _results(np.zeros_like(data[0]))
        if LOAD_REDUCE in text:
            low, high = self._load_reduce(text, data[0], data[1] != 0)
            return _results(low, high)
        if STORE_ALL in text:
            self._store_all(data[0], np.stack(data[1:3], axis=-1), data[3] != 0)
            return _results(np.zeros_like(data[3]))
        if RELEASE in text:
            mask = np.ones_like(values[0].data, bool)
        elif PACKET in text:
            mask = values[2].data != 0
        else:
            raise NotImplementedError(text)
        width = tl.int32 if RELEASE in text else tl.int64
        pointers = TensorHandle(values[0].data, tl.pointer_type(width))
        self.create_masked_store(pointers, values[1], TensorHandle(mask, tl.int1), None)
        return _results(np.zeros(mask.shape, np.int32))

    def _load_reduce(self, text: str, addresses: Any, mask: Any) -> Any:
        """The sums of 16 bytes of all ranks, in two halves; those of 16 bits as of float32."""
        op, form = re.search(r"global\.(\w+)\.(?:acc::f32\.)?(?:v4\.)?(\w+)", text).groups()  # type: ignore[union-attr]
        made = np.zeros((len(addresses), 16), np.uint8)
        for own in self._portions(mask):
            parts = []
            for rank in range(self.group.ranks):
                self.turns.give()
                memory, at = self.group.granules(rank, addresses[own])
                parts.append(torch.from_numpy(memory[at]).view(SUMMED[form]))
            every = torch.stack(parts)
            if op == "add":
                wide = every.float() if every.dtype.itemsize == 2 else every
                total = wide.sum(0, dtype=wide.dtype).to(every.dtype)
            else:
                total = every.amax(0) if op == "max" else every.amin(0)
            made[own] = total.view(torch.uint8).numpy()
        return made.view(np.int64).T

    def _store_all(self, addresses: Any, halves: Any, mask: Any) -> None:
        """Store 16 bytes on all ranks, on one after another."""
        for own in self._portions(mask):
            for rank in range(self.group.ranks):
                self.turns.give()
                memory, at = self.group.granules(rank, addresses[own])
                memory[at] = np.ascontiguousarray(halves[own]).view(np.uint8)
                self.stores += 1

    def _portions(self, mask: Any) -> list[Any]:
        """Cut a tile where it happens to be cut; a scalar is whole."""
        if mask.size == 1:
            return [mask]
        at = np.arange(mask.size) < self.turns.rng.randrange(mask.size)
        return [one for one in (mask & at, mask & ~at) if one.any()] or [mask]

    def _poll(self, address: int) -> None:
        """Give the turn away: if this was read before, until something has been stored."""
        me, seen = id(self.turns.runner), (address, self.stores)
        if self.polled.get(me) == seen:
            self.turns.give(lambda: self.stores > seen[1])
        else:
            self.turns.give()
        self.polled[me] = address, self.stores


def _results(*tiles: Any) -> Any:
    """What inline assembly returns."""
    kinds = {4: tl.int32, 8: tl.int64}
    handles = [TensorHandle(x, kinds[x.dtype.itemsize]) for x in tiles]
    return SimpleNamespace(get_result=lambda number: handles[number])


class ThreadedGrid(triton_interpreter.GridExecutor):  # type: ignore[misc]
    """A launch: the grid's blocks are threads, and the host waits for them."""

    turns: Turns

    def __call__(self, *args: Any, num_warps: int) -> None:
        (rank, _), left = self.turns.now, [1]
        given = {
            name: arg if name in self.constexprs else triton_interpreter._implicit_cvt(arg)
            for name, arg in inspect.getcallargs(self.fn, *args).items()
        }

        def block() -> None:
            self.fn(**given)
            left[0] -= 1

        _patch_once(self.fn)
        for x, y in np.ndindex(*self.grid):
            left[0] += 1
            self.turns.add(f"rank {rank} block {x}", (rank, (x, y)), block)
        left[0] -= 1
        self.turns.give(lambda: not left[0])


_PATCH = triton_interpreter._patch_lang
_PATCHED: set[int] = set()


def _patch_once(function: Any) -> None:
    """Patch the language in a module once: the interpreter does so at each call of a function."""
    if id(function.__globals__) not in _PATCHED:
        _PATCHED.add(id(function.__globals__))
        _PATCH(function)


def on_threads(
    ranks: int, seed: int, rank: Callable[[int], None], *, multicast: bool = True
) -> int:
    """Run a function of the rank on all ranks of a group, as threads; the number of turns taken.

    The process group of torch, its symmetric memory and Triton's interpreter are those of this
    group from then on. ``multicast``: it has a switch that sums and copies.
    """
    import torch.distributed._symmetric_memory as symmetric

    turns = ThreadedGrid.turns = Turns(seed)
    group = Group(turns, ranks, multicast=multicast)
    dist: Any = torch.distributed
    dist.get_rank, dist.get_world_size = lambda _=None: group.rank, lambda _=None: group.ranks
    dist.barrier = group.barrier
    symmetric.empty, symmetric.rendezvous = group.empty, group.rendezvous
    triton_interpreter.GridExecutor = ThreadedGrid
    triton_interpreter._patch_lang = _patch_once
    builder = Builder(group)
    for name in (x for x in vars(Builder) if x.startswith("create_")):
        setattr(triton_interpreter.interpreter_builder, name, getattr(builder, name))
    turns.run([(f"rank {r}", (r, ()), partial(rank, r)) for r in range(ranks)])
    return turns.taken


def loaded(path: Path) -> ModuleType:
    """The module of a file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def wrong(path: Path, seed: int, length: int, dtype: str, launches: int, ptx: bool) -> str | None:
    """Call a file's collective some times on random data; what is wrong, if anything.

    ``ptx``: by the instructions for NVIDIA.
    """
    units = units_of(read_program(path.read_text("utf-8"), str(path)).collective)
    exams = [Exam(units, length, type_named(dtype), seed + k) for k in range(launches)]
    module, kind = loaded(path), getattr(torch, dtype)
    found: list[str] = []

    def rank(number: int) -> None:
        end = module.Collective(kind, device="cpu", most_bytes=1 << 16)
        end.ptx = ptx
        for exam in exams:
            given = exam.given(number)
            x = exam.filler(units.input_chunks) if given is None else given
            made = end(torch.from_numpy(x.view(np.uint8)).view(kind))
            problem = exam.wrong(number, made.view(torch.uint8).numpy().view(exam.dtype))
            if problem is not None:
                found.append(problem)

    try:
        on_threads(units.ranks, seed, rank)
    except Deadlock as error:
        return f"deadlock: {error}"
    return found[0] if found else None
