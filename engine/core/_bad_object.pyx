"""Raises the typed errors of ``engine.core.errors`` from compiled code that does not hold the GIL."""

from libc.stdint cimport int64_t

from engine.core.errors import BadObject, BadReference, ChecksumMismatch, LimitExceeded, Truncated, UnknownFormat

cdef tuple ERRORS = (BadObject, ChecksumMismatch, Truncated, UnknownFormat, BadReference, LimitExceeded)


cdef int refuse(Fault fault, const char* section, int64_t offset, const char* reason) except -1 nogil:
    """Raise the error class of ``fault``; never returns."""
    with gil:
        raise ERRORS[<int>fault](section.decode(), offset, reason.decode())
