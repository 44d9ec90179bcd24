"""Raising the typed errors of profile objects from compiled loops that do not hold the interpreter lock."""

from libc.stdint cimport int64_t

from engine.core.errors import BadObject, BadReference, ChecksumMismatch, LimitExceeded, Truncated, UnknownFormat

cdef tuple ERRORS = (BadObject, ChecksumMismatch, Truncated, UnknownFormat, BadReference, LimitExceeded)


cdef int refuse(Fault fault, const char* section, int64_t offset, const char* reason) except -1 nogil:
    """Raise the error of this fault; never returns normally."""
    with gil:
        raise ERRORS[<int>fault](section.decode(), offset, reason.decode())
