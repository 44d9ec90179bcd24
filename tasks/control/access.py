"""Credentials: the list of revoked secrets, for processes without access to the database."""

from __future__ import annotations

from tasks.beat import PUBLISH_REVOCATIONS_TASK, app


@app.task(name=PUBLISH_REVOCATIONS_TASK)
def publish_revocations() -> None:
    """Write the list again while it has entries: the write after a revocation may have failed."""
    from webadmin.base.access.revocations import refresh_published

    refresh_published()
