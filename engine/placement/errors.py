"""Errors of placement."""

from __future__ import annotations

from engine.core.errors import LithifyError


class BadBuckets(LithifyError, ValueError):
    """The number of buckets of a jump hash is not between 1 and 2^31 - 1."""

    code = "bad_buckets"


class EmptyRing(LithifyError):
    """The ring has no instance; start a segment writer, or wait until one is healthy."""

    code = "empty_ring"
    retryable = True


class NoInstance(LithifyError):
    """No active instance is allowed for the profile; start one in its zone, or allow other zones."""

    code = "no_instance"
    retryable = True


class RingRefused(LithifyError):
    """The instances or the number of shards of a ring are invalid; the message names them."""

    code = "ring_refused"


class LimitsRefused(LithifyError):
    """The placement limits of a tenant are invalid or contradict each other; the message names them."""

    code = "placement_limits_refused"


class PinRefused(LithifyError):
    """A dataset cannot be pinned to the shards; the message gives the reason."""

    code = "pin_refused"


class BadDocument(LithifyError):
    """The bytes are not a placement document of a supported version; none of it was used."""

    code = "bad_placement_document"


class UnsignedDocument(BadDocument):
    """A placement document in the object store has no valid signature of a current key; none of it was used."""

    code = "unsigned_placement_document"


class StaleDocument(LithifyError):
    """Other placement rules were published concurrently; load them and build again."""

    code = "stale_placement_document"
    retryable = True
