"""``weft diff``: compare two files of one kind."""

from __future__ import annotations

from pathlib import Path

from weft.dsl.base.errors import UserError, an

from ...report.difference import differences, differences_json, differences_text
from ..flags.files import DiffFlags
from ..nouns.noun import FileKind, refuse_model
from ..nouns.program_noun import ProgramNoun
from ..nouns.subjects import read_subject
from ..output.console import Console, Exit

WIDEST = 30
"""Letters of a column's name; longer ones are called A and B."""


def run(args: DiffFlags, console: Console) -> int:
    if args.before == args.after == "-":
        raise UserError("one of the two can come from stdin", where="-")
    before, after = (
        read_subject(text, also=(FileKind.RESULT,)) for text in (args.before, args.after)
    )
    if before.kind != after.kind:
        raise UserError(
            f"{an(before.kind)} and {an(after.kind)} cannot be compared",
            where=args.after,
            hint="name two files of one kind",
        )
    if not isinstance(before.noun, ProgramNoun):
        refuse_model(args, before)
    found = differences(*(one.noun.sheets(one, args, console) for one in (before, after)))
    names = _names(args.before, args.after)
    text = differences_text(found, names) or f"equal: {before.kind}"
    console.result(
        text,
        {
            "status": "different" if found else "equal",
            "kind": before.kind,
            "before": args.before,
            "after": args.after,
            "sheets": differences_json(found),
        },
    )
    return Exit.NO if found else Exit.DONE


def _names(*texts: str) -> tuple[str, str]:
    """Return the names of the two columns: short where that tells them apart."""
    short = [Path(text).name if Path(text).exists() else text for text in texts]
    if short[0] == short[1] or max(map(len, short)) > WIDEST:
        return "A", "B"
    return short[0], short[1]
