"""C types shared by all compiled modules, so that each kind of reference has one width."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

ctypedef uint32_t series_ref_t
ctypedef uint64_t fingerprint_t
ctypedef int64_t timestamp_ns_t
ctypedef int64_t timestamp_ms_t
ctypedef uint32_t symbol_ref_t
ctypedef uint32_t stack_id_t
