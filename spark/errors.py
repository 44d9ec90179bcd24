"""Errors of merges and queries on Spark."""

from __future__ import annotations

from engine.core.errors import LithifyError


class BadSparkSetting(LithifyError):
    """A setting of the Spark session is invalid; the message names it and a valid value."""

    code = "bad_spark_setting"


class ExecutorsDiffer(LithifyError):
    """The executors do not run the same build as this node: ``differences`` has one sentence each.

    Pack this node's environment again (``./dev pack``) and set SPARK_ARCHIVE to it.
    """

    code = "executors_differ"

    def __init__(self, differences: tuple[str, ...]) -> None:
        super().__init__(differences)
        self.differences = differences

    def __str__(self) -> str:
        return "; ".join(self.differences) + " (run ./dev pack and set SPARK_ARCHIVE to the new archive)"


class SparkJobFailed(LithifyError):
    """Spark aborted a whole Spark job: an executor was lost or its Python process died."""

    code = "spark_job_failed"
    retryable = True


class MergeInterrupted(LithifyError):
    """The job was cancelled and its merge stopped."""

    code = "merge_interrupted"
    retryable = True


class UnitFailed(LithifyError):
    """An executor could not merge a dataset, because of an error that is not of the engine.

    ``error_class`` is the class of the error on the executor; ``object_name``, ``section`` and ``offset`` are its place
    where known.
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
    """An option of the data source is invalid; the message names it and the expected value."""

    code = "bad_source_option"


class IndexQueryRefused(LithifyError):
    """The service rejects the query of the index: the credential, the tenant or the query is invalid."""

    code = "index_query_refused"


class IndexQueryFailed(LithifyError):
    """The service gave no valid response to the query of the index."""

    code = "index_query_failed"
    retryable = True


class SourceGone(LithifyError):
    """An object of the index snapshot is not in the store; the query fails."""

    code = "source_gone"


class SourceDamaged(LithifyError):
    """A dataset is damaged; the query fails unless the option ``on_damage`` is ``skip``."""

    code = "source_damaged"
