"""Limits of the decoded size of a symbols section, which could be 500 times its encoded size.

Real sections decode to 2 to 7 times their size. The items of each table are accounted for before they are decoded, in
both implementations with the item sizes of the compiled one.
"""

from __future__ import annotations

DECODED_FREE_BYTES = 1 << 20
"""Decoded size that is allowed at any ratio."""
DECODED_RATIO_MAX = 32
"""Maximum ratio beyond that; queries reserve this much memory before they read a dataset."""
DECODED_BYTES_MAX = 2 << 30
"""Absolute maximum of the decoded size."""
STRING_BYTES, MAPPING_BYTES, FUNCTION_BYTES, LINE_BYTES, LOCATION_BYTES, NODE_BYTES = 16, 40, 16, 8, 24, 8


def decoded_bytes_max(section_bytes: int) -> int:
    """Return the maximum decoded size of a section of ``section_bytes``."""
    return min(DECODED_BYTES_MAX, max(DECODED_FREE_BYTES, DECODED_RATIO_MAX * section_bytes))
