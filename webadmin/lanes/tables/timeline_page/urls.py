"""URLs of the timeline's page and of the endpoints of its script."""

from __future__ import annotations

from django.urls import path

from webadmin.lanes.tables.timeline_page import views
from webadmin.lanes.tables.timeline_page.rest_page import rest_page

urlpatterns = [
    path("<int:source_id>/", views.timeline_page, name="timeline-page"),
    path("<int:source_id>/rest", rest_page, name="timeline-rest"),
    path("<int:source_id>/data", views.timeline_data, name="timeline-data"),
    path("<int:source_id>/chunk/<str:start_ms>", views.timeline_chunk, name="timeline-chunk"),
]
