"""A credential that may read."""

from __future__ import annotations

import pytest

from webadmin.base.access.services import issue_worker_credential


@pytest.fixture
def reader(db: None) -> dict[str, str]:
    """The header of somebody who may look."""
    issued = issue_worker_credential(name="reader", scopes=["read"], actor="test")
    return {"Authorization": f"Bearer {issued.wire_form}"}
