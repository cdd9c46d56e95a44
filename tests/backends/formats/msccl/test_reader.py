"""The reader reads what the runtimes read: their lexical rules, their numbers, their fusion."""

import ctypes

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msccl_files import (
    EACH,
    SAMPLES,
    Gpu,
    Tb,
    algo,
    exchange,
    hostile_texts,
    pairs_allreduce,
    ring_allreduce,
)
from xml_edit import add_step, both, step, sub

from weft.backends.check.checker import check_program
from weft.backends.execute.execute import run_program
from weft.backends.formats.msccl.check import check_xml
from weft.backends.formats.msccl.read import program_of, read_msccl_xml
from weft.backends.formats.msccl.read.collective import collective_of
from weft.backends.formats.msccl.read.elements import integer, wrap
from weft.backends.formats.msccl.run import run_algo
from weft.dsl.base.errors import BadFile, UserError
from weft.dsl.nouns.program import Op, Slice

TWO = exchange()


def one_block(*tbs: Tb) -> str:
    """A file of two ranks whose rank 0 has these blocks."""
    idle = Gpu(4, 4, 4, [Tb().step("cpy", "i0", "o0")])
    return algo([Gpu(4, 4, 4, list(tbs)), idle], "allreduce", 4)


def first(text: str) -> object:
    return read_msccl_xml(text).ranks[0].blocks[0].transfers


def remarks(text: str) -> str:
    return "\n".join(map(str, read_msccl_xml(text).remarks))


def test_reads_the_plain_example() -> None:
    got = read_msccl_xml(TWO, "two.xml")
    assert (got.ngpus, got.coll, got.message_chunks, got.channels) == (2, "allgather", 2, 1)
    assert (got.inplace, got.outofplace, got.min_bytes, got.max_bytes) == (False, True, 0, 1 << 30)
    block = got.ranks[1].blocks[0]
    assert (block.send, block.recv, block.channel, block.steps) == (0, 0, 0, 2)
    send, receive = block.transfers
    assert (send.op, send.src.offset, send.dst) == (Op.SEND, 0, Slice(send.dst.buffer, 1))
    assert (receive.op, receive.flag, receive.publishes) == (Op.RECV, 1, False)
    assert got.remarks == ()


@pytest.mark.parametrize("name", EACH)
def test_samples_have_no_oddities(name: str) -> None:
    text = SAMPLES[name]
    got = read_msccl_xml(text, name)
    assert got.remarks == ()
    assert got.steps == text.count("<step")
    assert len(got.ranks) == text.count("<gpu") == got.ngpus
    assert sum(len(r.blocks) for r in got.ranks) == text.count("<tb")


# --- the lexical level ------------------------------------------------------------------------

ACCEPTED = {
    "crlf": lambda t: t.replace("\n", "\r\n"),
    "comments": lambda t: "<!-- a = b -->\n" + t.replace("  <gpu", "<!-- x --> <gpu"),
    "double space": lambda t: t.replace(' s="0"', '  s="0"'),
    "space before the end": lambda t: t.replace("/>", " />"),
    "open and close step": lambda t: t.replace('hasdep="0"/>', 'hasdep="0"></step>'),
    "unknown element": lambda t: t.replace("</tb>", '<copy a="1"><x></y></copy></tb>'),
    "unknown attribute": lambda t: t.replace(' s="0"', ' x="9" s="0"'),
    "entities stay text": lambda t: t.replace('name="test"', 'name="&lol9;"'),
    "second algo": lambda t: t + "<algo></algo>",
    "one line": lambda t: t.replace("\n", ""),
    "a second value loses": lambda t: t.replace(' s="0"', ' s="0" s="7"'),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_the_runtimes_accept(name: str) -> None:
    plain, changed = read_msccl_xml(TWO), read_msccl_xml(ACCEPTED[name](TWO))
    assert changed.ranks == plain.ranks


CROWD = " ".join(f'a{k}="1"' for k in range(7))
"""Attributes more than a step may have."""

REJECTED = {
    "tab": (lambda t: t.replace("  <gpu", "\t<gpu"), "not '\\\\t'", ":2:1"),
    "declaration": (lambda t: '<?xml version="1.0"?>\n' + t, "declaration", ":1:1"),
    "doctype": (lambda t: '<!DOCTYPE a [<!ENTITY b "c">]>\n' + t, "declaration", ":1:1"),
    "byte-order mark": (lambda t: "\ufeff" + t, "expected", ":1:1"),
    "text": (lambda t: t.replace("  <gpu", "  x<gpu", 1), "expected", ":2:3"),
    "text at the end": (lambda t: t + "end", "expected", ""),
    "newline in a tag": (lambda t: t.replace(" proto", "\nproto", 1), "'>' is expected", ":1:18"),
    "single quotes": (lambda t: t.replace('"test"', "'test'"), "single quotes", ":1:12"),
    "no quotes": (lambda t: t.replace('"Simple"', "Simple"), "double quote", ""),
    "tab between attributes": (lambda t: t.replace(' s="0"', '\ts="0"'), "unexpected value", ""),
    "equals sign in a comment": (lambda t: "<!--a=b-->" + t, "comment", ":1:6"),
    "endless comment": (lambda t: t + "<!-- ", "never ends", ""),
    "long name": (lambda t: t.replace("<tb ", "<" + "t" * 300 + " ", 1), "254", ""),
    "no algo": (lambda t: t.replace("algo", "other"), "where <algo> must begin", ":1:1"),
    "mismatched end": (lambda t: t.replace("</tb>", "</gpu>", 1), "</tb> must stand", ""),
    "stray end": (lambda t: t + "</algo>", "closes nothing", ""),
    "child of a step": (
        lambda t: t.replace('hasdep="0"/>', 'hasdep="0"><x/></step>', 1),
        "crash",
        "",
    ),
    "missing attribute": (lambda t: t.replace(' cnt="1"', "", 1), "'cnt' of <step>", ":4:7"),
    "unknown type": (lambda t: t.replace('type="cpy"', 'type="copy"'), "unknown type", ""),
    "unknown buffer": (lambda t: t.replace('srcbuf="i"', 'srcbuf="q"'), "unknown srcbuf", ""),
    "unknown protocol": (lambda t: t.replace("Simple", "simple"), "unknown proto", ""),
    "unknown collective": (lambda t: t.replace("allgather", "AllGather"), "unknown coll", ""),
    "missing rank": (lambda t: t.replace('ngpus="2"', 'ngpus="3"'), "got none of rank 2", ""),
    "rank twice": (lambda t: t.replace('gpu id="1"', 'gpu id="0"'), "second <gpu>", ""),
    "seventeen attributes": (sub("<step ", f"<step {CROWD} "), "'hasdep' of <step>", ":4:7"),
    "text between blocks": (sub("  <tb", "  x <tb"), "is expected", ":3:5"),
    "truncated": (lambda t: t[:-40], "inside a tag", ""),
    "no deps on a nop": (
        both(add_step(0, 0, 0, "nop"), step(0, 0, 0, deps=None)),
        "'deps' of <step>",
        "",
    ),
    "the type ra": (step(0, 1, 0, type="ra"), "unknown type 'ra'", ""),
    "a buffer on an ignored side": (step(0, 0, 0, dstbuf="q"), "unknown dstbuf", ""),
    "empty": (lambda t: "", "empty", ":1:1"),
    "only blanks": (lambda t: " \n ", "empty", ":1:1"),
    "entity bomb": (
        lambda t: '<!DOCTYPE lolz [<!ENTITY lol "' + "lol" * 9 + '">]>' + t,
        "declaration",
        "",
    ),
}


@pytest.mark.parametrize("name", REJECTED)
def test_what_no_runtime_reads(name: str) -> None:
    change, message, where = REJECTED[name]
    with pytest.raises(BadFile) as caught:
        read_msccl_xml(change(TWO), "x.xml")
    rendered = caught.value.render() + repr(caught.value.message)
    assert message in rendered
    assert f"x.xml{where}" in rendered
    assert caught.value.exit_code == 2


def test_only_sixteen_attributes_count() -> None:
    crowd = CROWD.removesuffix(' a6="1"')
    assert read_msccl_xml(TWO.replace(' s="0"', f' {crowd} s="0"')).ranks
    with pytest.raises(BadFile, match="'hasdep' of <step> is missing"):
        read_msccl_xml(TWO.replace(' s="0"', f' {CROWD} s="0"', 1))


def test_every_truncation_is_one_clear_error() -> None:
    text = TWO.rstrip("\n")
    for end in range(len(text)):
        with pytest.raises(BadFile):
            read_msccl_xml(text[:end], "cut.xml")


def test_hostile_text_is_one_short_error() -> None:
    for text in hostile_texts(10_000):
        with pytest.raises(BadFile) as caught:
            read_msccl_xml(text, "hostile")
        assert len(caught.value.render()) < 3000
    deep = TWO.replace("</tb>", "<x>" * 100_000 + "</x>" * 100_000 + "</tb>", 1)
    assert read_msccl_xml(deep).ranks == read_msccl_xml(TWO).ranks  # skipped, as the runtimes do


# --- numbers ----------------------------------------------------------------------------------


@given(st.text("0123456789abcdefxX+- \t;", max_size=30) | st.integers().map(str))
def test_integers_are_those_of_the_c_library(text: str) -> None:
    strtoll = ctypes.CDLL(None).strtoll
    strtoll.restype = ctypes.c_longlong
    exact = strtoll(text.encode(), None, 0)
    assert integer(text, 64)[0] == exact
    assert integer(text, 32)[0] == ctypes.c_int(exact & 0xFFFFFFFF).value


@given(st.integers(-(1 << 40), 1 << 40))
def test_narrow_fields_wrap_as_in_c(value: int) -> None:
    assert wrap(value, 16) == ctypes.c_int16(value & 0xFFFF).value
    assert wrap(value, 8) == ctypes.c_int8(value & 0xFF).value


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('srcoff="0"', 'srcoff="010"', "read as 8: octal"),
        ('srcoff="0"', 'srcoff="0x1"', "read as 1: hexadecimal"),
        ('chan="0"', 'chan="zero"', "read as 0: not a number"),
        ('cnt="1"', 'cnt="1 chunk"', "trailing text"),
        ('dstoff="1"', 'dstoff="65537"', "offset 65537 wraps to 1"),
        ('srcoff="0"', 'srcoff="40000"', "offset 40000 wraps to -25536"),
        ('minBytes="0"', f'minBytes="{1 << 70}"', "more than 64 bits"),
        ('hasdep="0"', 'hasdep="2"', "hasdep must be 0 or 1"),
        ('cnt="1"', 'cnt="72"', "cnt 72 is outside"),
        ('cnt="1"', 'cnt="0"', "cnt 0"),
        (' name="test"', "", "'name' of <algo> is missing"),
        (' outofplace="1"', "", "'outofplace' of <algo> is missing"),
        ('coll="allgather"', 'coll="custom"', "coll 'custom' is unknown there"),
        ('depid="-1"', 'depid="200"', "depid 200 wraps to -56"),
        ('depid="-1"', 'depid="-7"', "depid -7 is read as none"),
    ],
)
def test_odd_values_are_remarked(old: str, new: str, says: str) -> None:
    assert says in remarks(TWO.replace(old, new, 1))


# --- dependences and fusion -------------------------------------------------------------------


def test_the_worked_numbering() -> None:
    """The example of the facts: two nops, two fused re, then a send of the sum."""
    tb = Tb(send=1)
    tb.step("nop", dep=(0, 1)).step("nop", dep=(1, 1))
    tb.step("re", "s0", "o1", dep=(2, 1)).step("re", "s1", "o1", hasdep=1).step("s", "o1")
    fused, send = first(one_block(tb))  # type: ignore[misc]
    assert fused.waits == ((0, 1), (1, 1), (2, 1))
    assert (fused.src.offset, fused.more_sources) == (0, (1,))
    assert (fused.flag, fused.publishes) == (3, True)
    assert (send.flag, send.waits) == (4, ())
    assert remarks(one_block(tb)) == ""


@pytest.mark.parametrize(
    ("second", "fused"),
    [
        ({"src": "s1"}, True),
        ({"src": "i1"}, False),
        ({"dst": "o2"}, False),
        ({"dst": "s3"}, False),
        ({"dep": (1, 0)}, False),
        ({"dep": (-2, 0)}, False),
        ({"cnt": 2}, True),
    ],
)
def test_what_fuses(second: dict[str, object], fused: bool) -> None:
    tb = Tb().step("re", "s0", "o1")
    tb.step("re", **{"src": "s1", "dst": "o1", **second})  # type: ignore[arg-type]
    transfers = first(one_block(tb))
    assert len(transfers) == (1 if fused else 2)  # type: ignore[arg-type]


def test_a_published_re_ends_the_chain() -> None:
    tb = Tb().step("re", "s0", "o1", hasdep=1).step("re", "s1", "o1")
    assert len(first(one_block(tb))) == 2  # type: ignore[arg-type]


def test_only_the_sixteenth_re_of_a_block_cuts_a_chain() -> None:
    tb = Tb()
    for _ in range(40):
        tb.step("re", "s1", "o1")
    sizes = [1 + len(t.more_sources) for t in first(one_block(tb))]  # type: ignore[attr-defined]
    assert sizes == [16, 24]


def test_a_nop_in_a_chain_is_waited_for_too_late() -> None:
    tb = Tb().step("re", "s0", "o1", dep=(1, 0)).step("nop", dep=(1, 1)).step("re", "s1", "o1")
    tb.step("cpy", "o1", "o2", dep=(1, 2))
    chain, copy = first(one_block(tb, Tb()))  # type: ignore[misc]
    assert chain.waits == ((1, 0),)
    assert copy.waits == ((1, 1), (1, 2))
    assert "a nop between fused re" in remarks(one_block(tb, Tb()))


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ([("nop", {"dep": (0, 0)}), ("cpy", {})], "has none of its own"),
        ([("nop", {}), ("cpy", {})], "not counted"),
        ([("nop", {"dep": (0, 0), "hasdep": 1}), ("cpy", {"dep": (0, 0)})], "never published"),
        ([("cpy", {}), ("nop", {"dep": (0, 0)})], "dropped"),
        ([("cpy", {"s": 5})], "differs from its s"),
        ([("re", {"cnt": 1}), ("re", {"cnt": 2})], "the last one's is used"),
    ],
)
def test_traps_of_dependences_are_remarked(steps: list[tuple[str, dict]], says: str) -> None:  # type: ignore[type-arg]
    tb = Tb()
    for kind, options in steps:
        tb.step(kind, **options)
    assert says in remarks(one_block(tb))


# --- as a program -------------------------------------------------------------------------------

FILES = {"exchange": exchange(), "ring": ring_allreduce(4), "pairs": pairs_allreduce(4)}


@pytest.mark.parametrize("name", [*FILES, *EACH])
def test_a_file_as_a_program_is_right_and_runs(name: str) -> None:
    got = read_msccl_xml({**SAMPLES, **FILES}[name], name)
    program = program_of(got, collective_of(got))
    assert check_program(program) == ()
    assert run_program(program, interleavings=6).ok
    steps = sum(1 + len(t.more_sources) for r in got.ranks for b in r.blocks for t in b.transfers)
    assert program.instructions == steps


def test_a_program_needs_dependences_that_can_be_satisfied() -> None:
    got = read_msccl_xml(pairs_allreduce(3).replace('hasdep="1"', 'hasdep="0"', 1))
    with pytest.raises(BadFile, match="publishes nothing"):
        program_of(got, collective_of(got))
    got = read_msccl_xml(exchange().replace('tb id="1"', 'tb id="5"'))
    with pytest.raises(BadFile, match="not 0, 1, 2"):
        program_of(got, collective_of(got))


# --- anything at all --------------------------------------------------------------------------

BASES = (TWO, ring_allreduce(3), pairs_allreduce(3))
JUNK = st.sampled_from(
    [
        '"',
        "<",
        ">",
        "/",
        " ",
        "=",
        "\n",
        "\t",
        "-1",
        "0",
        "7",
        "99999999999",
        "0x",
        "&lt;",
        "é",
        "</tb>",
        "<step",
        'cnt="0"',
        'depid="1"',
        "\x00",
        "'",
        "<!--",
        "-->",
    ]
)


@settings(max_examples=examples(75, 150), deadline=None)
@given(st.data())
def test_a_damaged_file_is_never_a_traceback(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(BASES))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        width = data.draw(st.sampled_from([0, 1, 1, 2, 12, 80]))
        text = text[:at] + data.draw(JUNK) + text[at + width :]
    try:
        got = read_msccl_xml(text, "damaged")
        check_xml(got)
        run_algo(got, interleavings=2)
    except UserError as error:
        str(error.render())


NUMBER = st.sampled_from(["-2", "-1", "0", "1", "2", "3", "5", "71", "72", "300", "32767", "65536"])


@settings(max_examples=examples(75, 150), deadline=None)
@given(st.data())
def test_changed_numbers_that_pass_the_checker_run(data: st.DataObject) -> None:
    """What the checker calls right does not hang, does not leave its buffers, is deterministic."""
    words = data.draw(st.sampled_from(BASES)).split('"')
    places = [i for i in range(1, len(words), 2) if words[i].lstrip("-").isdigit()]
    for _ in range(data.draw(st.integers(1, 2))):
        words[data.draw(st.sampled_from(places))] = data.draw(NUMBER)
    try:
        got = read_msccl_xml('"'.join(words), "changed")
        findings = check_xml(got)
        result = run_algo(got, interleavings=6)
    except UserError:
        return
    if not any(f.severity == "error" for f in findings):
        assert "deadlock" not in result.detail
        assert "addresses" not in result.detail
        assert "never received" not in result.detail
