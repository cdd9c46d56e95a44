"""``weft doctor`` runs whatever is missing: it is there to say so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HIDING = """
import sys
from importlib.machinery import PathFinder

find = PathFinder.find_spec

def hidden(name, *rest):
    return None if name.partition(".")[0] == "MODULE" else find(name, *rest)

PathFinder.find_spec = hidden
sys.argv = ["weft", "doctor"]
from weft.backends.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize("module", ["numpy", "orjson", "scipy", "lark"])
def test_a_missing_package_is_listed(module: str, tmp_path: Path) -> None:
    script = tmp_path / "hiding.py"
    script.write_text(HIDING.replace("MODULE", module))
    ran = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, cwd=tmp_path, env=os.environ
    )
    assert ran.returncode == 4, ran.stderr
    assert "a bug in weft" not in ran.stderr
    (line,) = [x for x in ran.stdout.splitlines() if x.split()[:2] == ["MISSING", module]]
    assert f"pip install {module}" in line


def test_output_is_utf_8_in_every_locale(tmp_path: Path) -> None:
    """µ and · are in most tables, and what is machine-readable is UTF-8."""
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    plain.pop("PYTHONIOENCODING", None)
    script = "import sys; sys.argv[1:] = ['bound', '-t', 'ring:4', '-c', 'allgather']\n"
    script += "from weft.backends.cli import main; sys.exit(main())"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, env=plain)
    assert ran.returncode == 0, ran.stderr
    assert "µs" in ran.stdout.decode("utf-8")
