"""Fencing tokens on the wire: who can read them, and that they cannot be forged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.errors import InvalidToken
from engine.protocol.tokens import INDEX_MAX, TokenCodec

OLD, NEW = "the old key", "the new key"
CODEC = TokenCodec([NEW, OLD])


@given(st.integers(1, INDEX_MAX), st.text(max_size=40), st.text(max_size=20))
def test_a_token_decodes_to_its_index_by_its_issuer(index: int, job: str, credential: str) -> None:
    token = CODEC.encode(job=job, index=index, credential=credential)
    assert CODEC.decode(token, job=job, credential=credential) == index
    assert len(token) <= 200


def test_tokens_of_a_retired_key_are_read_while_it_is_listed() -> None:
    token = TokenCodec([OLD]).encode(job="j", index=7, credential="c")
    assert CODEC.decode(token, job="j", credential="c") == 7
    with pytest.raises(InvalidToken):
        TokenCodec([NEW]).decode(token, job="j", credential="c")


@pytest.mark.parametrize(("job", "credential"), [("other", "c"), ("j", "other"), ("jc", ""), ("", "jc")])
def test_a_token_is_good_for_one_job_and_one_credential(job: str, credential: str) -> None:
    token = CODEC.encode(job="j", index=7, credential="c")
    with pytest.raises(InvalidToken):
        CODEC.decode(token, job=job, credential=credential)


def test_another_index_needs_another_signature() -> None:
    index, key, signature = CODEC.encode(job="j", index=7, credential="c").split(".")
    for forged in ("8", "07", "70", "-7", "7 ", str(INDEX_MAX + 1), "\N{ARABIC-INDIC DIGIT SEVEN}"):
        with pytest.raises(InvalidToken):
            CODEC.decode(f"{forged}.{key}.{signature}", job="j", credential="c")
    assert index == "7"


@given(st.text(max_size=60))
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidToken):
        CODEC.decode(text, job="j", credential="c")


@pytest.mark.parametrize("keys", [[], [""], ["a", ""]])
def test_no_key_is_no_codec(keys: list[str]) -> None:
    with pytest.raises(ValueError, match="key"):
        TokenCodec(keys)
