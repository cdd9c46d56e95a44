"""Pipelines as text: what runs, in which order, what each pass is judged by."""

from dataclasses import dataclass, replace
from typing import ClassVar

import patterns
import pytest
from proof import good
from random_moves import random_algorithm

from weft.backends.check.checker import check_program
from weft.backends.check.findings import errors
from weft.backends.compile.analyses.flow import Flow
from weft.backends.compile.compile import (
    CompileOptions,
    lower_algorithm,
    lower_program,
    lower_schedule,
)
from weft.backends.compile.pipeline import ORDER, form, parse_passes, require_applicable
from weft.dsl.base.errors import CheckFailed, UserError
from weft.dsl.base.registry import PASSES
from weft.dsl.nouns.program import Program, Protocol
from weft.dsl.nouns.runtime import MSCCL, Target

RING = patterns.ring_allreduce(4, 4)


def ran(options: CompileOptions) -> tuple[Program, list[str]]:
    seen: list[str] = []

    def observe(name: str, program: Program) -> None:
        seen.append(name)
        good(program)

    return lower_schedule(RING, replace(options, observe=observe)), seen


def test_every_pass_is_registered_under_its_name_and_has_a_place() -> None:
    assert set(PASSES.builtin) == set(ORDER)
    for name in PASSES.builtin:
        kind = PASSES.load(name)
        assert kind.name == name
        assert set(form(kind)) <= {"schedule", "algorithm", "flow", "program"}


def test_all_passes_are_seen_in_their_order_and_right_after_each() -> None:
    _, seen = ran(CompileOptions())
    by_default = [name for name in ORDER if name != "chain"]
    assert seen == [name for name in by_default if name not in ("lift", "dead", "trace")]
    program = lower_schedule(RING)
    names: list[str] = []
    lower_program(program, CompileOptions(observe=lambda name, _: names.append(name)))
    assert names == [name for name in by_default if name != "lower"]


def test_optional_passes_run_only_if_named_and_in_the_users_order() -> None:
    _, seen = ran(CompileOptions(passes=parse_passes("prune,fuse,channels{lanes=2},fuse")))
    mandatory = ["lower", "instances", "channels", "threadblocks", "aggregate", "weave"]
    assert seen == [*mandatory, "prune", "fuse", "fuse"]


def test_what_is_named_stands_for_what_the_options_say() -> None:
    text = "instances{count=2,policy=interleaved},channels{lanes=3},threadblocks{policy=forward}"
    program = lower_schedule(RING, CompileOptions(passes=parse_passes(text)))
    assert program.message_chunks == 2 * 16
    assert program.channels == 6
    assert {i.count for r in program.ranks for b in r for i in b.code} == {1}  # no aggregate
    apart, together = (
        lower_schedule(RING, CompileOptions(passes=parse_passes(t), protocol=Protocol.LL))
        for t in ("fuse", "fuse,aggregate")
    )
    assert together.instructions < apart.instructions


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fuse,prone", "unknown pass 'prone'"),
        ("instances{cont=2}", "unknown option of instances 'cont'"),
        ("channels{lanes=two}", "must be an integer"),
        ("channels,fuse,channels", "channels is named twice"),
        ("aggregate{protocol=LL}", "the protocol of aggregate is not said here"),
        ("channels{count=2}", "the count of channels is not said here"),
        ("lower{in-place=true}", "the in-place of lower is not said here"),
    ],
)
def test_what_makes_no_sense_is_shown_in_the_text(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        parse_passes(text)
    assert caught.value.where is not None


def test_a_pass_needs_something_to_work_on() -> None:
    cases = {"schedule": "lower", "algorithm": "trace", "program": "lift"}
    for noun, own in cases.items():
        for name in ("lower", "trace", "lift", "dead"):
            fits = name == own or (noun != "schedule" and name in ("trace", "dead"))
            if fits:
                require_applicable(parse_passes(name), noun, name)
            else:
                with pytest.raises(UserError, match=f"{name} works on"):
                    require_applicable(parse_passes(name), noun, name)


@dataclass(frozen=True)
class Spoil:
    """A pass on flows that sends every second message from the wrong slot."""

    name: ClassVar[str] = "spoil"

    def apply(self, flow: Flow, target: Target) -> Flow:
        send = flow.messages.send.copy()
        send[::2] += 1
        return replace(flow, messages=replace(flow.messages, send=send))


def test_a_flow_pass_that_spoils_the_flow_is_named() -> None:
    def verify(program: Program) -> None:
        if found := errors(check_program(program)):
            raise CheckFailed(found[0].message)

    options = CompileOptions(MSCCL, passes=(Spoil(),), verify=verify)
    with pytest.raises(CheckFailed, match="after the pass spoil"):
        lower_schedule(RING, options)


def test_needless_moves_are_dropped() -> None:
    algorithm = random_algorithm(7, ranks=3, chunks=3, moves=80, in_place=True)
    kept = lower_algorithm(algorithm, CompileOptions(passes=parse_passes("aggregate,fuse")))
    dropped = lower_algorithm(algorithm, CompileOptions(passes=parse_passes("dead,aggregate,fuse")))
    good(kept)
    good(dropped)
    assert dropped.instructions < kept.instructions
