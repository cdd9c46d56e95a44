"""Names from files reach no terminal with a control character, and no page as markup."""

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import networkx as nx
import pytest
from command import Weft

from weft.dsl.base.spans import one_line, printable

ESCAPES = "\x9b2J\u202e\x7f\nok: forged"
MARKUP = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine and a workload with hostile names, and files that are refused."""
    monkeypatch.chdir(tmp_path)
    ends = [f"gpu{i}{ESCAPES}{MARKUP}" for i in range(2)]
    graph = nx.DiGraph(name=f"machine{ESCAPES}{MARKUP}")
    for src, dst in (ends, ends[::-1]):
        graph.add_edge(src, dst, bandwidth="10GB/s", latency="1us")
    nx.write_graphml(graph, "machine.graphml")
    name = f"op{ESCAPES}\x1b]0;title\x07{MARKUP}".replace('"', '""').replace("\n", " ")
    Path("load.csv").write_text(f'name,kind,group,size\n"{name}",allreduce,0..1,1MB\n')
    Path("wrong.sketch").write_text("sketch x {\n forbid \x1b[2J\x9b }\n")
    Path("wrong.json").write_text('{"weft": "topology", "schema": 1, "na\x9bme\\u001b": 1}')
    Path("wrong\x1b[2J.json").write_text("{")
    return tmp_path


@pytest.mark.parametrize("json", [False, True])
@pytest.mark.parametrize(
    ("code", "line"),
    [
        (0, "show machine.graphml"),
        (0, "topo show machine.graphml"),
        (0, "bound -t machine.graphml -c allgather"),
        (0, "synth -v -t machine.graphml -c allgather -e classic --objective latency"),
        (0, "show load.csv"),
        (0, "plan load.csv -t machine.graphml"),
        (2, "check wrong.sketch"),
        (2, "show wrong.json"),
        (2, "show wrong\x1b[2J.json"),
        (2, "bound -t ring:\x1b[2J -c allgather"),
        (2, "show x\x1b]0;title\x07"),
    ],
)
def test_no_control_character_is_printed(
    weft: Weft, folder: Path, line: str, code: int, json: bool
) -> None:
    ran = weft(*line.split(" "), *["--json"][: int(json)]).ended(code)
    assert OBEYED.findall(ran.out + ran.err) == []
    assert "\nok: forged" not in ran.out + ran.err
    if json:
        assert ran.json


class Tags(HTMLParser):
    """The tags and the names of attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [tag, *(f"{tag} {name}" for name, _ in attrs)]


def test_pages_and_drawings_hold_names_as_text(weft: Weft, folder: Path) -> None:
    drawn = weft("show", "machine.graphml", "--format", "html").out
    tags = Tags(drawn).found
    assert "img" not in tags
    assert not [tag for tag in tags if " on" in tag]
    plain = Tags(weft("show", "ring:2", "--format", "html").out).found
    assert tags.count("script") == plain.count("script")
    svg = ElementTree.fromstring(weft("show", "machine.graphml", "--format", "svg").out)
    assert {element.tag.rpartition("}")[2] for element in svg.iter()} <= {
        *("svg", "title", "g", "path", "circle", "rect", "text", "defs", "marker", "line"),
        *("polygon", "style", "desc", "tspan"),
    }
    dot = weft("show", "machine.graphml", "--format", "dot").out
    unquoted = re.sub(r'"(?:[^"\\]|\\.)*"', "", dot)
    assert "alert" not in unquoted


def test_what_is_visible_stays() -> None:
    assert printable("µs · 漢 \t\n😀") == "µs · 漢 \t\n😀"
    assert one_line("a\nb\r\ud800") == "a\\nb\\u000d\\ud800"
