"""Builds a segment: one object with the profiles of many tenants and services, as they arrived within one flush.

Layout: per tenant (bytewise), per service (bytewise) a dataset of three sections (profile table, series index,
symbols); after a tenant's last dataset its dataset index; at the end the metadata footer. The same pushes in the same
order give the same bytes.

A profile's ID is derived from tenant, labels and content, so that a push sent twice is the same row wherever it lands:
a builder keeps it once, and merges and queries drop the other copy. (A profile without a time gets the time of arrival,
so two copies of one differ.)
"""

from __future__ import annotations

import hashlib
import io
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from operator import itemgetter

from engine.profiles import ulids
from engine.profiles.container import BlockWriter, ByteTarget
from engine.profiles.merge_model import InlineSection
from engine.profiles.model import BlockMeta, Label
from engine.profiles.normalise import normalise
from engine.profiles.object_names import check_tenant
from engine.profiles.pprof_model import Functions, Locations, Mappings, Profile, Samples
from engine.profiles.segment_dataset import BuiltDataset, DatasetBuilder
from engine.profiles.split import SERVICE_NAME, check_text, external_labels, split

ID_BYTES = 16
NANOSECONDS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedProfile:
    """What became of a push: its ID, rows and samples stored, and whether it was already here."""

    id: bytes
    row_count: int
    sample_count: int
    is_repeat: bool = False


class SegmentBuilder:
    """Collects profiles for one shard; ``build`` lays the segment out. Not safe for several threads."""

    def __init__(self, shard: int, created_by: str = "") -> None:
        self._shard = shard
        self._created_by = created_by
        self._datasets: dict[tuple[str, str], DatasetBuilder] = {}
        self._ids: set[bytes] = set()
        self.profile_count = 0
        self.row_count = 0
        self.sample_count = 0

    def add(
        self,
        tenant: str,
        labels: Mapping[str, str] | Iterable[Label],
        profile: Profile,
        *,
        annotations: Sequence[Label] = (),
        received_at_ns: int = 0,
    ) -> AddedProfile:
        """Normalise, split and add a parsed profile pushed with these labels (``__name__``, ``service_name``, ...).

        A profile whose samples are all dropped adds nothing; one that was added before adds nothing again. Raises
        BadBlockName for a bad tenant, BadProfile or LimitExceeded for a profile that cannot be stored.
        """
        check_tenant(tenant)
        check_text(*(text for annotation in annotations for text in annotation))
        external = external_labels(labels.items() if isinstance(labels, Mapping) else labels)
        normal = normalise(profile, received_at_ns=received_at_ns)
        identity = profile_id(tenant, external, normal)
        if identity in self._ids:
            return AddedProfile(id=identity, row_count=0, sample_count=0, is_repeat=True)
        groups = split(normal, external)
        if not groups:
            return AddedProfile(id=identity, row_count=0, sample_count=0)
        service = dict(external)[SERVICE_NAME]
        dataset = self._datasets.setdefault((tenant, service), DatasetBuilder(service))
        rows_before = dataset.row_count
        sample_count = sum(dataset.add(group, identity, annotations) for group in groups)
        row_count = dataset.row_count - rows_before
        self._ids.add(identity)
        self.profile_count += 1
        self.row_count += row_count
        self.sample_count += sample_count
        return AddedProfile(id=identity, row_count=row_count, sample_count=sample_count)

    def build(self, segment_id: str) -> tuple[bytes, BlockMeta]:
        """Return the object and its metadata (with ``size``); there must be at least one row."""
        target = io.BytesIO()
        meta = self.write(target, segment_id)
        return target.getvalue(), meta

    def write(self, target: ByteTarget, segment_id: str) -> BlockMeta:
        """Write the object to ``target`` and return its metadata (with ``size``); there must be at least one row."""
        ulids.parse(segment_id)
        if not self._datasets:
            raise ValueError("a segment without profiles is not written")
        writer = BlockWriter(target)
        ordered = sorted(self._datasets, key=lambda key: (key[0].encode(), key[1].encode()))
        for tenant, keys in groupby(ordered, key=itemgetter(0)):
            for _, service in keys:
                _add_dataset(writer, tenant, service, self._datasets[tenant, service].build())
            writer.add_dataset_index(tenant)
        return writer.finish(
            id=segment_id, tenant="", shard=self._shard, compaction_level=0, created_by=self._created_by
        )


def _add_dataset(writer: BlockWriter, tenant: str, service: str, built: BuiltDataset) -> None:
    writer.add_dataset(
        tenant=tenant,
        name=service,
        labels=built.labels,
        min_time_ms=built.min_time_ns // NANOSECONDS_PER_MS,
        max_time_ms=built.max_time_ns // NANOSECONDS_PER_MS,
        sections=[InlineSection(section) for section in built.sections],
        series=built.series,
    )


def profile_id(tenant: str, labels: Iterable[Label], profile: Profile) -> bytes:
    """Return the 16-byte ID of a normalised profile: equal for equal tenant, labels and content, on every machine."""
    digest = hashlib.blake2b(digest_size=ID_BYTES, person=b"lithify-profile")
    for part in _identity_parts(tenant, labels, profile):
        digest.update(struct.pack("<Q", len(part)))
        digest.update(part)
    return digest.digest()


def _identity_parts(tenant: str, labels: Iterable[Label], profile: Profile) -> Iterator[bytes]:
    yield tenant.encode()
    for name, value in sorted(labels):
        yield name.encode()
        yield value.encode()
    pairs = [*profile.sample_types, profile.period_type]
    numbers = [profile.time_ns, profile.duration_ns, profile.period, *(ref for pair in pairs for ref in pair)]
    yield struct.pack(f"<{len(numbers)}q", *numbers)
    yield struct.pack(f"<{len(profile.strings)}Q", *map(len, profile.strings))
    yield b"".join(profile.strings)
    for table in (profile.samples, profile.mappings, profile.locations, profile.functions):
        yield from _column_bytes(table)


def _column_bytes(table: Samples | Mappings | Locations | Functions) -> Iterator[bytes]:
    for field in fields(table):
        column = getattr(table, field.name)
        yield column.astype(column.dtype.newbyteorder("<"), copy=False).tobytes()
