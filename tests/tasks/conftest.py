"""Control tasks call the services of the web application: the same database fixtures, and the schedule to drive."""

from __future__ import annotations

from tests.webadmin.conftest import clock, real_service  # noqa: F401
