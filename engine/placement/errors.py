"""Every error that placement raises."""

from __future__ import annotations

from engine.core.errors import LithifyError


class BadBuckets(LithifyError, ValueError):
    """A key cannot be spread over this number of buckets: at least 1 and at most 2^31 - 1 are needed."""

    code = "bad_buckets"


class EmptyRing(LithifyError):
    """No instance hosts any shard; start a segment writer, or wait until one is healthy."""

    code = "empty_ring"
    retryable = True


class NoInstance(LithifyError):
    """No active instance may take the profile where it comes from; allow other zones, or start one in this zone."""

    code = "no_instance"
    retryable = True


class RingRefused(LithifyError):
    """A ring cannot be made of these instances or with this number of shards; the message says which and why."""

    code = "ring_refused"


class LimitsRefused(LithifyError):
    """A tenant's placement limits contradict each other; the message says which."""

    code = "placement_limits_refused"


class PinRefused(LithifyError):
    """A dataset cannot be pinned to these shards; the message says why."""

    code = "pin_refused"


class BadDocument(LithifyError):
    """Stored bytes are no placement document of a version that this build reads; nothing of them was used."""

    code = "bad_placement_document"


class UnsignedDocument(BadDocument):
    """A placement document in the object store has no signature, or none of a key in use; nothing of it was used."""

    code = "unsigned_placement_document"


class StaleDocument(LithifyError):
    """Somebody else has published placement rules meanwhile; load them and decide again."""

    code = "stale_placement_document"
    retryable = True
