"""URLs of the flame graph page and of its JSON endpoints."""

from __future__ import annotations

from django.urls import path

from webadmin.query.flame_page import views
from webadmin.query.flame_page.page import flame_page

urlpatterns = [
    path("", flame_page, name="flame-page"),
    path("data/known", views.known, name="flame-known"),
    path("data/labels", views.labels, name="flame-labels"),
    path("data/timeline", views.timeline, name="flame-timeline"),
    path("data/graph", views.graph, name="flame-graph"),
    path("data/sandwich", views.sandwich, name="flame-sandwich"),
    path("data/export", views.export, name="flame-export"),
    path("data/open-file", views.open_file, name="flame-open-file"),
]
