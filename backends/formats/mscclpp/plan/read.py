"""Parse JSON text to a plan, strictly by the schema that the loader needs.

An error that stops the loader (a missing key, an unknown name, a wrong type) is a
:class:`.BadFile` that gives the place; keys that the loader ignores become remarks. The checker
judges the correctness of the plan.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

from weft.dsl.base.errors import BadFile, UnknownName
from weft.dsl.base.files import Fields, parse_json
from weft.dsl.nouns.program import Buffer

from .model import (
    FACTS,
    LIMITS,
    Channel,
    ExecutionPlan,
    GpuPlan,
    LocalChunks,
    Multicast,
    Operand,
    Operation,
    PlanChannels,
    PlanOp,
    RemoteBuffer,
    RemoteChunks,
    ThreadBlock,
)

E = TypeVar("E", bound=StrEnum)
T = TypeVar("T")

OLD_KEYS = frozenset({"inputChunks", "outputChunks", "scratchChunks", "chunkGroups"})
"""Keys of a GPU in the schema before August 2025."""

_IGNORED = frozenset({"chunk rank", "chunk_rank"})
"""Keys that MSCCL++'s own writer leaves in operands, and no reader uses."""


def read_plan(text: str, where: str = "plan") -> ExecutionPlan:
    """Return the plan in a text.

    Raises:
        BadFile: no JSON, or something the loader refuses or crashes on.
        UnknownName: an operation, buffer or channel type that it does not know.
    """
    return _PlanReader().plan(parse_json(text, where), where)


class _PlanReader:
    """Reads, and collects the ignored parts."""

    def __init__(self) -> None:
        self.remarks: list[str] = []

    def plan(self, data: Any, where: str) -> ExecutionPlan:
        f = Fields(data, where)
        gpus = self.each(f, "gpus", where, self.gpu)
        plan = ExecutionPlan(
            name=f.get("name", str),
            collective=f.get("collective", str),
            protocol=f.get("protocol", str),
            in_place=f.get("inplace", bool),
            gpus=gpus,
            reuse_resources=f.get("reuse_resources", bool, False),
            double_scratch=f.get("use_double_scratch_buffer", bool, False),
            alignment=_whole(f, "buffer_alignment", where, 16),
            threads=_whole(f, "num_threads_per_block", where, 1024),
            min_bytes=_whole(f, "min_message_size", where, 0),
            max_bytes=_whole(f, "max_message_size", where, FACTS.largest_message_bytes),
        )
        self.rest(f, where)
        return ExecutionPlan(
            **{k: getattr(plan, k) for k in ExecutionPlan.__dataclass_fields__ if k != "remarks"},
            remarks=tuple(dict.fromkeys(self.remarks)),
        )

    def gpu(self, data: Any, rank: int, where: str) -> GpuPlan:
        if isinstance(data, dict) and OLD_KEYS & data.keys():
            raise BadFile(
                "a plan of the schema before August 2025",
                where=where,
                hint="current executors do not read it",
            )
        f = Fields(data, where)
        number = f.get("id", int)
        if number != rank:
            raise BadFile(
                f"entry {rank} has the id {number}; the loader wants them in order", where=where
            )
        gpu = GpuPlan(
            _chunks(f, "input_chunks", where),
            _chunks(f, "output_chunks", where),
            _chunks(f, "scratch_chunks", where),
            self.each(f, "threadblocks", where, self.block),
            self.each(f, "channels", where, self.channels),
            self.each(f, "remote_buffers", where, self.remote, []),
            self.each(f, "semaphores", where, self.semaphore, []),
        )
        self.rest(f, where)
        return gpu

    def block(self, data: Any, number: int, where: str) -> ThreadBlock:
        f = Fields(data, where)
        if (found := f.get("id", int)) != number:
            raise BadFile(f"entry {number} has the id {found}: ids must be positions", where=where)

        def lists(key: str, kind: str, ids: str, *default: Any) -> Any:
            def one(item: Any, _: int, place: str) -> tuple[Channel, tuple[int, ...]]:
                g = Fields(item, place)
                pair = _name(Channel, g, kind, place), tuple(g.integers(ids))
                self.rest(g, place)
                return pair

            return self.each(f, key, where, one, *default)

        block = ThreadBlock(
            self.each(f, "ops", where, self.operation),
            lists("channels", "channel_type", "channel_ids"),
            lists("remote_buffer_refs", "access_channel_type", "remote_buffer_ids", []),
        )
        self.rest(f, where)
        return block

    def operation(self, data: Any, _: int, where: str) -> Operation:
        f = Fields(data, where)
        op = _name(PlanOp, f, "name", where)
        channel = _name(Channel, f, "channel_type", where) if "channel_type" in data else None
        ids = f.integers("channel_ids", [])
        if op in (PlanOp.ACQUIRE, PlanOp.RELEASE):
            ids = f.integers("semaphore_ids")
        barrier = None
        if op is PlanOp.BARRIER:
            barrier = (f.get("barrier_id", int), f.get("num_threadblocks", int))
        share = context = None
        if "tbg_info" in data:
            g = Fields(f.get("tbg_info", dict), f"{where}.tbg_info")
            share = _whole(g, "tb_id", where), _whole(g, "tbg_size", where)
        body: tuple[Operation, ...] = ()
        if op is PlanOp.PIPELINE:
            g = Fields(f.get("iter_context", dict), f"{where}.iter_context")
            context = _whole(g, "unit_size", where), _chunks(g, "num_chunks", where)
            body = self.each(f, "ops", where, self.operation)
        made = Operation(
            op,
            channel,
            tuple(ids),
            self.each(f, "src_buff", where, self.operand, []),
            self.each(f, "dst_buff", where, self.operand, []),
            barrier,
            share,
            *(context or (0, 0)),
            body,
            f.get("reduce_op", str, None),
        )
        self.rest(f, where)
        return made

    def operand(self, data: Any, _: int, where: str) -> Operand:
        f = Fields(data, where)
        index, size = f.get("index", int), f.get("size", int)
        made: Operand
        if "switch_channel_id" in data:
            made = Multicast(f.get("switch_channel_id", int), index, size)
        elif "buffer_id" in data:
            made = RemoteChunks(f.get("buffer_id", int), index, size)
        else:
            made = LocalChunks(_name(Buffer, f, "type", where), index, size)
        self.rest(f, where, _IGNORED)
        return made

    def channels(self, data: Any, _: int, where: str) -> PlanChannels:
        f = Fields(data, where)
        kind = _name(Channel, f, "channel_type", where)
        if kind is not Channel.SWITCH:
            made = PlanChannels(kind, tuple(f.integers("connected_to")))
        else:

            def group(item: Any, _: int, place: str) -> tuple[int, ...]:
                g = Fields(item, place)
                ranks = tuple(g.integers("ranks"))
                if g.get("size", int) != len(ranks):
                    raise BadFile("`size` is not the number of ranks", where=place)
                return ranks

            buffer = _name(Buffer, f, "buffer_type", where)
            made = PlanChannels(kind, (), buffer, self.each(f, "rank_groups", where, group))
        self.rest(f, where)
        return made

    def remote(self, data: Any, _: int, where: str) -> RemoteBuffer:
        f = Fields(data, where)
        access = f.get("access_channel_types", list)
        for name in access:
            if not isinstance(name, str):
                raise BadFile("'access_channel_types' must hold strings only", where=where)
            if name not in set(Channel):
                raise UnknownName("channel type", name, Channel, where=where)
        made = RemoteBuffer(
            f.get("rank", int), _name(Buffer, f, "type", where), tuple(map(Channel, access))
        )
        self.rest(f, where)
        return made

    def semaphore(self, data: Any, _: int, where: str) -> int:
        f = Fields(data, where)
        value: int = f.get("init_value", int)
        if not -(1 << 31) <= value < 1 << 31:
            raise BadFile("'init_value' does not fit in 32 bits", where=where)
        self.rest(f, where)
        return value

    def each(
        self, f: Fields, key: str, where: str, one: Callable[[Any, int, str], T], *default: Any
    ) -> tuple[T, ...]:
        items = f.get(key, list, *default)
        return tuple(
            one(item, i, f"{where}: {key}[{i}]" if ": " not in where else f"{where}.{key}[{i}]")
            for i, item in enumerate(items)
        )

    def rest(self, f: Fields, where: str, expected: frozenset[str] = frozenset()) -> None:
        """Remark on keys that the loader ignores."""
        try:
            f.finish(expected)
        except BadFile as error:
            self.remarks.append(f"{where}: {error.message}, which the loader ignores")


def _name(kind: type[E], f: Fields, key: str, where: str) -> E:
    text = f.get(key, str)
    if text not in set(kind):
        noun = {PlanOp: "operation", Buffer: "buffer", Channel: "channel type"}.get(kind, key)
        raise UnknownName(noun, text, kind, where=where)
    return kind(text)


def _whole(f: Fields, key: str, where: str, *default: Any) -> int:
    value: int = f.get(key, int, *default)
    if value < 0:
        raise BadFile(f"{key!r} is negative", where=where)
    return value


def _chunks(f: Fields, key: str, where: str) -> int:
    value = _whole(f, key, where)
    if value > LIMITS.chunks:
        raise BadFile(
            f"{key!r} is {value}, more than the {LIMITS.chunks} chunks that are followed",
            where=where,
        )
    return value
