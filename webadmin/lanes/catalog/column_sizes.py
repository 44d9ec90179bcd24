"""Maximum lengths of text columns of the catalog."""

from __future__ import annotations

NAME_MAX = 255
REPOSITORY_NAME_MAX = 63
NAMESPACE_MAX = 1000
COMMITTER_MAX = 255
ID_LENGTH = 64
ADDRESS_MAX = 1024
