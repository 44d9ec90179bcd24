"""The address of the flame graph page, with what it shows in its query string."""

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
    """Return where the flame graph of a service is seen; what is not named, the page chooses itself.

    Times are unix milliseconds, closed at both ends. ``base`` is the address of the web process, such as
    ``http://127.0.0.1:8000``; without it the answer is a path. Whoever opens it signs in first.
    """
    told = {"tenant": tenant, "service": service, "type": profile_type, "from": start_ms, "until": end_ms}
    query = urlencode({name: value for name, value in told.items() if value not in (None, "")})
    return f"{base.rstrip('/')}{PAGE}?{query}"
