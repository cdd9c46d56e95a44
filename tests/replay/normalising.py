"""The few things of an output that two runs of one program may print differently, and no others.

Every rule is one line of `RULES`: a reason, what is looked for, and what stands there instead. A
rule names the words around what varies, so that a digit anywhere else is seen.
"""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

NUMBER = rb"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?"

RULES: tuple[tuple[str, re.Pattern[bytes], bytes], ...] = tuple(
    (reason, re.compile(pattern, re.MULTILINE), instead)
    for reason, pattern, instead in (
        (
            "how long a stage took, in the lines that sum it up",
            rb"^((?:Solved|Tuned|Ran) .*? in )" + NUMBER + rb"(?:ms|s|min|h)\b",
            rb"\1#s",
        ),
        ("how long it took, in JSON", rb'("seconds": ?)' + NUMBER, rb"\1#"),
        (
            "peak memory of a stream, the last of its columns",
            rb"^(\d+\w?i?B +\d+ +" + NUMBER + rb" +" + NUMBER + rb" +" + NUMBER + rb"% +)\d+$",
            rb"\1#",
        ),
        ("a stage that has gone on for a while, told every 20 s", rb"^ +\d+s  \S.*\n", b""),
        ("the once that numba compiles", rb"^ +compiling the loops for this machine.*\n", b""),
        (
            "digests of weft's own code, in sweeps",
            rb'("(?:code|key)": ?)"[0-9a-f]{16,}"',
            rb'\1"#"',
        ),
        (
            "the same digests, in the names of the schedules of sweeps",
            rb"(schedules/[^/\s]+-)[0-9a-f]{12}(\.json)",
            rb"\1#\2",
        ),
    )
)

SKIPPED = (
    ("kept/*", "the cache of a sweep: its files are named by the digest of weft's own code"),
    ("*/journal.jsonl", "the journal of a sweep: times of day, hosts and processes"),
)
"""Files that are not compared at all, with the reason."""

_BLUR = re.compile(rb"-?" + NUMBER)
_SPACES = re.compile(rb" {2,}")


def skipped(path: str) -> bool:
    """Tell if a file, by its path in the folder of the run, is not compared."""
    return any(fnmatch(path, pattern) for pattern, _ in SKIPPED)


def normalised(data: bytes, folders: dict[str, Path], words: bool = False) -> bytes:
    """The bytes that are compared; `folders` are paths of the run by what stands there instead.

    What is not text stays as it is. With `words`, for commands that measure, all numbers are
    left out, and with them the widths of columns.
    """
    if b"\0" in data or not _is_text(data):
        return data
    for name, folder in folders.items():
        data = data.replace(str(folder).encode(), b"<" + name.encode() + b">")
    for _, pattern, instead in RULES:
        data = pattern.sub(instead, data)
    return _SPACES.sub(b" ", _BLUR.sub(b"#", data)) if words else data


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
