"""The picture of the folders is drawn from the imports of today, and they form no cycle."""

from architecture import PICTURE, edges, picture

from sources import parse


def test_the_picture_is_what_the_imports_draw() -> None:
    assert PICTURE.read_text(encoding="utf-8") == picture(), "python tests/support/architecture.py"


def test_a_lazy_import_and_a_type_import_are_edges() -> None:
    files = (
        parse("def f():\n    from ..judge import x", "synth/lp/a.py"),
        parse("if TYPE_CHECKING:\n    from ..lp import a", "synth/judge/__init__.py"),
        parse("", "synth/lp/__init__.py"),
    )
    assert set(edges(files).edges) == {("synth/lp", "synth/judge"), ("synth/judge", "synth/lp")}
