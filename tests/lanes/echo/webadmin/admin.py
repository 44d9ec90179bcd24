"""Text files in the admin."""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib import admin

from tests.lanes.echo.webadmin.models import TextFile
from webadmin.adminkit import formatting as show
from webadmin.adminkit.read_only import ReadOnlyAdmin
from webadmin.adminkit.sections import Facts, Section


@admin.register(TextFile)
class TextFileAdmin(ReadOnlyAdmin):
    """Text files, newest first."""

    list_display = ("key", "tenant", "folder", "state", "size_bytes")
    list_filter = ("state",)
    about = "Text files: what readers see, what a merge replaced, and what cannot be read."

    def sections(self, row: TextFile) -> Sequence[Section]:
        rows = [
            ("Key", show.code(row.key)),
            ("Folder", row.place),
            ("State", row.get_state_display()),
            ("Reason", row.reason or show.NOTHING),
            ("Size", show.size_text(row.size_bytes)),
            ("Job", show.row_link(row.job)),
        ]
        return [Facts(title="Text file", rows=rows)]
