"""``weft cache``: size of the stored sweep results, and their removal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from weft.dsl.base.errors import UserError
from weft.dsl.base.tables import count, facts
from weft.dsl.base.units import format_bytes

from ...jobs.fingerprint import fingerprint
from ...sweep.cache import default_folder, entries, remove
from ..flags.nested import CacheClearFlags, CacheListFlags
from ..output.console import Console, Exit

if TYPE_CHECKING:
    from ...sweep.cache import CacheEntry


def run(args: CacheListFlags, console: Console) -> int:
    folder = Path(args.cache) if args.cache else default_folder()
    if args.cache and not folder.is_dir():
        raise UserError("no such folder", where=args.cache)
    code = fingerprint()
    found = list(entries(folder))
    stale = [entry for entry in found if entry.code != code]
    if not isinstance(args, CacheClearFlags):
        console.result(
            facts(
                [
                    ("folder", folder),
                    ("answers", _told(found)),
                    ("of another version", _told(stale)),
                ]
            ),
            {"status": "ok", "folder": str(folder), **_figures(found, stale)},
        )
        return Exit.DONE
    gone = stale if args.stale else found
    for entry in gone:
        remove(entry)
    console.result(
        f"removed {_told(gone)} from {folder}",
        {
            "status": "ok",
            "folder": str(folder),
            "removed": len(gone),
            **_figures([e for e in found if e not in gone], [e for e in stale if e not in gone]),
        },
    )
    return Exit.DONE


def _told(entries: list[CacheEntry]) -> str:
    size = sum(entry.bytes for entry in entries)
    return count(len(entries), "answer") + (f", {format_bytes(size)}" if entries else "")


def _figures(found: list[CacheEntry], stale: list[CacheEntry]) -> dict[str, int]:
    return {"answers": len(found), "bytes": sum(e.bytes for e in found), "stale": len(stale)}
