"""The interface of object stores, and its errors."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from uuid import uuid4

from engine.core.errors import LithifyError
from engine.storage.usage import StorageUsage


class StorageError(LithifyError):
    """An operation of the object store failed; ``operation`` and ``key`` name it."""

    code = "storage_error"
    retryable = True

    def __init__(self, operation: str, key: str, reason: str) -> None:
        super().__init__(operation, key, reason)
        self.operation = operation
        self.key = key
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.operation} {self.key!r}: {self.reason}"


class ObjectNotFound(StorageError):
    """The object does not exist."""

    code = "object_not_found"
    retryable = False


class InvalidKey(StorageError):
    """The key is invalid, or its path is outside of the store."""

    code = "invalid_key"
    retryable = False


class InvalidRange(StorageError):
    """The requested range is not inside the object: the object is shorter than its metadata states."""

    code = "invalid_range"
    retryable = False


class ConditionRefused(StorageError):
    """The store does not support conditional creates; use ``put`` instead."""

    code = "condition_refused"
    retryable = False


class InvalidStoreUrl(LithifyError):
    """The URL of an object store is invalid; the message names the accepted forms."""

    code = "invalid_store_url"


class ConditionalCreate(enum.StrEnum):
    """How a store handles the creation of an object on the condition that its key does not exist."""

    ENFORCED = "enforced"  # a second create fails
    IGNORED = "ignored"  # a second create overwrites the object
    REFUSED = "refused"  # the store does not support the condition


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """Key, size in bytes and last modification (Unix seconds) of a stored object."""

    key: str
    size: int
    modified_at: float


class ObjectWriter(ABC):
    """Writes one object as a stream; the object is not visible before ``commit``.

    As a context manager it commits, or aborts if the block raises an exception.
    """

    @abstractmethod
    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes."""

    @abstractmethod
    def commit(self) -> ObjectInfo:
        """Make the object visible and durable; after an error nothing of it remains."""

    @abstractmethod
    def abort(self) -> None:
        """Discard what was written; no effect after a commit or another abort."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error_class is None:
            self.commit()
        else:
            self.abort()


class ObjectStore(ABC):
    """The interface of object stores.

    Keys are relative paths separated by ``/``, without empty, ``.`` or ``..`` parts; other keys raise InvalidKey. A key
    cannot be a folder of another key (S3 would allow it, a file system does not). All methods are thread-safe.
    ``usage`` counts requests and bytes per operation.
    """

    url: str
    usage: StorageUsage

    @abstractmethod
    def get(self, key: str) -> bytes:
        """Return the whole object."""

    @abstractmethod
    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes; raise InvalidRange if the range exceeds the object."""

    @abstractmethod
    def head(self, key: str) -> ObjectInfo:
        """Return size and modification time without reading the object."""

    @abstractmethod
    def put(self, key: str, data: bytes) -> ObjectInfo:
        """Write a whole object, replacing any object of this key; durable on return."""

    @abstractmethod
    def create(self, key: str, data: bytes) -> bool:
        """Create an object unless the key exists; return whether it was created. See ``probe_conditional_create``.

        Correctness must not depend on the result: a store may ignore the condition, and a repeated create whose first
        response was lost finds its own object and returns False.
        """

    @abstractmethod
    def open_writer(self, key: str) -> ObjectWriter:
        """Return a writer for an object; memory use does not depend on the object's size."""

    @abstractmethod
    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects whose keys begin with ``prefix`` and follow ``start_after``, in bytewise order of keys."""

    @abstractmethod
    def list_folders(self, prefix: str = "") -> Iterator[str]:
        """Yield the folders directly below ``prefix``, with a slash at the end, in bytewise order.

        ``prefix`` is empty or ends with ``/``. The number of requests grows with the folders, not with the objects in
        them. A folder whose last object was just deleted may still be yielded.
        """

    @abstractmethod
    def delete(self, key: str) -> None:
        """Delete an object; a missing object is not an error."""

    def probe_conditional_create(self) -> ConditionalCreate:
        """Return how the store handles ``create``, found out by creating one scratch object twice."""
        key = f"scratch/conditional-create/{uuid4().hex}"
        try:
            self.create(key, b"first")
            created_again = self.create(key, b"second")
            is_kept = self.get(key) == b"first"
        except ConditionRefused:
            return ConditionalCreate.REFUSED
        finally:
            self.delete(key)
        return ConditionalCreate.ENFORCED if is_kept and not created_again else ConditionalCreate.IGNORED

    @abstractmethod
    def sweep_unfinished(self, *, before: float) -> int:
        """Remove unfinished writes begun before ``before`` (Unix seconds); return their number.

        The grace period must exceed the longest write: a running writer that is swept fails at its commit.
        """

    def close(self) -> None:  # noqa: B027 - most stores hold nothing that needs closing
        """Close connections; the store must not be used afterwards."""
