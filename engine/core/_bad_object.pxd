"""Raises the typed errors of ``engine.core.errors`` from compiled code that does not hold the GIL."""

from libc.stdint cimport int64_t

cdef enum Fault:
    BAD = 0
    CHECKSUM = 1
    TRUNCATED = 2
    FORMAT = 3
    REFERENCE = 4
    LIMIT = 5

cdef int refuse(Fault fault, const char* section, int64_t offset, const char* reason) except -1 nogil
