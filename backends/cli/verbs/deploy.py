"""``weft deploy``: settings by which a runtime uses a library on a cluster, and their proof."""

from __future__ import annotations

from pathlib import Path

from weft.dsl.base.errors import UserError
from weft.dsl.base.files import write_folder
from weft.dsl.nouns.library import MANIFEST, Library, read
from weft.dsl.nouns.runtime import LOADERS, Loader

from ...deploy.guide import PLANS, Guide, guide, guide_json, guide_text
from ...deploy.launchers import HOSTS, assigned
from ...deploy.settings import loaders_of
from ..flags.cluster import DeployFlags
from ..inputs.machines import is_library
from ..output.console import Console, Exit, columns
from ..output.outputs import require_writable

SETTINGS, GUIDE = "weft.env", "guide.txt"
NAMES = {
    "mpirun": "run-mpirun.sh",
    "slurm": "run-slurm.sbatch",
    "torchrun": "run-torchrun.sh",
    "kubernetes": "mpijob.yaml",
}
"""Files of launchers."""


def run(args: DeployFlags, console: Console) -> int:
    if not is_library(args.library):
        raise UserError(
            "no library is there",
            where=args.library,
            hint="weft tune -t MACHINE -c COLLECTIVE -o DIR writes one",
        )
    library = read(args.library)
    _require_absolute("--at", args.at, "/shared/weft")
    _require_absolute("--preload", args.preload, "/opt/lib/libnccl.so.2")
    folder = args.at or str(Path(args.library).resolve())
    if ":" in folder or not folder.isprintable():
        raise UserError(
            "runtimes divide lists of paths at colons, and launch files at ends of lines",
            where=folder,
            hint="--at PATH, without colons and control characters",
        )
    found = guide(library, folder.rstrip("/"), _loader(args, library), args.preload, args.launcher)
    for note in found.notes if args.quiet else ():
        console.detail(note)
    if found.settings and args.launcher not in found.launch:
        raise UserError(
            f"{found.settings.loader.torch}, and torchrun starts torch",
            where=f"--for {args.launcher}",
            hint="--for mpirun; or a library for another runtime: weft tune --target executor",
        )
    written = None
    if args.output is not None:
        written = _write(found, args, console)
    console.result(
        guide_text(found, args.launcher, columns()),
        {"status": "ok", **guide_json(found), "file": written},
    )
    return Exit.DONE


def _require_absolute(flag: str, path: str | None, example: str) -> None:
    """Raise UserError for a path that depends on where a process starts."""
    if path is not None and not (path.startswith("/") and path.isprintable()):
        raise UserError(
            "expected an absolute path on one line: processes on other hosts start elsewhere",
            where=f"{flag} {path}",
            hint=f"{flag} {example}",
        )


def _loader(args: DeployFlags, library: Library) -> Loader | None:
    if args.runtime is None:
        return None
    asked = LOADERS[args.runtime]
    able = loaders_of(library)
    if asked not in able:
        has = ", ".join(one.name for one in able) or "none that loads files by itself"
        flag = f"--target {asked.name}" if asked.format == "msccl-xml" else f"--to {asked.format}"
        raise UserError(
            f"its files are for {has}, not for {asked.name}",
            where=f"{args.library}/{MANIFEST}",
            hint=f"weft tune … {flag} makes files for it",
        )
    return asked


def _write(found: Guide, args: DeployFlags, console: Console) -> str:
    assert args.output is not None
    if args.output == "-":
        raise UserError("the files are a folder: stdout takes one file", hint="-o DIR")
    require_writable(Path(args.output), args.output)
    texts = {GUIDE: guide_text(found, args.launcher) + "\n", **found.files}
    if found.settings is not None:
        texts[SETTINGS] = "".join(f"{assigned(*one)}\n" for one in found.variables)
        for name, text in found.launch.items():
            shebang = "#!/bin/bash\n" if NAMES[name].endswith(".sh") else ""
            beside = text.replace(f"--hostfile {HOSTS}", f'--hostfile "$(dirname "$0")/{HOSTS}"', 1)
            texts[NAMES[name]] = f"{shebang}{beside}\n"
    names = {GUIDE, SETTINGS, HOSTS, PLANS, *NAMES.values()}
    write_folder(args.output, texts, force=args.force, replaces=names)
    console.say("Wrote", f"{len(texts)} files in {args.output}")
    return args.output
