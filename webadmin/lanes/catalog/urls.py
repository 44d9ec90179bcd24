"""URLs of operators' actions on repositories and branches."""

from __future__ import annotations

from webadmin.base.actions.api import action_path
from webadmin.lanes.catalog.actions import CHANGE_COMPACTION, COLLECT, COMPACT_NOW, RESTORE

urlpatterns = [*map(action_path, (CHANGE_COMPACTION, COLLECT, COMPACT_NOW, RESTORE))]
