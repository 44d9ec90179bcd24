"""The root of every error that Lithify raises on purpose."""

from __future__ import annotations


class LithifyError(Exception):
    """Something went wrong in a way that Lithify knows and names.

    ``code`` is stable and machine readable; ``retryable`` says whether the same call can succeed later
    without anybody changing anything.
    """

    code = "lithify_error"
    retryable = False


class BadObject(LithifyError):
    """An object's bytes are not what its format promises; nothing of it was used.

    ``object_name`` is the object's key ("" while only bytes are known), ``section`` the part that is wrong
    ("footer", "profiles", "series_index", "symbols", "container", "pprof"), ``offset`` the byte position inside that
    section where the trouble was found (-1 if it has no single place).
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
        """Return the same error naming the object it was found in."""
        return type(self)(self.section, self.offset, self.reason, object_name)


class ChecksumMismatch(BadObject):
    """A stored checksum does not match the bytes it covers."""

    code = "checksum_mismatch"


class Truncated(BadObject):
    """The bytes end before the structure they promise does."""

    code = "truncated_object"


class UnknownFormat(BadObject):
    """A magic number, version, encoding or column is not one this build can read."""

    code = "unknown_format"


class BadReference(BadObject):
    """A reference points outside its table, or forms a cycle."""

    code = "bad_reference"


class LimitExceeded(BadObject):
    """A count or size is beyond what the bytes could hold or what the budget allows."""

    code = "limit_exceeded"


class BadProfile(BadObject):
    """A pushed pprof profile cannot be used; the reason says what to change in the sender."""

    code = "bad_profile"


class MergeRefused(LithifyError):
    """The sources of a merge do not belong together (other shard, no source, tenant or level mismatch)."""

    code = "merge_refused"


class MergeCancelled(LithifyError):
    """The merge was told to stop (its lease is lost or the node shuts down); nothing was written."""

    code = "merge_cancelled"
    retryable = True


class BadBlockName(LithifyError):
    """An object key, tenant or block id cannot name a block; ``name`` is what was given."""

    code = "bad_block_name"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.name!r}: {self.reason}"
