"""Operators' actions on credentials: create, rotate, set the expiry, revoke."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from rest_framework import serializers

from webadmin.base.access.credential_changes import (
    OVERLAP_DEFAULT,
    OVERLAP_MAX,
    create_credential,
    revoke_credential,
    rotate_credential,
    set_credential_expiry,
)
from webadmin.base.access.errors import CredentialChangeRefused
from webadmin.base.access.models import CREDENTIAL_NAME_MAX, WorkerCredential
from webadmin.base.access.scopes import SCOPE_POLL, SCOPES, MayManageCredentials
from webadmin.base.actions.action import ActionContext, OperatorAction
from webadmin.base.actions.fields import Moment, Number, Text, Texts

SCOPES_MAX = 100
SCOPE_LENGTH_MAX = 200
HOUR = timedelta(hours=1)


class CredentialSerializer(serializers.Serializer[Any]):
    """A credential without its secrets."""

    name = serializers.CharField()
    key_id = serializers.CharField(help_text="public first part of the secret")
    scopes = serializers.ListField(child=serializers.CharField())
    created_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True)
    previous_valid_until = serializers.DateTimeField(allow_null=True, help_text="end of the replaced secret")
    expires_at = serializers.DateTimeField(allow_null=True)
    revoked_at = serializers.DateTimeField(allow_null=True)


class CredentialOutcomeSerializer(serializers.Serializer[Any]):
    """What was done. The secret is in this response only."""

    action = serializers.CharField()
    dry_run = serializers.BooleanField()
    secret = serializers.CharField(required=False)
    access_key_id = serializers.CharField(required=False, help_text="of a credential with catalog:read")
    secret_access_key = serializers.CharField(required=False)
    credentials = CredentialSerializer(many=True)
    notes = serializers.ListField(child=serializers.CharField())


NAME = Text(
    "name", "Name", "Purpose; shown in logs and audit entries.", length_max=CREDENTIAL_NAME_MAX, is_required=True
)
EXPIRES_AT = Moment("expires_at", "Expires (UTC)", "Empty: never.")
OVERLAP = Number(
    "overlap_hours",
    "Old secret accepted for (hours)",
    "0: revoke it immediately.",
    high=OVERLAP_MAX // HOUR,
    default=OVERLAP_DEFAULT // HOUR,
)


def _by(context: ActionContext) -> dict[str, Any]:
    return {"actor": context.actor, "why": context.why, "is_dry_run": context.is_dry_run}


def _names(rows: Sequence[WorkerCredential]) -> list[dict[str, Any]]:
    return [{"name": row.name} for row in rows]


def _one_name(rows: Sequence[WorkerCredential]) -> list[dict[str, Any]]:
    if len(rows) > 1:
        raise CredentialChangeRefused("rotate one credential at a time: each secret is shown once")
    return _names(rows)


def _is_in_use(row: WorkerCredential) -> bool:
    return row.revoked_at is None


CREATE = OperatorAction(
    name="create",
    operation="create_credential",
    label="Create a credential",
    about="The secret is shown once. A catalog's access key has catalog:read, catalog:write and one tenant:NAME.",
    targets=(NAME,),
    fields=(
        Texts(
            "scopes",
            "Scopes",
            f"Separated by spaces: {', '.join(SCOPES)}; and tenant:NAME.",
            length_max=SCOPE_LENGTH_MAX,
            count_max=SCOPES_MAX,
            is_required=True,
            initial=SCOPE_POLL,
        ),
        EXPIRES_AT,
    ),
    apply=lambda values, context: create_credential(**values, **_by(context)),
    permission=MayManageCredentials,
    outcome=CredentialOutcomeSerializer,
    may_conflict=True,
    shows_outcome=True,
)
ROTATE = OperatorAction(
    name="rotate",
    operation="rotate_credential",
    label="Rotate the secret",
    about="Creates a new secret, shown once. The previous secret is accepted until the overlap ends.",
    targets=(NAME,),
    fields=(OVERLAP,),
    apply=lambda values, context: rotate_credential(
        name=values["name"], overlap=values["overlap_hours"] * HOUR, **_by(context)
    ),
    permission=MayManageCredentials,
    outcome=CredentialOutcomeSerializer,
    of_rows=_one_name,
    fits=_is_in_use,
    shows_outcome=True,
    state_of=lambda row: row.secret_hash,
)
EXPIRE = OperatorAction(
    name="expire",
    operation="expire_credential",
    label="Set the expiry",
    about="Sets the time until which the credential is accepted. The front page warns 14 days before.",
    targets=(NAME,),
    fields=(replace(EXPIRES_AT, is_required=True, is_nullable=True),),
    apply=lambda values, context: set_credential_expiry(**values, **_by(context)),
    permission=MayManageCredentials,
    outcome=CredentialOutcomeSerializer,
    of_rows=_names,
    fits=_is_in_use,
)
REVOKE = OperatorAction(
    name="revoke",
    operation="revoke_credential",
    label="Revoke",
    about="Permanently revokes the credential within 30 seconds. The name can then be used again.",
    targets=(NAME,),
    apply=lambda values, context: revoke_credential(name=values["name"], **_by(context)),
    permission=MayManageCredentials,
    outcome=CredentialOutcomeSerializer,
    of_rows=_names,
    fits=_is_in_use,
)
CREDENTIAL_ACTIONS = (CREATE, ROTATE, EXPIRE, REVOKE)
