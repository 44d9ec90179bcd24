"""Walking and searching symbols, twin and compiled: both find the same and refuse the same."""

from __future__ import annotations

import bisect
import importlib
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import BadObject, LimitExceeded, Truncated
from engine.formats.prometheus.errors import OutOfOrder
from engine.formats.prometheus.index import _symbol_positions_py
from tests.engine.formats.profile_block.damage import flips, truncations
from tests.engine.lanes.tsdb.factories import u32, uvarint

BEFORE = b"head"


def section(symbols: list[bytes], count: int | None = None) -> bytes:
    counted = u32(len(symbols) if count is None else count)
    return BEFORE + counted + b"".join(uvarint(len(symbol)) + symbol for symbol in symbols)


@pytest.fixture(scope="module", params=["_symbol_positions_py", "_symbol_positions"])
def positions(request: pytest.FixtureRequest) -> ModuleType:
    """The twin and, where it is built, the compiled one."""
    try:
        return importlib.import_module(f"engine.formats.prometheus.index.{request.param}")
    except ModuleNotFoundError:
        pytest.skip("the kernels are not built")


@given(st.sets(st.binary(max_size=5), max_size=30), st.binary(max_size=5))
def test_every_symbol_is_found_at_its_place_and_no_other(
    positions: ModuleType, symbols: set[bytes], wanted: bytes
) -> None:
    ordered = sorted(symbols)
    data = memoryview(section(ordered))
    found = positions.scan_symbols(data, len(BEFORE), len(data))
    places = [len(section(ordered[:number])) - len(BEFORE) for number in range(len(ordered))]
    assert found.tolist() == places
    number = positions.find_symbol(data, len(BEFORE), len(data), found, wanted)
    assert number == bisect.bisect_left(ordered, wanted)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (section([b"b", b"a"]), OutOfOrder),
        (section([b"a", b"a"]), OutOfOrder),
        (section([b"ab", b"a"]), OutOfOrder),
        (section([b"a"], count=1000), LimitExceeded),
        (section([b"a" * 20], count=2), Truncated),
        (section([b"a", b"b"], count=1), BadObject),
        (section([b"abc"])[:-1], Truncated),
        (BEFORE + b"\x00\x00", Truncated),
        (BEFORE + u32(1) + b"\xff" * 12, BadObject),
        (BEFORE + u32(1) + uvarint((1 << 64) - 1), Truncated),
    ],
)
def test_damage_is_refused(positions: ModuleType, data: bytes, kind: type[BadObject]) -> None:
    with pytest.raises(kind):
        positions.scan_symbols(memoryview(data), len(BEFORE), len(data))


def test_both_refuse_whatever_is_changed_or_find_the_same() -> None:
    compiled = pytest.importorskip("engine.formats.prometheus.index._symbol_positions")
    data = section([b"", b"a", b"b" * 130, b"c"])

    def outcome(positions: ModuleType, changed: bytes) -> object:
        try:
            return positions.scan_symbols(memoryview(changed), len(BEFORE), len(changed)).tolist()
        except BadObject as error:
            return isinstance(error, OutOfOrder)

    for changed in [*truncations(data), *(changed for _, changed in flips(data))]:
        if len(changed) >= len(BEFORE):
            assert outcome(compiled, changed) == outcome(_symbol_positions_py, changed)
