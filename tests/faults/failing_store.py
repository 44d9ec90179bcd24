"""An object store wrapper that fails on demand: the n-th call, a torn write, a key.

``FailingStore(store, Fault("write", call=3, torn_bytes=100))`` makes the third write of any object stop after 100
bytes. A fault applies once unless ``is_durable``. ``calls`` has the calls made, so that a test can count the calls of a
successful run and then make each of them fail in turn.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

from engine.storage import ConditionalCreate, ObjectInfo, ObjectStore, ObjectWriter, StorageError

OPERATIONS = frozenset(
    {"get", "get_range", "head", "put", "create", "open_writer", "write", "commit", "list", "delete"}
)


@dataclass(frozen=True, slots=True)
class Fault:
    """The call that fails: of ``operation``, the ``call``-th (from 1) among those whose key contains ``key_part``.

    ``torn_bytes``: bytes of a write that reach the store before the error (None: none). ``is_late``: the call takes
    effect and only its response is lost. ``is_durable``: every later call fails too.
    """

    operation: str
    call: int = 1
    key_part: str = ""
    torn_bytes: int | None = None
    is_late: bool = False
    is_durable: bool = False
    error: type[Exception] = StorageError

    def __post_init__(self) -> None:
        assert self.operation in OPERATIONS, f"no operation {self.operation!r}"


class FailingStore(ObjectStore):
    """Forward all calls to ``store``, except those that ``faults`` match."""

    def __init__(self, store: ObjectStore, *faults: Fault) -> None:
        self._store = store
        self._faults = faults
        self._counts = [0] * len(faults)
        self._lock = threading.Lock()
        self.url = store.url
        self.usage = store.usage
        self.calls: list[tuple[str, str]] = []

    def get(self, key: str) -> bytes:
        with self._call("get", key):
            return self._store.get(key)

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        with self._call("get_range", key):
            return self._store.get_range(key, offset, length)

    def head(self, key: str) -> ObjectInfo:
        with self._call("head", key):
            return self._store.head(key)

    def put(self, key: str, data: bytes) -> ObjectInfo:
        with self._call("put", key):
            return self._store.put(key, data)

    def create(self, key: str, data: bytes) -> bool:
        with self._call("create", key):
            return self._store.create(key, data)

    def open_writer(self, key: str) -> ObjectWriter:
        with self._call("open_writer", key):
            return FailingWriter(self, key, self._store.open_writer(key))

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        with self._call("list", prefix):
            yield from self._store.list(prefix, start_after=start_after)

    def list_folders(self, prefix: str = "") -> Iterator[str]:
        with self._call("list", prefix):
            yield from self._store.list_folders(prefix)

    def delete(self, key: str) -> None:
        with self._call("delete", key):
            self._store.delete(key)

    def probe_conditional_create(self) -> ConditionalCreate:
        return self._store.probe_conditional_create()

    def sweep_unfinished(self, *, before: float) -> int:
        return self._store.sweep_unfinished(before=before)

    def close(self) -> None:
        self._store.close()

    def _call(self, operation: str, key: str) -> _Call:
        return _Call(operation, key, self.struck(operation, key))

    def struck(self, operation: str, key: str) -> Fault | None:
        """Count a call and return the fault that applies to it, if any."""
        struck = None
        with self._lock:
            self.calls.append((operation, key))
            for position, fault in enumerate(self._faults):
                if fault.operation == operation and fault.key_part in key:
                    self._counts[position] += 1
                    count = self._counts[position]
                    if count == fault.call or (fault.is_durable and count > fault.call):
                        struck = fault
        return struck


class FailingWriter(ObjectWriter):
    """An object writer whose writes and commit can fail."""

    def __init__(self, store: FailingStore, key: str, writer: ObjectWriter) -> None:
        self._store, self._key, self._writer = store, key, writer

    def write(self, data: bytes | bytearray | memoryview) -> None:
        fault = self._store.struck("write", self._key)
        if fault and fault.torn_bytes is not None:
            self._writer.write(memoryview(data)[: fault.torn_bytes])
        with _Call("write", self._key, fault):
            self._writer.write(data)

    def commit(self) -> ObjectInfo:
        try:
            with _Call("commit", self._key, self._store.struck("commit", self._key)):
                return self._writer.commit()
        finally:
            self._writer.abort()

    def abort(self) -> None:
        self._writer.abort()


class _Call:
    """Raise the fault's error before the call, or after it if only the response is lost."""

    def __init__(self, operation: str, key: str, fault: Fault | None) -> None:
        self._fault = fault
        self._place = (operation, key)

    def __enter__(self) -> None:
        if self._fault and not self._fault.is_late:
            self._fail()

    def __exit__(self, error_class: type[BaseException] | None, *_: object) -> None:
        if self._fault and error_class is None:
            self._fail()

    def _fail(self) -> None:
        assert self._fault
        if issubclass(self._fault.error, StorageError):
            raise self._fault.error(*self._place, "failed on demand")
        raise self._fault.error("failed on demand")
