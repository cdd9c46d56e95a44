"""The sketches that come with weft, and those in files."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from weft.dsl.base.errors import BadFile, SyntaxProblem, UnknownName
from weft.dsl.catalogue import topology
from weft.dsl.language.elaborate import elaborate, machine_text
from weft.dsl.language.format import format
from weft.dsl.language.lint import lint
from weft.dsl.language.load import catalogue_names, find_sketch, load_sketch, sketch_names
from weft.dsl.nouns.sketch import Forbid, Relay, SwitchPolicy, Symmetry

NAMES = sorted(catalogue_names())
ABOUT = sketch_names()


def test_the_catalogue_is_the_folder() -> None:
    folder = Path(__file__).parents[3] / "sketches"
    assert sorted(p.stem for p in folder.glob("*.sketch")) == NAMES
    assert {"dgx1_double_links", "dgx2_few_peers", "ndv2_relay", "torus_rotations"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_sketch_is_canonical_and_fits_its_machine(name: str) -> None:
    tree = load_sketch(name)
    assert tree.name == name
    assert format(tree) == find_sketch(name).text
    machine = topology(machine_text(tree))
    assert elaborate(tree, machine).rules
    assert lint(tree, machine) == ()


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_sketch_says_its_source(name: str) -> None:
    about = ABOUT[name]
    assert "Source: " in about
    assert not about.startswith("#")


def test_the_double_links_of_a_dgx1() -> None:
    machine = topology("dgx1")
    (rule,) = elaborate(load_sketch("dgx1_double_links"), machine).rules
    assert isinstance(rule, Forbid)
    single = {(x.src, x.dst) for x in machine.links if (x.src < 4) != (x.dst < 4) and x.lanes == 1}
    assert rule.pairs == single
    assert rule.label == "no single links between quads"


def test_taccls_dgx2_sketches() -> None:
    one = elaborate(load_sketch("dgx2_few_peers"), topology("dgx2"))
    (policy,) = one.of(SwitchPolicy)
    (symmetry,) = one.of(Symmetry)
    assert isinstance(policy, SwitchPolicy)
    assert isinstance(symmetry, Symmetry)
    assert (policy.switch, policy.peers) == (16, "few")
    assert symmetry.image == tuple((r + 2) % 16 for r in range(16))


def test_taccls_ndv2_relay() -> None:
    one = elaborate(load_sketch("ndv2_relay"), topology("ndv2:nodes=2"))
    (relay,) = one.of(Relay)
    assert isinstance(relay, Relay)
    assert relay.through == ((0, 9), (8, 1))
    assert relay.sources == frozenset(range(16))


def test_a_sketch_from_a_file_and_from_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "sketch mine\nmax hops 2\n"
    file = tmp_path / "mine.sketch"
    file.write_text(text)
    assert load_sketch(str(file)).name == "mine"
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    tree = load_sketch("-")
    assert str(tree.statements[0].span) == "<stdin>:2:1"


def test_bad_names_and_files(tmp_path: Path) -> None:
    with pytest.raises(UnknownName) as caught:
        load_sketch("dgx2_few_pers")
    assert "'dgx2_few_peers'" in caught.value.hint
    with pytest.raises(BadFile, match="no such file"):
        load_sketch("mine.sketch")
    with pytest.raises(BadFile, match="a directory"):
        load_sketch(str(tmp_path))
    (tmp_path / "bad.sketch").write_text("sketch x\nmax\n")
    with pytest.raises(SyntaxProblem) as problem:
        load_sketch(str(tmp_path / "bad.sketch"))
    assert str(problem.value.where).endswith("bad.sketch:2:4")


def test_the_nouns_do_not_load_the_parser_generator() -> None:
    modules = "weft, weft.dsl.nouns.sketch, weft.dsl.language"
    code = f"import sys, {modules}; sys.exit('lark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
