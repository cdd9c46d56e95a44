"""What plans are called, whatever their collective is called."""

import re

import pytest

from weft.backends.tune.manifest import plan_name, stem_of
from weft.dsl.nouns.collective import custom, make


def named(name: str) -> str:
    return plan_name(custom(name, 2, [(0, 0, [0], 0)], [(1, 0, [0], 0)]), 0)


def test_plain_names_stay() -> None:
    assert plan_name(make("allreduce", 4), 1) == "allreduce-2"
    assert named("half swap") == "half_swap-1"


@pytest.mark.parametrize(
    "name",
    ["../../../evil", "/etc/x", "a\nb", "a</script>b", "é", "..", "x" * 500, 'q"q', "a\\b", "$(x)"],
)
def test_any_name_is_that_of_a_file_in_its_folder_and_of_a_program(name: str) -> None:
    assert re.fullmatch(r"\w[\w-]{0,62}", named(name), flags=re.ASCII)


def test_names_that_would_share_files_have_one_stem() -> None:
    one, other = (custom(n, 2, [(0, 0, [0], 0)], [(1, 0, [0], 0)]) for n in ("a b", "a/b"))
    assert stem_of(one) == stem_of(other)
