"""``weft completion``: the script of a shell, or the words that may end a command line."""

from __future__ import annotations

from ..completing import SCRIPTS, candidates
from ..console import Console
from ..exit_codes import Exit
from ..flags.machines import CompletionFlags


def run(args: CompletionFlags, console: Console) -> int:
    """Print the script, or for a line one candidate a line."""
    if args.line is None:
        script = SCRIPTS[args.shell]
        console.result(script.rstrip(), {"status": "ok", "shell": args.shell, "script": script})
    else:
        found = candidates(args.line)
        console.result("\n".join(found), {"status": "ok", "words": found})
    return Exit.DONE
