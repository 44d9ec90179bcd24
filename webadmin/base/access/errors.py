"""Errors of authentication and authorization."""

from __future__ import annotations

from engine.core.errors import LithifyError


class CredentialRefused(LithifyError):
    """The credential is missing, unknown, revoked or wrong; an operator can issue a new one."""

    code = "credential_refused"


class ScopeMissing(LithifyError):
    """The credential is valid but lacks the required scope."""

    code = "scope_missing"


class NameTaken(LithifyError):
    """Another object already has this name; choose a different name or revoke the other first."""

    code = "name_taken"


class TooManyNames(LithifyError):
    """One credential names more workers than a fleet has; find the source of new names, then poll again."""

    code = "too_many_names"


class UnknownCredential(LithifyError):
    """No active credential has this name."""

    code = "unknown_credential"


class CredentialChangeRefused(LithifyError):
    """The requested change of a credential is invalid; the message states what is expected."""

    code = "credential_change_refused"


class TenantNotAllowed(LithifyError):
    """The credential is not for this tenant; an operator can issue one that lists it."""

    code = "tenant_not_allowed"
