"""The timeline of a table in a real browser: with mouse and keyboard, and where there is nothing, or no answer.

To look at the page yourself, name a folder in LITHIFY_SCREENSHOTS: each view is saved there.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect
from pytest_django.live_server_helper import LiveServer

from tests.e2e.test_admin_pages import CHROMIUM, OVERFLOW, complaints_of, keep_picture, running_chromium, signed_in
from tests.webadmin.admin.timeline_rows import DAYS, fill_timeline, make_chunks, make_table
from webadmin.lanes.tables.models import Chunk, DataSource, Policy

BUNDLE = Path(__file__).parents[2] / "webadmin/console/static/console/bundle/chunk-timeline.js"
PATIENCE_MS = 20_000
YEARS_DAYS = 4_000

pytestmark = [
    pytest.mark.stack,
    pytest.mark.timeout(120),
    pytest.mark.skipif(not shutil.which(CHROMIUM), reason="no chromium: apt-get install chromium"),
    pytest.mark.skipif(
        not BUNDLE.exists() and os.environ.get("CI") != "true", reason="the page is not bundled: ./dev build with npm"
    ),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of the page."""
    with running_chromium() as chromium:
        yield chromium


class Visit:
    """The page as somebody sees it."""

    def __init__(self, context: BrowserContext, base: str) -> None:
        self.context, self.base = context, base
        self.page: Page = context.new_page()
        self.complaints = complaints_of(self.page)
        self.page.set_default_timeout(PATIENCE_MS)

    def open(self, source: DataSource, **query: object) -> None:
        self.page.goto(self.base + reverse("timeline-page", args=[source.id], query=query or None))
        self.settled()

    def settled(self) -> None:
        expect(self.page.locator("#chunk-timeline")).to_have_attribute("aria-busy", "false", timeout=PATIENCE_MS)

    def pieces(self, state: str) -> int:
        return self.page.locator(f".ct-is-{state}").count()

    def counted(self, state: str) -> str:
        """The number that the legend says of a state."""
        return (
            self.page.locator("#ct-legend li")
            .filter(has_text=re.compile(f"^{state} [\\d\u202f]+$"))
            .locator("b")
            .inner_text()
        )

    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.page.url).query)

    def span_ms(self) -> int:
        """How much of the timeline is in view, as the address says."""
        return int(self.query()["until"][0]) - int(self.query()["from"][0])

    def look(self, name: str, width: int, scheme: str, part: str = ".ct-main", *, reloads: bool = True) -> None:
        """Nothing is cut off in this width; keeps a picture of a part of the page."""
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        if reloads:
            self.page.reload()
            self.settled()
        self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert self.page.evaluate(OVERFLOW) == 0
        if folder := os.environ.get("LITHIFY_SCREENSHOTS"):
            self.page.locator(part).screenshot(path=Path(folder) / f"{name}-{width}-{scheme}.png")

    def moved(self, act: object = None) -> None:
        """Wait until the address says another stretch than before ``act``."""
        before = self.page.url
        if callable(act):
            act()
        self.page.wait_for_url(lambda url: url != before)
        self.settled()


@pytest.fixture
def visit(browser: Browser, live_server: LiveServer, transactional_db: None) -> Iterator[Visit]:
    client = Client()
    client.force_login(User.objects.create(username="operator", is_staff=True, is_superuser=True))
    context = signed_in(browser, live_server, client.cookies["sessionid"].value)
    found = Visit(context, live_server.url)
    yield found
    context.close()
    assert not found.complaints


def test_everything_is_there_at_once_in_words_too_and_in_every_width(visit: Visit) -> None:
    source = fill_timeline()
    visit.open(source)
    page = visit.page
    assert (visit.pieces("quarantined"), visit.pieces("deferred"), visit.pieces("skipped")) == (1, 7, 6)
    assert {state: visit.counted(state) for state in ("quarantined", "deferred", "empty", "misaligned")} == {
        "quarantined": "1",
        "deferred": "7",
        "empty": "1",
        "misaligned": "4",
    }
    expect(page.locator(".ct-svg")).to_have_attribute("aria-label", re.compile("1 quarantined; 5 open tasks"))
    tasks = [
        re.sub(r"\d+", "N", text or "")
        for text in (bar.get_attribute("aria-label") for bar in page.locator(".ct-task").all())
    ]
    assert sorted(tasks) == [
        "Task N: blocked, black, after task N",
        "Task N: blocked, black, after task N, task N",
        "Task N: parked, red",
        "Task N: running, red",
        "Task N: waiting, red",
    ]
    assert page.locator(".ct-needs").count() == 3
    page.locator("#ct-table summary").click()
    expect(page.locator("#ct-rows")).to_contain_text("1.21\u00a0GiB")
    expect(page.locator("#ct-rows tbody tr")).to_have_count(DAYS)
    for width, scheme in ((390, "light"), (1400, "dark"), (390, "dark"), (1400, "light")):
        visit.look(f"timeline-{scheme}", width, scheme)


def test_a_timeline_of_years_is_drawn_in_columns_that_zoom_into_chunks(visit: Visit) -> None:
    source = make_table()
    make_chunks(source, 0, YEARS_DAYS)
    visit.open(source)
    page = visit.page
    expect(page.locator("#ct-columns")).to_contain_text("Each column is one chunk")
    visit.moved(page.get_by_role("button", name="Everything").click)
    expect(page.locator("#ct-columns")).to_contain_text("A column stands for the chunks that begin within 14\u00a0d")
    assert visit.counted("quarantined") == str(YEARS_DAYS // 50)
    visit.look("timeline-years", 1400, "light")
    for _ in range(3):
        before = visit.span_ms()
        visit.moved(page.get_by_role("button", name="Zoom in").click)
        assert visit.span_ms() < before
    box = page.locator(".ct-svg").bounding_box() or {}
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 70)
    before = visit.span_ms()
    visit.moved(lambda: page.mouse.wheel(0, -600))
    assert visit.span_ms() < before
    from_ms, span_ms = int(visit.query()["from"][0]), visit.span_ms()

    def drag() -> None:
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 2 + 200, box["y"] + 70, steps=5)
        page.mouse.up()

    visit.moved(drag)
    assert int(visit.query()["from"][0]) < from_ms
    assert abs(visit.span_ms() - span_ms) < 1000
    page.reload()
    visit.settled()
    assert abs(visit.span_ms() - span_ms) < 1000


def test_a_late_response_does_not_move_the_view_back(visit: Visit) -> None:
    visit.open(fill_timeline())
    page = visit.page
    held: list[Route] = []
    page.route("**/data*", lambda route: held.append(route))
    page.get_by_role("button", name="Zoom in").click()
    box = page.locator(".ct-svg").bounding_box() or {}
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 70)
    while not held:
        page.wait_for_timeout(10)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 + 200, box["y"] + 70, steps=5)
    in_view = page.locator("#ct-range").inner_text()
    held[0].continue_()
    page.unroute("**/data*")
    page.evaluate("() => fetch(location.href).then(told => told.text())")
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    expect(page.locator("#ct-range")).to_have_text(in_view)
    visit.moved(page.mouse.up)
    expect(page.locator("#ct-range")).to_have_text(in_view)


def test_chunks_are_walked_through_and_opened_with_the_keyboard(visit: Visit) -> None:
    source = fill_timeline()
    visit.open(source)
    page = visit.page
    page.locator(".ct-svg").focus()
    for key in ("End", "ArrowLeft"):
        page.keyboard.press(key)
    expect(page.locator("#ct-said")).to_contain_text("unstable, changed; 24\u00a0segments, 114\u00a0MiB")
    page.keyboard.press("Enter")
    panel = page.locator("#ct-panel")
    expect(panel.locator("#ct-panel-title")).to_be_focused()
    expect(panel).to_contain_text("The chunk changed after its analysis")
    expect(panel).to_contain_text("Priority 0.442000")
    newest = Chunk.objects.filter(source=source).order_by("-start_ms")[1]
    assert visit.query()["chunk"] == [str(newest.start_ms)]
    visit.look("timeline-chunk", 1400, "light", ".ct-page")
    panel.get_by_label("The chunk before").click()
    expect(page.locator("#ct-said")).to_contain_text(": stable")
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(page.locator(".ct-svg")).to_be_focused()
    spans_ms = [visit.span_ms()]
    visit.moved(lambda: page.keyboard.press("+"))
    spans_ms.append(visit.span_ms())
    visit.moved(lambda: page.keyboard.press("-"))
    spans_ms.append(visit.span_ms())
    assert spans_ms[0] > spans_ms[1] < spans_ms[2]
    visit.moved(lambda: page.keyboard.press("Shift+ArrowLeft"))


def test_a_click_opens_a_chunk_and_the_address_opens_it_again(visit: Visit) -> None:
    source = fill_timeline()
    failed = Chunk.objects.get(source=source, is_quarantined=True)
    visit.open(source)
    page = visit.page
    page.locator(".ct-is-quarantined").click()
    expect(page.locator("#ct-panel-body")).to_contain_text(
        "Quarantined after 3\u00a0failures: BadFile: footer that lies"
    )
    visit.open(source, chunk=failed.start_ms)
    expect(page.locator("#ct-panel-body")).to_contain_text("Quarantined after 3\u00a0failures")
    page.locator(".ct-task-running").click()
    page.get_by_role("heading", name="Task", exact=True).wait_for()


def test_a_chunk_is_compacted_now_with_the_mouse(visit: Visit) -> None:
    source = fill_timeline()
    page = visit.page
    visit.open(source)
    page.locator(".ct-is-unstable").last.click()
    page.locator("#ct-panel").get_by_role("link", name="Compact now").click()
    page.fill("input[name=why]", "a report is slow")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("heading", name="Intervals (1)").wait_for()
    page.get_by_role("button", name="Compact now").click()
    page.get_by_text("Compact now: done").wait_for()
    visit.settled()
    expect(page.locator("#ct-panel-body")).to_contain_text("Compact now: override by operator")
    assert page.locator(".ct-override-now").count() == 2


def test_a_policy_is_previewed_and_saved_with_the_mouse(visit: Visit) -> None:
    source = fill_timeline()
    page = visit.page
    page.goto(visit.base + reverse("admin:tables_datasource_changelist"))
    keep_picture(page, "tables", 1280)
    page.locator("#result_list tbody a").filter(has_text="orders").first.click()
    page.get_by_role("heading", name="Status").wait_for()
    keep_picture(page, "table", 1280)
    page.get_by_role("link", name="Check with two plans").click()
    page.get_by_text("the plan after that is empty.").wait_for()
    keep_picture(page, "table-rest", 1280)
    page.go_back()
    page.get_by_role("link", name="Change the policy").click()
    page.fill("input[name=segment_bytes_max]", "1 GiB")
    page.fill("input[name=why]", "larger files")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("heading", name="Plan (9)").wait_for()
    keep_picture(page, "table-policy", 1280)
    page.get_by_role("button", name="Change the policy").click()
    page.get_by_text("Segment bytes at most: 477 MiB → 1.0 GiB").wait_for()
    assert Policy.objects.get(source=source).segment_bytes_max == 1 << 30


def test_missing_chunks_and_refused_plans_are_shown(visit: Visit) -> None:
    empty, broken = make_table("empty"), make_table("broken", refusal="two versions overlap", is_paused=True)
    visit.open(empty)
    page = visit.page
    expect(page.locator("#ct-empty")).to_contain_text("This table has no chunks yet")
    visit.look("timeline-empty", 1400, "light")
    visit.open(broken)
    expect(page.locator("#ct-notices")).to_contain_text("Nothing of this table is planned: two versions overlap")

    def refuse(route: Route) -> None:
        route.abort()

    page.route("**/data*", refuse)
    page.reload()
    expect(page.locator("#ct-message")).to_contain_text("The server does not answer")
    visit.look("timeline-error", 1400, "dark", reloads=False)
    page.unroute("**/data*", refuse)
    page.get_by_role("button", name="Ask again").click()
    expect(page.locator("#ct-message")).to_be_empty()
    page.goto(visit.base + reverse("timeline-page", args=[empty.id], query={"from": "5", "until": "99999999999999999"}))
    expect(page.locator("#ct-message")).to_contain_text("not a moment in milliseconds")
    page.get_by_role("button", name="Show the newest").click()
    expect(page.locator("#ct-message")).to_be_empty()
    visit.complaints.clear()  # the browser's own words about the answers above
