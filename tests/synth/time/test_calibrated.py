"""The calibrated runtime model: which number holds, where it is from, and what it does to times."""

from dataclasses import replace
from fractions import Fraction

import pytest

from weft.backends.cli.flags.shared import MODELS
from weft.dsl.base.errors import UnknownName, UserError
from weft.dsl.catalogue import topology
from weft.dsl.nouns.collective import make
from weft.dsl.nouns.program import Block, Buffer, Instr, Op, Program, Protocol, RankProgram, Slice
from weft.dsl.nouns.timing import MachineTiming, TimingNumber
from weft.dsl.nouns.topology import Medium, Topology
from weft.synth.time.calibrated import (
    DATASHEET,
    NCCL,
    USUAL_MODEL,
    Certainty,
    ModelChoice,
    calibrated_model,
    families,
    given_number,
    host_us,
    link_media,
    named_model,
    timing_keys,
)
from weft.synth.time.calibrated import MODELS as NAMES
from weft.synth.time.program_time import ProgramClock, simulate_program
from weft.synth.time.runtime_model import MSCCL, RuntimeModel

IN, OUT = Slice(Buffer.INPUT, 0), Slice(Buffer.OUTPUT, 0)


def one_message(ranks: int, target: int) -> Program:
    """Rank 0 sends its buffer to one rank, which has what a broadcast to it alone would bring."""
    blocks: list[tuple[Block, ...]] = [() for _ in range(ranks)]
    blocks[0] = (Block(0, target, None, (Instr(Op.SEND, IN, OUT),)),)
    blocks[target] = (Block(0, None, 0, (Instr(Op.RECV, IN, OUT),)),)
    views = [RankProgram(mine, 1, 1, 0) for mine in blocks]
    return Program.of("one", make("broadcast", ranks, roots=(0,)), views, 1)


def us(program: Program, machine: Topology, size: int, protocol: str, model: RuntimeModel) -> float:
    """The time of a program, by the simulation and by the clock."""
    one = Protocol(protocol)
    found = simulate_program(program, machine, size, model, protocol=one).time_us
    assert ProgramClock(program, machine, model).time_us(size, one) == pytest.approx(found)
    return found


def test_a_message_costs_start_alpha_of_the_medium_and_its_bytes_at_what_is_reached() -> None:
    machine = topology("dgx-h100")
    model = calibrated_model(machine)
    tiny = us(one_message(8, 3), machine, 1, "LL", model)
    assert tiny == pytest.approx(6.6 + 0.6 * 1.15, abs=1e-3)
    assert us(one_message(8, 3), machine, 1, "Simple", model) == pytest.approx(
        8.4 + 3.4 * 1.15, abs=1e-3
    )
    free = calibrated_model(machine, given=[given_number("cap.send=1000")])
    large = us(one_message(8, 3), machine, 1 << 20, "Simple", free)
    assert large - 8.4 - 3.4 * 1.15 == pytest.approx((1 << 20) / (450e3 * 0.824))


def test_between_hosts_the_network_counts_and_a_longer_way_more() -> None:
    rails, spine = (topology(f"dgx-h100:nodes=2,fabric={x}") for x in ("rails", "rails+spine"))
    model = calibrated_model(rails)
    assert us(one_message(16, 8), rails, 1, "LL", model) == pytest.approx(6.6 + 5 * 1.5, abs=1e-3)
    far = us(one_message(16, 9), spine, 1, "LL", calibrated_model(spine))
    assert far == pytest.approx(6.6 + 5 * 1.5 + 2.5, abs=1e-3)


def test_a_thread_block_sends_no_faster_than_it_can() -> None:
    machine = topology("dgx-a100")
    capped = calibrated_model(machine, given=[given_number("cap.send=10")])
    time = us(one_message(8, 1), machine, 1 << 20, "Simple", capped)
    assert time == pytest.approx(8.4 + 3.4 * 2.5 + (1 << 20) / 10e3)


def test_messages_hold_a_nic_and_do_not_wait_for_that_themselves() -> None:
    machine = topology("dgx-h100:nodes=2,fabric=star")
    collective = make("alltoall", 16)
    send = tuple(
        Block(0, peer, None, (Instr(Op.SEND, Slice(Buffer.INPUT, peer), Slice(Buffer.OUTPUT, 0)),))
        for peer in range(8, 16)
    )
    take = [
        (Block(0, None, 0, (Instr(Op.RECV, Slice(Buffer.INPUT, r), Slice(Buffer.OUTPUT, 0)),)),)
        for r in range(8, 16)
    ]
    views = [RankProgram(b, 256, 256, 0) for b in (send, *[()] * 7, *take)]
    program = Program.of("burst", collective, views, 256)
    found = [
        us(program, machine, 256, "LL", calibrated_model(machine, given=[given_number(text)]))
        for text in ("message.LL=0", "message.LL=3")
    ]
    assert found[0] == pytest.approx(6.6 + 7.5, abs=1e-3)
    assert found[1] == pytest.approx(6.6 + 7.5 + 7 * 3, abs=1e-3)


@pytest.mark.parametrize("width", ["41.66666666666666", "123.4567890123456789"])
def test_bandwidths_of_many_digits_are_timed(width: str) -> None:
    machine = topology(f"dgx-h100:nodes=2,nic_bw={width}GB/s,bw={width}GB/s")
    model = calibrated_model(machine)
    assert us(one_message(16, 8), machine, 12345, "LL", model) > 6.6 + 7.5


def test_the_host_counts_only_where_it_is_slower() -> None:
    machine = topology("dgx-h100")
    assert host_us(machine, 8) == 40
    hosted = replace(calibrated_model(machine), host_us=Fraction(40))
    assert us(one_message(8, 1), machine, 1, "LL", hosted) == 40


def test_runtimes_start_as_their_sources_say() -> None:
    machine = topology("mi300x")
    starts = {
        runtime: calibrated_model(machine, runtime).protocol(Protocol.LL).start_us
        for runtime in ("msccl", "executor", "portable", NCCL, "rccl", "mscclpp")
    }
    assert {k: float(v) for k, v in starts.items()} == {
        "msccl": 6.6,
        "executor": 6.6,
        "portable": 6.6,
        NCCL: 6.6,
        "rccl": 12,
        "mscclpp": 4.5,
    }


def test_every_number_says_what_it_is_and_what_replaces_it() -> None:
    for family in families():
        made = replace(topology("dgx-h100"), timing=MachineTiming(family))
        for number in calibrated_model(made).numbers:
            assert number.source
            assert number.key in number.replaced_by
    of = {n.key: n for n in calibrated_model(topology("dgx-h100:family=h200")).numbers}
    assert of["factor.nvlink"].certainty is Certainty.ASSUMED
    assert of["factor.nvlink"].source.startswith("as for h100")
    of = {n.key: n for n in calibrated_model(topology("dgx-h100")).numbers}
    assert of["factor.nvlink"].certainty is Certainty.FITTED
    assert of["start.LL"].certainty is Certainty.PUBLISHED


def test_links_of_no_known_class_keep_alpha_and_bandwidth_of_the_machine() -> None:
    machine = topology("torus:4x4")
    model = calibrated_model(machine)
    assert not any("nvlink" in n.key or "cap" in n.key for n in model.numbers)
    (remark,) = model.remarks
    assert remark.startswith("no class of link is known: ")
    link = next(one for one in machine.links if one.src == 0)
    bare = us(one_message(16, link.dst), machine, 1 << 20, "Simple", MSCCL)
    told = us(one_message(16, link.dst), machine, 1 << 20, "Simple", model)
    assert told == pytest.approx(bare + 8.4)
    with pytest.raises(UserError, match=r"no link of .* is of class nvlink"):
        ModelChoice(given=(given_number("alpha.nvlink.LL=1"),)).on(machine)
    known = calibrated_model(topology("torus:4x4,family=h100"))
    assert not known.remarks


def test_own_numbers_of_a_machine_tell_its_medium() -> None:
    own = MachineTiming(numbers=(TimingNumber("alpha.pcie.LL", Fraction(1), "measured"),))
    assert set(link_media(replace(topology("ring:4"), timing=own))) == {Medium.PCIE}
    assert set(link_media(topology("ring:4"))) == {None}


def test_the_usual_model_is_the_calibrated_one_on_the_command_line_and_in_python() -> None:
    assert MODELS[0] == USUAL_MODEL
    assert set(MODELS) == set(NAMES)
    machine = topology("dgx-h100")
    program = one_message(8, 3)
    usual = simulate_program(program, machine, 4096).time_us
    assert usual == us(program, machine, 4096, "Simple", calibrated_model(machine))
    plain = named_model(machine, model=DATASHEET)
    assert simulate_program(program, machine, 4096, plain).time_us < 2 < 8.4 < usual
    with pytest.raises(UserError, match="calibrated model"):
        ModelChoice(DATASHEET, (given_number("start.LL=1"),))


def test_numbers_of_the_machine_count_and_given_ones_before_them() -> None:
    own = MachineTiming("h100", (TimingNumber("alpha.nvlink.LL", Fraction(2), "box.toml"),))
    machine = replace(topology("dgx-h100"), timing=own)
    assert us(one_message(8, 1), machine, 1, "LL", calibrated_model(machine)) == pytest.approx(
        8.6, abs=1e-3
    )
    given = calibrated_model(machine, given=[given_number("alpha.nvlink.LL=3")])
    assert us(one_message(8, 1), machine, 1, "LL", given) == pytest.approx(9.6, abs=1e-3)
    number = next(n for n in given.numbers if n.key == "alpha.nvlink.LL")
    assert number.certainty is Certainty.GIVEN


@pytest.mark.parametrize("text", ["alpha.nvlink.LL", "alpha.nvlink.LL=fast", "start.LL=-1"])
def test_a_given_number_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        given_number(text)


def test_unknown_keys_and_families_are_named() -> None:
    with pytest.raises(UnknownName, match=r"alpha\.nvlin\.LL"):
        given_number("alpha.nvlin.LL=1")
    with pytest.raises(UnknownName, match="h1000"):
        calibrated_model(topology("dgx-h100:family=h1000"))
    assert "start.LL" in timing_keys()
    assert "factor.nvlink" in timing_keys()  # as the notes on defaults say


def test_links_between_hosts_are_the_network_and_those_to_a_nic_pcie() -> None:
    machine = topology("dgx2:nodes=2")
    kinds = {
        (machine.nodes[x.src].kind, machine.nodes[x.dst].kind, medium)
        for x, medium in zip(machine.links, link_media(machine), strict=True)
        if x.src < machine.ranks
    }
    assert {(str(b), str(m)) for _, b, m in kinds} == {("switch", "nvlink"), ("nic", "pcie")}
    assert set(link_media(topology("mi300x"))) == {Medium.XGMI}


def test_a_factor_that_is_given_scales_alpha_of_all_protocols() -> None:
    machine = topology("dgx-h100")
    plain = calibrated_model(machine)
    given = calibrated_model(machine, given=[given_number("factor.nvlink=2.3")])
    nominal = Fraction("0.7")
    for name, one in plain.protocols.items():
        alpha = one.alpha_us[Medium.NVLINK] + nominal
        assert given.protocols[name].alpha_us[Medium.NVLINK] + nominal == 2 * alpha
