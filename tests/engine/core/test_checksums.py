"""CRC32C: the published check value, and that it can be continued."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.core.checksums import crc32c


def test_the_published_check_value_comes_out() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0


@given(st.binary(), st.binary())
def test_a_checksum_continues_over_pieces(first: bytes, second: bytes) -> None:
    assert crc32c(second, crc32c(first)) == crc32c(first + second)
