"""Every error that running merges on Spark raises."""

from __future__ import annotations

from engine.core.errors import LithifyError


class BadSparkSetting(LithifyError):
    """A setting of the Spark session cannot be used; the message says which and what to set instead."""

    code = "bad_spark_setting"


class ExecutorsDiffer(LithifyError):
    """The executors do not run what this node runs: ``differences`` has one sentence each.

    Pack this node's environment again (``./dev pack``) and set SPARK_ARCHIVE to it.
    """

    code = "executors_differ"

    def __init__(self, differences: tuple[str, ...]) -> None:
        super().__init__(differences)
        self.differences = differences

    def __str__(self) -> str:
        return "; ".join(self.differences) + " (run ./dev pack and set SPARK_ARCHIVE to the new archive)"


class SparkJobFailed(LithifyError):
    """Spark gave up on a job as a whole: an executor was lost or its Python died."""

    code = "spark_job_failed"
    retryable = True


class MergeInterrupted(LithifyError):
    """Nobody wants the job any more, so it was stopped."""

    code = "merge_interrupted"
    retryable = True


class UnitFailed(LithifyError):
    """An executor could not merge a dataset, for a reason with no class of its own here.

    ``error_class`` is the name of the class over there, ``object_name``, ``section`` and ``offset`` the place if it has
    one.
    """

    code = "unit_failed"

    def __init__(
        self, error_class: str, reason: str, object_name: str = "", section: str = "", offset: int = -1
    ) -> None:
        super().__init__(error_class, reason, object_name, section, offset)
        self.error_class = error_class
        self.reason = reason
        self.object_name = object_name
        self.section = section
        self.offset = offset

    def __str__(self) -> str:
        return f"{self.error_class}: {self.reason}"


class BadSourceOption(LithifyError):
    """An option of the data source makes no sense; the message says which and what is expected."""

    code = "bad_source_option"


class LookRefused(LithifyError):
    """The service will not tell where the data is: the credential, the tenant, or the question is at fault."""

    code = "look_refused"


class LookFailed(LithifyError):
    """The service gave no usable answer."""

    code = "look_failed"
    retryable = True


class SourceGone(LithifyError):
    """An object that the look at the index named is not in the store: nothing is answered."""

    code = "source_gone"


class SourceDamaged(LithifyError):
    """A dataset cannot be read: nothing is answered, unless ``on_damage`` says otherwise."""

    code = "source_damaged"
