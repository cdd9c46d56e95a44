"""``weft check``: judge a file by what it holds, with checkers that know nothing of its maker."""

from __future__ import annotations

import argparse

from weft.dsl.base.errors import UserError

from ...check.checks import checks_text
from ..console import Console
from ..exit_codes import Exit
from ..inputs import add_problem
from ..noun import Kind
from ..subjects import read_subject

EXAMPLES = """examples:
  weft check allgather.json
  weft check algo.xml
  weft check custom.xml -c gather --root 2
  weft check my.sketch --json
  weft check ring.py:allreduce{ranks=8}
exit code 1 if a check fails"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a schedule, algorithm, program, MSCCL XML, "
        "MSCCL++ plan, point-to-point program, sketch, topology or collective "
        "(told by its content), the folder of a library or a stream, "
        "or -",
    )
    parser.add_argument(
        "-s", "--sketch", metavar="SKETCH", help="a schedule must obey this sketch too"
    )
    parser.add_argument(
        "-t",
        "--topology",
        metavar="TOPO",
        help="the machine for a sketch (default: the one it names)",
    )
    parser.add_argument(
        "--target",
        choices=("msccl", "rccl", "executor", "portable"),
        help="the runtime an XML program is for (default: any), or portable: all of them",
    )
    add_problem(parser, topology=False, required=False)


def run(args: argparse.Namespace, console: Console) -> int:
    """Run the checks for what the file holds."""
    subject = read_subject(args.file, also=(Kind.STREAM,))
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
