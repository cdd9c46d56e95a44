"""Make the pictures of the docs anew: ``python tests/support/pictures.py``.

Each is what ``weft show --format svg`` draws. ``test_pictures.py`` holds those in ``docs/pictures``
to what the tool draws today.
"""

import os
import shlex
import tempfile
from pathlib import Path

from weft.backends.cli import main

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"

COMMANDS = {
    "dgx1-allgather": (
        "synth -t dgx1 -c allgather -e exact -o ag",
        "show ag/allgather-3steps-7rounds-6chunks.json --size 1MiB --format svg -o {}",
    ),
    "dgx1-blocks": (
        "synth -t dgx1 -c allgather -e exact --objective latency -o two.json",
        "compile two.json -o two.xml",
        "show two.xml -t dgx1 --size 1MiB --format svg -o {}",
    ),
    "ndv2-allgather": (
        "synth -t ndv2:nodes=2 -c allgather -s ndv2_relay:nodes=2 -e sketched{{chunks=1}} "
        "--objective time --size 1GB -o relay.json",
        "show relay.json --format svg -o {}",
    ),
    "a100-rails": ("show dgx-a100:nodes=2 --format svg -o {}",),
    "mesh-dead": ("show mesh:4x4,dead=5-6 --format svg -o {}",),
}
"""Commands by the name of the picture; the last one draws it."""


def draw(name: str, folder: Path) -> str:
    """The picture as text; ``folder`` is where its commands run.

    Raises:
        RuntimeError: a command failed.
    """
    home = Path.cwd()
    os.chdir(folder)
    try:
        for command in COMMANDS[name]:
            words = shlex.split(command.format(f"{name}.svg"))
            if code := main([*words, "-q"]):
                raise RuntimeError(f"exit {code}: weft {' '.join(words)}")
    finally:
        os.chdir(home)
    return (folder / f"{name}.svg").read_text(encoding="utf-8")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in COMMANDS:
        with tempfile.TemporaryDirectory() as folder:
            (FOLDER / f"{name}.svg").write_text(draw(name, Path(folder)), encoding="utf-8")
