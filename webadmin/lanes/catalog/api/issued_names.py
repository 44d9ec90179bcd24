"""Names of objects in a repository's folder: the time of issue and a random part.

A client that writes an object itself must link it in time: objects that are not linked are deleted later.
"""

from __future__ import annotations

import re
import secrets

from webadmin.lanes.catalog.api.errors import RequestRefused
from webadmin.lanes.catalog.compaction_policies import LINK_SECONDS_MAX
from webadmin.lanes.catalog.object_places import DATA

RANDOM_BYTES = 10
LINK_MS = 1000 * LINK_SECONDS_MAX
_NAME = re.compile(rf"{DATA}([0-9]{{13}})-[0-9a-f]{{{2 * RANDOM_BYTES}}}")


def new_name(now_ms: int) -> str:
    """Return the name of a new object."""
    return f"{now_ms:013d}-{secrets.token_hex(RANDOM_BYTES)}"


def check_issued(address: str, now_ms: int) -> str:
    """Return the address of an object that may be linked. Raises RequestRefused."""
    name = _NAME.fullmatch(address)
    if name is None:
        raise RequestRefused("this physical address was not given out for this repository")
    if now_ms - int(name[1]) > LINK_MS:
        raise RequestRefused(f"this physical address was given out more than {LINK_MS // 3_600_000} hours ago")
    return address
