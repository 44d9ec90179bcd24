"""The list of all deployment checks, and how they are run.

A new check is a function in this package that is added to ``CHECKS``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from webadmin.embedded.deployment.database import check_database, check_durability
from webadmin.embedded.deployment.findings import Check, Finding, Level
from webadmin.embedded.deployment.object_store import check_object_store
from webadmin.embedded.deployment.store_places import check_store_places

CHECKS: tuple[Check, ...] = (
    check_database,
    check_durability,
    check_object_store,
    check_store_places,
)


def run_checks(checks: Sequence[Check] = CHECKS) -> Iterator[Finding]:
    """Run the checks in sequence and yield their findings.

    A check that raises is reported as an error, and the next one is run: one broken dependency hides no other.
    """
    for check in checks:
        try:
            yield from check()
        except Exception as error:  # noqa: BLE001 - any error of a driver belongs in the report
            yield Finding(
                name=check.__name__.removeprefix("check_"),
                level=Level.ERROR,
                found=f"the check failed: {type(error).__name__}: {error}",
                advice="fix what the error names, then run check_deployment again",
            )
