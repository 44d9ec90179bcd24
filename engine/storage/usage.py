"""Counts what an object store was asked for, so that a bill can be explained."""

from __future__ import annotations

import threading
from collections import Counter


class StorageUsage:
    """Requests and bytes per operation (get, get_range, head, put, create, upload_part, list, delete)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def record(self, operation: str, byte_count: int = 0) -> None:
        """Count one request of ``operation`` that moved ``byte_count`` bytes of object data."""
        with self._lock:
            self._requests[operation] += 1
            self._bytes[operation] += byte_count

    def requests(self) -> dict[str, int]:
        """Return the number of requests per operation so far."""
        with self._lock:
            return dict(self._requests)

    def bytes(self) -> dict[str, int]:
        """Return the bytes of object data moved per operation so far."""
        with self._lock:
            return dict(self._bytes)
