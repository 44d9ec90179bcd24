"""Prometheus blocks in the buckets of other systems: where their parts lie, what is there, and how results appear.

A **folder** here is what blocks lie in directly: ``""`` (Thanos: the top of the bucket) or ``"<tenant>/"`` (Cortex).
The files of a block are at ``<folder><ulid>/<file>`` in every layout; a block is there for others once it has a
``meta.json``, and gone once that is deleted.
"""
