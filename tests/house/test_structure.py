"""Folders and files know each other in one direction; names and ideas stand once."""

import ast

import pytest

from measure import arrays, doors, few, graph, loops, names, sizes
from measure.ratchets import excess, ratchets, require_within
from measure.tree import Figure, Tree
from sources import ROOT, Source, parse, walk

TREE = Tree(ROOT)


def test_folders_and_files_know_each_other_in_one_direction() -> None:
    require_within(graph.measured(TREE), ratchets("imports"))


def test_names_of_classes_and_numbers_are_few() -> None:
    require_within(names.measured(TREE), ratchets("names"))


def test_lines_small_parts_and_words_of_the_dialect_become_fewer() -> None:
    figures = [*few.measured(TREE), *sizes.plain(TREE), *sizes.prose(TREE)]
    limits = ratchets("fewer")
    assert limits.keys() <= {one.key for one in figures}
    require_within(figures, limits)


@pytest.mark.parametrize("section", [loops, arrays, doors], ids=lambda m: m.__name__)
def test_an_idea_has_no_more_places_than_before(section: object) -> None:
    require_within(section.measured(TREE), ratchets("ideas"))  # type: ignore[attr-defined]


def test_modules_are_named_at_run_time_only_by_registries_and_jobs() -> None:
    allowed = ratchets("dynamic")
    ends = tuple(f"/{end}" for end in (*allowed["allowed"], *allowed["still"]))
    found = graph.dynamic_imports(TREE.code)
    assert {file: at for file, at in found.items() if not f"/{file}".endswith(ends)} == {}


def test_a_figure_above_its_limit_is_told_with_its_places() -> None:
    figures = [Figure("cycles", "cycles", 2, ("a, b", "c, d")), Figure("free", "free", 9)]
    assert excess(figures, {"cycles": 2}) == []
    assert excess(figures, {"cycles": 1}) == ["cycles is 2, at most 1: a, b; c, d"]
    with pytest.raises(AssertionError) as told:
        require_within(figures, {"cycles": 1, "free": 8})
    assert str(told.value).splitlines()[:2] == [
        "cycles is 2, at most 1: a, b; c, d",
        "free is 9, at most 8: ",
    ]


def files(**texts: str) -> tuple[Source, ...]:
    """Sources by path, `__` for a slash: `dsl__a="…"` is dsl/a.py."""
    return tuple(parse(text, f"{name.replace('__', '/')}.py") for name, text in texts.items())


def test_the_rule_sees_two_folders_that_know_each_other() -> None:
    both = files(dsl__a="from .b.c import x", dsl__b__c="def f():\n    from ..a import y")
    assert graph.mutual(graph.folder_graph(both, reexports=True)) == ("weft.dsl <-> weft.dsl.b",)
    one = files(dsl__a="from .b.c import x", dsl__b__c="from .d import y", dsl__b__d="")
    assert graph.mutual(graph.folder_graph(one, reexports=True)) == ()


def test_the_rule_sees_a_cycle_of_three_files() -> None:
    three = files(
        dsl__a="from .b import x",
        dsl__b="if TYPE_CHECKING:\n    from .c import y",
        dsl__c="def f():\n    from . import a",
        dsl__d="from .a import z",
    )
    found = graph.components(graph.file_graph(three))
    assert found == [["weft.dsl.a", "weft.dsl.b", "weft.dsl.c"]]
    assert graph.lazy_share(three) == (1, 3)


def test_the_rule_sees_an_import_by_name() -> None:
    (source,) = files(dsl__a="from importlib import import_module as i\nimportlib.import_module(x)")
    assert list(graph.dynamic_imports((source,))) == ["dsl/a.py"]


def test_an_underscore_does_not_make_another_name() -> None:
    two = files(dsl__a="class Plan: ...", dsl__b="class _Plan: ...", dsl__c="class Other: ...")
    assert names.shared_class_names(two) == {"Plan": ["dsl/a.py:1: Plan", "dsl/b.py:1: _Plan"]}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("LARGE = 1 << 20", 1),
        ("_SHARE, MOST = Fraction(1, 2), 3", 2),
        ("HALF: Final = MOST // 2", 1),
        ("FIRST, SECOND = range(2)", 0),
        ("NAME = 'x'\nlower = 3\nFLAG = True", 0),
        ("class Effort:\n    tries: int = 3", 0),
    ],
)
def test_the_rule_counts_numbers_with_a_name(text: str, count: int) -> None:
    (source,) = files(synth__a=text)
    assert len(names.numeric_constants(source)) == count


LOOP = """
def attempt(self, entry):
    for row in self.rows_of(entry):
        if self.taken[row]:
            heappush(self.queue[row], entry)
            return
    heappush(self.times, self.now + 3)
def run(self):
    while self.times:
        self.now = heappop(self.times)
"""
SHORTEST_PATH = """
def route(graph, start, now):
    heap = [(now + 1, start)]
    while heap:
        far, node = heappop(heap)
        for other in graph[node]:
            heappush(heap, (far + 1, other))
"""


def test_the_rule_knows_an_event_loop_from_a_shortest_path() -> None:
    found = loops.event_loops(files(synth__a=LOOP, synth__b=SHORTEST_PATH))
    assert list(found) == ["synth/a.py:2: attempt"]


FORM = """
class Listing:
    op: Ints
    src: Ints
    dst: Ints
    block_start: Ints
    wait_start: Ints
def of(program):
    blocks = [block for rank in program.ranks for block in rank.blocks]
    return [one for block in blocks for one in block.code]
"""
MACHINE = """
class Table:
    src: Ints
    dst: Ints
def table_of(topology) -> Table:
    members = [[i] for i in range(len(topology.links))]
    for row, resource in enumerate(topology.resources, len(members)):
        members[row].append(resource)
    return Table(members, members)
"""
PROGRAM = """
def solve(loads, width, sums):
    from scipy import optimize
    rows = hstack([loads, -width])
    linprog: Any = optimize.linprog
    return linprog(cost, A_ub=rows, b_ub=zeros, A_eq=sums, b_eq=ones)
"""


@pytest.mark.parametrize(
    ("pattern", "text", "at"),
    [
        (arrays.program_forms, FORM, ["a.py:2: Listing"]),
        (arrays.program_forms, MACHINE, []),
        (arrays.flattenings, FORM, ["a.py:8: of"]),
        (arrays.machine_arrays, MACHINE, ["a.py:2: Table"]),
        (arrays.machine_arrays, FORM, []),
        (arrays.congestion_masters, PROGRAM, ["a.py:2: solve"]),
        (arrays.linear_calls, PROGRAM, ["a.py:6: linprog in solve"]),
        (arrays.linear_calls, "def f(core):\n    core._Highs().run()", ["a.py:2: _Highs in f"]),
        (doors.limit_tables, "A = 71\nB = [216, 32767]", ["a.py:1: 71, 216, 32767"]),
        (doors.limit_tables, "A = 71\nB = 72", []),
        (doors.starters, "subprocess.Popen(x, start_new_session=True)", ["a.py:1: Popen"]),
        (doors.starters, "subprocess.Popen(x)", []),
        (doors.bare_starts, "subprocess.run(['ps'])", ["a.py:1: run"]),
        (doors.bare_starts, "x = (sys.executable, '-c')", ["a.py:1: sys.executable"]),
        (doors.bare_starts, "os.execv(x, y)", ["a.py:1: execv"]),
        (doors.bare_starts, "from multiprocessing import Pool", ["a.py:1: multiprocessing"]),
        (doors.bare_starts, "Path(sys.executable).parent", []),
        (
            doors.option_grammars,
            "head, brace, tail = x.partition('{')",
            ["a.py:1: x.partition('{')"],
        ),
        (doors.option_grammars, "name, _, _ = x.partition('{')", []),
    ],
)
def test_the_rule_sees_its_pattern(pattern: object, text: str, at: list[str]) -> None:
    assert callable(pattern)
    assert list(pattern(parse(text, "a.py"))) == at


def test_the_rule_sees_small_parts_and_unused_knobs() -> None:
    three = files(
        dsl__a="def small(x): return x\ndef knob(x, y=1, *, z=2): return 1\ndef kept(x=1): 0",
        dsl__b="from .a import small, knob\nknob(small(1), z=3)\nknob(2)\nloop = kept",
        synth__c="def job(): return 1\ndef many():\n a\n b\n c\nmany()\nx = 'a.c:job'\njob()",
    )
    assert list(few.single_users(three)) == ["dsl/a.py: weft.dsl.b"]
    assert list(few.one_use_functions(three)) == ["dsl/a.py:1: small", "dsl/a.py:3: kept"]
    assert list(few.unused_defaults(three)) == ["dsl/a.py:2: knob(y)"]
    tests = files(tests__a="from weft.dsl.a import x\nfrom weft.dsl import b\nimport os")
    assert few.tested_modules(three, tests) == {"weft.dsl.a", "weft.dsl.b"}


def test_the_rule_sees_folders_of_the_first_level() -> None:
    both = files(
        synth__a__x="from ..b.c.d import f", synth__b__c__d="", synth__b__e="from ..a.x import y"
    )
    assert few.folder_pairs(both) == ("weft.synth.a <-> weft.synth.b",)
    assert few.folder_pairs(both[:2]) == ()


@pytest.mark.parametrize(
    ("pattern", "text", "count"),
    [
        (few.dialect, "# a port is no link", 1),
        (few.dialect, "# so many: Nobody knows", 2),
        (few.dialect, "# it is no longer there, nor has it no more", 0),
        (few.cheapest_paths, "def f():\n heappop(x)", 1),
        (few.cheapest_paths, "def f():\n return csgraph.dijkstra(x)", 1),
        (few.cheapest_paths, "def f():\n heappush(x, 1)\nheappop(x)", 0),
    ],
)
def test_the_rule_counts_words_and_heaps(pattern: object, text: str, count: int) -> None:
    assert callable(pattern)
    assert len(list(pattern(parse(text, "dsl/a.py")))) == count


CLOCK = "synth/base/cancellable.py"
"""The one module of synth that reads a clock: it cuts searches off, and decides nothing else."""

CLOCKS = frozenset({"time", "datetime", "timeit"})


def clocks(source: Source) -> list[str]:
    """Names of clock modules that a file imports, wherever in it."""
    found: list[str] = []
    for node in walk(source.tree):
        match node:
            case ast.Import(names=names):
                found += [one.name for one in names]
            case ast.ImportFrom(module=str(module), level=0):
                found.append(module)
    return [name for name in found if name.partition(".")[0] in CLOCKS]


def test_no_search_reads_a_clock() -> None:
    reading = [s.path for s in TREE.code if s.folder == "synth" and clocks(s)]
    assert [str(path) for path in reading] == [CLOCK]


def test_the_rule_sees_a_clock() -> None:
    one, other = files(a="def f():\n    import time as t", b="from ..time import x\nimport numpy")
    assert clocks(one) == ["time"]
    assert clocks(other) == []
