"""Templates of emitted Python files, in which nothing may be missing.

Names come from files of others. In code they are literals (filter ``literal``), in docstrings and
comments text of one line that ends neither (filter ``said``).
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


def said(text: object) -> str:
    """Return a text as it may stand in a docstring or comment.

    Characters that are not printed (ends of lines, escapes of terminals) appear by their codes.
    """
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))
    return re.sub(r'"(?=")|"$', r"\"", shown.replace("\\", r"\\"))


@cache
def templates(package: str) -> Environment:
    """Return the templates of a package's folder ``templates``."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader(package),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    made.filters |= {"literal": repr, "said": said}
    return made
