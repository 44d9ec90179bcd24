"""One call of the API: the caller and the validated address, query and body."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl

from django.http import HttpRequest

from engine.formats.ranges.model import KEY_BYTES_MAX, key_of
from engine.protocol.fields import Fields
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.catalog.api.access_keys import AccessKey
from webadmin.lanes.catalog.api.answers import PAGE_MAX
from webadmin.lanes.catalog.api.browsers import check_json
from webadmin.lanes.catalog.api.errors import NotServed, RequestRefused
from webadmin.lanes.catalog.api.request_bodies import body_of, json_of, told_length
from webadmin.lanes.catalog.models import Repository
from webadmin.lanes.catalog.services.repositories import find_repository

AMOUNT = 100
QUERY_FIELDS_MAX = 50
METADATA_ITEMS_MAX = 100
METADATA_TEXT_MAX = 2_048
FLAGS = {"true": True, "1": True, "false": False, "0": False}
UNSAID = ("", "false", "0")
_AMOUNT = re.compile(r"-?[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Stretch:
    """The requested range of a listing; keys are text."""

    prefix: str
    after: str
    amount: int


class Call:
    """An authorized request of an operation; ``names`` are the names in its address."""

    def __init__(self, request: HttpRequest, operation: str, key: AccessKey, names: Mapping[str, str]) -> None:
        self.request = request
        self.operation = operation
        self.key = key
        self.names = names
        self.repository: Repository

    @property
    def order(self) -> ActionContext:
        """Return the actor and the reason for the audit log."""
        return ActionContext(actor=self.key.actor, why=f"{self.operation} with an access key")

    def find_repository(self) -> None:
        """Load the repository of the address before any other check; one of another tenant is reported as missing."""
        if any("\0" in name for name in self.names.values()):
            raise RequestRefused("a name in the address has a NUL")
        self.repository = find_repository(self.key.tenant, self.names["repository"])

    @cached_property
    def query(self) -> dict[str, list[str]]:
        """Return the values of the query.

        Invalid UTF-8 is refused, since replacing bytes would change the key.
        """
        found: dict[str, list[str]] = {}
        try:
            pairs = parse_qsl(
                self.request.META.get("QUERY_STRING", ""),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=QUERY_FIELDS_MAX,
            )
        except ValueError as error:
            raise RequestRefused(f"the query is not UTF-8, or has more than {QUERY_FIELDS_MAX} fields") from error
        for name, value in pairs:
            if "\0" in value:  # PostgreSQL text cannot contain NUL
                raise RequestRefused(f"{name} has a NUL")
            found.setdefault(name, []).append(value)
        return found

    def text(self, name: str, default: str = "") -> str:
        """Return one value of the query unchanged."""
        return self.query.get(name, [default])[-1]

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a boolean value of the query."""
        told = self.text(name)
        if told and told.lower() not in FLAGS:
            raise RequestRefused(f"{name} is true or false, not {told[:20]!r}")
        return FLAGS[told.lower()] if told else default

    def path(self, name: str = "path") -> bytes:
        """Return the key in the query. Raises InvalidEntryKey."""
        if name not in self.query:
            raise RequestRefused(f"{name} is missing in the query")
        return key_of(self.text(name))

    def stretch(self) -> Stretch:
        """Return the requested range of a listing."""
        told = self.text("amount") or str(AMOUNT)
        if not _AMOUNT.fullmatch(told) or not -1 <= int(told) <= PAGE_MAX:
            raise RequestRefused(f"amount is a number up to {PAGE_MAX}, not {told[:20]!r}")
        amount = int(told) if int(told) > 0 else PAGE_MAX
        return Stretch(part_of_key("prefix", self.text("prefix")), part_of_key("after", self.text("after")), amount)

    def refuse(self, *names: str) -> None:
        """Refuse query parameters that lakeFS supports and this API does not."""
        for name in names:
            if self.text(name).lower() not in UNSAID:
                raise NotServed(f"{name} is not served here")

    @cached_property
    def body(self) -> Fields:
        """Return the fields of the JSON body; null fields count as missing."""
        if told_length(self.request) == 0:
            return Fields.of({}, "$")
        check_json(self.request)
        document = json_of(body_of(self.request))
        if isinstance(document, dict):
            document = {name: value for name, value in document.items() if value is not None}
        return Fields.of(document, "$")


def part_of_key(name: str, text: str) -> str:
    """Return text that is empty, a key, or a prefix of a key."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise RequestRefused(f"{name} is no Unicode text") from error
    # A position after the last possible key is a valid start of a listing.
    if size > KEY_BYTES_MAX + 1 or "\0" in text:
        raise RequestRefused(f"{name} is longer than a key may be ({KEY_BYTES_MAX} bytes), or has a NUL")
    return text


def metadata_of(fields: Fields, name: str = "metadata") -> dict[str, str]:
    """Return the user metadata of a commit or object: names and texts."""
    if name not in fields.values:
        return {}
    told = Fields.of(fields.values[name], f"{fields.path}.{name}")
    if len(told.values) > METADATA_ITEMS_MAX:
        raise fields.error(name, f"at most {METADATA_ITEMS_MAX} items are expected")
    return {checked_name(each): told.text(each, METADATA_TEXT_MAX) for each in told.values}


def checked_name(name: str) -> str:
    """Return the name of an item of metadata. Raises RequestRefused."""
    Fields("metadata", {"name": name}).text("name", METADATA_TEXT_MAX, empty=False)
    return name


def flag_of(fields: Fields, name: str) -> bool:
    """Return a boolean field of the body, false if it is missing."""
    value: Any = fields.values.get(name, False)
    if not isinstance(value, bool):
        raise fields.error(name, "true or false is expected")
    return value
