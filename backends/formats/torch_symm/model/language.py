"""The part of Triton's language that emitted kernels use, on NumPy under a memory model.

The kernel's functions are executed as they stand in the file, but as generators, so that blocks
take turns: a call of another function of the kernel, or of an operation on memory, becomes
``yield from``. Numbers are those of Triton: 32-bit integers wrap around.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Generator
from dataclasses import field
from types import SimpleNamespace
from typing import Any

import numpy as np

from weft.dsl.base.lazy_dataclass import dataclass

from .memory import WORD, BlockThreads, WeakMemory

MEMORY_OPERATIONS = frozenset({"load", "store", "atomic_add", "atomic_xchg", "debug_barrier"})

STEP, ASLEEP = "step", "asleep"
"""End of a block's turn: it can go on, or waits until the memory of its rank has changed."""

Reading = Generator[str, None, "TileValue"]
Writing = Generator[str, None, None]


@dataclass(frozen=True, slots=True)
class NumberKind:
    """A type of numbers; ``points``: of addresses of such numbers."""

    numpy: Any
    points: bool = False
    width: np.int64 = field(init=False)
    """Bytes of a number, of the type of addresses: a product with it is an address too."""
    primitive_bitwidth: int = field(init=False)
    """Bits of a number."""

    def __post_init__(self) -> None:
        width = np.dtype(self.numpy).itemsize
        object.__setattr__(self, "width", np.int64(width))
        object.__setattr__(self, "primitive_bitwidth", 8 * width)


def _by(operation: Callable[[Any, Any], Any]) -> Callable[[TileValue, Any], TileValue]:
    """Return the method that applies an operation to numbers, the own ones first."""

    def applied(self: TileValue, other: Any) -> TileValue:
        return TileValue(operation(self.data, _of(other)))

    return applied


class TileValue:
    """A scalar or a tile of numbers, or of addresses where ``kind`` is given."""

    __slots__ = ("data", "kind")

    def __init__(self, data: Any, kind: NumberKind | None = None) -> None:
        self.data, self.kind = data, kind

    def __bool__(self) -> bool:
        return bool(self.data)

    def __index__(self) -> int:
        return int(self.data)

    def __add__(self, other: Any) -> TileValue:
        if self.kind is not None:
            return TileValue(self.data + self.kind.width * _of(other), self.kind)
        return TileValue(self.data + _of(other))

    __radd__ = _by(lambda a, b: b + a)
    __sub__ = _by(operator.sub)
    __mul__ = _by(operator.mul)
    __rmul__ = _by(lambda a, b: b * a)
    __and__ = _by(operator.and_)
    __or__ = _by(operator.or_)
    __rshift__ = _by(operator.rshift)
    __lshift__ = _by(operator.lshift)
    __lt__ = _by(operator.lt)
    __gt__ = _by(operator.gt)
    __eq__ = _by(operator.eq)  # type: ignore[assignment]
    __ne__ = _by(operator.ne)  # type: ignore[assignment]
    __hash__ = object.__hash__

    def to(self, kind: NumberKind, bitcast: bool = False) -> TileValue:
        """As another type: converted, or the same bits."""
        if kind.points:
            return TileValue(np.asarray(self.data, np.int64)[()], kind)
        array = np.asarray(self.data)
        return TileValue((array.view(kind.numpy) if bitcast else array.astype(kind.numpy))[()])


def _of(x: Any) -> Any:
    return x.data if isinstance(x, TileValue) else x


class Language:
    """Stands for ``triton.language``; ``by`` is the block whose turn it is."""

    int32, int64 = NumberKind(np.int32), NumberKind(np.int64)
    int16, float16 = NumberKind(np.int16), NumberKind(np.float16)
    float32, float64 = NumberKind(np.float32), NumberKind(np.float64)
    bfloat16 = None  # NumPy has none
    static_range = range

    def __init__(self, memory: WeakMemory, origin: int) -> None:
        self.memory, self.origin = memory, origin
        self.by: BlockThreads = memory.blocks[0]

    # --- numbers --------------------------------------------------------------------------------

    @staticmethod
    def constexpr(value: Any) -> Any:
        """Return the value itself."""
        return value

    @staticmethod
    def pointer_type(kind: NumberKind) -> NumberKind:
        """Return the type of addresses of numbers."""
        return NumberKind(kind.numpy, points=True)

    @staticmethod
    def multiple_of(value: Any, of: int) -> Any:
        """Return the value; the hint is for the compiler."""
        del of
        return value

    @staticmethod
    def cast(value: Any, kind: NumberKind) -> TileValue:
        """As another type."""
        return TileValue(kind.numpy(_of(value)))

    @staticmethod
    def zeros(shape: list[int], kind: NumberKind) -> TileValue:
        """Return a tile of zeros."""
        return TileValue(np.zeros(shape, kind.numpy))

    @staticmethod
    def max(value: TileValue, axis: int) -> TileValue:
        """Return the largest number of a tile."""
        return TileValue(value.data.max(axis=axis))

    @staticmethod
    def maximum(a: TileValue, b: TileValue) -> TileValue:
        """Return the larger of each two numbers."""
        return TileValue(np.maximum(a.data, b.data))

    @staticmethod
    def minimum(a: TileValue, b: TileValue) -> TileValue:
        """Return the smaller of each two numbers."""
        return TileValue(np.minimum(a.data, b.data))

    def arange(self, first: int, end: int) -> TileValue:
        """Return the lanes of a tile, which its block's threads divide anew."""
        self.by.cut = self.memory.rng.random()
        return TileValue(np.arange(first, end, dtype=np.int32))

    def program_id(self, axis: int) -> TileValue:
        """Return the block's number on its rank; a launch here is of one rank."""
        return TileValue(np.int32(0 if axis else self.by.block))

    # --- memory ---------------------------------------------------------------------------------

    def _words(self, pointer: TileValue, mask: Any) -> tuple[Any, Any, int]:
        """Return the words of an access, which lanes take part, and the words of a number."""
        assert pointer.kind is not None
        unit = pointer.kind.primitive_bitwidth // (8 * WORD)
        at = np.atleast_1d(pointer.data)
        lanes = np.ones(len(at), bool) if mask is None else np.asarray(_of(mask))
        words = (at[lanes] - self.origin) // WORD
        return (words[:, None] + np.arange(unit)).ravel(), lanes, unit

    def load(
        self, pointer: TileValue, mask: Any = None, other: Any = 0, volatile: bool = False
    ) -> Reading:
        """Read numbers; volatile ones (packets) are read relaxed."""
        constant = self._constant(pointer)
        if constant is not None:
            return constant
        words, lanes, unit = self._words(pointer, mask)
        assert pointer.kind is not None
        made = np.full(len(lanes), other, pointer.kind.numpy)
        if len(words):
            if volatile:
                yield self._poll(int(words[0]))
                read = self.memory.peek(words)
                self.by.polled = int(words[0]), int(self.memory.version[self.by.rank])
            else:
                self.by.polled = -1, -1  # the next poll is of another operation
                yield STEP
                read = self.memory.load(self.by, words, unit)
            made[lanes] = read.view(pointer.kind.numpy)
        return TileValue(made if np.ndim(pointer.data) else made[0])

    def _constant(self, pointer: TileValue) -> TileValue | None:
        """Return a number of the tables, which is most of what a kernel reads; None: no such."""
        if np.ndim(pointer.data):
            return None
        assert pointer.kind is not None
        word = int(pointer.data - self.origin) // WORD
        if self.memory.owner[word] >= 0:
            return None
        self.by.polled = -1, -1
        unit = pointer.kind.primitive_bitwidth // (8 * WORD)
        return TileValue(self.memory.words[word : word + unit].view(pointer.kind.numpy)[0])

    def store(
        self, pointer: TileValue, value: Any, mask: Any = None, cache_modifier: str = ""
    ) -> Writing:
        """Write numbers; those written through (packets) are relaxed and arrive later."""
        yield STEP
        words, lanes, unit = self._words(pointer, mask)
        if not len(words):
            return
        assert pointer.kind is not None
        given = np.broadcast_to(np.asarray(_of(value), pointer.kind.numpy), lanes.shape)[lanes]
        values = np.ascontiguousarray(given).view(np.int32)
        if cache_modifier == ".wt":
            self.memory.send(self.by, words, values)
        else:
            self.memory.store(self.by, words, values, unit)

    def _poll(self, word: int) -> str:
        """End a turn before a flag or packet is read: asleep if it was read, and nothing is new."""
        seen = word, int(self.memory.version[self.by.rank])
        return ASLEEP if self.by.polled == seen else STEP

    def atomic_xchg(self, pointer: TileValue, value: Any, sem: str, scope: str) -> Reading:
        """Store to a flag."""
        yield STEP
        word = int((pointer.data - self.origin) // WORD)
        return TileValue(self.memory.exchange(self.by, word, np.int32(_of(value)), sem, scope))

    def atomic_add(self, pointer: TileValue, value: Any, sem: str, scope: str) -> Reading:
        """Add to a flag; adding 0 reads it."""
        word = int((pointer.data - self.origin) // WORD)
        yield self._poll(word)
        old = self.memory.add(self.by, word, int(_of(value)), sem, scope)
        self.by.polled = word, int(self.memory.version[self.by.rank])
        return TileValue(old)

    def debug_barrier(self) -> Writing:
        """The threads of the block meet."""
        yield STEP
        self.memory.meet(self.by)


# --- the file's functions as generators -----------------------------------------------------------


def functions(text: str, language: Language) -> dict[str, Callable[..., Any]]:
    """Return the kernel's functions and the constants of an emitted file."""
    tree = without_host(text)
    kept = tree.body
    kernel = {node.name: node for node in kept if is_kernel(node)}  # type: ignore[attr-defined]
    turning: set[str] = set()
    while (found := {n for n, node in kernel.items() if _turns(node, turning)}) != turning:
        turning = found
    for node in kernel.values():
        _Turning(turning).visit(node)
    names: dict[str, Any] = {"triton": SimpleNamespace(jit=lambda f: f), "tl": language}
    exec(compile(ast.fix_missing_locations(tree), "<kernel>", "exec"), names)
    return names


def without_host(text: str) -> ast.Module:
    """Return the tables and the kernel of an emitted file, without the code that needs torch."""
    tree = ast.parse(text)
    dropped = (ast.ClassDef, ast.If)
    tree.body = [x for x in tree.body if not isinstance(x, dropped) and not _of_host(x)]
    return tree


def is_kernel(node: ast.AST) -> bool:
    """Test if a statement is a function of the kernel."""
    return isinstance(node, ast.FunctionDef) and bool(node.decorator_list)


def _of_host(node: ast.AST) -> bool:
    """Test if a statement needs torch."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return any(word in ast.unparse(node) for word in ("torch", "triton"))
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    return not is_kernel(node) and bool(names & {"torch", "dist"})


def _called(node: ast.AST, turning: set[str]) -> bool:
    if not isinstance(node, ast.Call):
        return False
    f = node.func
    if isinstance(f, ast.Name):
        return f.id in turning
    if not isinstance(f, ast.Attribute) or not isinstance(f.value, ast.Name):
        return False
    return f.value.id == "tl" and f.attr in MEMORY_OPERATIONS


def _turns(node: ast.AST, turning: set[str]) -> bool:
    return any(_called(one, turning) for one in ast.walk(node))


class _Turning(ast.NodeTransformer):
    """Makes calls that take turns ``yield from``."""

    def __init__(self, turning: set[str]) -> None:
        self.turning = turning

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Wrap a call, and those in its arguments."""
        self.generic_visit(node)
        return ast.YieldFrom(node) if _called(node, self.turning) else node
