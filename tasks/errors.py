"""Errors of a compactor node."""

from __future__ import annotations

from engine.core.errors import LithifyError


class NodeNameTaken(LithifyError):
    """Another running node on this machine has this name; set another NODE_NAME."""

    code = "node_name_taken"


class ServiceUnavailable(LithifyError):
    """The service gave no valid response in time; the poll may be repeated unchanged."""

    code = "service_unavailable"
    retryable = True


class CredentialRefused(LithifyError):
    """The service rejects the credential of this worker; create a new one and set WORKER_CREDENTIAL."""

    code = "credential_refused"


class PollRefused(LithifyError):
    """The service rejects this poll as malformed; repeating it unchanged cannot succeed."""

    code = "poll_refused"


class BadAssignment(LithifyError):
    """This build cannot read the specification of an assignment; the message names the invalid part."""

    code = "bad_assignment"


class ResultMissing(LithifyError):
    """A merge ended without a result or an error for one of its jobs."""

    code = "result_missing"


class MergerDied(LithifyError):
    """The merger of this process has died and cannot be restarted in it; the node exits and must be restarted."""

    code = "merger_died"
