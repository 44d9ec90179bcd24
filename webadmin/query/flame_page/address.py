"""URL of the flame graph page, with its state in the query string."""

from __future__ import annotations

from urllib.parse import urlencode

PAGE = "/admin/flame-graph/"


def flame_address(
    tenant: str,
    service: str = "",
    profile_type: str = "",
    start_ms: int | None = None,
    end_ms: int | None = None,
    *,
    base: str = "",
) -> str:
    """Return the URL of the flame graph of a service; the page chooses values that are not given.

    Times are unix milliseconds, both inclusive. ``base`` is the URL of the web process, such as
    ``http://127.0.0.1:8000``; without it the result is a path. The page requires a login.
    """
    parameters = {"tenant": tenant, "service": service, "type": profile_type, "from": start_ms, "until": end_ms}
    query = urlencode({name: value for name, value in parameters.items() if value not in (None, "")})
    return f"{base.rstrip('/')}{PAGE}?{query}"
