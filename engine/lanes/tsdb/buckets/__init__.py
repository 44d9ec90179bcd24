"""Prometheus blocks in the buckets of Cortex and Thanos: layout, scans, and publication of results.

A **folder** is the prefix that blocks are stored under: ``""`` (Thanos: the top of the bucket) or ``"<tenant>/"``
(Cortex). The files of a block have the keys ``<folder><ulid>/<file>`` in every layout. A block is visible to readers
while it has a ``meta.json``.
"""
