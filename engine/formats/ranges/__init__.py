"""Immutable sorted files of catalog entries: blocks, ranges, metaranges.

See ``docs/reference/formats/catalog-ranges.md``; ``docs/reference/formats/graveler.md`` describes the related format of
lakeFS.
"""
