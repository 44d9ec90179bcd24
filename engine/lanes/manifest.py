"""What the engine knows of a lane: how its specifications are read, and how its jobs are merged in one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from engine.protocol.messages import Progress
from engine.storage import ObjectStore


class JobSpec(Protocol):
    """A specification that was read."""

    @property
    def job(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRun:
    """What a merge needs beside its specification.

    ``store`` is the object store of the installation; a lane whose data lies elsewhere opens its own. ``cancelled`` is
    called often, ``scratch`` is a folder that several merges share.
    """

    store: ObjectStore
    scratch: Path
    cancelled: Callable[[], bool]
    progress: Callable[[Progress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineManifest:
    """A lane in the engine. ``name`` is the ``kind`` of its specifications and the lane of its jobs.

    ``read_spec`` raises KeyError, TypeError, ValueError or InvalidMessage for a malformed specification. ``merge``
    returns the result as JSON. ``source_bytes`` returns the size of a specification's sources, of its JSON: a node
    gives large jobs a batch of their own; it raises KeyError or TypeError for a malformed one.
    """

    name: str
    read_spec: Callable[[dict[str, Any]], JobSpec]
    merge: Callable[[Any, MergeRun], dict[str, Any]]
    source_bytes: Callable[[dict[str, Any]], int] = lambda _: 0
