"""uvicorn within a process that handles signals itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn


class SignalFreeServer(uvicorn.Server):
    """A server that leaves signals to its process, which drains before it exits."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers."""
        yield
