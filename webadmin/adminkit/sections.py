"""The parts of a page: notices, facts, tables, a tree of links, JSON. Templates render them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from django.utils.safestring import SafeString

from webadmin.adminkit.formatting import json_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One sentence at the top of a page; ``address`` is a page that shows more."""

    tone: str
    text: str
    address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Names and values of one object."""

    template: ClassVar[str] = "console/sections/facts.html"
    title: str
    rows: Sequence[tuple[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under headers; ``empty`` is the text for no rows, ``more`` names the omitted ones."""

    template: ClassVar[str] = "console/sections/table.html"
    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[object]]
    empty: str = "None."
    more: str | SafeString = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A node of a tree: its text, its children, and how many of those were omitted."""

    label: str | SafeString
    branches: Sequence[Branch] = field(default_factory=tuple)
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """The origins and successors of an object."""

    template: ClassVar[str] = "console/sections/lineage.html"
    title: str
    sources: Branch
    results: Branch
    no_sources: str
    no_results: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Json:
    """Data as it is stored; collapsed when it is large."""

    template: ClassVar[str] = "console/sections/json.html"
    title: str
    data: Any
    folded: bool = False

    def text(self) -> SafeString:
        return json_text(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """An SVG under a title, at most ``width`` pixels wide; the legend names its colours."""

    template: ClassVar[str] = "console/sections/picture.html"
    title: str
    picture: SafeString
    width: int
    more: str = ""
    legend: Sequence[tuple[str, str]] = ()


Section = Facts | Table | Lineage | Json | Picture
