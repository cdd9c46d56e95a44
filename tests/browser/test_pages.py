"""The pages open without a network, their scripts run, and what a person does on them works."""

from itertools import pairwise
from pathlib import Path

import pytest
from pages import classic, library, sharing, written

from weft.backends.cli import main
from weft.dsl.nouns.schedule import write

RELAYED = "ndv2:nodes=2"


def page_of(path: Path) -> Path:
    """The page of a file or a folder, beside it."""
    out = path.with_suffix(".html")
    assert main(["show", str(path), "--format", "html", "-o", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def relayed(tmp_path_factory):
    """The page of a schedule between two boxes."""
    path = tmp_path_factory.mktemp("pages") / "relayed.json"
    write(path, classic(RELAYED, "ring", "allgather"))
    return page_of(path)


@pytest.fixture(scope="module")
def frontier(tmp_path_factory):
    """A folder of three schedules of one problem; its page is beside it."""
    names = ("ring", "recursive_doubling", "direct")
    folder = tmp_path_factory.mktemp("pages") / "ag"
    written(folder, **{n: classic("dgx1", n, "allgather") for n in names})
    page_of(folder)
    return folder


def look(page, path) -> None:
    """A picture for people; it has to have something on it."""
    page.page.screenshot(path=path, full_page=True)
    assert path.stat().st_size > 20_000


def test_a_chunk_picked_in_the_list_lights_up_everywhere(opened, relayed, tmp_path):
    page = opened(relayed)
    assert page.many(".map .node") > 16
    assert page.many(".map .links path") > 40
    page.one(".chunks").select_option("3")
    assert page.one(".status").inner_text().startswith("Chunk 3: 15 transfers over ")
    assert page.many(".tree tbody tr") == 15
    assert page.many(".map .node.reached") == 15
    assert page.many(".map .node.from") == 1
    assert page.many(".map .picked path") >= 15
    # One bar for each link of each of its routes, in the chart of links.
    links = page.page.evaluate(
        """() => { const v = JSON.parse(document.getElementById("data").textContent).views[0];
        const t = v.items[0]; return t.set.map((c, i) => c === 3 ? t.routes[t.route[i]].length : 0)
        .reduce((a, b) => a + b, 0); }"""
    )
    assert page.many("#lane0-0 .over rect") == links
    assert page.many("#lane0-1 .over rect") > 0
    look(page, tmp_path / "picked.png")


def test_a_click_on_a_bar_picks_its_chunk(opened, relayed):
    page = opened(relayed)
    assert page.many("#lane0-0 .over rect") == 0
    chart = page.one("#lane0-0 .bars")
    chart.scroll_into_view_if_needed()
    chart.click(position={"x": 6, "y": 26})
    assert page.many("#lane0-0 .over rect") > 0
    assert page.one(".status").inner_text().startswith("Chunk ")
    assert page.one(".chunks").input_value() != ""
    page.one(".clear").click()
    assert page.many("#lane0-0 .over rect") == 0


def test_a_link_of_the_table_is_found_in_map_and_chart(opened, relayed):
    page = opened(relayed)
    page.one(".loads button").click()
    assert page.many(".map .lit") == 1
    assert page.many(".names .lit") == 1
    assert "busy" in page.one(".status").inner_text()


def test_the_keyboard_does_all_of_it(opened, relayed):
    page = opened(relayed)
    page.page.keyboard.press("Tab")
    assert page.page.evaluate("document.activeElement.className") == "skip"
    page.one("#lane0-0 .chart").focus()
    page.page.keyboard.press("ArrowDown")
    assert page.one(".status").inner_text().startswith("Chunk 0")
    page.page.keyboard.press("ArrowDown")
    assert page.one(".status").inner_text().startswith("Chunk 1")
    page.page.keyboard.press("ArrowRight")
    assert page.many(".tree tr.here") == 1
    assert " to " in page.one(".status").inner_text()
    page.page.keyboard.press("Escape")
    assert page.many("#lane0-0 .over rect") == 0
    page.one(".chunks").focus()
    page.page.keyboard.press("Home")
    page.page.keyboard.press("ArrowDown")
    assert page.one(".status").inner_text().startswith("Chunk 1")


def test_what_links_share_is_seen_and_found(opened, made, tmp_path):
    write(tmp_path / "sharing.json", sharing())
    page = opened(made(tmp_path / "sharing.json"))
    assert page.many(".map .resource") == 4
    assert page.many(".map .resource path") == 16
    page.page.get_by_role("button", name="bridge2", exact=True).click()
    assert page.many(".map .resource.lit") == 1
    assert page.one(".names .lit").inner_html().startswith("bridge2")


def test_what_the_time_is_made_of(opened, relayed):
    page = opened(relayed)
    page.one(".critical").click()
    assert page.many("#lane0-0 .over rect") > 0
    assert "waited" in page.one(".status").inner_text()


def test_dark_mode_and_print_change_the_colours(opened, relayed, tmp_path):
    file = relayed
    paper = "getComputedStyle(document.body).backgroundColor"
    light, dark = opened(file), opened(file, scheme="dark")
    assert light.page.evaluate(paper) == "rgb(255, 255, 255)"
    assert dark.page.evaluate(paper) != "rgb(255, 255, 255)"
    dark.page.emulate_media(media="print")
    assert dark.page.evaluate(paper) == "rgb(255, 255, 255)"
    assert not dark.one("nav").is_visible()
    assert dark.one(".loads").is_visible()
    dark.page.pdf(path=tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").stat().st_size > 10_000


def test_nothing_is_wider_than_the_window(opened, relayed):
    page = opened(relayed, width=390)
    for width in (390, 760, 1600):
        page.page.set_viewport_size({"width": width, "height": 900})
        assert page.page.evaluate("document.documentElement.scrollWidth") <= width


TEXTS_ON_TEXTS = """() => [...document.querySelectorAll(".chart-figure > svg")].flatMap(svg => {
  const texts = [...svg.querySelectorAll("text")]
    .map(one => [one.textContent, one.getBoundingClientRect()]);
  return texts.flatMap(([a, p], i) => texts.slice(i + 1)
    .filter(([, q]) => Math.min(p.right, q.right) - Math.max(p.left, q.left) > 1.5
                    && Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > 2.5)
    .map(([b]) => `${a} / ${b}`)); })"""


@pytest.mark.parametrize("width", [390, 1200])
def test_no_text_of_a_chart_lies_on_another(opened, frontier, width):
    page = opened(frontier.with_suffix(".html"), width=width)
    assert page.many(".chart-figure text") > 20
    assert page.page.evaluate(TEXTS_ON_TEXTS) == []


def test_the_views_of_a_frontier(opened, frontier, tmp_path):
    page = opened(frontier.with_suffix(".html"))
    assert page.many(".view:not([hidden])") == 1
    assert page.many("#chooser option") == 3
    page.one("#chooser").select_option("2")
    view = '.view[data-view="2"]'
    assert page.one(view).is_visible()
    page.one(f"{view} .chunks").select_option(index=0)
    assert page.many(f"{view} .over rect") > 0
    look(page, tmp_path / "frontier.png")


def test_a_library_leads_to_its_plans(opened, made, tmp_path):
    folder = library(tmp_path / "lib", "dgx1", "allreduce", ("recursive_doubling", "ring"))
    page = opened(made(folder))
    page.page.get_by_role("link", name="large", exact=True).click()
    assert page.one('.view[data-view="1"]').is_visible()
    assert not page.one('.view[data-view="0"]').is_visible()
    look(page, tmp_path / "library.png")


@pytest.mark.slow
def test_64_ranks(opened, made, tmp_path):
    names = ("recursive_doubling", "ring")
    folder = library(tmp_path / "lib", "dgx-a100:nodes=8", "allreduce", names, (1 << 14, 1 << 22))
    file = made(folder)
    assert file.stat().st_size < 1_000_000
    page = opened(file)
    page.one(".chunks").select_option(index=0)
    assert page.many(".map .node.reached") >= 63


def test_two_side_by_side(opened, made, frontier, tmp_path):
    page = opened(made(frontier / "ring.json", frontier / "direct.json"))
    assert page.many(".view:not([hidden])") == 2
    for number in (0, 1):
        page.one(f'.view[data-view="{number}"] .chunks').select_option("5")
        assert page.many(f'.view[data-view="{number}"] .tree tbody tr') == 7
    look(page, tmp_path / "pair.png")


def test_a_program_without_a_machine_has_an_order(opened, made):
    page = opened(made("classic:ring{collective=allreduce,ranks=4}"))
    page.one(".chunks").select_option("2")
    assert page.many(".over rect") > 0
    assert "instructions" in page.one(".status").inner_text()


def test_a_program_on_a_machine(opened, made):
    page = opened(made("classic:ring{collective=allreduce,on=dgx1}", "--size", "1MiB"))
    page.one(".chunks").select_option("2")
    assert page.many("#lane0-0 .over rect") >= 14
    assert page.many("#lane0-1 .over rect") >= 14


def test_every_control_has_a_name_and_headings_do_not_jump(opened, relayed):
    page = opened(relayed)
    nameless = page.page.evaluate(
        """() => [...document.querySelectorAll("button, select, svg[role=img], [tabindex]")]
        .filter((e) => !(e.textContent.trim() || e.getAttribute("aria-label")
          || e.getAttribute("aria-labelledby") || (e.labels && e.labels.length)))
        .map((e) => e.outerHTML.slice(0, 80))"""
    )
    assert nameless == []
    levels = page.page.evaluate(
        """() => [...document.querySelectorAll("h1, h2, h3, h4")]
        .map((e) => Number(e.tagName[1]))"""
    )
    assert levels[0] == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))


def test_a_machine_of_many_hosts_opens_one_and_closes_it(opened, made, tmp_path):
    page = opened(made("dgx-a100:nodes=16"))
    assert page.many(".map .node") == 17  # hosts, and their rails together
    page.one('.map .node[data-node="3"]').click()
    assert page.many(".map .node") == 9
    assert page.one(".hosts").input_value() == "3"
    texts = page.page.locator(".map .node.gpu text").all_text_contents()
    assert texts == [str(rank) for rank in range(24, 32)]
    page.one(".map").click(position={"x": 2, "y": 2})
    assert page.many(".map .node") == 17
    page.one(".hosts").select_option("15")
    assert page.many(".map .node") == 9
    look(page, tmp_path / "host.png")
