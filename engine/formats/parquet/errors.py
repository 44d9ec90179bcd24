"""What reading and merging Parquet files raises, beyond the errors of every object.

A file that is not what it should be is a ``BadObject``: ``section`` is the part of the file ("footer", "row group 3",
"column price"), ``offset`` the byte position in the file where the trouble is.
"""

from __future__ import annotations

from engine.core.errors import BadObject, LithifyError


class ForeignFile(BadObject):
    """A file that another table format wrote and lists; it is never merged, and never deleted."""

    code = "foreign_table"


class SchemaConflict(LithifyError):
    """Files of one merge have a column in types that have none in common; the text names columns, types and files."""

    code = "schema_conflict"


class NotSorted(LithifyError):
    """A file is not in the order that the merge makes, so that it has to be sorted first.

    ``row`` breaks it, -1 if nobody has looked which.
    """

    code = "not_sorted"

    def __init__(self, path: str, row: int) -> None:
        super().__init__(path, row)
        self.path = path
        self.row = row

    def __str__(self) -> str:
        where = f": row {self.row} comes before the row above it" if self.row >= 0 else ""
        return f"{self.path} is not sorted{where}"


class NotConserved(LithifyError):
    """What a merge would write is not what it read: a fault of this program; nothing of it is reported."""

    code = "not_conserved"


class SumOverflow(LithifyError):
    """The sum of a whole-number column in rolled-up rows does not fit its type; the text names the column."""

    code = "sum_overflow"
