"""URLs of operators' actions on buckets."""

from __future__ import annotations

from webadmin.base.actions.api import action_path
from webadmin.lanes.tsdb.actions import ADOPT, CHANGE, RELEASE, WITHDRAW

urlpatterns = [*map(action_path, (ADOPT, CHANGE, RELEASE, WITHDRAW))]
