"""Records real profiles of Python programs as pprof files, with nothing but the standard library.

``python -m engine.recording --out DIR --service NAME --seconds 8 -- PROGRAM ...`` runs a program and samples
it: CPU and wall time from a sampling thread, live memory from tracemalloc; one pprof file per kind and window. The
shipped programs (``programs``) make the input of the demonstration.
"""
