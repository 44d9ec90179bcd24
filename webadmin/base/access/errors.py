"""Errors of identity: who calls, and may they?"""

from __future__ import annotations

from engine.core.errors import LithifyError


class CredentialRefused(LithifyError):
    """The credential is missing, unknown, revoked or wrong; an operator can issue a new one."""

    code = "credential_refused"


class ScopeMissing(LithifyError):
    """The credential is valid but not for this."""

    code = "scope_missing"


class NameTaken(LithifyError):
    """Another one already has this name; choose a different name or revoke the other first."""

    code = "name_taken"


class TooManyNames(LithifyError):
    """One credential names more workers than a fleet has; find out what makes new names, then poll again."""

    code = "too_many_names"


class UnknownCredential(LithifyError):
    """No credential in use has this name."""

    code = "unknown_credential"


class CredentialChangeRefused(LithifyError):
    """The change of a credential makes no sense; the message says what is expected."""

    code = "credential_change_refused"


class TenantNotAllowed(LithifyError):
    """The credential is not for this tenant; an operator can issue one that lists it."""

    code = "tenant_not_allowed"
