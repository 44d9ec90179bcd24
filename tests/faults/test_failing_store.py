"""The failing store fails exactly where it is set to, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.storage import StorageError, open_store
from tests.faults.failing_store import FailingStore, Fault


def test_only_the_named_call_fails(tmp_path: Path) -> None:
    store = FailingStore(open_store(str(tmp_path)), Fault("put", call=2))
    store.put("a", b"1")
    with pytest.raises(StorageError, match="failed on demand"):
        store.put("b", b"2")
    store.put("c", b"3")
    assert [info.key for info in store.list()] == ["a", "c"]
    assert store.calls == [("put", "a"), ("put", "b"), ("put", "c"), ("list", "")]


def test_a_lasting_fault_strikes_this_key_for_ever(tmp_path: Path) -> None:
    store = FailingStore(open_store(str(tmp_path)), Fault("get", key_part="bad", is_durable=True, error=OSError))
    store.put("bad", b"1")
    store.put("good", b"2")
    for _ in range(3):
        with pytest.raises(OSError, match="failed on demand"):
            store.get("bad")
        assert store.get("good") == b"2"


def test_a_late_fault_takes_effect_before_it_fails(tmp_path: Path) -> None:
    store = FailingStore(open_store(str(tmp_path)), Fault("put", is_late=True))
    with pytest.raises(StorageError):
        store.put("a", b"1")
    assert store.get("a") == b"1"


@pytest.mark.parametrize("fault", [Fault("write", call=2, torn_bytes=3), Fault("commit"), Fault("open_writer")])
def test_a_torn_stream_leaves_no_object(tmp_path: Path, fault: Fault) -> None:
    store = FailingStore(open_store(str(tmp_path)), fault)

    def stream() -> None:
        with store.open_writer("a") as writer:
            writer.write(b"first")
            writer.write(b"second")

    with pytest.raises(StorageError, match="failed on demand"):
        stream()
    assert list(store.list()) == []
    assert store.sweep_unfinished(before=2**40) == 0
