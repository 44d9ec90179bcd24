"""What a lane adds to the front page of the admin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from webadmin.adminkit.sections import Notice, Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One number on the front page, the text below it, and its link."""

    title: str
    number: str
    more: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneOverview:
    """The state of a lane on the front page.

    ``sections`` are shown in columns, ``wide_sections`` below each other. ``ahead`` is work that is not due yet, as
    text, and ``holds`` what the lane keeps, such as "3 tables"; "" if there is none.
    """

    notices: Sequence[Notice] = ()
    tiles: Sequence[Tile] = ()
    sections: Sequence[Section] = ()
    wide_sections: Sequence[Section] = ()
    ahead: str = ""
    holds: str = ""
