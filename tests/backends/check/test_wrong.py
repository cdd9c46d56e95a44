"""Every known way to be wrong is rejected for its own reason, at its own place."""

import pytest
from right import RIGHT
from wrong import Mistake, mistakes

from weft.backends.check.findings import errors
from weft.backends.formats.msccl.check import check_xml
from weft.backends.formats.msccl.read import read_msccl_xml

MISTAKES = mistakes()


@pytest.mark.parametrize("name", RIGHT)
def test_what_the_mistakes_are_made_from_is_right(name: str) -> None:
    for target in ("msccl", "executor"):
        assert errors(check_xml(read_msccl_xml(RIGHT[name]), target)) == ()


def test_there_are_many() -> None:
    assert len({m.name for m in MISTAKES}) == len(MISTAKES) >= 60
    assert len({m.text for m in MISTAKES}) == len(MISTAKES)
    assert len({(m.check, m.says) for m in MISTAKES}) >= 60


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.name)
def test_each_is_rejected_with_its_reason(mistake: Mistake) -> None:
    found = check_xml(read_msccl_xml(mistake.text, "x.xml"), mistake.target)
    assert errors(found), "accepted"
    fitting = [f for f in found if f.check == mistake.check and mistake.says in f.message]
    assert fitting, "\n".join(map(str, found))
    assert any(f.where.startswith(mistake.where) for f in fitting), "\n".join(map(str, fitting))
