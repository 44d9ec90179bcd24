"""The question asked before and after: where does the time go in one service?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine.profiles.metadata import decode_metadata
from engine.profiles.model import DATASET_PROFILES
from webadmin.console.demo.figures import LiveBlock

TOP_COUNT = 10
PROFILE_TYPE = "__profile_type__"
TYPES_WISHED = ("cpu:nanoseconds", "wall:nanoseconds", "nanoseconds", "inuse_space:bytes", "bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A tenant, one of its services, and a profile type ``<name>:<type>:<unit>:<period type>:<period unit>``."""

    tenant: str
    service: str
    profile_type: str

    @property
    def unit(self) -> str:
        """The unit of the values, e.g. nanoseconds."""
        parts = self.profile_type.split(":")
        return parts[2] if len(parts) > 2 else ""


def choose_dataset(blocks: Iterable[LiveBlock]) -> tuple[str, str]:
    """Return tenant and service of the dataset in most objects; of several the one with most bytes."""
    objects: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    for block in blocks:
        for dataset in decode_metadata(block.metadata).datasets:
            if dataset.format == DATASET_PROFILES:
                objects[dataset.tenant, dataset.name] += 1
                sizes[dataset.tenant, dataset.name] += dataset.size
    return max(objects, key=lambda key: (objects[key], sizes[key], key))


def choose_profile_type(types: Sequence[str]) -> str:
    """Return the type people ask for first: time on the processor, then time, then memory, then anything."""
    for wished in TYPES_WISHED:
        for one in sorted(types):
            if wished in one:
                return one
    return min(types)
