"""Pure Python segment builder: ``normalise``, ``split``, ``interning`` and ``segment_dataset``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.formats.pprof.pprof import parse_profile
from engine.formats.pprof.pprof_model import Profile
from engine.formats.profile_block.model import Label, Labels
from engine.ingest.segments import segment_dataset
from engine.ingest.segments.normalise import normalise
from engine.ingest.segments.profile_identity import profile_id
from engine.ingest.segments.split import split


class Intake:
    """Reads, normalises and identifies one profile at a time."""

    def __init__(self) -> None:
        self.profile = Profile()

    def take(self, profile: Profile | bytes, received_at_ns: int) -> None:
        """Read and normalise a profile, parsed or as the bytes of a message.

        Raises BadProfile, Truncated or LimitExceeded.
        """
        parsed = parse_profile(profile) if isinstance(profile, bytes) else profile
        self.profile = normalise(parsed, received_at_ns=received_at_ns)

    @property
    def sample_count(self) -> int:
        """Return the number of samples after normalisation."""
        return len(self.profile.samples)

    def identity(self, tenant: str, labels: Iterable[Label]) -> bytes:
        """Return the 16-byte ID of the profile pushed with these labels."""
        return profile_id(tenant, labels, self.profile)


class DatasetBuilder:
    """Collects rows; rows of a series keep their arrival order where their times are equal."""

    def __init__(self, service: str, intake: Intake) -> None:
        self._builder = segment_dataset.DatasetBuilder(service)

    @property
    def row_count(self) -> int:
        """Return the number of rows so far."""
        return self._builder.row_count

    def add(self, intake: Intake, labels: Labels, profile_id: bytes, annotations: Sequence[Label]) -> int:
        """Add the intake's profile: a row for every label group and sample type that has values.

        Return the number of samples in them.
        """
        return sum(self._builder.add(group, profile_id, annotations) for group in split(intake.profile, labels))

    def build(self) -> segment_dataset.BuiltDataset:
        """Return the built dataset; it must have rows."""
        return self._builder.build()
