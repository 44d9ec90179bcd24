"""Errors of reading and merging Parquet files, in addition to those of ``engine.core.errors``.

An invalid file is a ``BadObject``: ``section`` is the part of the file ("footer", "row group 3", "column price"),
``offset`` the byte position of the fault in the file.
"""

from __future__ import annotations

from engine.core.errors import BadObject, LithifyError


class ForeignFile(BadObject):
    """A file that belongs to a table of another format; it is never merged and never deleted."""

    code = "foreign_table"


class SchemaConflict(LithifyError):
    """A column has incompatible types in the files of one merge; the message names columns, types and files."""

    code = "schema_conflict"


class NotSorted(LithifyError):
    """A file does not have the sort order of the merge and must be sorted first.

    ``row`` is the first row that violates the order, -1 if unknown.
    """

    code = "not_sorted"

    def __init__(self, path: str, row: int) -> None:
        super().__init__(path, row)
        self.path = path
        self.row = row

    def __str__(self) -> str:
        where = f": row {self.row} sorts before the previous row" if self.row >= 0 else ""
        return f"{self.path} is not sorted{where}"


class NotConserved(LithifyError):
    """The output of a merge differs from its input, which is a defect of Lithify; the output is discarded."""

    code = "not_conserved"


class SumOverflow(LithifyError):
    """The sum of an integer column in rolled-up rows overflows its type; the message names the column."""

    code = "sum_overflow"
