"""Base classes of the errors that Lithify raises."""

from __future__ import annotations


class LithifyError(Exception):
    """The base class of all errors of Lithify.

    ``code`` is stable and machine readable. ``retryable`` is true if the same call can succeed later without any
    intervention.
    """

    code = "lithify_error"
    retryable = False


class BadObject(LithifyError):
    """An object does not conform to its format; none of its data was used.

    ``object_name`` is the object's key ("" if the key is not known yet), ``section`` the part that is invalid
    ("footer", "profiles", "series_index", "symbols", "container", "pprof", ...), ``offset`` the byte position in that
    section where the fault was found (-1 if it has no single position).
    """

    code = "bad_object"

    def __init__(self, section: str, offset: int, reason: str, object_name: str = "") -> None:
        super().__init__(section, offset, reason, object_name)
        self.section = section
        self.offset = offset
        self.reason = reason
        self.object_name = object_name

    def __str__(self) -> str:
        place = f"{self.object_name}: " if self.object_name else ""
        at = f" at offset {self.offset}" if self.offset >= 0 else ""
        return f"{place}{self.section}{at}: {self.reason}"

    def in_object(self, object_name: str) -> BadObject:
        """Return a copy of this error that names the object."""
        return type(self)(self.section, self.offset, self.reason, object_name)


class ChecksumMismatch(BadObject):
    """A stored checksum does not match the bytes that it covers."""

    code = "checksum_mismatch"


class Truncated(BadObject):
    """The data ends before the structure does."""

    code = "truncated_object"


class UnknownFormat(BadObject):
    """A magic number, version, encoding or column is not supported by this build."""

    code = "unknown_format"


class BadReference(BadObject):
    """A reference points outside its table or forms a cycle."""

    code = "bad_reference"


class LimitExceeded(BadObject):
    """A count or size exceeds what the data can hold or what the limits allow."""

    code = "limit_exceeded"


class BadProfile(BadObject):
    """A pushed profile is invalid; the reason tells what to change in the sender."""

    code = "bad_profile"


class MergeRefused(LithifyError):
    """The sources cannot be merged with one another (no source, or different shards, tenants or levels)."""

    code = "merge_refused"


class MergeCancelled(LithifyError):
    """The merge was cancelled because its lease was lost or the node shuts down; nothing was written."""

    code = "merge_cancelled"
    retryable = True


class BadBlockName(LithifyError):
    """An object key, tenant or block id is not valid in the name of a block; ``name`` is the rejected value."""

    code = "bad_block_name"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.name!r}: {self.reason}"
