"""The data source ``lithify.profiles``: stored profiles as a table of samples, one row each.

The driver takes one index snapshot per query, over HTTP, and splits the data to read into shares. Executors read byte
ranges of their shares from the object store; they have neither the address of the service nor a credential. A query
sees the blocks of one snapshot, because the objects of replaced blocks are kept until their deletion delay has passed.
If an object is missing, the query fails; it never returns partial results silently.
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
from spark.index_client import query_index
from spark.profiles_filters import PushedFilters
from spark.profiles_options import FORMAT, SourceOptions

THREADS = 4
"""Number of datasets that an executor process opens concurrently; opening waits for the store, not for the CPU."""
CACHE_BYTES = 64 << 20
RETRY_ADVICE = (
    "if a merge has replaced it, repeat the query (a new DataFrame takes a new index snapshot), use shorter time "
    "ranges, or raise the limit cleanup_delay_seconds above the run time; if it is missing again, see "
    "docs/how-to/read-fsck.md"
)
SKIP_ADVICE = 'run fsck and see docs/how-to/bad-block.md; option("on_damage", "skip") reads the other datasets'

log = logging.getLogger(__name__)


def register(spark: SparkSession) -> None:
    """Register ``spark.read.format("lithify.profiles")`` with a session and enable filter pushdown."""
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
            raise BadSourceOption("the schema is defined by the option columns: set that option instead of a schema")
        reader = ProfilesReader(self._options)
        # This object is pickled for executors, which need no credential.
        self._options = replace(self._options, credential="")
        self.options = {}
        return reader


@dataclass(frozen=True, slots=True)
class Shares(InputPartition):
    """Input of one Spark task: shares, the time of the index snapshot, and the release that made the shares."""

    shares: tuple[Share, ...]
    snapshot_time: str
    release: str = VERSION


class ProfilesReader(DataSourceReader):
    """Plans on the driver, reads on executors."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._pushed = PushedFilters(options.question)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_options": replace(self._options, credential="")}

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802  (Spark's name)
        """Use conditions for pruning; Spark still evaluates them on every row."""
        for each in filters:
            self._pushed.add(each)
        return iter(filters)

    def partitions(self) -> Sequence[InputPartition]:
        options, question = self._options, self._pushed.question
        if question is None:
            return [Shares((), "")]
        snapshot_time = datetime.now(UTC).isoformat(timespec="seconds")
        blocks = self._pushed.chosen(query_index(options.url, options.credential, options.tenant, question).blocks)
        shares = cut_shares(blocks, question, options.share_bytes)
        gathered = gather_shares(shares, options.share_bytes)
        return [Shares(tuple(own), snapshot_time) for own in gathered] or [Shares((), snapshot_time)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Shares)
        if partition.release != VERSION:  # another release may read shares differently
            raise ExecutorsDiffer((f"lithify is {VERSION} on an executor and {partition.release} on the driver",))
        question = self._pushed.question
        if question is None:
            return
        damage = _OnDamage(partition.snapshot_time, skips=self._options.skips_damage)
        reader = ShareReader(_engine(self._options.store_url), question, self._options.wish, damage)
        for share in partition.shares:
            yield from reader.batches(share)


class _OnDamage:
    """Handles damaged datasets: raises an error, or logs and skips them."""

    def __init__(self, snapshot_time: str, *, skips: bool) -> None:
        self._snapshot_time = snapshot_time
        self._skips = skips

    def __call__(self, damage: Damage) -> None:
        if damage.is_missing:
            raise SourceGone(
                f"object {damage.key} was in the index snapshot of {self._snapshot_time} and is missing: {RETRY_ADVICE}"
            )
        if not isinstance(damage.error, BadObject):
            raise damage.error  # a temporary error of the store: Spark retries the task
        if not self._skips:
            raise SourceDamaged(f"{damage}: {SKIP_ADVICE}")
        log.warning("datasets_skipped object=%s tenant=%s service=%s error=%s", *_fields(damage))


def _fields(damage: Damage) -> tuple[str, str, str, LithifyError]:
    return damage.key, damage.tenant, damage.service, damage.error


@functools.lru_cache(maxsize=2)
def _engine(store_url: str) -> QueryEngine:
    """Return the query engine of this process; tasks of an executor process share its cache."""
    return QueryEngine(open_store(store_url), threads=THREADS, cache_bytes=CACHE_BYTES)
