"""Shows a race: the two orders of a pair that the checker calls unordered, executed."""

from dataclasses import dataclass, replace

import numpy as np

from weft.backends.check.accesses import accesses
from weft.backends.check.bounds import CallerBuffers, buffers_of_program
from weft.backends.check.graph import Edge, Graph, expand
from weft.backends.check.races import FULL, _suspects, _unordered, levels
from weft.backends.execute.execute import BufferMemory
from weft.backends.execute.layout import data, layout
from weft.backends.formats.msccl.check import buffers_of_xml
from weft.backends.formats.msccl.read import collective_of, read_msccl_xml
from weft.backends.formats.msccl.read.columns import code_of
from weft.backends.judge.events import MessageShape, assemble
from weft.dsl.base.errors import UserError
from weft.dsl.nouns.collective import Collective
from weft.dsl.nouns.program import Code, Program

DEEP = 512


@dataclass(frozen=True)
class Shown:
    """Of ``pairs`` that are unordered: how many can come both ways round, change memory by it, or
    by overlapping (what both read before either wrote); and those that a FIFO of the protocol's
    depth allows.
    """

    pairs: int
    possible: int
    different: int
    overlapping: int
    shallow: int


def exhibit(
    listing: Code, buffers: CallerBuffers, collective: Collective, in_place: bool, most: int = 12
) -> Shown:
    """Execute both orders of unordered pairs."""
    graph = expand(listing)
    edges = levels(graph)
    pairs = _suspects(graph, accesses(graph, edges.order, buffers, in_place), FULL)
    first, second, _ = _unordered(graph, edges, *pairs)
    place = layout(collective, listing.chunks[:, 2], in_place=in_place)
    machine = replace(assemble(listing, MessageShape()), depth=DEEP)
    before = data(place, np.dtype("int64"), 1, np.random.default_rng(1)).before
    memory = BufferMemory(machine, place, before)
    possible = different = overlapping = shallow = 0
    for a, b in list(zip(first.tolist(), second.tolist(), strict=True))[:most]:
        orders = [_early(graph, edges.order, a, b), _early(graph, edges.order, b, a)]
        possible += all(
            order.index(x) < order.index(y)
            for order, (x, y) in zip(orders, ((a, b), (b, a)), strict=True)
        )
        results = []
        for order in orders:
            _legal(graph, order, credit=False)
            memory.reset()
            memory.replay(order)
            results.append(memory.rows.copy())
        if not np.array_equal(*results):
            different += 1
            shallow += all(_legal(graph, order, credit=True) for order in orders)
        elif not np.array_equal(results[0], _at_once(graph, edges.order, memory, a, b)):
            overlapping += 1
    return Shown(min(len(first), most), possible, different, overlapping, shallow)


def exhibits(subject: object) -> list[Shown]:
    """The racing pairs of a file (in each placement) or a program, executed."""
    if isinstance(subject, Program):
        pieces = subject.message_chunks // subject.collective.message_chunks
        collective = subject.collective.split(pieces)
        return [exhibit(subject, buffers_of_program(subject), collective, subject.in_place)]
    assert isinstance(subject, str)
    algo = read_msccl_xml(subject)
    try:
        collective = collective_of(algo)
    except UserError:
        return []
    listing, buffers = code_of(algo), buffers_of_xml(algo)
    return [exhibit(listing, buffers, collective, p) for p in algo.placements]


def _at_once(graph: Graph, order: np.ndarray, memory: BufferMemory, a: int, b: int) -> np.ndarray:
    """Memory after an execution in which ``a`` reads before ``b`` writes, and writes after it."""
    past = set(_past(graph, a)) | set(_past(graph, b))
    head = [v for v in order.tolist() if v in past and v not in (a, b)]
    tail = [v for v in order.tolist() if v not in past]
    memory.reset()
    memory.replay(head)
    start = memory.rows.copy()
    memory.replay([a])
    changed = memory.rows != start
    written = memory.rows[changed]
    memory.rows[changed] = start[changed]
    memory.replay([b])
    memory.rows[changed] = written
    memory.replay(tail)
    return memory.rows.copy()


def _past(graph: Graph, a: int) -> set[int]:
    """An operation and all that must come before it, FIFOs being deep."""
    keep = graph.kind != Edge.CREDIT
    before: dict[int, list[int]] = {}
    for x, y in zip(graph.source[keep].tolist(), graph.target[keep].tolist(), strict=True):
        before.setdefault(y, []).append(x)
    past, todo = {a}, [a]
    while todo:
        for x in before.get(todo.pop(), ()):
            if x not in past:
                past.add(x)
                todo.append(x)
    return past


def _early(graph: Graph, order: np.ndarray, a: int, b: int) -> list[int]:
    """An order in which ``a`` comes as early as it can, and so before ``b``."""
    past = _past(graph, a)
    assert b not in past
    whole = order.tolist()
    return [v for v in whole if v in past] + [v for v in whole if v not in past]


def _legal(graph: Graph, order: list[int], *, credit: bool) -> bool:
    when = np.empty(graph.size, np.int64)
    when[order] = np.arange(graph.size)
    forward = when[graph.source] < when[graph.target]
    assert forward[graph.kind != Edge.CREDIT].all()
    return bool(forward.all()) if credit else True
