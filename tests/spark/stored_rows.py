"""Rows of profiles in a store and in a real index, which a web process serves, and what happens to them there."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import xxhash

from engine.core import ulids
from engine.formats.profile_block.container.metadata import decode_metadata
from engine.formats.profile_block.container.object_names import block_key
from engine.lanes.profiles.jobs import SourceObject
from tests.engine.formats.profile_block.factories import (
    CPU,
    HEAP,
    Dataset,
    ProfileRow,
    Sample,
    series_labels,
    write_block,
)
from tests.engine.query import naive
from tests.webadmin.compacting import Compacting
from webadmin.base.access.services import issue_worker_credential

TENANT = "shop"
STACKS = (("main",), ("parse", "main"), ("read", "parse", "main"), ("idle",), ("sort", "sort", "main"))


@dataclass
class StoredRows(Compacting):
    """Everything is of TENANT; ``rows`` are all that were written, ``secret`` may look at the index."""

    url: str
    rows: list[ProfileRow] = field(default_factory=list)
    sources: list[SourceObject] = field(default_factory=list)

    def __post_init__(self) -> None:
        scopes = ["blocks:query", f"tenant:{TENANT}"]
        self.secret = issue_worker_credential(name="spark", scopes=scopes, actor="test").wire_form
        self.start_ms = int(self.service.clock.now_ms)

    @property
    def options(self) -> dict[str, str]:
        """Options that ask for everything."""
        return {
            "url": self.url,
            "credential": self.secret,
            "store": self.store.url,
            "tenant": TENANT,
            "start": str(self.start_ms - 60_000),
            "end": str(self.start_ms + 3_600_000),
        }

    def write(self, rows: Sequence[ProfileRow]) -> SourceObject:
        """Write rows into a segment and register it."""
        names = sorted({naive.text_labels(row)["service_name"] for row in rows})
        datasets = [
            Dataset(TENANT, name, tuple(row for row in rows if naive.text_labels(row)["service_name"] == name))
            for name in names
        ]
        block_id = ulids.make(int(self.service.clock.now_ms), random.randbytes(ulids.ENTROPY_BYTES))
        source = write_block(self.store, datasets, id=block_id)
        meta = replace(decode_metadata(source.metadata), size=source.size)
        assert source.key == block_key(meta.shard, "", 0, meta.id)
        assert self.service.add(meta).accepted == (meta.id,)
        self.rows += rows
        self.sources.append(source)
        self.service.clock.advance(0.5)
        return source

    def write_random(self, draw: random.Random, segments: int) -> None:
        """Write segments of random rows, some of which are in two of them."""
        before: list[ProfileRow] = []
        for _ in range(segments):
            rows = [self.random_row(draw) for _ in range(draw.randrange(1, 8))]
            repeated = draw.sample(before, min(len(before), draw.randrange(3)))
            self.write(rows + repeated)
            before = rows

    def random_row(self, draw: random.Random) -> ProfileRow:
        """Return a row of about now."""
        extra = {"region": draw.choice(["eu", "us", "eu-1"])} if draw.random() < 0.8 else {}
        samples = tuple(Sample(draw.choice(STACKS), draw.randrange(1, 50)) for _ in range(draw.randrange(1, 5)))
        time_ns = int(self.service.clock.now_ms) * 1_000_000 + draw.randrange(1_500_000_000)
        return ProfileRow(
            labels=series_labels(draw.choice([CPU, HEAP]), draw.choice(["api", "web"]), **extra),
            samples=samples,
            time_ns=time_ns,
            id=xxhash.xxh128_digest(repr((time_ns, samples)).encode()),
        )
