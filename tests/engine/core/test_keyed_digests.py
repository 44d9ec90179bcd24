"""Digests under a key: one for each purpose and list of parts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.core.keyed_digests import is_signed, keyed_digest

PARTS = st.lists(st.binary(max_size=4), max_size=4)


@given(PARTS, PARTS)
def test_two_lists_of_parts_never_run_together(one: list[bytes], other: list[bytes]) -> None:
    assert (keyed_digest("key", "use", *one) == keyed_digest("key", "use", *other)) == (one == other)


def test_a_digest_is_good_for_one_purpose_and_while_its_key_is_listed() -> None:
    digest = keyed_digest("old", "use", b"text")
    assert is_signed(digest, ["new", "old"], "use", b"text")
    assert not is_signed(digest, ["new", "old"], "another use", b"text")
    assert not is_signed(digest, ["new"], "use", b"text")
    assert not is_signed(digest, [], "use", b"text")
    assert not is_signed(digest[:-1], ["old"], "use", b"text")
