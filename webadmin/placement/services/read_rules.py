"""The placement rules for distributors: from the database, from the object store while that is unavailable.

Loaded rules stay in force whatever happens afterwards, and are never replaced by an older version.
"""

from __future__ import annotations

import logging

from django.conf import settings
from django.db import DatabaseError

from engine.core.errors import LithifyError
from engine.placement.documents import decode_rules
from engine.placement.model import PlacementRules
from engine.placement.publication import load_rules
from engine.placement.signatures import SignedStore
from engine.storage.model import ObjectStore
from webadmin.placement.rule_models import RulesHead

log = logging.getLogger(__name__)


def read_rules(store: ObjectStore, *, last: PlacementRules | None = None) -> PlacementRules:
    """Return the newest available rules; the same object as ``last`` if nothing newer was found.

    Never raises with ``last``. Without it an error is raised if rules exist and cannot be read: a process must not
    start with none.
    """
    try:
        found = _from_database(last) or load_rules(SignedStore(store, settings.TOKEN_KEYS))
    except LithifyError as error:
        if last is None:
            raise
        log.warning("rules_not_read error=%s", error)
        return last
    if last is None:
        return found or PlacementRules()
    is_newer = found is not None and (found.created_at_ms, found.version) > (last.created_at_ms, last.version)
    return found if found is not None and is_newer else last


def _from_database(last: PlacementRules | None) -> PlacementRules | None:
    """Return the database's rules, ``last`` if they are no newer; None if it has none or fails."""
    try:
        version = RulesHead.objects.filter(id=1).values_list("version", flat=True).first()
        if not version:
            return None
        if last is not None and version <= last.version:
            return last
        return decode_rules(bytes(RulesHead.objects.values_list("document", flat=True).get(id=1)))
    except DatabaseError as error:
        log.warning("rules_not_read from=database error=%s", error)
    except LithifyError as error:
        log.error("rules_not_read from=database error=%s", error)
    return None
