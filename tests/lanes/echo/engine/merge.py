"""The merge: the bytes of all sources in sequence. A source that is not UTF-8 text is a bad object."""

from __future__ import annotations

from collections.abc import Callable

from engine.core.errors import BadObject, MergeCancelled
from engine.storage import ObjectStore
from tests.lanes.echo.engine.jobs import EchoResult, EchoSpec, Text


def read_text(store: ObjectStore, text: Text) -> bytes:
    """Return the bytes of a source. Raises BadObject, with the offset of the first byte that is not text."""
    data = store.get(text.key)
    if len(data) != text.size:
        raise BadObject("text", -1, f"it has {len(data)} bytes, {text.size} were registered", text.key)
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise BadObject("text", error.start, "it is not UTF-8 text", text.key) from error
    return data


def run(spec: EchoSpec, store: ObjectStore, *, cancelled: Callable[[], bool] = lambda: False) -> EchoResult:
    """Write the result and return it. Raises BadObject and MergeCancelled."""
    merged = bytearray()
    for text in spec.sources:
        if cancelled():
            raise MergeCancelled(f"job {spec.job} cancelled")
        merged += read_text(store, text)
    store.put(spec.result_key, bytes(merged))
    return EchoResult(spec.result_key, len(merged))
