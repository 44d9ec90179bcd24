"""Every error that a compactor node meets on its way between the service, the broker and Spark."""

from __future__ import annotations

from engine.core.errors import LithifyError


class BadSetting(LithifyError):
    """A setting of the node is missing or makes no sense; the message names the variable and what it takes."""

    code = "bad_setting"


class NodeNameTaken(LithifyError):
    """Another running node on this machine has this name; give this one another NODE_NAME."""

    code = "node_name_taken"


class ServiceUnavailable(LithifyError):
    """The service gave no usable answer in time; the poll may be repeated as it is."""

    code = "service_unavailable"
    retryable = True


class CredentialRefused(LithifyError):
    """The service does not accept this worker's credential; make a new one and set WORKER_CREDENTIAL."""

    code = "credential_refused"


class PollRefused(LithifyError):
    """The service calls this poll malformed; repeating it unchanged cannot succeed."""

    code = "poll_refused"


class BadAssignment(LithifyError):
    """An assignment's specification cannot be read by this build; the reason says which part."""

    code = "bad_assignment"


class ResultMissing(LithifyError):
    """A merge ended without a result or an error for one of its jobs."""

    code = "result_missing"


class MergerDied(LithifyError):
    """What merges here is gone and cannot be used again in this process; the node ends and must be restarted."""

    code = "merger_died"
