"""Hierarchical classics as programs: proved, executed, and as quick as their formulas."""

import random
from math import prod

import pytest
from classics import wrong
from hierarchies import CABLED, Case, exact, machine, named, off_by, shapes

from weft.dsl.nouns.program import Op, Protocol
from weft.synth.engines.classic.hierarchical import HIERARCHICAL, Hierarchical

EACH = pytest.mark.parametrize("one", HIERARCHICAL, ids=lambda c: f"{c.name}-{c.kind}")


def drawn(one: Hierarchical, count: int, most: int) -> list[Case]:
    """Some cases, by the name of the algorithm."""
    choice = random.Random(f"{one.name} {one.kind} {count}")
    found = list(shapes(one, most))
    return [
        Case(
            one,
            shape,
            choice.random() < 0.5,
            choice.randint(1, 4),
            choice.choice(list(Protocol)),
            choice.randint(1, 3) if one.pipelined else 1,
        )
        for shape in choice.sample(found, min(count, len(found)))
    ]


@EACH
def test_its_programs_are_proved_and_do_what_they_say(one: Hierarchical) -> None:
    for case in drawn(one, 3, 8):
        assert wrong(case.program(), 3) == "", case


@EACH
def test_its_time_is_its_formula(one: Hierarchical) -> None:
    """α and bytes of every level count: nothing hides behind anything else."""
    choice = random.Random(f"{one.name} {one.kind}")
    known = [shape for shape in shapes(one) if exact(Case(one, shape))]
    for shape in choice.sample(known, min(3, len(known))):
        instances = 1 if one.name == "multiport_torus" else choice.randint(1, 4)
        placed, protocol = choice.random() < 0.5, choice.choice(list(Protocol))
        case = Case(one, shape, placed, instances, protocol)
        assert abs(off_by(case)) < 0.01, case


@pytest.mark.parametrize("shape", [(3, 5), (8, 2), (4, 4)])
@pytest.mark.parametrize("kind", ["allreduce", "reduce_scatter"])
def test_sums_that_meet_are_hardly_slower(shape: tuple[int, int], kind: str) -> None:
    """Blocks of more than two chunks from several at once come in pieces: within 4 %."""
    assert -0.01 < off_by(Case(named("two_level", kind), shape)) < 0.04


@pytest.mark.slow
@EACH
def test_all_hierarchies_in_both_placements(one: Hierarchical) -> None:
    """Up to 4 ranks in both, up to 8 by turns; up to 17 in both: ``tests/grade/hierarchies.py``."""
    for turn, shape in enumerate(shapes(one, 8)):
        for in_place in (False, True) if prod(shape) <= 4 else (turn % 2 == 0,):
            case = Case(one, shape, in_place)
            program = case.program()
            assert wrong(program, 2) == "", case
            if exact(case):
                assert abs(off_by(case, program)) < 0.01, case


@pytest.mark.parametrize(
    ("name", "messages"), [("two_step", 3), ("rail_first", 3), ("three_step", 1)]
)
def test_boxes_exchange_few_large_messages(name: str, messages: int) -> None:
    """Of 4 boxes of 3, two of them send 3 messages per GPU out of its box, of 3 blocks each;
    three-step one message of 9 blocks per box pair, from one GPU."""
    program = Case(named(name, "alltoall"), (3, 4)).program()
    sent: dict[tuple[int, int], list[int]] = {}
    for rank, code in enumerate(program.ranks):
        for block in code.blocks:
            if block.send is None or block.send // 3 == rank // 3:
                continue
            for instr in block.code:
                assert instr.op is Op.SEND
                sent.setdefault((rank, block.send), []).append(instr.count)
    assert all(len(counts) == 1 for counts in sent.values())
    if name != "three_step":
        assert {rank: sum(a == rank for a, _ in sent) for rank in range(12)} == dict.fromkeys(
            range(12), messages
        )
        assert set(map(tuple, sent.values())) == {(3,)}
    else:
        assert len(sent) == 12
        assert set(map(tuple, sent.values())) == {(9,)}
        assert {(a // 3, b // 3) for a, b in sent} == {
            (a, b) for a in range(4) for b in range(4) if a != b
        }


@pytest.mark.parametrize("shape", [(4, 2), (3, 3), (8, 2)])
def test_the_slow_links_carry_what_blueconnect_promises(shape: tuple[int, int]) -> None:
    """2 (m-1)/m · M/g per NIC and direction: counted in chunks of M, instruction by instruction."""
    g, m = shape
    program = Case(named("blueconnect", "allreduce"), shape).program()
    chunks = program.message_chunks
    for rank, code in enumerate(program.ranks):
        out = sum(
            instr.count
            for block in code.blocks
            if block.send is not None and block.send // g != rank // g
            for instr in block.code
            if instr.op.sends
        )
        assert out * m * g == 2 * (m - 1) * chunks


def test_machines_are_what_the_shapes_say() -> None:
    for one in HIERARCHICAL:
        shape = (4, 4)
        assert machine(one, shape).ranks == 16
        assert (machine(one, shape).hosts == 1) == (one.structure in CABLED)
