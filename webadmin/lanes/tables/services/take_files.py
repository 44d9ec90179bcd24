"""Register offered files: read each, reject those that cannot be in the table, and add the rest."""

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
from webadmin.base.actions.action import ActionContext
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

FILES_MAX = 1000
"""Maximum number of files per call: their footers are read while the client waits."""

RECORDED_AS_BAD = ("schema_conflict", "times_refused")
"""Refusals that are recorded beside damaged files: these files hold rows that are missing from the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAnswer:
    """Result of one file: ``registered``, ``known``, ``refused``, or ``left`` because another file was refused."""

    path: str
    status: str
    code: str = ""
    message: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the result in the form that API and command show."""
        data = {"path": self.path, "status": self.status}
        return data | ({"code": self.code, "message": self.message} if self.code else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Results of all files, in the order offered; ``registered`` is None if nothing was added.

    ``unchecked`` are folders that could not be checked for a table of another format, each with the reason.
    """

    answers: tuple[FileAnswer, ...]
    registered: Registered | None = None
    bad: tuple[ReadFile, ...] = field(default=())
    unchecked: tuple[str, ...] = ()

    def count(self, status: str) -> int:
        """Return the number of files with this status."""
        return sum(answer.status == status for answer in self.answers)


def take_files(
    source: DataSource,
    store: ObjectStore,
    offered: Sequence[OfferedFile],
    *,
    mode: RegistrationMode,
    context: ActionContext,
    interval: Interval | None = None,
    keeps_bad: bool = False,
    is_checked: bool = False,
) -> Taken:
    """Read these files and register them, with a separate result for each. Replaces nothing unless all can be read.

    ``keeps_bad``: record damaged files, and files whose rows do not fit, as bad files with the error. ``is_checked``:
    the caller has checked the folders for tables of other formats. Raises RegistrationRefused or FolderUnchecked, after
    which nothing has changed; ForeignTable, after which the table is paused.
    """
    answers: dict[int, FileAnswer] = {}
    fresh = _fresh(source, offered, answers)
    unchecked = (
        ()
        if is_checked
        else check_folders(source, store, [offered[place].path for place in fresh], is_dry_run=context.is_dry_run)
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
            context=context,
            interval=interval,
            columns=partial(_with_schema, schema),
            refused=refused,
        )
    for place, one in good.items():
        status = "left" if registered is None else "registered"
        if registered is not None and one.offered.path in registered.known:
            status = "known"  # a concurrent call was first
        answers[place] = FileAnswer(path=one.offered.path, status=status)
    bad = tuple(one for one in read.values() if one.is_damaged or one.code in RECORDED_AS_BAD)
    if keeps_bad and not context.is_dry_run:
        record_bad_files(source, bad)
    result = tuple(answers[place] for place in range(len(offered)))
    return Taken(answers=result, registered=registered, bad=bad, unchecked=unchecked)


def check_folders(
    source: DataSource, store: ObjectStore, paths: Sequence[str], *, is_dry_run: bool = False
) -> tuple[str, ...]:
    """Check the folders of files, and their parents, for tables of other formats; return unchecked parents.

    Raises ForeignTable; the table is then paused, unless this is a dry run. Raises FolderUnchecked.
    """
    with pause_foreign(source, is_dry_run=is_dry_run):
        return tuple(map(str, check_place(store, [path for path in paths if not path_refusal(path)])))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAgain:
    """Quarantined files as they are now: readable ones are added with ``columns``."""

    good: tuple[FileFacts, ...]
    refused: tuple[ReadFile, ...]
    columns: Columns


def read_again(source: DataSource, store: ObjectStore, paths: Sequence[str]) -> ReadAgain:
    """Read the footers of quarantined files again: a repair writes another file under the same name.

    Raises ForeignTable; the table is then paused.
    """
    if paths:
        check_folders(source, store, paths)
    read = dict(enumerate(read_files(source, store, [OfferedFile(path=path) for path in paths])))
    schema = _join_schemas(source, read)
    return ReadAgain(
        good=tuple(_facts(one) for one in read.values() if one.footer is not None),
        refused=tuple(one for one in read.values() if one.footer is None),
        columns=partial(_with_schema, schema),
    )


def _fresh(source: DataSource, offered: Sequence[OfferedFile], answers: dict[int, FileAnswer]) -> list[int]:
    """Return the indexes of files that must be read; write the answers of the others to ``answers``."""
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
    """Return the table's schema merged with these files, None without any; files that contradict it become refusals."""
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
    """Return the known schema of a table, None before the first file."""
    if not source.arrow_schema:
        return None
    return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(source.arrow_schema)))


def schema_columns(schema: pa.Schema) -> dict[str, Any]:
    """Return the columns of a table's row that store its schema."""
    return {
        "columns": [list(column) for column in columns_of(schema)],
        "arrow_schema": base64.b64encode(schema.serialize().to_pybytes()).decode(),
    }


def _with_schema(schema: pa.Schema | None, source: DataSource) -> dict[str, Any]:
    """Return the schema columns of a table's row, merged with columns that concurrent calls have added."""
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


def error_columns(one: ReadFile) -> dict[str, Any]:
    """Return the columns of a bad file's row that describe its error."""
    error = one.error or BadObject("file", -1, one.message, one.offered.path)
    name = type(error).__name__ if one.error else one.code
    return {"error_class": name, "message": error.reason, "place": error.section[:200], "offset": error.offset}


def record_bad_files(source: DataSource, bad: Sequence[ReadFile]) -> int:
    """Record bad files, once each; return how many are new."""
    new, now_ms = 0, dialect.clock_ms()
    for one in bad:
        size = one.offered.size_bytes or 0
        try:
            with transaction.atomic():
                BadFile.objects.create(
                    source=source, path=one.offered.path, size_bytes=size, at_ms=now_ms, **error_columns(one)
                )
        except IntegrityError:
            continue
        new += 1
    return new
