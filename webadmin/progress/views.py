"""Endpoints for machines without a credential: liveness, readiness, progress, metrics.

``/healthz`` checks only that this process answers: restarting it would not repair a database. ``/readyz`` checks that
it can do its work. ``/progressz`` checks that the schedule makes progress, and names no tenant. It and ``/metrics``
require METRICS_TOKEN as a bearer token.
"""

from __future__ import annotations

import threading
import time

from django.conf import settings
from django.db import Error as AnyDatabaseError
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from webadmin.base.access.metrics_token import has_metrics_token
from webadmin.base.database.deadlines import readiness_deadline
from webadmin.progress.facts import read_standstill
from webadmin.progress.health import judge, without_names
from webadmin.progress.metrics import metrics_text

READY_SECONDS = 2.0
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_looking = threading.Lock()
_readiness: tuple[float, str] | None = None


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Answer 200 while this process runs."""
    return HttpResponse("ok\n", content_type="text/plain")


@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Answer 200 when the database answers and has every table that this build knows, else 503 with the reason.

    The answer is cached for READY_SECONDS, and while one request refreshes it the others get the last one: requests
    cost the database nothing, and threads do not wait for one that hangs.
    """
    global _readiness
    last = _readiness
    if (last is None or time.monotonic() - last[0] >= READY_SECONDS) and _looking.acquire(blocking=last is None):
        try:
            _readiness = last = (time.monotonic(), _problem())
        finally:
            _looking.release()
    problem = last[1] if last else ""
    if problem:
        return HttpResponse(f"{problem}\n", status=503, content_type="text/plain")
    return HttpResponse("ok\n", content_type="text/plain")


def _problem() -> str:
    try:
        with readiness_deadline():
            executor = MigrationExecutor(connection)
            missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except AnyDatabaseError as error:
        return f"the database does not answer: {type(error).__name__}; check DATABASE_URL"
    if missing:
        migrations_are = "migration is" if len(missing) == 1 else "migrations are"
        return f"{len(missing)} {migrations_are} missing: run manage.py migrate"
    return ""


@require_safe
def progressz(request: HttpRequest) -> HttpResponse:
    """Answer 200 while work makes progress or none is due, else 503 with the blocker. Requires METRICS_TOKEN."""
    if not has_metrics_token(request.headers.get("Authorization", "")):
        return _closed()
    health = judge(without_names(read_standstill()), stalled_after_seconds=settings.STALLED_AFTER_SECONDS)
    return JsonResponse(health.to_json(), status=200 if health.is_healthy else 503)


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Return the metrics of the service. Requires METRICS_TOKEN."""
    if not has_metrics_token(request.headers.get("Authorization", "")):
        return _closed()
    return HttpResponse(metrics_text(), content_type=METRICS_TYPE)


def _closed() -> HttpResponse:
    text = "send METRICS_TOKEN as a bearer token (by default it is kept in LITHIFY_HOME/metrics_token)\n"
    return HttpResponse(text, status=401, content_type="text/plain", headers={"WWW-Authenticate": "Bearer"})
