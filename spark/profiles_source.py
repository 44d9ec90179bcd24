"""The data source ``lithify.profiles``: stored profiles as a table of samples, one row each.

The driver looks at the index once per question, over HTTP, and cuts what there is to read into shares; an executor gets
shares and reads byte ranges from the object store, with neither the service's address nor a credential. So a question
sees the blocks of one moment, whatever merges do meanwhile: the objects of replaced blocks stay for a while. If one is
gone, the question fails and says so; it never counts without it.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from engine.core.errors import BadObject, LithifyError
from engine.core.version import VERSION
from engine.query.execution import QueryEngine
from engine.query.model import Damage
from engine.query.sample_batches import ShareReader
from engine.query.shares import Share, cut_shares, gather_shares
from engine.storage import open_store
from spark.errors import BadSourceOption, ExecutorsDiffer, SourceDamaged, SourceGone
from spark.index_client import look
from spark.profiles_filters import PushedFilters
from spark.profiles_options import FORMAT, SourceOptions

THREADS = 4
"""Datasets that one executor's Python opens at the same time: opening waits for the store, not for the processor."""
CACHE_BYTES = 64 << 20
ASK_AGAIN = (
    "if a merge has replaced it since, ask again (a new DataFrame looks anew), in smaller ranges of time, or let the "
    "limit cleanup_delay_seconds be longer than the job reads; if it is missing again, see docs/how-to/read-fsck.md"
)
LEAVE_OUT = 'run fsck and see docs/how-to/bad-block.md; option("on_damage", "skip") reads the rest'

log = logging.getLogger(__name__)


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("lithify.profiles")`` known to a session, with conditions on columns pushed down."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(ProfilesSource)


class ProfilesSource(DataSource):
    """Profiles of one tenant in a range of time; see docs/how-to/ask-in-sql.md."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._options = SourceOptions.of(options)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return from_arrow_schema(self._options.wish.schema)

    def reader(self, schema: StructType) -> ProfilesReader:
        if schema != self.schema():
            raise BadSourceOption("the columns are those of the option columns: name them there, not in a schema")
        reader = ProfilesReader(self._options)
        # What is left of this object travels to executors, which need no credential.
        self._options = replace(self._options, credential="")
        self.options = {}
        return reader


@dataclass(frozen=True, slots=True)
class Shares(InputPartition):
    """What one Spark task reads; ``looked_at`` is when the index was asked, ``release`` who cut the shares."""

    shares: tuple[Share, ...]
    looked_at: str
    release: str = VERSION


class ProfilesReader(DataSourceReader):
    """Plans on the driver, reads on executors."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._pushed = PushedFilters(options.question)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_options": replace(self._options, credential="")}

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802  (Spark's name)
        """Narrow what is read; Spark looks at every row all the same."""
        for each in filters:
            self._pushed.add(each)
        return iter(filters)

    def partitions(self) -> Sequence[InputPartition]:
        options, question = self._options, self._pushed.question
        if question is None:
            return [Shares((), "")]
        looked_at = datetime.now(UTC).isoformat(timespec="seconds")
        blocks = self._pushed.chosen(look(options.url, options.credential, options.tenant, question).blocks)
        shares = cut_shares(blocks, question, options.share_bytes)
        gathered = gather_shares(shares, options.share_bytes)
        return [Shares(tuple(own), looked_at) for own in gathered] or [Shares((), looked_at)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Shares)
        if partition.release != VERSION:  # it would read what others cut in another way
            raise ExecutorsDiffer((f"lithify is {VERSION} on an executor and {partition.release} on the driver",))
        question = self._pushed.question
        if question is None:
            return
        damage = _OnDamage(partition.looked_at, skips=self._options.skips_damage)
        reader = ShareReader(_engine(self._options.store_url), question, self._options.wish, damage)
        for share in partition.shares:
            yield from reader.batches(share)


class _OnDamage:
    """Says what a dataset that cannot be read means: a wrong answer is worse than none."""

    def __init__(self, looked_at: str, *, skips: bool) -> None:
        self._looked_at = looked_at
        self._skips = skips

    def __call__(self, damage: Damage) -> None:
        if damage.is_missing:
            raise SourceGone(f"object {damage.key} was there at {self._looked_at} and is gone: {ASK_AGAIN}")
        if not isinstance(damage.error, BadObject):
            raise damage.error  # a bad moment of the store: Spark tries the task again
        if not self._skips:
            raise SourceDamaged(f"{damage}: {LEAVE_OUT}")
        log.warning("profiles_left_out object=%s tenant=%s service=%s error=%s", *_told(damage))


def _told(damage: Damage) -> tuple[str, str, str, LithifyError]:
    return damage.key, damage.tenant, damage.service, damage.error


@functools.lru_cache(maxsize=2)
def _engine(store_url: str) -> QueryEngine:
    """Return this process's engine: an executor's Python lives through many tasks, which share its cache."""
    return QueryEngine(open_store(store_url), threads=THREADS, cache_bytes=CACHE_BYTES)
