"""What machines ask of the web process without a credential: is it alive, is it ready, does work go on, the metrics.

``/healthz`` says only that this process answers: restarting it would not mend a database. ``/readyz`` says that it can
do its work. ``/progressz`` says that the schedule moves. ``/metrics`` asks for METRICS_TOKEN where one is set.
"""

from __future__ import annotations

import hmac

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from webadmin.progress.facts import read_standstill
from webadmin.progress.health import judge
from webadmin.progress.metrics import metrics_text

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Answer 200 while this process answers at all."""
    return HttpResponse("ok\n", content_type="text/plain")


@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """Answer 200 when the database answers and has every table that this build knows, else 503 with the reason."""
    try:
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError as error:
        return _not_ready(f"the database does not answer: {type(error).__name__}; check DATABASE_URL")
    if missing:
        migrations_are = "migration is" if len(missing) == 1 else "migrations are"
        return _not_ready(f"{len(missing)} {migrations_are} missing: run manage.py migrate")
    return HttpResponse("ok\n", content_type="text/plain")


def _not_ready(reason: str) -> HttpResponse:
    return HttpResponse(f"{reason}\n", status=503, content_type="text/plain")


@require_safe
def progressz(request: HttpRequest) -> HttpResponse:
    """Answer 200 while work goes on or none is due, else 503 with the blocker."""
    health = judge(read_standstill(), stalled_after_seconds=settings.STALLED_AFTER_SECONDS)
    return JsonResponse(health.to_json(), status=200 if health.is_healthy else 503)


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Answer with the metrics of the service."""
    given = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
    if settings.METRICS_TOKEN and not hmac.compare_digest(given.encode(), settings.METRICS_TOKEN.encode()):
        return HttpResponse("metrics need METRICS_TOKEN as a bearer token\n", status=401, content_type="text/plain")
    return HttpResponse(metrics_text(), content_type=METRICS_TYPE)
