"""Whether a client still waits for its answer: a server that goes on for nobody is slow for all others."""

from __future__ import annotations

from django.http import HttpRequest

from webadmin.serving.deadline_protocol import CONNECTION_KEY


def has_left(request: HttpRequest) -> bool:
    """Say whether a client has closed the connection; False under another server than ours, where that is not seen."""
    connection = request.META.get(CONNECTION_KEY)
    return connection is not None and bool(connection.is_closed)
