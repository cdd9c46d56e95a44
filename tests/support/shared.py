"""Files of other tools, which are not part of the repository; our own samples stand for them.

``WEFT_SHARED=FOLDER pytest -m shared`` (``make shared``) holds the same tests to the files of
FOLDER. Without it the tests with the mark ``shared`` are deselected (tests/conftest.py).
"""

import os
from pathlib import Path

from sources import ROOT

SHARED = Path(os.environ.get("WEFT_SHARED", ROOT.parent / "shared"))


def samples(folder: str, pattern: str = "*") -> list[Path]:
    """The files of others in a folder, sorted; none where nobody asked for them."""
    if "WEFT_SHARED" not in os.environ:
        return []
    return sorted((SHARED / "data" / folder).glob(pattern))
