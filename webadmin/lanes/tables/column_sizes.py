"""Maximum lengths of text columns."""

from __future__ import annotations

NAME_MAX = 60
URL_MAX = 1000
PATH_MAX = 900
COLUMN_MAX = 200
VERSION_MAX = 40
DIGEST_MAX = 80
REASON_MAX = 500
ZONE_MAX = 60
