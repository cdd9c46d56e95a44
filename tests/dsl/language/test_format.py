"""The formatter loses nothing, and its text is a fixed point."""

from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.dsl.language import ast
from weft.dsl.language.ast import Operator, Trivia
from weft.dsl.language.format import format
from weft.dsl.language.parse import parse
from weft.dsl.nouns.sketch import Measure

WORDS = st.sampled_from(["p", "q", "nodes", "rank", "data", "gpu0", "nic0.1", "e5", "_x", "links"])
LEAVES = st.one_of(
    st.integers(0, 99).map(ast.Number), WORDS.map(ast.Name), st.just(ast.Quoted("leaf-3"))
)
EXPRESSIONS = st.recursive(
    LEAVES, lambda e: st.builds(ast.Binary, st.sampled_from(Operator), e, e), max_leaves=5
)
MAYBE = st.none() | EXPRESSIONS
ITEMS = EXPRESSIONS | st.builds(ast.Range, EXPRESSIONS, EXPRESSIONS)


def groups(least: int) -> st.SearchStrategy[ast.RangeList]:
    return st.lists(ITEMS, min_size=least, max_size=3).map(lambda x: ast.RangeList(tuple(x)))


SIDES = ITEMS | groups(2) | st.just(ast.Any())
PAIRS = st.builds(ast.Pair, SIDES, SIDES, st.booleans())
NODES = st.builds(ast.BetweenNodes, st.none() | PAIRS) | st.builds(
    ast.WithinNode, st.none() | SIDES
)
SELECTORS = PAIRS | NODES | st.just(ast.SameLocalRank())
AXES = st.builds(ast.Dimension, st.sampled_from(["x", "y"]) | EXPRESSIONS)


def tuples(of: st.SearchStrategy, least: int = 1, most: int = 3) -> st.SearchStrategy:
    return st.lists(of, min_size=least, max_size=most).map(tuple)


SELECTIONS = st.builds(ast.Selection, tuples(SELECTORS), tuples(SELECTORS, 0, 2))
GENERATORS = st.one_of(
    st.builds(ast.Rotate, EXPRESSIONS, within_node=st.booleans()),
    st.builds(ast.Rotate, EXPRESSIONS, blocks=EXPRESSIONS),
    st.builds(ast.Rotate, EXPRESSIONS, axis=AXES),
    st.builds(ast.Reflect, AXES),
    st.builds(ast.Swap, AXES, AXES),
    st.builds(ast.RotateNodes, MAYBE),
    st.builds(ast.Permute, tuples(tuples(EXPRESSIONS, 2)), st.booleans()),
)
COMMENTS = st.sampled_from(["", "# why", "#!odd  spaces", '# a "quote', "# α"])
# No two blank lines in a row, and no blank line where nothing is above it to be parted from.
ABOVE = st.lists(COMMENTS, max_size=3).map(
    lambda x: tuple(c for i, c in enumerate(x) if c or i == 0 or x[i - 1])
)
BESIDE = st.sampled_from(["", "", "# beside"])
TRIVIA = st.builds(Trivia, ABOVE, BESIDE)
LABELS = st.none() | st.sampled_from(["x", 'say "no"', "back\\slash", "# no comment"])
LINE = {"trivia": TRIVIA}
RULE = {"trivia": TRIVIA, "label": LABELS}
SOURCES = groups(1) | st.just(ast.Any())
POLICIES = st.sampled_from(
    [ast.Policy(ast.SwitchWord.FEW), ast.Policy(ast.SwitchWord.MANY)]
) | st.builds(ast.Policy, st.just(ast.SwitchWord.AT_MOST), EXPRESSIONS)
SWITCHES = st.sampled_from([ast.Name("nvswitch"), ast.Quoted("leaf-3"), ast.Any()])
RULES = st.one_of(
    st.builds(ast.OnlyRule, SELECTIONS, **RULE),
    st.builds(ast.ForbidRule, SELECTIONS, **RULE),
    st.builds(ast.RelayRule, SOURCES, tuples(PAIRS), st.booleans(), **RULE),
    st.builds(ast.OwnFirstRule, st.none() | SELECTIONS, **RULE),
    st.builds(ast.MaxDetourRule, st.just(Measure.HOPS), EXPRESSIONS, **RULE),
    st.builds(ast.MaxDetourRule, st.sampled_from(Measure), percent=st.integers(0, 300), **RULE),
    st.builds(ast.SwitchRule, SWITCHES, POLICIES, **RULE),
    st.builds(ast.SymmetryRule, tuples(GENERATORS), **RULE),
    st.builds(ast.MaxHopsRule, EXPRESSIONS, **RULE),
    st.builds(ast.MaxStepsRule, EXPRESSIONS, **RULE),
    st.builds(
        ast.SendRule,
        MAYBE,
        EXPRESSIONS,
        MAYBE,
        EXPRESSIONS,
        EXPRESSIONS,
        MAYBE,
        st.booleans(),
        **RULE,
    ),
)
HEADS = NODES | st.builds(ast.Loop, WORDS, groups(1))


def no_blank(notes: tuple[str, ...], *, end: bool) -> tuple[str, ...]:
    """Without blank lines at the end, or at the start."""
    while notes and not notes[-1 if end else 0]:
        notes = notes[:-1] if end else notes[1:]
    return notes


def first_has_no_blank_above(lines: tuple) -> tuple:
    from dataclasses import replace

    first = lines[0]
    above = no_blank(first.trivia.above, end=False)
    return (replace(first, trivia=replace(first.trivia, above=above)), *lines[1:])


PLACES = st.one_of(
    st.just(ast.WithinNode()),
    st.just(ast.ByLocalRank()),
    st.builds(ast.InBlocks, EXPRESSIONS),
    st.builds(ast.AcrossBlocks, EXPRESSIONS),
    st.builds(ast.Along, AXES),
    st.builds(ast.InGroups, tuples(tuples(EXPRESSIONS, 2))),
)
KINDS = st.sampled_from(["reduce_scatter", "allreduce", "allgather", "alltoall"])
PHASES = st.builds(
    ast.PhasesRule,
    tuples(st.builds(ast.PhaseLine, KINDS, PLACES, **LINE)).map(first_has_no_blank_above),
    ABOVE.map(lambda x: no_blank(x, end=True)),
    **RULE,
)


def blocks(inner: st.SearchStrategy) -> st.SearchStrategy:
    return st.builds(
        ast.RuleBlock,
        HEADS,
        tuples(inner).map(first_has_no_blank_above),
        ABOVE.map(lambda x: no_blank(x, end=True)),
        **LINE,
    )


BODIES = st.recursive(RULES, lambda inner: RULES | blocks(inner), max_leaves=6)
HEADERS = st.tuples(
    st.builds(
        ast.MachineLine,
        st.just("dgx2"),
        tuples(st.builds(ast.Argument, WORDS, MAYBE), 0, 2),
        **LINE,
    )
    | st.builds(ast.MachineLine, st.just("dgx-a100:nodes=4,bw=25GB/s"), **LINE),
    st.builds(ast.CollectiveLine, st.sampled_from(["allgather", "reduce_scatter"]), **LINE),
    st.integers(1, 1 << 40).flatmap(
        lambda low: st.builds(ast.SizeLine, st.just(low), st.integers(low, 1 << 41), **LINE)
    ),
    st.builds(ast.EngineLine, st.sampled_from(["exact", "packing{trees=4,paths=a+b}"]), **LINE),
    st.builds(ast.ChunksRule, EXPRESSIONS, **RULE)
    | st.builds(
        ast.ChunksBySizeRule,
        st.just(((ast.Number(1), 1000), (ast.Name("p"), 1 << 20))),
        EXPRESSIONS,
        **RULE,
    ),
    PHASES,
)
PARAMETERS = st.lists(
    st.builds(ast.Parameter, WORDS, MAYBE), max_size=3, unique_by=lambda p: p.name
).map(tuple)
SKETCHES = st.builds(
    ast.SketchTree,
    st.sampled_from(["two", "dgx2-relay_2"]),
    PARAMETERS,
    st.tuples(HEADERS, tuples(BODIES, 0)).map(lambda x: x[0] + x[1]),
    ABOVE.map(lambda x: no_blank(x, end=True)),
    trivia=st.builds(Trivia, ABOVE.map(lambda x: no_blank(x, end=False)), BESIDE),
)


@settings(max_examples=examples(20, 150))
@given(SKETCHES)
def test_what_is_formatted_parses_to_the_same_tree(tree: ast.SketchTree) -> None:
    text = format(tree)
    assert parse(text) == tree
    assert format(parse(text)) == text
