"""What a symbols section may decode to. Columns of equal numbers take next to nothing: 500 times the bytes is possible.

Real sections decode to 2 to 7 times their bytes. Every table is charged with the number of items that it announces,
before they are decoded; both implementations count the sizes of the compiled one's items.
"""

from __future__ import annotations

DECODED_FREE_BYTES = 1 << 20
"""Allowed at any ratio."""
DECODED_RATIO_MAX = 32
"""Beyond that, so many bytes for each of the section: what queries reserve for a dataset before they read it."""
DECODED_BYTES_MAX = 2 << 30
"""Never more than this."""
STRING_BYTES, MAPPING_BYTES, FUNCTION_BYTES, LINE_BYTES, LOCATION_BYTES, NODE_BYTES = 16, 40, 16, 8, 24, 8


def decoded_bytes_max(section_bytes: int) -> int:
    """Return how many bytes a section of this size may decode to."""
    return min(DECODED_BYTES_MAX, max(DECODED_FREE_BYTES, DECODED_RATIO_MAX * section_bytes))
