"""URLs of the query endpoints, which clients fix."""

from __future__ import annotations

from django.urls import path, re_path

from webadmin.query.viewers.querier_api import querier
from webadmin.query.viewers.render_api import label_values, labels, render, render_diff

urlpatterns = [
    re_path(r"^(?:.+/)?querier\.v1\.QuerierService/(?P<method>[A-Za-z]+)$", querier, name="querier"),
    path("pyroscope/render", render),
    path("pyroscope/render-diff", render_diff),
    path("pyroscope/label-values", label_values),
    path("pyroscope/labels", labels),
]
