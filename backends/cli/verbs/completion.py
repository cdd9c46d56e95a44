"""``weft completion``: the script of a shell, or the words that may end a command line."""

from __future__ import annotations

from ..flags.machines import CompletionFlags
from ..frame.completing import SCRIPTS, candidates
from ..output.console import Console
from ..output.exit_codes import Exit


def run(args: CompletionFlags, console: Console) -> int:
    """Print the script, or for a line one candidate a line."""
    if args.line is None:
        script = SCRIPTS[args.shell]
        console.result(script.rstrip(), {"status": "ok", "shell": args.shell, "script": script})
    else:
        found = candidates(args.line)
        console.result("\n".join(found), {"status": "ok", "words": found})
    return Exit.DONE
