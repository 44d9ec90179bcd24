"""The flame graph page in a real browser: what people do with the mouse and with the keyboard, and what a link shows.

To look at the page yourself, name a folder in LITHIFY_SCREENSHOTS: each view is saved there.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import Browser, Locator, Page, expect
from pytest_django.live_server_helper import LiveServer

from engine.formats.pprof.pprof import parse_profile
from engine.storage import open_store
from tests.database import clock  # noqa: F401  (a fixture)
from tests.e2e import flame_scene
from tests.e2e.test_admin_pages import CHROMIUM, OVERFLOW, complaints_of, keep_picture, running_chromium, signed_in
from tests.webadmin.conftest import real_service  # noqa: F401  (a fixture)
from tests.webadmin.query.stored import Stored
from tests.webadmin.query.viewers.conftest import CPU, Viewer
from tests.webadmin.service import Service
from webadmin.query.flame_page import answers
from webadmin.query.flame_page.address import flame_address

BUNDLE = Path(__file__).parents[2] / "webadmin/console/static/console/bundle/flame-graph.js"
MINUTES = 4
PATIENCE_MS = 20_000
"""A machine that does much else at the same time is slow."""
expect.set_options(timeout=PATIENCE_MS)

pytestmark = [
    pytest.mark.stack,
    pytest.mark.timeout(120),
    pytest.mark.skipif(not shutil.which(CHROMIUM), reason="no chromium: apt-get install chromium"),
    pytest.mark.skipif(
        not BUNDLE.exists() and os.environ.get("CI") != "true", reason="the page is not bundled: ./dev build with npm"
    ),
]


@pytest.fixture
def viewer(real_service: Service, settings: Any, tmp_path: Path) -> Viewer:  # noqa: F811
    settings.OBJECT_STORE_URL = f"file://{tmp_path / 'store'}"
    settings.QUERY_THREADS = 2
    found = Viewer(Stored(real_service, open_store(settings.OBJECT_STORE_URL), tmp_path / "scratch"), secret="")
    flame_scene.fill(found, MINUTES)
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of the page."""
    with running_chromium() as chromium:
        yield chromium


class Visit:
    """The page as somebody sees it."""

    def __init__(self, page: Page, base: str, viewer: Viewer) -> None:
        self.page = page
        self.base = base
        self.viewer = viewer
        self.complaints = complaints_of(page)
        page.set_default_timeout(PATIENCE_MS)

    def open(self, service: str = "web", **more: str) -> None:
        """Open the page on the whole of a service, and wait until the graph is there."""
        start = self.viewer.start_ms
        address = flame_address("quarry", service, CPU, start, start + MINUTES * 60_000, base=self.base)
        self.page.goto(address + "".join(f"&{name}={value}" for name, value in more.items()))
        self.settled()

    def settled(self) -> None:
        expect(self.page.locator("#flame-graph")).to_have_attribute("aria-busy", "false")

    def frame(self, name: str, chart: str = "#fg-panel-left") -> Locator:
        """The frames whose name this is; what they have is their label."""
        return self.page.locator(f'{chart} g.frame[name="{name}"]')

    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.page.url).query)

    def rows(self, panel: str = "left") -> list[list[str]]:
        rows = self.page.locator(f"#fg-panel-{panel} tbody tr").all()
        return [[cell.replace("\xa0", " ") for cell in row.locator("th, td").all_inner_texts()] for row in rows]


@pytest.fixture
def visit(browser: Browser, live_server: LiveServer, viewer: Viewer) -> Iterator[Visit]:
    client = Client()
    client.force_login(User.objects.create(username="operator", is_staff=True, is_superuser=True))
    context = signed_in(browser, live_server, client.cookies["sessionid"].value)
    found = Visit(context.new_page(), live_server.url, viewer)
    yield found
    context.close()
    assert not found.complaints


def test_everything_is_there_at_once_and_in_every_width(visit: Visit) -> None:
    visit.open()
    expect(visit.frame("json.loads")).to_have_count(2)
    expect(visit.frame("shop.cart.add")).to_have_attribute("aria-label", re.compile(r"total 20\.4.s, 55\.0.%, self"))
    assert visit.rows()[0] == ["json.decoder.scan", "12.6 s", "12.6 s"]
    cost = visit.page.locator("#fg-cost").inner_text()
    assert re.search(r"Objects opened\s+24\s+Bytes read\s+[\d.]+\sKiB", cost)
    assert visit.page.locator(".fg-timeline canvas").count() == 1
    for width, scheme in ((390, "dark"), (800, "light"), (1440, "dark"), (1440, "light")):
        visit.page.set_viewport_size({"width": width, "height": 900})
        visit.page.emulate_media(color_scheme=scheme)
        expect(visit.frame("total").locator("rect")).to_be_visible()
        assert visit.page.evaluate(OVERFLOW) == 0, width
        keep_picture(visit.page, f"flame-{scheme}", width)


def test_what_the_address_leaves_open_is_chosen(visit: Visit) -> None:
    visit.page.goto(f"{visit.base}/admin/flame-graph/")
    expect(visit.frame("main")).to_have_count(1)
    query = visit.query()
    assert (query["tenant"], query["service"], query["type"]) == (["quarry"], ["web"], [CPU])
    visit.page.locator("#fg-service + .ts-wrapper .ts-control").click()
    visit.page.keyboard.type("walk")
    visit.page.keyboard.press("Enter")
    expect(visit.frame("walk.level059")).to_have_count(1)
    visit.page.go_back()
    expect(visit.frame("http.serve")).to_have_count(1)


def test_a_picker_takes_keys_in_the_moment_it_is_clicked(visit: Visit) -> None:
    visit.page.goto(f"{visit.base}/admin/flame-graph/")
    expect(visit.frame("main")).to_have_count(1)
    control = visit.page.locator("#fg-service + .ts-wrapper .ts-control")
    swallows = "node => [node, node.click()][0].parentElement.classList.contains('input-hidden')"
    assert control.evaluate(swallows) is False
    visit.page.keyboard.type("walk")
    visit.page.keyboard.press("Enter")
    expect(control.locator(".item")).to_have_text("walker")


def test_a_search_shows_its_share_and_filters_the_table(visit: Visit) -> None:
    visit.open()
    visit.page.keyboard.press("/")
    visit.page.keyboard.type("JSON")
    expect(visit.page.locator("#fg-found")).to_have_text(re.compile(r"2.functions, 34\.0.% of the total"))
    expect(visit.page.locator(".fg-match")).to_have_count(4)
    assert [row[0] for row in visit.rows()] == ["json.decoder.scan", "json.loads"]
    assert visit.query()["search"] == ["JSON"]
    keep_picture(visit.page, "flame-search", 1280)
    visit.page.keyboard.press("Escape")
    expect(visit.page.locator(".fg-match")).to_have_count(0)
    assert len(visit.rows()) > 10
    visit.page.get_by_role("button", name=re.compile("^Total")).click()
    assert [row[0] for row in visit.rows()[:3]] == ["main", "http.serve", "shop.cart.add"]


def test_zoom_is_in_the_address_and_the_back_button_goes_out(visit: Visit) -> None:
    visit.open()
    whole = visit.frame("shop.cart.add").bounding_box()
    visit.frame("shop.cart.add").click()
    expect(visit.page.locator("#fg-crumbs")).to_have_text(re.compile(r"total.*main.*http\.serve.*shop\.cart\.add"))
    expect(visit.frame("gc")).to_have_count(0)
    address = visit.page.url
    visit.page.locator("#fg-crumbs").get_by_role("button", name="main").click()
    expect(visit.frame("background.refresh")).to_have_count(1)
    visit.page.go_back()
    expect(visit.page.locator("#fg-crumbs li").last).to_contain_text("shop.cart.add")
    visit.page.go_back()
    expect(visit.page.locator("#fg-crumbs li")).to_have_count(0)
    # Somebody else opens the link.
    visit.page.goto("about:blank")
    visit.page.goto(address)
    expect(visit.page.locator("#fg-crumbs li").last).to_contain_text("shop.cart.add")
    expect(visit.frame("shop.cart.add").locator("rect")).to_be_visible()
    zoomed = visit.frame("shop.cart.add").bounding_box()
    assert whole
    assert zoomed
    assert zoomed["width"] > whole["width"]


def test_a_cut_part_is_loaded_when_it_is_focused(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "NODES_SHOWN", 12)
    visit.open("plugins")
    label = visit.frame("main").get_attribute("aria-label")
    assert visit.frame("other").count() >= 1
    visit.page.fill("#fg-search", "plugin29")
    # None of it is drawn; the whole is searched all the same.
    expect(visit.page.locator("#fg-found")).to_have_text(re.compile(r"4.functions, 1\.\d+.% of the total"))
    assert visit.frame("plugin29.run").count() == 0
    assert "plugin29.run" in [row[0] for row in visit.rows()]
    visit.page.fill("#fg-search", "")
    monkeypatch.setattr(answers, "NODES_SHOWN", 4_000)
    visit.frame("other").first.click()
    expect(visit.frame("plugin29.step0")).to_have_count(1)
    assert visit.frame("main").get_attribute("aria-label") == label


def test_a_function_between_callers_and_callees(visit: Visit) -> None:
    visit.open()
    visit.page.locator("#fg-panel-left tbody").get_by_role("button", name="json.loads").click()
    expect(visit.frame("http.serve", "#fg-callers")).to_have_count(2)
    expect(visit.frame("json.decoder.scan", "#fg-callees")).to_have_count(1)
    expect(visit.page.locator("#fg-sandwich-head")).to_have_text(
        re.compile(r"json\.loads12\.6.s, 34\.0.% of the total")
    )
    keep_picture(visit.page, "flame-sandwich", 1280)
    visit.frame("shop.search.rank", "#fg-callers").click()
    expect(visit.frame("math.sqrt", "#fg-callees")).to_have_count(1)
    visit.page.go_back()
    expect(visit.frame("json.decoder.scan", "#fg-callees")).to_have_count(1)
    visit.page.get_by_role("button", name="All functions").click()
    expect(visit.frame("main")).to_be_visible()


def test_two_halves_side_by_side_and_as_a_difference(visit: Visit) -> None:
    visit.open()
    visit.page.get_by_label("Side by side").check(force=True)
    expect(visit.frame("tracing.record", "#fg-panel-right")).to_have_count(1)
    expect(visit.page.locator("#fg-panel-left h3")).to_contain_text("14.8")
    # What only one side has: the other shows all it has, and says so.
    visit.viewer.write({"main;only.right": 500 * flame_scene.MS}, at=130_000)
    visit.page.get_by_role("button", name="Left: Ask again").click()
    visit.settled()
    visit.frame("only.right", "#fg-panel-right").click()
    expect(visit.page.locator("#fg-crumbs li").last).to_contain_text("only.right")
    expect(visit.page.locator("#fg-current")).to_contain_text(re.compile(r"only\.right, total 500.ms, 2\.20.%"))
    expect(visit.page.locator("#fg-panel-left h3")).to_contain_text("what is zoomed into is not here")
    expect(visit.frame("http.serve")).to_have_count(1)
    visit.page.keyboard.press("Escape")
    visit.page.keyboard.press("Escape")
    expect(visit.page.locator("#fg-crumbs li")).to_have_count(0)
    visit.page.get_by_label("Difference", exact=True).check(force=True)
    expect(visit.frame("tracing.record")).to_have_attribute(
        "aria-label", re.compile(r"left .*right .*\+4\.55 points, more")
    )
    expect(visit.frame("runtime.gc")).to_have_attribute("aria-label", re.compile("less"))
    rows = {row[0]: row[1:] for row in visit.rows()}
    assert rows["json.decoder.scan"] == ["24.97", "39.05", "+14.1", "24.97", "39.05", "+14.1"]
    keep_picture(visit.page, "flame-diff", 1280)
    visit.page.set_viewport_size({"width": 390, "height": 900})
    assert visit.page.evaluate(OVERFLOW) == 0
    visit.page.set_viewport_size({"width": 1280, "height": 900})
    address = visit.page.url
    visit.page.goto("about:blank")
    visit.page.goto(address)
    expect(visit.frame("tracing.record")).to_have_attribute("aria-label", re.compile("more"))
    visit.page.select_option("#fg-colours", "redgreen")
    expect(visit.frame("tracing.record").locator("rect")).to_have_attribute("fill", re.compile(r"hsl\(4 "))


def test_a_label_is_filtered_by_and_its_values_are_suggested(visit: Visit) -> None:
    visit.open()
    visit.page.get_by_role("button", name="Add a filter").click()
    visit.page.locator(".ts-dropdown .option", has_text="region").click()
    visit.page.locator(".fg-filter .ts-control").last.click()
    visit.page.locator(".ts-dropdown .option", has_text="eu").click()
    expect(visit.page.locator("#fg-cost dd").first).to_have_text("12")
    assert visit.query()["filter"] == ["region = eu"]
    visit.page.get_by_label("Filter 1: operator").select_option("!~")
    expect(visit.frame("main")).to_have_attribute("aria-label", re.compile("total 18"))
    visit.page.get_by_role("button", name="Remove filter 1").click()
    expect(visit.page.locator("#fg-cost dd").first).to_have_text("24")


def test_a_range_is_brushed_in_the_timeline_and_typed(visit: Visit) -> None:
    visit.open()
    box = visit.page.locator(".fg-timeline .u-over").bounding_box()
    assert box
    visit.page.mouse.move(box["x"] + box["width"] / 2 + 2, box["y"] + 20)
    visit.page.mouse.down()
    visit.page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 20, steps=5)
    visit.page.mouse.up()
    visit.page.wait_for_url(lambda url: f"from={visit.viewer.start_ms}" not in url)
    chosen = int(visit.query()["from"][0])
    assert abs(chosen - visit.viewer.start_ms - MINUTES * 30_000) < 5_000
    visit.settled()
    visit.page.get_by_role("button", name="Three times as long").click()
    visit.page.wait_for_url(lambda url: f"from={chosen}" not in url)
    visit.page.locator("#fg-asked-left [data-is=preset]").select_option("all")
    expect(visit.page.locator("#fg-cost dd").first).to_have_text("24")
    field = visit.page.locator("#fg-asked-left [data-is=until]")
    field.fill("2026-09-21T14:13:35")
    field.blur()
    expect(visit.page.locator("#fg-cost dd").first).to_have_text("4")


def test_the_graph_is_walked_with_the_keyboard(visit: Visit) -> None:
    visit.open()
    keyboard, focused = visit.page.keyboard, visit.page.locator("g.frame:focus")
    keyboard.press("g")
    expect(focused).to_have_attribute("name", "total")
    keyboard.press("ArrowDown")
    keyboard.press("ArrowDown")
    expect(focused).to_have_attribute("name", "http.serve")
    keyboard.press("ArrowLeft")
    expect(focused).to_have_attribute("name", "background.refresh")
    expect(visit.page.locator("#fg-current")).to_contain_text("background.refresh, total 3.75")
    keyboard.press("Enter")
    expect(visit.page.locator("#fg-crumbs li").last).to_contain_text("background.refresh")
    expect(focused).to_have_attribute("name", "background.refresh")
    keyboard.press("Escape")
    expect(visit.page.locator("#fg-crumbs li").last).to_contain_text("main")
    keyboard.press("g")
    keyboard.press("Home")
    expect(focused).to_have_attribute("name", "total")
    keyboard.press("ArrowDown")
    keyboard.press("s")
    expect(visit.page.locator("#fg-sandwich-head")).to_contain_text("main")
    expect(focused).to_have_attribute("name", "main")
    keyboard.press("Escape")
    expect(visit.page.locator("#fg-sandwich")).to_be_hidden()
    keyboard.press("?")
    expect(visit.page.locator(".fg-help")).to_be_visible()
    keyboard.press("Escape")
    expect(visit.page.locator(".fg-help")).to_be_hidden()
    keyboard.press("Shift+Tab")
    assert visit.page.evaluate("getComputedStyle(document.activeElement.parentElement).outlineStyle") == "solid"


def test_what_is_shown_is_exported_and_a_file_is_opened(visit: Visit, tmp_path: Path) -> None:
    visit.open()

    def exported(name: str) -> Path:
        visit.page.locator("#fg-export summary").click()
        with visit.page.expect_download() as download:
            visit.page.locator("#fg-export-list").get_by_text(name).click()
        path = tmp_path / download.value.suggested_filename
        download.value.save_as(path)
        return path

    pprof = exported("pprof file")
    assert sum(parse_profile(pprof.read_bytes()).samples.values.tolist()) == 37_020 * flame_scene.MS
    assert exported("Folded stacks").read_text().count("\n") == 13
    assert json.loads(exported("JSON").read_text())["flamebearer"]["numTicks"] == 37_020 * flame_scene.MS
    picture = exported("Picture (SVG)").read_text()
    assert picture.startswith("<svg")
    assert "shop.cart.add" in picture
    assert "NaN" not in picture

    visit.page.set_input_files("#fg-file", pprof)
    expect(visit.page.locator("#fg-file-bar")).to_contain_text("web.cpu.pb.gz is open")
    expect(visit.frame("shop.cart.add")).to_have_attribute("aria-label", re.compile(r"total 20\.4.s, 55\.0"))
    visit.frame("shop.cart.add").click()
    visit.page.keyboard.press("s")
    expect(visit.frame("json.loads", "#fg-callees")).to_have_count(1)
    visit.page.get_by_role("button", name="Close the file").click()
    expect(visit.page.locator("#fg-file-bar")).to_be_hidden()
    expect(visit.page.locator("#fg-cost dd").first).to_have_text("24")


def test_a_file_that_is_no_profile_is_refused_in_words(visit: Visit, tmp_path: Path) -> None:
    visit.open()
    broken = tmp_path / "broken.pb.gz"
    broken.write_bytes(gzip.compress(b"nothing of the kind"))
    visit.page.set_input_files("#fg-file", broken)
    expect(visit.page.locator("#fg-message")).to_contain_text("This is no pprof file that can be read")
    expect(visit.page.locator("#fg-message")).to_contain_text("Choose a file")
    # What was shown before is there again.
    expect(visit.frame("http.serve")).to_have_count(1)
    expect(visit.page.locator("#fg-file-bar")).to_be_hidden()
    expect(visit.page.locator("#fg-message")).to_contain_text("This is no pprof file")
    assert [line for line in visit.complaints if "400" not in line and "open-file" not in line] == []
    visit.complaints.clear()


def test_a_filter_that_is_no_pattern_is_named(visit: Visit) -> None:
    start = visit.viewer.start_ms
    visit.page.goto(flame_address("quarry", "web", CPU, start, start + 1, base=visit.base) + "&filter=region+%3D~+(")
    expect(visit.page.locator("#fg-message")).to_contain_text('region=~"("')
    expect(visit.page.locator("#fg-message")).to_contain_text("Mend the filter")
    visit.page.get_by_role("button", name="Remove filter 1").click()
    expect(visit.frame("http.serve")).to_have_count(1)
    expect(visit.page.locator("#fg-message")).to_be_empty()
    visit.complaints.clear()


def test_an_empty_page_offers_services_with_data(visit: Visit) -> None:
    visit.page.goto(f"{visit.base}/admin/flame-graph/?tenant=nowhere")
    expect(visit.page.locator("#fg-message")).to_contain_text("There is no tenant 'nowhere', or you may not see it")
    expect(visit.page.locator("#fg-message")).to_contain_text("Choose one from the list")
    visit.complaints.clear()
    visit.open("nobody")
    expect(visit.page.locator("#fg-empty")).to_contain_text("nobody has no data that is kept")
    visit.page.locator("#fg-empty").get_by_role("button", name="web").click()
    expect(visit.frame("http.serve")).to_have_count(1)
    visit.page.locator("#fg-asked-left [data-is=preset]").select_option("now-15m")
    expect(visit.page.locator("#fg-empty")).to_contain_text("web has data 2026-09-21 14:13:00 … 14:16:50 UTC")
    visit.page.get_by_role("button", name="Show all there is").click()
    expect(visit.frame("http.serve")).to_have_count(1)


def test_a_damaged_block_is_reported_as_left_out(visit: Visit) -> None:
    key = visit.viewer.write(flame_scene.SHOP, at=5_000)
    visit.viewer.stored.store.delete(key)
    visit.open()
    expect(visit.page.locator("#fg-cost [role=alert]")).to_contain_text("This answer is partial: 1 dataset")
    visit.page.get_by_text("Which, and why").click()
    expect(visit.page.locator(".fg-damage")).to_contain_text(key)


def test_compaction_is_seen_in_what_the_same_question_costs(visit: Visit) -> None:
    visit.viewer.stored.service.clock.advance(3600)
    visit.open()
    assert visit.viewer.stored.compact() >= 1
    visit.page.reload()
    expect(visit.page.locator("#fg-cost")).to_contain_text(
        re.compile(r"same question opened 24.objects when you asked")
    )
    expect(visit.frame("shop.cart.add")).to_have_attribute("aria-label", re.compile(r"total 20\.4.s, 55\.0"))


def test_a_signed_out_user_is_given_a_sign_in_link(visit: Visit) -> None:
    visit.open()
    visit.page.context.clear_cookies()
    visit.page.get_by_role("button", name="Ask again", exact=True).first.click()
    link = visit.page.locator("#fg-message").get_by_role("link", name="Sign in")
    expect(link).to_have_attribute("href", re.compile(r"/admin/login/\?next=%2Fadmin%2Fflame-graph%2F%3Ftenant"))
    visit.complaints.clear()
