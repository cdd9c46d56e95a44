"""Files are recognized without loading the formats, as the formats themselves do."""

import pytest

from weft.backends.formats.format import format_named, recognized
from weft.backends.formats.recognition import RECOGNIZERS
from weft.dsl.base.registry import BACKENDS

TEXTS = {
    "xml": ("<!-- a comment -->\n<algo name='x'>", None),
    "system": ("<system version='1'>", None),
    "plan": ("{}", {"gpus": [], "collective": "allgather"}),
    "program": ("{}", {"weft": "program"}),
    "schedule": ("{}", {"weft": "schedule"}),
    "script": ("HEADER = {'weft': 'script'}", None),
    "quoted": ("{}", {"text": '"weft": "script"'}),
    "empty": ("", None),
}


@pytest.mark.parametrize("name", BACKENDS.builtin)
@pytest.mark.parametrize(("text", "data"), TEXTS.values(), ids=TEXTS)
def test_a_format_and_its_recognizer_agree(name: str, text: str, data: object) -> None:
    made = format_named(name)
    found = recognized(text, data)
    assert made.recognizes(text, data) == (found is not None and made.kind == found.kind)


def test_every_kind_of_our_files_has_a_recognizer() -> None:
    kinds = {format_named(name).kind for name in BACKENDS.builtin}
    assert {format_named(name).kind for name in RECOGNIZERS} == kinds
