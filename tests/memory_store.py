"""An object store in a dictionary, for tests that write many files and ask nothing of disks."""

from __future__ import annotations

from collections.abc import Iterator

from engine.storage import ConditionalCreate, InvalidRange, ObjectInfo, ObjectNotFound, ObjectStore, ObjectWriter
from engine.storage.keys import check_folder, check_key, check_prefix
from engine.storage.usage import StorageUsage


class MemoryStore(ObjectStore):
    """``objects`` may be changed by a test, to damage what is stored."""

    def __init__(self) -> None:
        self.url = "memory:"
        self.usage = StorageUsage()
        self.objects: dict[str, bytes] = {}

    def get(self, key: str) -> bytes:
        data = self._held("get", key)
        self.usage.record("get", len(data))
        return data

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        data = self._held("get_range", key)
        if offset < 0 or length < 0 or offset + length > len(data):
            raise InvalidRange("get_range", key, f"{length} bytes at {offset} of an object of {len(data)} bytes")
        self.usage.record("get_range", length)
        return data[offset : offset + length]

    def head(self, key: str) -> ObjectInfo:
        return ObjectInfo(key=key, size=len(self._held("head", key)), modified_at=0.0)

    def put(self, key: str, data: bytes) -> ObjectInfo:
        self.objects[check_key("put", key)] = bytes(data)
        self.usage.record("put", len(data))
        return self.head(key)

    def create(self, key: str, data: bytes) -> bool:
        if check_key("create", key) in self.objects:
            return False
        self.put(key, data)
        return True

    def open_writer(self, key: str) -> ObjectWriter:
        return _Writer(self, check_key("put", key))

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        check_prefix("list", prefix)
        for key in sorted(self.objects):
            if key.startswith(prefix) and key > start_after:
                yield self.head(key)

    def list_folders(self, prefix: str = "") -> Iterator[str]:
        check_folder("list", prefix)
        below = (key[len(prefix) :].partition("/") for key in self.objects if key.startswith(prefix))
        yield from sorted({prefix + name + slash for name, slash, _ in below if slash})

    def delete(self, key: str) -> None:
        self.objects.pop(check_key("delete", key), None)

    def probe_conditional_create(self) -> ConditionalCreate:
        return ConditionalCreate.ENFORCED

    def sweep_unfinished(self, *, before: float) -> int:
        return 0

    def _held(self, operation: str, key: str) -> bytes:
        if check_key(operation, key) not in self.objects:
            raise ObjectNotFound(operation, key, "no object has this key")
        return self.objects[key]


class _Writer(ObjectWriter):
    def __init__(self, store: MemoryStore, key: str) -> None:
        self._store, self._key, self._data = store, key, bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._data += data

    def commit(self) -> ObjectInfo:
        return self._store.put(self._key, bytes(self._data))

    def abort(self) -> None:
        self._data.clear()
