"""``weft check``: verify a file by its contents, with checkers independent of its producer."""

from __future__ import annotations

from weft.dsl.base.errors import UserError

from ...check.checks import checks_text
from ..console import Console
from ..exit_codes import Exit
from ..flags.files import CheckFlags
from ..noun import FileKind
from ..subjects import read_subject


def run(args: CheckFlags, console: Console) -> int:
    """Run the checks for the kind of the file."""
    subject = read_subject(args.file, also=(FileKind.STREAM,))
    named = (args.collective, args.root, args.roots)
    if not subject.noun.asks_collective and any(name is not None for name in named):
        raise UserError(
            "-c and --root say what an MSCCL XML file or an MSCCL++ plan is for",
            where=subject.where,
            hint="leave them out: other files say it themselves",
        )
    checks = subject.noun.check(subject, args, console)
    good = all(check.ok for check in checks)
    console.result(
        checks_text(checks),
        {
            "status": "ok" if good else "failed",
            "kind": subject.kind,
            "checks": [c.to_json() for c in checks],
        },
    )
    return Exit.DONE if good else Exit.NO
