"""Readers and writers of Prometheus TSDB blocks: index, chunk files, tombstones, meta.json.

See ``docs/reference/formats/prometheus-block.md``.
"""
