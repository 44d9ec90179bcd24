"""Operators' actions on credentials in the admin: create, rotate, set the expiry, revoke."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from webadmin.adminkit.order_fields import moment_field, number_field, text_field
from webadmin.adminkit.orders import OperatorOrder, OrderForm
from webadmin.base.access.credential_changes import (
    OVERLAP_DEFAULT,
    OVERLAP_MAX,
    CredentialOutcome,
    create_credential,
    revoke_credential,
    rotate_credential,
    set_credential_expiry,
)
from webadmin.base.access.errors import CredentialChangeRefused
from webadmin.base.access.models import CREDENTIAL_NAME_MAX, WorkerCredential
from webadmin.base.access.scopes import SCOPE_POLL, SCOPES

HOURS_MAX = int(OVERLAP_MAX / timedelta(hours=1))


class CreateForm(OrderForm):
    """The form of a new credential."""

    name = text_field("Name", "What it is for; stands in logs and audits.", CREDENTIAL_NAME_MAX, required=True)
    scopes = text_field(
        "Scopes",
        f"Separated by spaces: {', '.join(SCOPES)}; and tenant:NAME.",
        1000,
        required=True,
        initial=SCOPE_POLL,
    )
    expires_at = moment_field("Expires (UTC)", "Empty: never.")


class RotateForm(OrderForm):
    """The form of a rotation: how long the old secret is accepted."""

    overlap_hours = number_field(
        "Old secret accepted for (hours)",
        "0 revokes it now.",
        low=0,
        high=HOURS_MAX,
        initial=int(OVERLAP_DEFAULT / timedelta(hours=1)),
        required=True,
    )


class ExpireForm(OrderForm):
    """The form of an expiry."""

    expires_at = moment_field("Expires (UTC)", "Empty: never.")


def _create(rows: Sequence[Any], values: Mapping[str, Any], user: str, is_dry_run: bool) -> CredentialOutcome:
    return create_credential(
        name=values["name"],
        scopes=values["scopes"].split(),
        expires_at=_utc(values["expires_at"]),
        **_asked(values, user, is_dry_run),
    )


def _rotate(
    rows: Sequence[WorkerCredential], values: Mapping[str, Any], user: str, is_dry_run: bool
) -> CredentialOutcome:
    if len(rows) > 1:
        raise CredentialChangeRefused("rotate one credential at a time: each secret is shown once")
    overlap = timedelta(hours=values["overlap_hours"])
    return rotate_credential(name=rows[0].name, overlap=overlap, **_asked(values, user, is_dry_run))


def _expire(
    rows: Sequence[WorkerCredential], values: Mapping[str, Any], user: str, is_dry_run: bool
) -> CredentialOutcome:
    expires_at, asked = _utc(values["expires_at"]), _asked(values, user, is_dry_run)
    return _joined([set_credential_expiry(name=row.name, expires_at=expires_at, **asked) for row in rows])


def _revoke(
    rows: Sequence[WorkerCredential], values: Mapping[str, Any], user: str, is_dry_run: bool
) -> CredentialOutcome:
    return _joined([revoke_credential(name=row.name, **_asked(values, user, is_dry_run)) for row in rows])


def _asked(values: Mapping[str, Any], user: str, is_dry_run: bool) -> dict[str, Any]:
    return {"actor": f"user:{user}", "why": values["why"], "is_dry_run": is_dry_run}


def _utc(moment: datetime | None) -> datetime | None:
    return moment.astimezone(UTC) if moment else None


def _joined(outcomes: Sequence[CredentialOutcome]) -> CredentialOutcome:
    return CredentialOutcome(
        action=outcomes[0].action,
        is_dry_run=outcomes[0].is_dry_run,
        credentials=[each for outcome in outcomes for each in outcome.credentials],
        notes=list(dict.fromkeys(note for outcome in outcomes for note in outcome.notes)),
    )


def _is_in_use(row: WorkerCredential) -> bool:
    return row.revoked_at is None


CREDENTIAL_ORDERS = (
    OperatorOrder(
        name="create",
        label="Create a credential",
        about="The secret is shown once. A catalog's access key has catalog:read, catalog:write and one tenant:NAME.",
        give=_create,
        form=CreateForm,
        of_rows=False,
        shows_outcome=True,
    ),
    OperatorOrder(
        name="rotate",
        label="Rotate the secret",
        about="A new secret, shown once; the old one is accepted for a while, one from before that no more.",
        give=_rotate,
        form=RotateForm,
        fits=_is_in_use,
        shows_outcome=True,
        state_of=lambda row: row.secret_hash,
    ),
    OperatorOrder(
        name="expire",
        label="Set the expiry",
        about="Until when it is accepted. The front page warns 14 days before.",
        give=_expire,
        form=ExpireForm,
        fits=_is_in_use,
    ),
    OperatorOrder(
        name="revoke",
        label="Revoke",
        about="For good: access ends within 30 seconds, and the name becomes free.",
        give=_revoke,
        fits=_is_in_use,
    ),
)
