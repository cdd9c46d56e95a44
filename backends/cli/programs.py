"""What the options say of a program that a file holds."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from weft.dsl.base.errors import UserError

from .inputs import collective_for

if TYPE_CHECKING:
    from weft.dsl.nouns.collective import Collective

    from ..formats.msccl.read import XmlAlgo


def asked_collective(args: argparse.Namespace, algo: XmlAlgo) -> Collective | None:
    """The collective that the options name: by ``-c``, or the file's own with ``--root``.

    Raises:
        UserError: the options contradict the file.
    """
    if args.collective is None and (args.root is not None or args.roots is not None):
        if algo.coll not in ("broadcast", "reduce"):
            raise UserError(
                f"--root says nothing about the {algo.coll} of the file",
                where=algo.where,
                hint="name the collective with -c",
            )
        args.collective = algo.coll
    return collective_for(args, tuple(range(algo.ngpus))) if args.collective else None
