"""What settings and URLs know of a lane: names only, because Django has not started yet.

What pages, metrics and polls need of a lane is in its ``webadmin.schedule.lanes.Lane``, which its app registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.core.metrics import SERVICE_METRICS, Metric
from engine.settings.lanes import lane_manifests


@dataclass(frozen=True, slots=True, kw_only=True)
class WebManifest:
    """A lane in the web application.

    ``urls`` are pairs of a prefix and a module with ``urlpatterns``. ``metrics`` are those that ``Lane.samples``
    yields. ``enum_names`` are names of enumerations in the API schema, by their choices.
    """

    name: str
    apps: Sequence[str]
    urls: Sequence[tuple[str, str]] = ()
    metrics: Sequence[Metric] = ()
    enum_names: Mapping[str, str] = field(default_factory=dict)


def web_lanes() -> list[WebManifest]:
    """Return the manifests of the lanes."""
    return list(lane_manifests("webadmin").values())


def service_metrics() -> tuple[Metric, ...]:
    """Return the metrics of web processes: those of the service, then those of each lane."""
    return (*SERVICE_METRICS, *(metric for lane in web_lanes() for metric in lane.metrics))
