"""The object store as the rest of Lithify sees it."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from engine.core.errors import LithifyError
from engine.storage.usage import StorageUsage


class StorageError(LithifyError):
    """The object store did not do what was asked; ``key`` and ``operation`` say what."""

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
    """No object has this key."""

    code = "object_not_found"
    retryable = False


class InvalidKey(StorageError):
    """The key is not one this store can hold, or it would lead out of the store."""

    code = "invalid_key"
    retryable = False


class InvalidRange(StorageError):
    """The range asked for is not wholly inside the object: the object is shorter than its metadata promises."""

    code = "invalid_range"
    retryable = False


class ConditionRefused(StorageError):
    """The store rejects conditional creates as such; write the object with ``put`` instead."""

    code = "condition_refused"
    retryable = False


class InvalidStoreUrl(LithifyError):
    """The object store's URL cannot be used; the message says which form is expected."""

    code = "invalid_store_url"


class ConditionalCreate(enum.StrEnum):
    """What a store does when asked to create an object only if its key is free."""

    ENFORCED = "enforced"  # the second create is refused
    IGNORED = "ignored"  # the second create overwrites
    REFUSED = "refused"  # the store rejects the condition itself


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """Key, size in bytes and last change (unix seconds) of a stored object."""

    key: str
    size: int
    modified_at: float


class ObjectWriter(ABC):
    """Streams one object; nothing is visible under its key before ``commit`` returns.

    As a context manager it commits on a clean exit and aborts on an exception.
    """

    @abstractmethod
    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes."""

    @abstractmethod
    def commit(self) -> ObjectInfo:
        """Make the object visible, durably. After an error nothing of this writer is left."""

    @abstractmethod
    def abort(self) -> None:
        """Leave nothing; harmless after a commit or another abort."""

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
    """Keys are relative, ``/``-separated, without empty, ``.`` or ``..`` parts; anything else is an InvalidKey.

    No key may be another key plus ``/`` and more: a folder cannot hold both (S3 could).

    All methods are safe to call from several threads. ``usage`` counts requests and bytes per operation.
    """

    url: str
    usage: StorageUsage

    @abstractmethod
    def get(self, key: str) -> bytes:
        """Return the whole object."""

    @abstractmethod
    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes; a range beyond the end is a StorageError, never a short answer."""

    @abstractmethod
    def head(self, key: str) -> ObjectInfo:
        """Return size and time of an object without reading it."""

    @abstractmethod
    def put(self, key: str, data: bytes) -> ObjectInfo:
        """Write the whole object at once, replacing any object of this key; durable on return."""

    @abstractmethod
    def create(self, key: str, data: bytes) -> bool:
        """Create the object only if the key is free; False if it is taken. See ``probe_conditional_create``.

        Nothing's correctness may rest on the answer: a store may ignore the condition, and over a network a create
        whose answer was lost and which is tried again finds its own object and says False.
        """

    @abstractmethod
    def open_writer(self, key: str) -> ObjectWriter:
        """Begin to stream an object; memory use does not depend on its size."""

    @abstractmethod
    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        """Yield objects in key order (bytewise)."""

    @abstractmethod
    def list_folders(self, prefix: str = "") -> Iterator[str]:
        """Yield, bytewise ascending, what keys below ``prefix`` have up to their next ``/`` and with it, each once.

        ``prefix`` is empty or ends in ``/``. Requests grow with the folders, not with the objects in them. A folder
        that has just lost its last object may still be yielded.
        """

    @abstractmethod
    def delete(self, key: str) -> None:
        """Delete the object; a missing one is no error."""

    @abstractmethod
    def probe_conditional_create(self) -> ConditionalCreate:
        """Find out, with a scratch key, what ``create`` really does here."""

    @abstractmethod
    def sweep_unfinished(self, *, before: float) -> int:
        """Remove what writers begun before ``before`` (unix seconds) left unfinished; return how many there were.

        Only for grace times far longer than any write: a writer that is swept while it runs fails at its commit.
        """

    def close(self) -> None:  # noqa: B027 - most stores hold nothing that needs closing
        """Give back connections; the store is not used afterwards."""
