"""Which threads serve which path."""

from __future__ import annotations

from webadmin.serving.wsgi_bridge import REQUESTS, Route

PAGES = Route(REQUESTS)
LARGE_BODIES = Route(REQUESTS, takes_large_bodies=True)
POLLS = Route("polls", takes_large_bodies=True)
_EXACT = {
    # That a process is alive must not wait for a database, for which the other three may wait.
    "/healthz": Route("alive"),
    "/readyz": Route("health"),
    "/progressz": Route("health"),
    "/metrics": Route("health"),
    "/api/v1/jobs/poll": POLLS,
    "/ingest": LARGE_BODIES,
    "/pyroscope/ingest": LARGE_BODIES,
    "/v1development/profiles": LARGE_BODIES,
    "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export": LARGE_BODIES,
}
_LARGE_BELOW = ("/api/v1/", "/lakefs/api/v1/")
_LARGE_ENDINGS = ("/push.v1.PusherService/Push",)


def route_of(path: str) -> Route:
    """Return where a path is served; repeated slashes count as one, as for the views of pushes."""
    while "//" in path:
        path = path.replace("//", "/")
    route = _EXACT.get(path)
    if route is not None:
        return route
    return LARGE_BODIES if path.startswith(_LARGE_BELOW) or path.endswith(_LARGE_ENDINGS) else PAGES
