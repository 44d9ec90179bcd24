"""The pool of threads for each path."""

from __future__ import annotations

from webadmin.serving.wsgi_bridge import Route

ALIVE, HEALTH, POLLS, REQUESTS = "alive", "health", "polls", "requests"
STREAMING, UPLOADS = "streaming", "uploads"
"""Pools for large bodies: of pushes and of the REST API, and of the catalog, whose uploads may last for hours."""

_PAGES = Route(REQUESTS)
_LARGE_BODIES = Route(REQUESTS, STREAMING)
_CATALOG = Route(REQUESTS, UPLOADS)
_HEALTH = Route(HEALTH)
_EXACT = {
    # The liveness check must not wait for a database, which the other three may do.
    "/healthz": Route(ALIVE),
    "/readyz": _HEALTH,
    "/progressz": _HEALTH,
    "/metrics": _HEALTH,
    "/api/v1/jobs/poll": Route(POLLS, POLLS),
    "/ingest": _LARGE_BODIES,
    "/pyroscope/ingest": _LARGE_BODIES,
    "/v1development/profiles": _LARGE_BODIES,
    "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export": _LARGE_BODIES,
}
_LARGE_ENDINGS = ("/push.v1.PusherService/Push",)


def route_of(path: str) -> Route:
    """Return the route of a path; repeated slashes count as one, as for the views of pushes."""
    while "//" in path:
        path = path.replace("//", "/")
    route = _EXACT.get(path)
    if route is not None:
        return route
    if path.startswith("/lakefs/api/v1/"):
        return _CATALOG
    return _LARGE_BODIES if path.startswith("/api/v1/") or path.endswith(_LARGE_ENDINGS) else _PAGES
