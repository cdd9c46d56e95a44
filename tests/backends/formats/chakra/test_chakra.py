"""Chakra execution traces: bytes, traps of the format, and the rule of the simulator."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import patterns
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import hub

from weft.backends.formats.chakra.format import astra_sim_us, nodes_of, trace_of
from weft.backends.formats.messages.lower import graph_of_schedule
from weft.dsl.base.errors import BadFile
from weft.dsl.importers.chakra_et import (
    COMP,
    RECV,
    SEND,
    ExecutionTrace,
    TraceNode,
    decoded,
    encoded,
    fields_of,
    put_integer,
    signed,
    take_varint,
    varint,
)
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.hops import find_hops
from weft.dsl.nouns.schedule import Schedule, Transfer
from weft.synth.time.schedule_time import simulate

INTEGERS = st.integers(0, (1 << 64) - 1)


@given(INTEGERS)
def test_integers_are_read_as_they_were_written(value: int) -> None:
    assert take_varint(varint(value), 0) == (value, len(varint(value)))
    assert list(fields_of(put_integer(3, value))) == [(3, value)]


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_negative_integers_have_64_bits(value: int) -> None:
    assert signed(take_varint(varint(value), 0)[0]) == value


TRACE = ExecutionTrace(
    {"weft": '{"é": 1}'},
    (
        TraceNode(0, RECV, "recv", attributes={"comm_src": 1, "comm_tag": 3000, "comm_size": 7}),
        TraceNode(1, COMP, "sum", (), (0,), 300),
        TraceNode(2, SEND, "send", (0,), (1,), 0, {"comm_dst": 1, "comm_tag": 9, "comm_size": 7}),
    ),
)


def test_a_trace_is_read_as_it_was_written() -> None:
    assert decoded(encoded(TRACE), "x") == TRACE


def test_protobuf_reads_what_is_written() -> None:
    """The schema of mlcommons/chakra 1.0.0, as far as it is used, by Google's library."""
    node, metadata = _messages()
    data, seen = encoded(TRACE), []
    for kind in (metadata, node, node, node):
        length, at = take_varint(data, 0)
        one = kind()
        one.ParseFromString(data[at : at + length])
        seen.append(one)
        data = data[at + length :]
    assert not data
    assert (seen[0].version, seen[0].attr[0].string_val) == ("0.0.4", '{"é": 1}')
    assert [one.id for one in seen[1:]] == [0, 1, 2]
    assert [one.type for one in seen[1:]] == [RECV, COMP, SEND]
    assert (list(seen[3].ctrl_deps), list(seen[3].data_deps)) == ([0], [1])
    assert seen[2].duration_micros == 300
    assert {a.name: a.int32_val or a.int64_val for a in seen[1].attr} == {
        "comm_src": 1,
        "comm_tag": 3000,
        "comm_size": 7,
    }


INT64, UINT64, INT32, STRING, MESSAGE = 3, 4, 5, 9, 11  # types of google.protobuf

SCHEMA = {
    "AttributeProto": {
        "name": (1, STRING),
        "int32_val": (7, INT32),
        "int64_val": (9, INT64),
        "string_val": (29, STRING),
    },
    "GlobalMetadata": {"version": (1, STRING), "attr": (2, MESSAGE)},
    "Node": {
        "id": (1, UINT64),
        "name": (2, STRING),
        "type": (3, INT32),
        "ctrl_deps": (4, UINT64),
        "data_deps": (5, UINT64),
        "duration_micros": (7, UINT64),
        "attr": (10, MESSAGE),
    },
}


def _messages() -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The classes ``Node`` and ``GlobalMetadata``, from the numbers of their fields."""
    descriptor = pytest.importorskip("google.protobuf.descriptor_pb2")
    pool = pytest.importorskip("google.protobuf.descriptor_pool").DescriptorPool()
    factory = pytest.importorskip("google.protobuf.message_factory")
    file = descriptor.FileDescriptorProto(name="et.proto", package="c", syntax="proto3")
    for name, fields in SCHEMA.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            repeated = kind == MESSAGE or field.endswith("deps")
            one = message.field.add(name=field, number=number, label=3 if repeated else 1)
            one.type = kind
            if kind == MESSAGE:
                one.type_name = ".c.AttributeProto"
    pool.Add(file)
    node, metadata = (
        factory.GetMessageClass(pool.FindMessageTypeByName(f"c.{name}"))
        for name in ("Node", "GlobalMetadata")
    )
    return node, metadata


@given(st.data())
def test_damaged_bytes_are_refused_or_read_but_never_crash(data: st.DataObject) -> None:
    good = encoded(TRACE)
    at = data.draw(st.integers(0, len(good) - 1))
    cut = data.draw(st.booleans())
    bad = good[:at] if cut else good[:at] + bytes([good[at] ^ 0x55]) + good[at + 1 :]
    with suppress(BadFile):
        nodes_of(decoded(bad, "x"), "x")


def test_what_aborts_astra_sim_is_refused() -> None:
    lacks = TraceNode(4, SEND, attributes={"comm_dst": 1, "comm_tag": 0})
    with pytest.raises(BadFile, match="comm_size is missing"):
        nodes_of(ExecutionTrace({}, (lacks,)), "x")
    with pytest.raises(BadFile, match="one id"):
        nodes_of(ExecutionTrace({}, (TraceNode(1, COMP), TraceNode(1, COMP))), "x")
    with pytest.raises(BadFile, match="node 9, which is not there"):
        nodes_of(ExecutionTrace({}, (TraceNode(1, COMP, data_deps=(9,)),)), "x")


def test_an_idle_rank_has_something_to_finish() -> None:
    """ASTRA-sim's algorithm ends with its last node, and never without any."""
    assert [node.name for node in trace_of((), {}).nodes] == ["idle"]


# --- the rule -------------------------------------------------------------------------------------


def test_messages_are_stored_whole_at_a_switch() -> None:
    """1000 bytes at 25 GB/s (40 ns) over two links of 350 ns."""
    machine = hub(2, "25", "0.35")
    route = next(hop.route for hop in find_hops(machine).hops if (hop.src, hop.dst) == (0, 1))
    assert len(route) == 2
    schedule = Schedule.of(machine, make("broadcast", 2, roots=[0]), [Transfer(0, 0, 1, route)])
    graph = graph_of_schedule(schedule, "x", 1000, lambda _: 0)
    alpha = float(sum(machine.links[i].latency for i in route))
    holds = [1.0 / float(machine.links[i].bandwidth) for i in route]
    assert astra_sim_us(graph, machine) == pytest.approx(alpha + sum(holds), abs=2e-3)
    assert simulate(schedule, 1000).time_us == pytest.approx(alpha + max(holds), abs=2e-3)


@pytest.mark.parametrize("name", ["ring", "alltoall"])
def test_direct_machines_take_what_weft_says(name: str) -> None:
    schedule = {"ring": patterns.ring_allgather(6, 2), "alltoall": patterns.direct_alltoall(5, 1)}[
        name
    ]
    graph = graph_of_schedule(schedule, "x", 1 << 20, lambda _: 0)
    ours = simulate(schedule, 1 << 20).time_us
    assert astra_sim_us(graph, schedule.topology) == pytest.approx(ours, rel=0.01)
