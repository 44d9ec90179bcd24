"""The list of revoked secrets in the object store, for processes that cannot reach the database.

The object ``access/revocations.json`` holds the hashes of the secrets that were revoked within the last day, signed
with the newest of ``LITHIFY_TOKEN_KEYS``; a signature by any of them is accepted. A process caches a credential for 15
minutes while the database is unavailable, so no older entry is needed. A reader keeps the entries it has read: a list
that is missing, old, unreachable or not signed neither restores nor revokes any secret.
"""

from __future__ import annotations

import json
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from django.conf import settings
from django.utils import timezone

from engine.core.keyed_digests import is_signed, keyed_digest
from engine.storage import ObjectStore, StorageError, cached_store
from engine.storage.model import ObjectNotFound
from webadmin.base.access.models import RevokedSecret

log = logging.getLogger(__name__)

KEY = "access/revocations.json"
PURPOSE = "revoked secrets"
PUBLISHED_FOR = timedelta(days=1)
PUBLISH_SECONDS = 5.0
_publisher = ThreadPoolExecutor(1, "revocations")
KEPT_SECONDS = 2 * PUBLISHED_FOR.total_seconds()


def publish_revocations() -> bool:
    """Write the list; return False if the object store failed or takes longer than PUBLISH_SECONDS, which is logged.

    The time is limited because the answer to the caller contains a new secret that is shown once. The rows are read
    again after each write: of two processes that write at the same time, the later one includes the other's entries.
    """
    store = cached_store(settings.OBJECT_STORE_URL)
    written: dict[str, float] | None = None
    try:
        while (current := _current_rows()) != written:
            _publisher.submit(store.put, KEY, _sign(current)).result(PUBLISH_SECONDS)
            written = current
    except (StorageError, TimeoutError) as error:
        log.warning("revocations_not_published error=%s", str(error) or "no answer in time")
        return False
    return True


def refresh_published() -> int:
    """Delete rows that are no longer published, write the list if it is not empty, and return its number of secrets."""
    RevokedSecret.objects.filter(revoked_at__lt=timezone.now() - PUBLISHED_FOR).delete()
    count = RevokedSecret.objects.count()
    if count:
        publish_revocations()
    return count


class Revocations:
    """The revoked secrets known to a process; shared by its threads."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._revoked: dict[str, float] = {}

    def is_revoked(self, secret_hash: str) -> bool:
        """Return whether this secret is in the last list that was read or in an earlier one."""
        return secret_hash in self._revoked

    def refresh(self) -> None:
        """Read the list and add its entries to the known ones.

        A list that cannot be read or verified is logged and ignored.
        """
        try:
            found = _verify(self._store.get(KEY))
        except ObjectNotFound:
            return
        except (StorageError, ValueError) as error:
            log.warning("revocations_not_read error=%s", error)
            return
        since = time.time() - KEPT_SECONDS
        self._revoked = {each: at for each, at in (self._revoked | found).items() if at >= since}


def _current_rows() -> dict[str, float]:
    rows = RevokedSecret.objects.filter(revoked_at__gte=timezone.now() - PUBLISHED_FOR)
    return {row.secret_hash: row.revoked_at.timestamp() for row in rows.order_by("secret_hash")}


def _sign(revoked: dict[str, float]) -> bytes:
    document = json.dumps({"revoked": revoked})
    signature = keyed_digest(settings.TOKEN_KEYS[0], PURPOSE, document.encode()).hex()
    return json.dumps({"document": document, "signature": signature}).encode()


def _verify(data: bytes) -> dict[str, float]:
    """Return the entries of a signed list.

    Raises ValueError if the list is malformed or not signed with a current key.
    """
    try:
        envelope = json.loads(data)
        document, signature = str(envelope["document"]), bytes.fromhex(envelope["signature"])
        if not is_signed(signature, settings.TOKEN_KEYS, PURPOSE, document.encode()):
            raise ValueError(f"{KEY} is not signed with a key of LITHIFY_TOKEN_KEYS")
        return {str(each): float(at) for each, at in json.loads(document)["revoked"].items()}
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{KEY} is not a signed list: {error!r}") from error
