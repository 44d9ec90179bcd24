"""Build a segment: one object with the profiles of many tenants and services of one flush.

Layout: per tenant (bytewise), per service (bytewise) a dataset of three sections (profile table, series index,
symbols); after a tenant's last dataset its dataset index; at the end the metadata footer. The same pushes in the same
order give the same bytes.

A profile's ID is derived from tenant, labels and content, so that a retried push has the same ID in every segment: a
builder keeps one copy, and merges and queries drop the others. (A profile without a time gets its arrival time, so two
copies of it differ.)
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from engine.core import ulids
from engine.core.fast_dataclasses import fast_init
from engine.formats.pprof.pprof_model import Profile
from engine.formats.profile_block.container.container import BlockWriter, ByteTarget
from engine.formats.profile_block.container.object_names import check_tenant
from engine.formats.profile_block.merge_model import InlineSection
from engine.formats.profile_block.model import BlockMeta, Label
from engine.ingest.segments import intake
from engine.ingest.segments.intake import DatasetBuilder
from engine.ingest.segments.segment_dataset import BuiltDataset
from engine.ingest.segments.split import SERVICE_NAME, check_text, external_labels

NANOSECONDS_PER_MS = 1_000_000


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class AddedProfile:
    """The outcome of a push: its ID, stored rows and samples, and whether it was a duplicate."""

    id: bytes
    row_count: int
    sample_count: int
    is_repeat: bool = False


class SegmentBuilder:
    """Collect profiles for one shard; ``build`` returns the segment. Not thread-safe."""

    def __init__(self, shard: int, created_by: str = "") -> None:
        self._shard = shard
        self._created_by = created_by
        self._intake = intake.Intake()
        self._make_dataset = intake.DatasetBuilder
        self._datasets: dict[tuple[str, str], DatasetBuilder] = {}
        self._ids: set[bytes] = set()
        self.profile_count = 0
        self.row_count = 0
        self.sample_count = 0

    def add(
        self,
        tenant: str,
        labels: Mapping[str, str] | Iterable[Label],
        profile: Profile | bytes,
        *,
        annotations: Sequence[Label] = (),
        received_at_ns: int = 0,
    ) -> AddedProfile:
        """Normalise, split and add a profile pushed with these labels (``__name__``, ``service_name``, ...).

        It may be parsed or the bytes of a pprof message, which is faster. A profile whose samples are all dropped, or
        that is a duplicate, adds nothing. Raises BadBlockName for an invalid tenant; BadProfile, Truncated or
        LimitExceeded for a profile that cannot be stored.
        """
        check_tenant(tenant)
        check_text(*(text for annotation in annotations for text in annotation))
        external = external_labels(labels.items() if isinstance(labels, Mapping) else labels)
        self._intake.take(profile, received_at_ns)
        identity = self._intake.identity(tenant, external)
        if identity in self._ids:
            return AddedProfile(id=identity, row_count=0, sample_count=0, is_repeat=True)
        if not self._intake.sample_count:
            return AddedProfile(id=identity, row_count=0, sample_count=0)
        dataset = self._dataset(tenant, dict(external)[SERVICE_NAME])
        rows_before = dataset.row_count
        sample_count = dataset.add(self._intake, external, identity, annotations)
        row_count = dataset.row_count - rows_before
        self._ids.add(identity)
        self.profile_count += 1
        self.row_count += row_count
        self.sample_count += sample_count
        return AddedProfile(id=identity, row_count=row_count, sample_count=sample_count)

    def _dataset(self, tenant: str, service: str) -> DatasetBuilder:
        found = self._datasets.get((tenant, service))
        if found is None:
            found = self._datasets[tenant, service] = self._make_dataset(service, self._intake)
        return found

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
