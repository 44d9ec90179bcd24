"""Counters of the requests and bytes of an object store, to explain its bill."""

from __future__ import annotations

import threading
from collections import Counter


class StorageUsage:
    """Counts requests and bytes per operation.

    Operations: get, get_range, head, put, create, list, delete; for multipart uploads create_upload, upload_part,
    complete_upload, abort_upload, list_uploads. Each retry of a request is counted.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._skipped = 0

    def record(self, operation: str, byte_count: int = 0) -> None:
        """Count one request of ``operation`` that moved ``byte_count`` bytes of object data."""
        with self._lock:
            self._requests[operation] += 1
            self._bytes[operation] += byte_count

    def record_bytes(self, operation: str, byte_count: int) -> None:
        """Add the bytes of a request that was counted before its size was known."""
        with self._lock:
            self._bytes[operation] += byte_count

    def record_skipped(self, count: int) -> None:
        """Count names that a listing skipped because they are not objects: links, FIFOs, sockets and devices."""
        with self._lock:
            self._skipped += count

    def skipped(self) -> int:
        """Return the number of names that listings have skipped so far."""
        with self._lock:
            return self._skipped

    def requests(self) -> dict[str, int]:
        """Return the number of requests per operation so far."""
        with self._lock:
            return dict(self._requests)

    def bytes(self) -> dict[str, int]:
        """Return the bytes of object data moved per operation so far."""
        with self._lock:
            return dict(self._bytes)
