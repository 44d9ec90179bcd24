"""Counts what an object store was asked for, so that a bill can be explained."""

from __future__ import annotations

import threading
from collections import Counter


class StorageUsage:
    """Requests and bytes per operation.

    Operations: get, get_range, head, put, create, list, delete, and of streams to S3 create_upload, upload_part,
    complete_upload, abort_upload, list_uploads. A request that is repeated counts each time.
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
        """Add bytes to a request counted before, when its answer tells their number."""
        with self._lock:
            self._bytes[operation] += byte_count

    def record_skipped(self, count: int) -> None:
        """Count names that a listing left out because they are no objects: links, FIFOs, sockets and devices."""
        with self._lock:
            self._skipped += count

    def skipped(self) -> int:
        """Return how many names listings have left out so far."""
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
