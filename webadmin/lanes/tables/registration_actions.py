"""Actions that create tables and register or drop files; only in the API, for writers of a tenant."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.lanes.tables.jobs import TIME_UNITS
from engine.protocol.errors import InvalidMessage
from engine.storage import cached_store
from webadmin.base.access.scopes import MayWriteTables
from webadmin.base.actions.action import ActionContext, OperatorAction, Values
from webadmin.base.actions.fields import Choice, Group, Groups, Number, Text
from webadmin.lanes.tables.api import serializers as shapes
from webadmin.lanes.tables.api import table_messages as messages
from webadmin.lanes.tables.column_sizes import COLUMN_MAX, DIGEST_MAX, NAME_MAX, PATH_MAX, URL_MAX
from webadmin.lanes.tables.services.read_files import OfferedFile
from webadmin.lanes.tables.services.register_files import drop_interval
from webadmin.lanes.tables.services.sources import NewTable, create_table, find_table
from webadmin.lanes.tables.services.take_files import FILES_MAX, take_files
from webadmin.lanes.tables.states import RegistrationMode
from webadmin.lanes.tables.table_fields import END_MS, POLICY, START_MS, TABLE

MODES = (RegistrationMode.APPEND.value, RegistrationMode.REPLACE.value)
FILE = Group(
    "file",
    "File",
    "A file to register.",
    component="OfferedFile",
    fields=(
        Text("path", "Path", "below the table's URL", length_max=PATH_MAX, is_required=True),
        Number("size", "Size", "bytes; read from the store if absent"),
        Text("checksum", "Checksum", "an etag or CRC: tells it from another of the same size", length_max=DIGEST_MAX),
    ),
    make=lambda path, size, checksum: OfferedFile(path=path, size_bytes=size, checksum=checksum),
)


def _create(values: Values, context: ActionContext) -> dict[str, Any]:
    """Create a table; ``shown_to`` is the tenant that the response is for, None for an operator."""
    tenant, shown_to = values["tenant"], values["shown_to"]
    new = NewTable(
        tenant=tenant,
        settings=values["policy"],
        **{name: values[name] for name in ("name", "url", "time_column", "time_unit")},
    )
    create_table(new, context=context, is_confined=shown_to is not None)
    if context.is_dry_run:
        return {"tenant": tenant, "name": new.name, "dry_run": True}
    return messages.table_to_json(find_table(tenant, new.name), shown_to)


def _register(values: Values, context: ActionContext) -> dict[str, Any]:
    table, mode, interval = values["table"], values["mode"], (values["start_ms"], values["end_ms"])
    if mode is RegistrationMode.REPLACE and None in interval:
        raise InvalidMessage("$.start_ms", "the mode replace needs start_ms and end_ms")
    taken = take_files(
        table,
        cached_store(table.url),
        values["files"],
        mode=mode,
        context=context,
        interval=interval if mode is RegistrationMode.REPLACE else None,
    )
    return messages.taken_to_json(taken, values["shown_to"], is_dry_run=context.is_dry_run)


def _drop(values: Values, context: ActionContext) -> dict[str, Any]:
    done = drop_interval(values["table"], (values["start_ms"], values["end_ms"]), context=context)
    return {"dry_run": context.is_dry_run, "sequence": done.sequence, "replaced": done.hidden}


CREATE_TABLE = OperatorAction(
    operation="create_table",
    label="Create a table",
    about="Creates a table; the same one again changes nothing.",
    fields=(
        Text("name", "Name", length_max=NAME_MAX, is_required=True),
        Text("url", "URL", "where its files lie or will lie", length_max=URL_MAX, is_required=True),
        Text("time_column", "Time column", length_max=COLUMN_MAX, is_required=True),
        Choice(
            "time_unit",
            "Time unit",
            "of a time column of whole numbers",
            choices=tuple((unit, unit) for unit in TIME_UNITS if unit),
            default="",
        ),
        POLICY,
    ),
    apply=_create,
    has_command=False,
    permission=MayWriteTables,
    outcome=shapes.TableSerializer,
    may_conflict=True,
)
REGISTER_FILES = OperatorAction(
    name="register-files",
    operation="register_segments",
    label="Register files",
    about="Brings up to 1,000 files in, beside what is there or in its place; each is answered by itself. start_ms and "
    "end_ms go with the mode replace.",
    targets=(TABLE,),
    fields=(
        Choice(
            "mode",
            "Mode",
            choices=tuple((mode, mode) for mode in MODES),
            make=RegistrationMode,
            default=RegistrationMode.APPEND,
        ),
        replace(START_MS, is_required=False),
        replace(END_MS, is_required=False),
        Groups("files", "Files", group=FILE, count_max=FILES_MAX, is_required=True),
    ),
    apply=_register,
    has_command=False,
    permission=MayWriteTables,
    outcome=shapes.RegisteredSerializer,
    may_conflict=True,
)
DROP_INTERVAL = OperatorAction(
    operation="drop_interval",
    label="Drop an interval",
    about="Lets readers see nothing of an interval of whole chunks; its files are deleted later.",
    targets=(TABLE, START_MS, END_MS),
    apply=_drop,
    permission=MayWriteTables,
    outcome=shapes.DroppedSerializer,
    may_conflict=True,
)
