"""The position of the command log in the bucket: ``log/<epoch>/position``, a JSON object.

It records the last entry of the log when objects outside of the database were last changed on the basis of it. A
database that does not contain this very entry was restored to an earlier time (a failover that lost commits, a
recovery, an old copy), or is another one that uses the same bucket. ``entry`` distinguishes entries of equal index in
two histories.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

from engine.core.errors import BadObject, LithifyError
from engine.protocol.fields import COUNT_MAX
from engine.storage.model import ObjectNotFound, ObjectStore
from webadmin.schedule.models import EPOCH_MAX, Command

LOG = "log"
POSITION = "position"
FORMAT_VERSION = 1
POSITION_BYTES_MAX = 4096
EPOCHS_MAX = 1000
"""No number of restores leaves more; reading stops with an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPosition:
    """The last entry of a log at some time. ``written_at_ms`` is wall time of the database."""

    epoch: str
    command_index: int
    entry: str
    written_at_ms: int

    @property
    def key(self) -> str:
        """Return the key of the object."""
        return f"{LOG}/{self.epoch}/{POSITION}"

    def encode(self) -> bytes:
        """Return the bytes of the object."""
        document = {
            "version": FORMAT_VERSION,
            "epoch": self.epoch,
            "command_index": self.command_index,
            "entry": self.entry,
            "written_at_ms": self.written_at_ms,
        }
        return json.dumps(document).encode()


def entry_digest(command: Command) -> str:
    """Return a digest that distinguishes an entry from one of the same index in another history."""
    wall_ms = round(command.wall_time.timestamp() * 1000)
    text = f"{command.index} {command.kind} {command.actor} {command.command_time_ms} {wall_ms}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def read_positions(store: ObjectStore) -> Iterator[LogPosition]:
    """Yield the position of every epoch in the bucket.

    Raises StorageError, and BadObject for an invalid position: then it is unknown whether the log is behind it.
    """
    for count, info in enumerate(store.list(f"{LOG}/")):
        if count == EPOCHS_MAX:
            raise BadObject("log position", -1, f"more than {EPOCHS_MAX} objects below {LOG}/", info.key)
        if info.size > POSITION_BYTES_MAX:
            raise BadObject("log position", -1, f"{info.size} bytes, at most {POSITION_BYTES_MAX} expected", info.key)
        try:
            yield decode_position(info.key, store.get(info.key))
        except ObjectNotFound:  # removed since the listing by a repair of the index
            continue


def decode_position(key: str, data: bytes) -> LogPosition:
    """Decode a position. Raises BadObject, which names its key, if it is invalid."""
    try:
        document = json.loads(data)
        position = LogPosition(
            epoch=_text(document["epoch"]),
            command_index=_number(document["command_index"]),
            entry=_text(document["entry"]),
            written_at_ms=_number(document["written_at_ms"]),
        )
        if document["version"] != FORMAT_VERSION or position.key != key:
            raise ValueError(f"version {document['version']!r} of epoch {position.epoch!r}")
    except (ValueError, TypeError, KeyError, RecursionError, LithifyError) as error:
        raise BadObject("log position", -1, f"not a position of this format: {error!r}", key) from error
    return position


def _text(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= EPOCH_MAX or not value.isalnum():
        raise ValueError(f"{value!r} is not up to {EPOCH_MAX} letters and digits")
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= COUNT_MAX:
        raise ValueError(f"{value!r} is not a whole number from 0 to {COUNT_MAX}")
    return value
