"""``weft check``: verify a file by its contents, with checkers independent of its producer."""

from __future__ import annotations

from ...check.checks import checks_text, verdict_text
from ..flags.files import CheckFlags
from ..nouns.noun import FileKind, refuse_collective
from ..nouns.subjects import read_subject
from ..output.console import Console, Exit


def run(args: CheckFlags, console: Console) -> int:
    subject = read_subject(args.file, also=(FileKind.STREAM,))
    if not subject.noun.asks_collective:
        refuse_collective(args, subject)
    checks = subject.noun.check(subject, args, console)
    good = all(check.ok for check in checks)
    console.result(
        verdict_text(checks) if console.quiet else checks_text(checks, whole=console.verbose > 0),
        {
            "status": "ok" if good else "failed",
            "kind": subject.kind,
            "checks": [c.to_json() for c in checks],
        },
    )
    return Exit.DONE if good else Exit.NO
