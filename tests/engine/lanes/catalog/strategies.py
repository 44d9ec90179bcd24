"""Generated catalogs: a few short keys, so that layers meet."""

from __future__ import annotations

from hypothesis import strategies as st

KEYS = st.binary(min_size=1, max_size=3).map(lambda data: bytes(97 + byte % 4 for byte in data))
VALUES = st.sampled_from("xyz")
STATES = st.dictionaries(KEYS, VALUES, max_size=30)
INTERVALS = st.lists(st.tuples(KEYS, st.none() | KEYS), max_size=2)
LAYERS = st.lists(st.tuples(st.dictionaries(KEYS, st.none() | VALUES, max_size=12), INTERVALS), max_size=4)
