"""Takes files that somebody offers for a table: reads each, refuses what cannot be in it, and brings the rest in."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from django.db import IntegrityError, transaction

from engine.core.errors import BadObject
from engine.formats.parquet.errors import SchemaConflict
from engine.formats.parquet.schemas import unified_schema
from engine.lanes.tables.plain.foreign_formats import check_place
from engine.lanes.tables.plain.manifest import columns_of
from engine.storage import ObjectStore
from webadmin.base.database import dialect
from webadmin.lanes.tables.errors import RegistrationRefused
from webadmin.lanes.tables.models import BadFile, DataSource
from webadmin.lanes.tables.segment_view import Interval
from webadmin.lanes.tables.services.pause_foreign import pause_foreign
from webadmin.lanes.tables.services.read_files import OfferedFile, ReadFile, path_refusal, read_files
from webadmin.lanes.tables.services.register_files import (
    Columns,
    FileFacts,
    Registered,
    add_files,
    is_same,
    known_files,
)
from webadmin.lanes.tables.states import RegistrationMode
from webadmin.schedule.services.operation import Order

FILES_MAX = 1000
"""Files of one call: so many footers are read while somebody waits."""

KEPT_APART = ("schema_conflict", "times_refused")
"""What is kept apart beside damaged files: it holds rows, and they are not in the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAnswer:
    """What became of one file: ``registered``, ``known``, ``refused``, or ``left`` because another one was refused."""

    path: str
    status: str
    code: str = ""
    message: str = ""

    def to_json(self) -> dict[str, str]:
        """Return it as API and command show it."""
        told = {"path": self.path, "status": self.status}
        return told | ({"code": self.code, "message": self.message} if self.code else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What became of all files, in the order they were offered; ``registered`` is None if nothing came in.

    ``unchecked``: folders that could not be checked for a table of another format, each with the reason.
    """

    answers: tuple[FileAnswer, ...]
    registered: Registered | None = None
    bad: tuple[ReadFile, ...] = field(default=())
    unchecked: tuple[str, ...] = ()

    def count(self, status: str) -> int:
        """Return how many files have this status."""
        return sum(answer.status == status for answer in self.answers)


def take_files(
    source: DataSource,
    store: ObjectStore,
    offered: Sequence[OfferedFile],
    *,
    mode: RegistrationMode,
    order: Order,
    interval: Interval | None = None,
    keeps_bad: bool = False,
    is_checked: bool = False,
) -> Taken:
    """Read these files and bring them in; each is answered by itself. Nothing is replaced unless all can be read.

    ``keeps_bad``: damaged files, and those whose rows do not fit, are kept apart in the database, with what is wrong
    with them. ``is_checked``: their folders are no tables of other formats, as the caller found out.
    Raises RegistrationRefused or FolderUnchecked, and then nothing has changed; ForeignTable, and then the table is
    paused.
    """
    answers: dict[int, FileAnswer] = {}
    fresh = _fresh(source, offered, answers)
    unchecked = (
        ()
        if is_checked
        else check_folders(source, store, [offered[place].path for place in fresh], is_dry_run=order.is_dry_run)
    )
    read = dict(zip(fresh, read_files(source, store, [offered[place] for place in fresh]), strict=True))
    schema = _join_schemas(source, read)
    for place, one in read.items():
        if one.footer is None:
            answers[place] = FileAnswer(path=one.offered.path, status="refused", code=one.code, message=one.message)
    good = {place: one for place, one in read.items() if one.footer is not None}
    refused = sum(answer.status == "refused" for answer in answers.values())
    registered = None
    if good and not (refused and mode is RegistrationMode.REPLACE):
        registered = add_files(
            source,
            [_facts(one) for one in good.values()],
            mode=mode,
            order=order,
            interval=interval,
            columns=partial(_with_schema, schema),
            refused=refused,
        )
    for place, one in good.items():
        status = "left" if registered is None else "registered"
        if registered is not None and one.offered.path in registered.known:
            status = "known"  # somebody else was quicker
        answers[place] = FileAnswer(path=one.offered.path, status=status)
    bad = tuple(one for one in read.values() if one.is_damaged or one.code in KEPT_APART)
    if keeps_bad and not order.is_dry_run:
        keep_apart(source, bad)
    told = tuple(answers[place] for place in range(len(offered)))
    return Taken(answers=told, registered=registered, bad=bad, unchecked=unchecked)


def check_folders(
    source: DataSource, store: ObjectStore, paths: Sequence[str], *, is_dry_run: bool = False
) -> tuple[str, ...]:
    """Check the folders of a table's files, and those above, for tables of other formats; return what could not be
    checked above.

    Raises ForeignTable; then the table is paused unless this is a dry run. Raises FolderUnchecked.
    """
    with pause_foreign(source, is_dry_run=is_dry_run):
        return tuple(map(str, check_place(store, [path for path in paths if not path_refusal(path)])))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAgain:
    """Files that were kept out, as they are now: what is good of them comes in with ``columns``."""

    good: tuple[FileFacts, ...]
    refused: tuple[ReadFile, ...]
    columns: Columns


def read_again(source: DataSource, store: ObjectStore, paths: Sequence[str]) -> ReadAgain:
    """Read the footers of files that were kept out: whoever repairs one writes another file of the same name.

    Raises ForeignTable; then the table is paused.
    """
    check_folders(source, store, paths)
    read = dict(enumerate(read_files(source, store, [OfferedFile(path=path) for path in paths])))
    schema = _join_schemas(source, read)
    return ReadAgain(
        good=tuple(_facts(one) for one in read.values() if one.footer is not None),
        refused=tuple(one for one in read.values() if one.footer is None),
        columns=partial(_with_schema, schema),
    )


def _fresh(source: DataSource, offered: Sequence[OfferedFile], answers: dict[int, FileAnswer]) -> list[int]:
    """Return the places of files that are to be read; answer the others."""
    there = known_files(source, [one.path for one in offered])
    seen: set[str] = set()
    fresh = []
    for place, one in enumerate(offered):
        if one.path in seen:
            answers[place] = FileAnswer(
                path=one.path, status="refused", code="named_twice", message=f"{one.path}: it is named twice"
            )
        elif one.path not in there:
            fresh.append(place)
        elif one.size_bytes is None or is_same(there[one.path], one.size_bytes, one.checksum):
            answers[place] = FileAnswer(path=one.path, status="known")
        else:
            text = f"{one.path}: another file of this path is in the table already, of {there[one.path][0]} bytes"
            answers[place] = FileAnswer(path=one.path, status="refused", code="file_differs", message=text)
        seen.add(one.path)
    return fresh


def _join_schemas(source: DataSource, read: dict[int, ReadFile]) -> pa.Schema | None:
    """Return the table's schema with these files; those that contradict it become refusals. None: there is none."""
    schema = table_schema(source)
    for place, one in read.items():
        if one.footer is None:
            continue
        try:
            known = [] if schema is None else [("the table", schema)]
            schema = unified_schema([*known, (one.offered.path, one.footer.schema)])
        except SchemaConflict as error:
            read[place] = ReadFile(offered=one.offered, code=error.code, message=str(error))
    return schema


def table_schema(source: DataSource) -> pa.Schema | None:
    """Return what is known of a table's columns, None before the first file."""
    if not source.arrow_schema:
        return None
    return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(source.arrow_schema)))


def schema_columns(schema: pa.Schema) -> dict[str, Any]:
    """Return the columns of a table's row that hold its schema."""
    return {
        "columns": [list(column) for column in columns_of(schema)],
        "arrow_schema": base64.b64encode(schema.serialize().to_pybytes()).decode(),
    }


def _with_schema(schema: pa.Schema | None, source: DataSource) -> dict[str, Any]:
    """Return what a table's row says of its schema with these columns; others may have added some meanwhile."""
    known = table_schema(source)
    schemas = [(name, one) for name, one in (("the table", known), ("these files", schema)) if one is not None]
    try:
        return schema_columns(unified_schema(schemas))
    except SchemaConflict as error:
        raise RegistrationRefused(str(error)) from error


def _facts(one: ReadFile) -> FileFacts:
    footer = one.footer
    assert footer is not None, "only of those that could be read"
    assert footer.min_time_ms is not None, "a file without times is refused"
    assert footer.max_time_ms is not None, "a file without times is refused"
    return FileFacts(
        path=one.offered.path,
        size_bytes=footer.size,
        row_count=footer.rows,
        first_ms=footer.min_time_ms,
        last_ms=footer.max_time_ms,
        checksum=one.offered.checksum,
    )


def what_is_wrong(one: ReadFile) -> dict[str, Any]:
    """Return what the row of a file that is kept out says of its error."""
    error = one.error or BadObject("file", -1, one.message, one.offered.path)
    name = type(error).__name__ if one.error else one.code
    return {"error_class": name, "message": error.reason, "place": error.section[:200], "offset": error.offset}


def keep_apart(source: DataSource, bad: Sequence[ReadFile]) -> int:
    """Write down damaged files, once each; return how many are new."""
    new, now_ms = 0, dialect.clock_ms()
    for one in bad:
        size = one.offered.size_bytes or 0
        try:
            with transaction.atomic():
                BadFile.objects.create(
                    source=source, path=one.offered.path, size_bytes=size, at_ms=now_ms, **what_is_wrong(one)
                )
        except IntegrityError:
            continue
        new += 1
    return new
