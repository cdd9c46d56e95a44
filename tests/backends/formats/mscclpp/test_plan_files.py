"""Reading and writing plans, a plan of MSCCL++'s own, and what cannot be emitted."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import patterns
import plans
import pytest

from weft.backends.check.findings import Severity, errors
from weft.backends.compile.compile import CompileOptions, lower_schedule
from weft.backends.formats.mscclpp.check import check_plan
from weft.backends.formats.mscclpp.format import MscclppJson
from weft.backends.formats.mscclpp.interpret import collective_of, run_plan
from weft.backends.formats.mscclpp.lower.emit import plan_of
from weft.backends.formats.mscclpp.plan.model import ExecutionPlan, Operation, PlanOp
from weft.backends.formats.mscclpp.plan.read import read_plan
from weft.backends.formats.mscclpp.plan.write import write_plan
from weft.dsl.base.errors import BadFile, UnknownName, UserError
from weft.dsl.base.units import SizeRange
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.program import Protocol
from weft.dsl.nouns.runtime import MSCCL


def hand_written() -> dict[str, Any]:
    """The two-rank in-place allgather of MSCCL++'s examples, as its own language writes it."""

    def memory(**fields: object) -> dict[str, object]:
        return {**fields, "channel_type": "memory"}

    def gpu(rank: int) -> dict[str, Any]:
        own = {"type": "o", "index": rank, "size": 1}
        there = {"buffer_id": 0, "index": rank, "size": 1}
        nop = {"name": "nop"}
        ops = [
            nop,
            memory(name="rlxsignal", channel_ids=[0]),
            nop,
            memory(name="rlxwait", channel_ids=[0]),
            nop,
            memory(name="put", src_buff=[own], dst_buff=[there]),
            nop,
            memory(name="signal", channel_ids=[0]),
            memory(name="wait", channel_ids=[0]),
            nop,
        ]
        block = {
            "id": 0,
            "ops": ops,
            "channels": [memory(channel_ids=[0])],
            "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [0]}],
        }
        return {
            "id": rank,
            "input_chunks": 1,
            "output_chunks": 2,
            "scratch_chunks": 0,
            "threadblocks": [block],
            "channels": [memory(connected_to=[1 - rank])],
            "remote_buffers": [{"rank": 1 - rank, "type": "o", "access_channel_types": ["memory"]}],
            "semaphores": [],
        }

    return {
        "name": "allgather_2",
        "collective": "allgather",
        "protocol": "Simple",
        "inplace": True,
        "reuse_resources": False,
        "gpus": [gpu(0), gpu(1)],
        "num_threads_per_block": 1024,
        "use_double_scratch_buffer": False,
        "buffer_alignment": 16,
        "min_message_size": 0,
        "max_message_size": 18446744073709551615,
    }


def test_a_plan_of_others_is_right() -> None:
    plan = read_plan(json.dumps(hand_written()))
    assert not errors(check_plan(plan))
    assert any("4 GiB" in f.message for f in check_plan(plan) if f.severity is Severity.WARNING)
    assert run_plan(plan, orders=200).ok
    assert read_plan(write_plan(plan)) == plan


def test_its_signals_are_needed() -> None:
    """Both directions share a channel there: a ready signal must not pass for the data's."""
    plan = read_plan(json.dumps(hand_written()))
    spoiled = plans.put_in(plan, (0, 0, 3))  # rank 0 does not wait until rank 1 is ready
    spoiled = plans.put_in(
        spoiled, (0, 0, 7), spoiled.gpus[0].blocks[0].ops[7], Operation(PlanOp.NOP)
    )
    assert errors(check_plan(spoiled))
    assert not run_plan(spoiled, orders=48).ok


BAD: list[tuple[Callable[[dict[str, Any]], object], type[Exception], str]] = [
    (lambda d: d.pop("protocol"), BadFile, "'protocol' is missing"),
    (lambda d: d.pop("gpus"), BadFile, "'gpus' is missing"),
    (lambda d: d["gpus"][1].update(id=0), BadFile, "has the id 0"),
    (lambda d: d["gpus"][0].pop("channels"), BadFile, "'channels' is missing"),
    (lambda d: d["gpus"][0].update(inputChunks=1), BadFile, "before August 2025"),
    (lambda d: d["gpus"][0].update(scratch_chunks=-1), BadFile, "negative"),
    (lambda d: d["gpus"][0]["threadblocks"][0].update(id=3), BadFile, "has the id 3"),
    (lambda d: d["gpus"][0]["threadblocks"][0]["ops"][0].update(name="glre"), UnknownName, "glre"),
    (
        lambda d: d["gpus"][0]["threadblocks"][0]["ops"][5]["src_buff"][0].update(type="x"),
        UnknownName,
        "buffer 'x'",
    ),
    (
        lambda d: d["gpus"][0]["threadblocks"][0]["ops"][5]["src_buff"][0].update(index="0"),
        BadFile,
        "'index' must be int",
    ),
    (lambda d: d["gpus"][0]["channels"][0].update(channel_type="nvls"), UnknownName, "nvls"),
    (lambda d: d.update(inplace=1), BadFile, "'inplace' must be bool"),
    (
        lambda d: d["gpus"][0]["remote_buffers"][0].update(access_channel_types=[[]]),
        BadFile,
        "'access_channel_types' must hold strings only",
    ),
    (lambda d: d["gpus"][1].update(scratch_chunks=2**63), BadFile, "more than"),
    (lambda d: d["gpus"][0].update(semaphores=[{"init_value": 2**31}]), BadFile, "32 bits"),
    (
        lambda d: d["gpus"][0]["threadblocks"][0]["ops"].append(
            {
                "name": "pipeline",
                "iter_context": {"unit_size": 16, "num_chunks": 2**40},
                "ops": [{"name": "nop"}],
            }
        ),
        BadFile,
        "more than",
    ),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_what_the_loader_dies_of_is_told(number: int) -> None:
    spoil, kind, words = BAD[number]
    data = hand_written()
    spoil(data)
    with pytest.raises(kind, match=words):
        read_plan(json.dumps(data), "plan.json")


def test_a_misspelt_name_is_told_as_a_file_spells_it() -> None:
    data = hand_written()
    data["gpus"][0]["threadblocks"][0]["ops"][5]["name"] = "putt"
    with pytest.raises(UnknownName) as raised:
        read_plan(json.dumps(data), "plan.json")
    assert raised.value.hint == "did you mean 'put'?"


def test_a_plan_made_elsewhere_with_absurd_sizes_is_not_run() -> None:
    plan = read_plan(json.dumps(hand_written()))
    for field in ("input_chunks", "output_chunks"):
        large = plans.with_gpu(plan, 0, lambda g, f=field: replace(g, **{f: 2**63}))
        with pytest.raises(UserError, match="chunks are more than"):
            run_plan(large)
    large = plans.with_gpu(plan, 0, lambda g: replace(g, scratch_chunks=2**63))
    with pytest.raises(UserError, match="chunks are more than"):
        run_plan(large, make("allgather", 2))


def test_what_the_loader_ignores_is_remarked() -> None:
    data = hand_written()
    data["gpus"][0]["threadblocks"][0]["ops"][5]["src_buff"][0]["chunk rank"] = 0
    data["versoin"] = 2
    plan = read_plan(json.dumps(data))
    assert len(plan.remarks) == 1
    assert "'versoin'" in plan.remarks[0]
    assert not errors(check_plan(plan))


def test_sizes_stay_within_what_32_bits_address() -> None:
    program = plans.program("ring")
    assert plan_of(program, sizes=SizeRange(1024, 1 << 20)).max_bytes == 1 << 20
    with pytest.raises(UserError, match="too large for this plan"):
        plan_of(program, sizes=SizeRange(1024, 1 << 34))
    packets = plan_of(plans.program("ring", Protocol.LL))
    assert packets.max_bytes == 1 << 20
    for plan in (plan_of(program), packets):
        assert not [f for f in check_plan(plan) if "4 GiB" in f.message]


def test_an_allgather_counts_its_output_and_others_their_input() -> None:
    sizes = SizeRange(1 << 12, 1 << 20)
    gather = plan_of(lower_schedule(patterns.ring_allgather(4, 1)), sizes=sizes)
    assert (gather.min_bytes, gather.max_bytes) == (1 << 12, 1 << 20)
    collect = patterns.routed("gather", 4, patterns.hub(4), 1)
    plan = plan_of(lower_schedule(collect), sizes=sizes)
    assert (plan.min_bytes, plan.max_bytes) == (1 << 10, 1 << 18)


def test_names_are_unique_and_stable() -> None:
    def name(protocol: Protocol, sizes: SizeRange | None = None) -> str:
        return plan_of(plans.program("ring", protocol), sizes=sizes).name

    assert name(Protocol.SIMPLE) == name(Protocol.SIMPLE)
    assert (
        len(
            {name(Protocol.SIMPLE), name(Protocol.LL), name(Protocol.SIMPLE, SizeRange(1024, 2048))}
        )
        == 3
    )


def test_what_a_plan_cannot_say_is_refused() -> None:
    with pytest.raises(UserError, match="no LL128"):
        plan_of(plans.program("ring", Protocol.LL128))
    with pytest.raises(UserError, match="3 nodes are named for 4 ranks"):
        plan_of(plans.program("ring"), (0, 0, 1))


def test_the_collective_is_told_from_the_plan() -> None:
    for name in ("broadcast", "reduce"):
        found = collective_of(plan_of(plans.program(name)))
        assert found == plans.program(name).collective.split(
            found.message_chunks // plans.program(name).collective.message_chunks
        )
    for name in ("gather", "scatter"):
        schedule = patterns.routed(name, 4, patterns.hub(4), 1, roots=(2,))
        assert collective_of(plan_of(lower_schedule(schedule))) == schedule.collective
    scatter = plan_of(plans.program("reduce_scatter"))
    assert scatter.collective == "reducescatter"
    assert collective_of(scatter).kind == "reduce_scatter"
    with pytest.raises(UserError, match="does not say what"):
        collective_of(replace(scatter, collective="mine"))
    with pytest.raises(UserError, match="the collective has 5 ranks"):
        run_plan(scatter, make("reduce_scatter", 5))


def test_a_root_that_reads_is_told_from_a_root_that_is_written_to() -> None:
    """The root of this reduce adds what it reads from its peer, who writes to nobody."""
    data = hand_written()
    data["collective"] = "reduce"
    for rank, gpu in enumerate(data["gpus"]):
        gpu["output_chunks"] = 1
        gpu["remote_buffers"][0]["type"] = "i"
        op = {
            "name": "rre",
            "channel_type": "memory",
            "src_buff": [
                {"type": "i", "index": 0, "size": 1},
                {"buffer_id": 0, "index": 0, "size": 1},
            ],
            "dst_buff": [{"type": "o", "index": 0, "size": 1}],
        }
        gpu["threadblocks"][0]["ops"][5] = op if rank == 1 else {"name": "nop"}
    plan = read_plan(json.dumps({**data, "inplace": False}))
    assert collective_of(plan) == make("reduce", 2, roots=(1,))
    assert run_plan(plan, orders=24).ok


def test_the_backend_knows_nodes_from_the_machine() -> None:
    program = plans.program("ring")
    boxed = MscclppJson().on(topology("dgx1:nodes=2"))
    assert boxed.nodes == (0,) * 8 + (1,) * 8
    two = read_plan(MscclppJson(gpus_per_node=2).emit(program, MSCCL, None))
    assert two == plan_of(program, (0, 0, 1, 1))
    assert MscclppJson(gpus_per_node=2).on(topology("dgx1")).nodes == ()


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        (MscclppJson(gpus_per_node=3), "3, and 4 ranks make no nodes of equal size"),
        (MscclppJson(gpus_per_node=-1), "gpus_per_node is -1"),
        (MscclppJson(gpus_per_node=2, nodes=(0, 0, 1, 1)), "twice"),
    ],
)
def test_nodes_that_make_no_sense_are_refused(backend: MscclppJson, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        backend.emit(plans.program("ring"), MSCCL, None)
    assert caught.value.where == "mscclpp-json"
    assert caught.value.hint


def test_more_gpus_per_node_than_ranks_are_one_node() -> None:
    program = plans.program("ring")
    assert read_plan(MscclppJson(gpus_per_node=8).emit(program, MSCCL, None)) == plan_of(program)


def test_in_place_plans_speak_of_one_buffer() -> None:
    def letters(plan: ExecutionPlan) -> set[str]:
        return {b.buffer for g in plan.gpus for b in g.remote}

    for schedule, buffer in (
        (patterns.ring_allgather(3, 1), "o"),
        (patterns.ring_reduce_scatter(3, 1), "i"),
        (patterns.ring_allreduce(3, 1), "o"),
    ):
        plan = plan_of(lower_schedule(schedule, CompileOptions(in_place=True)))
        assert letters(plan) <= {buffer, "s"}
        assert run_plan(plan, orders=24).ok
