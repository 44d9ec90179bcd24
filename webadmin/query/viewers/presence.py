"""Detection of disconnected clients, whose queries are cancelled to free resources."""

from __future__ import annotations

from django.http import HttpRequest

from webadmin.serving.deadline_protocol import CONNECTION_KEY


def has_left(request: HttpRequest) -> bool:
    """Return whether the client has closed the connection; False with a server that does not expose its socket."""
    connection = request.META.get(CONNECTION_KEY)
    return connection is not None and bool(connection.is_closed)
