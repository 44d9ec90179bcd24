"""Opens every page of a filled admin in a real browser: no script fails, nothing is missing, nothing is cut off.

To look at the pages yourself, name a folder in LITHIFY_SCREENSHOTS: each is saved there, wide and narrow.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db.models import QuerySet
from django.test import Client
from django.urls import reverse
from playwright.sync_api import Browser, BrowserContext, Page, Request, sync_playwright
from pytest_django.live_server_helper import LiveServer

from engine.schedule.model import JobState
from tests.webadmin.admin import catalog_rows, rows, timeline_rows, tsdb_rows
from tests.webadmin.admin.scene import fill_night
from webadmin.adminkit.actions import ActionAdmin
from webadmin.adminkit.read_only import ReadOnlyAdmin
from webadmin.console import content_security
from webadmin.schedule.models import Attempt, Job

CHROMIUM = "/usr/bin/chromium"
SWITCHES = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDTHS = ((390, "dark"), (1400, "light"))
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"

pytestmark = [
    pytest.mark.stack,
    pytest.mark.skipif(not shutil.which(CHROMIUM), reason="no chromium: apt-get install chromium"),
]


@pytest.fixture
def scene() -> Callable[[], object]:
    """What fills the database; a test may ask for a larger one."""
    return rows.fill


@pytest.fixture
def pages(transactional_db: None, scene: Callable[[], object]) -> list[str]:
    """Every list, and each detail page that differs from the others of its kind, of a filled database."""
    cache.clear()
    scene()
    tsdb_rows.fill_tsdb()
    timeline_rows.fill_timeline()
    catalog_rows.fill_catalog()
    addresses = ["/admin/", "/api/docs/", "/admin/backlog/", "/admin/standstill/", "/admin/standstill/?name=01"]
    addresses += ["/admin/placement-map/", "/admin/placement-map/?ask=1&add=eu-west-1a&remove=writer-01"]
    for model, page in admin.site._registry.items():
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        addresses.append(reverse(f"{name}_changelist"))
        if isinstance(page, ReadOnlyAdmin):
            addresses += [reverse(f"{name}_change", args=[row.pk]) for row in _different(model)]
            addresses += _orders_of(page, name, model)
        else:
            addresses.append(reverse(f"{name}_add"))
    return addresses


def _orders_of(page: ReadOnlyAdmin, name: str, model: type) -> list[str]:
    """The page of each action, about a row where it needs one."""
    row = model._default_manager.order_by("pk").first()
    actions = page.operator_actions if isinstance(page, ActionAdmin) else ()
    return [reverse(f"{name}_action", args=[action.name], query={"ids": row.pk}) for action in actions]


def _different(model: type) -> list:
    """One row per state where there are states, else the first and the last."""
    shown = list(model._default_manager.order_by("pk"))
    if not hasattr(model, "state"):
        return shown[:1] + shown[1:][-1:]
    return list({row.state: row for row in shown}.values())


@pytest.fixture
def cookie(pages: list[str]) -> str:
    """The session of an operator."""
    client = Client()
    client.force_login(User.objects.create(username="operator", is_staff=True, is_superuser=True))
    return client.cookies["sessionid"].value


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """Run Chromium with a home folder of its own: it keeps crash reports and caches there, whatever its profile is.

    Playwright runs an event loop in this thread, which Django takes for asynchronous code of ours.
    """
    with (
        pytest.MonkeyPatch.context() as patch,
        TemporaryDirectory(prefix="lithify-chromium-", ignore_cleanup_errors=True) as home,
        sync_playwright() as playwright,
    ):
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        homes = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"), home)
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=SWITCHES, env=os.environ | homes)
        yield chromium
        chromium.close()


@pytest.fixture
def browser(cookie: str) -> Iterator[Browser]:
    """Chromium, started when the session is in the database."""
    with running_chromium() as chromium:
        yield chromium


def signed_in(browser: Browser, live_server: LiveServer, cookie: str) -> BrowserContext:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.add_cookies([{"name": "sessionid", "value": cookie, "url": live_server.url}])
    return context


def complaints_of(page: Page) -> list[str]:
    """Collects what goes wrong on a page from now on."""
    complaints: list[str] = []
    page.on("console", lambda line: complaints.append(line.text) if line.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("response", lambda answer: complaints.append(answer.url) if answer.status >= 400 else None)
    page.on("requestfailed", lambda request: complaints.append(request.url) if _failed(request) else None)
    return complaints


def keep_picture(page: Page, address: str, width: int) -> None:
    """Save how the page looks, if somebody wants to see it."""
    folder = os.environ.get("LITHIFY_SCREENSHOTS")
    if folder:
        name = re.sub(r"[^a-z0-9]+", "-", address.lower()).strip("-")
        page.screenshot(path=Path(folder) / f"{name}-{width}.png", full_page=True)


def _failed(request: Request) -> bool:
    return "ERR_ABORTED" not in (request.failure or "")  # what was under way when the next page was asked for


@pytest.mark.timeout(480)
@pytest.mark.parametrize("scene", [fill_night])
def test_every_page_is_whole_in_a_browser(
    browser: Browser, live_server: LiveServer, cookie: str, pages: list[str]
) -> None:
    wrong: dict[str, object] = {}
    page = signed_in(browser, live_server, cookie).new_page()
    complaints = complaints_of(page)
    for address in pages:
        page.goto(live_server.url + address, wait_until="load")
        too_wide = {}
        for width, scheme in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            too_wide[width] = page.evaluate(OVERFLOW)
            keep_picture(page, address, width)
        if complaints or any(too_wide.values()):
            wrong[address] = (too_wide, list(complaints))
        complaints.clear()
    assert len(pages) > 60
    assert not wrong


def test_the_front_page_refreshes_by_itself(browser: Browser, live_server: LiveServer, cookie: str) -> None:
    page = signed_in(browser, live_server, cookie).new_page()
    complaints = complaints_of(page)
    page.goto(live_server.url + "/admin/")
    assert page.locator("#overview").count() == 1
    rows.make_worker("node-new")
    page.get_by_role("link", name="node-new").wait_for(timeout=20_000)
    assert page.locator("#overview").count() == 1
    assert page.locator("nav").count() > 0
    assert not complaints


@pytest.mark.timeout(120)
def test_side_bar_theme_search_and_forms_work_without_evaluating_code(
    browser: Browser, live_server: LiveServer, cookie: str
) -> None:
    """The theme's scripts of all pages, with Alpine's build that evaluates no code if it could be bundled."""
    page = signed_in(browser, live_server, cookie).new_page()
    complaints = complaints_of(page)
    answer = page.goto(live_server.url + "/admin/")
    assert answer is not None
    evaluates = "'unsafe-eval'" in answer.headers["content-security-policy"]
    assert evaluates != content_security.ALPINE.exists()

    page.set_viewport_size({"width": 1400, "height": 900})
    toggle, side_bar = page.get_by_text("dock_to_right").first, page.locator("#nav-sidebar")
    for is_open in (False, True, False):
        toggle.click()
        side_bar.wait_for(state="visible" if is_open else "hidden")
    page.reload()
    side_bar.wait_for(state="hidden")
    toggle.click()
    side_bar.wait_for(state="visible")

    for theme in ("light", "dark", "light"):
        page.keyboard.press("Control+e")
        page.locator(f"html.{theme}").wait_for(state="attached")

    page.keyboard.press("Control+k")
    page.fill("#search-input-command", "quarantine")
    page.press("#search-input-command", "a")
    page.press("#search-input-command", "Backspace")
    page.locator("#command-results li").first.wait_for()
    page.press("#search-input-command", "ArrowDown")
    page.press("#search-input-command", "Enter")
    page.wait_for_url("**/*quarantine/")

    User.objects.bulk_create(User(username=f"user-{number:03}") for number in range(130))
    page.goto(live_server.url + reverse("admin:auth_user_changelist"))
    page.get_by_role("link", name="2", exact=True).click()
    page.wait_for_url("**p=2**")
    page.locator("#result_list tbody a").first.click()
    page.get_by_role("button", name="Save", exact=True).click()
    page.wait_for_url("**/auth/user/**")
    assert not complaints


def test_filters_and_shortcuts_work_with_the_mouse(browser: Browser, live_server: LiveServer, cookie: str) -> None:
    page = signed_in(browser, live_server, cookie).new_page()
    complaints = complaints_of(page)
    page.goto(live_server.url + reverse("admin:profiles_block_changelist"))
    page.get_by_role("link", name="Final", exact=True).click()
    page.wait_for_url("**/?state=final")
    assert page.locator("#result_list tbody").count() == 1
    page.get_by_text("Filters").first.click()
    page.fill("#changelist-filter input[name=tenant]", "acme")
    page.get_by_role("button", name="Apply Filters").click()
    page.wait_for_url("**tenant=acme**")
    assert page.locator("#result_list tbody").count() >= 1
    page.fill("#searchbar", "nothing of the kind")
    page.press("#searchbar", "Enter")
    page.get_by_text("Nothing fits the search and the filters.").wait_for()
    assert not complaints


def test_a_limit_is_set_for_an_hour_with_the_mouse(browser: Browser, live_server: LiveServer, cookie: str) -> None:
    page = signed_in(browser, live_server, cookie).new_page()
    complaints = complaints_of(page)
    page.goto(live_server.url + reverse("admin:schedule_limitchange_changelist"))
    page.get_by_role("link", name="Set a limit").click()
    page.select_option("select[name=limit]", "failures_max")
    page.fill("input[name=value]", "8")
    page.fill("input[name=why]", "a bad hour")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("heading", name="Expected changes").wait_for()
    assert page.input_value("input[name=for_seconds]") == "3600"
    page.get_by_role("button", name="Set a limit").click()
    page.get_by_text("Set a limit: done").wait_for()
    assert page.get_by_text("a bad hour").count() >= 1
    assert not complaints


def test_a_parked_job_is_requeued_with_the_mouse(browser: Browser, live_server: LiveServer, cookie: str) -> None:
    page = signed_in(browser, live_server, cookie).new_page()
    complaints = complaints_of(page)
    page.goto(live_server.url + reverse("admin:progress_parkedjob_changelist") + "?kind=evicted")
    page.locator("#result_list tbody a").first.click()
    page.get_by_role("link", name="Return blocks to queues").click()
    page.fill("input[name=why]", "plan them anew")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("heading", name="Changed (1)").wait_for()
    page.get_by_role("button", name="Return blocks to queues").click()
    page.get_by_text("Return blocks to queues: 1 changed").wait_for()
    assert not complaints


def give_order(page: Page, label: str, **values: str) -> None:
    """Fill the order's page, look at the preview, give the order."""
    for name, value in values.items():
        field = page.locator(f"[name={name}]")
        if field.evaluate("field => field.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    page.fill("input[name=why]", "a bad night")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Preview again").wait_for()
    page.get_by_role("button", name=label, exact=True).click()


@pytest.mark.timeout(120)
def test_parts_of_the_schedule_are_drained_and_resumed_with_the_mouse(
    browser: Browser, live_server: LiveServer, cookie: str
) -> None:
    page = signed_in(browser, live_server, cookie).new_page()
    complaints = complaints_of(page)

    for kind, value in (("tenant", "zeta"), ("lane", "profiles"), ("global", "")):
        page.goto(live_server.url + reverse("admin:schedule_pause_changelist"))
        page.get_by_role("link", name="Pause or drain").click()
        give_order(page, "Pause or drain", scope_kind=kind, scope_value=value, mode="drain")
        page.get_by_text("Pause or drain: done").wait_for()
    page.locator("#result_list tbody a").first.click()
    page.get_by_role("link", name="Resume").click()
    give_order(page, "Resume")
    page.get_by_text("Resume: 1 changed").wait_for()
    assert not complaints


@pytest.mark.timeout(120)
@pytest.mark.parametrize("scene", [fill_night])
def test_all_jobs_of_one_error_class_are_requeued_and_a_block_released_with_the_mouse(
    browser: Browser, live_server: LiveServer, cookie: str
) -> None:
    page = signed_in(browser, live_server, cookie).new_page()
    complaints = complaints_of(page)
    parked = set(Job.objects.filter(state=JobState.PARKED).values_list("id", flat=True))
    page.goto(live_server.url + reverse("admin:progress_parkedjob_changelist"))
    page.get_by_role("link", name="Requeue by filter").click()
    page.check("input[name=newer_build_only]")
    give_order(page, "Requeue by filter", error_class="ChecksumMismatch")
    page.get_by_text(re.compile(r"Requeue by filter: \d+ changed")).wait_for()
    again = Job.objects.filter(id__in=parked, state=JobState.WAITING)
    assert 10 < again.count() < len(parked)
    assert all("ChecksumMismatch" in attempt.reason["error_class"] for attempt in _last_attempts(again))

    page.goto(live_server.url + reverse("admin:profiles_quarantine_changelist"))
    page.locator("#result_list tbody a").first.click()
    page.get_by_role("link", name="Release").click()
    give_order(page, "Release")
    page.get_by_text("Release: 1 changed").wait_for()
    assert not complaints


def _last_attempts(jobs: QuerySet[Job]) -> list[Attempt]:
    return [job.attempts.order_by("-id")[0] for job in jobs]
