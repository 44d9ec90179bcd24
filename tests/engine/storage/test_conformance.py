"""The conformance check names what a bad store does wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.storage import ObjectStore, open_store
from engine.storage.conformance import check_store
from engine.storage.local import LocalStore
from tests.faults.failing_store import FailingStore, Fault


class ShortRanges(LocalStore):
    """Answers a range beyond the end with what there is."""

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        return self.get(key)[offset : offset + length]


class NeverDeletes(LocalStore):
    """Says yes to a delete and keeps the object."""

    def delete(self, key: str) -> None:
        self.usage.record("delete")


class Forgetful(LocalStore):
    """Keeps the first content of a key for ever."""

    def put(self, key: str, data: bytes):  # type: ignore[no-untyped-def]
        self.create(key, data)
        return self.head(key)


@pytest.mark.parametrize(
    ("store_class", "claim"),
    [
        (ShortRanges, "rejects a range beyond the end"),
        (NeverDeletes, "deletes existing and missing objects"),
        (Forgetful, "replaces an object"),
    ],
)
def test_a_store_that_breaks_a_guarantee_fails_that_check_only(
    tmp_path: Path, store_class: type[LocalStore], claim: str
) -> None:
    report = check_store(store_class(tmp_path))
    assert not report.is_conforming
    assert [result.claim for result in report.results if result.fault] == [claim]


def test_a_store_that_errs_is_reported_with_its_error(tmp_path: Path) -> None:
    store: ObjectStore = FailingStore(open_store(str(tmp_path)), Fault("open_writer", is_durable=True))
    faults = [result.fault for result in check_store(store).results if result.fault]
    assert len(faults) == 2
    assert all("failed on demand" in fault for fault in faults)
