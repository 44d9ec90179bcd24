"""Record profiles of Python programs as pprof files, with the standard library only.

``python -m engine.recording --out DIR --service NAME --seconds 8 -- PROGRAM ...`` runs and samples a program: CPU and
wall time from a sampling thread, live memory from tracemalloc; one pprof file per kind and window. The shipped programs
(``programs``) produce the input of the demo.
"""
