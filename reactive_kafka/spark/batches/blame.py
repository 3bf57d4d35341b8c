"""Judges errors of Spark jobs: is the data to blame, the function, or the cluster? Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from reactive_kafka.errors import (
    BadDataError,
    ChannelClosedError,
    ClusterError,
    ConfigError,
    DataLossError,
    OffloadError,
    WorkerLostError,
)

LONGEST_REASON = 300


class UnfitExecutorsError(ClusterError):
    """Executors lack a data source, a Java class or a Python module, which must be installed there.

    The function needs it, or the channel's format does. No record is to blame, so none is nacked.
    """


# The beginning of the error that executors raise if they lack this package.
CANNOT_READ = "reactive-kafka: executors cannot read the format"
# The function, the sink or the source is to blame, and would fail for every record.
BadCodeError = OffloadError
_LOST_TYPES = frozenset(
    {"ConnectionError", "EOFError", "Py4JNetworkError", "Py4JError", "RpcError"}
)
_LOST_TEXTS = (
    "SparkContext was shut down",
    "Cannot call methods on a stopped SparkContext",
    # Errors of a session whose context was stopped.
    "'NoneType' object has no attribute 'sc'",
    "'NoneType' object has no attribute 'setLocalProperty'",
    "INVALID_HANDLE.SESSION_",
    "[NO_ACTIVE_SESSION]",
    "StatusCode.UNAVAILABLE",
    "failed to connect to all addresses",
)
# Kafka's error for a record with a partition that its topic does not have. It is a
# TimeoutException, though waiting does not help.
_NO_SUCH_PARTITION = re.compile(
    r"Partition \d+ of topic \S+ with partition count \d+ is not present"
)
_TEXTS: Mapping[type[OffloadError], tuple[str, ...]] = {
    UnfitExecutorsError: (
        CANNOT_READ,
        "DATA_SOURCE_NOT_FOUND",
        "Failed to find data source",
        "java.lang.ClassNotFoundException",
        "java.lang.NoClassDefFoundError",
    ),
    ClusterError: (
        "PYTHON_VERSION_MISMATCH",
        "Python in worker has different version",
        "Python worker failed to connect back",
        # The executors have no Python at all.
        "Cannot run program",
        "All masters are unresponsive",
        "Master removed our application",
        "Application has been killed",
        # Executors could not reach Kafka.
        "org.apache.kafka.common.errors.TimeoutException",
        "org.apache.kafka.common.errors.DisconnectException",
        "java.util.concurrent.TimeoutException: Cannot fetch record for offset",
    ),
    DataLossError: ("KafkaIllegalStateException", "KAFKA_DATA_LOSS", "OffsetOutOfRangeException"),
    BadDataError: ("org.apache.kafka.common.errors.RecordTooLargeException",),
    WorkerLostError: ("Python worker exited unexpectedly", "ExecutorLostFailure", "FetchFailed"),
    BadCodeError: (
        # Rights and certificates.
        "org.apache.kafka.common.errors.",
        # The function has cancelled its job. Jobs that we cancel are not judged.
        "SPARK_JOB_CANCELLED",
        "OPERATION_CANCELED",
        # The sink cannot be reached or written.
        "java.net.ConnectException",
        "java.net.UnknownHostException",
        "java.net.SocketTimeoutException",
        "No space left on device",
        "Mkdirs failed to create",
        "AccessControlException",
    ),
}
"""Texts in errors of Spark. The first match counts."""
_BAD_CODE_TYPES = frozenset(
    {
        "AnalysisException",
        "ParseException",
        "UnsupportedOperationException",
        "SparkNoSuchElementException",
        "PicklingError",
        # The function sends to a channel that cannot take its rows.
        "ConfigError",
        "PySparkTypeError",
        "PySparkValueError",
        "PySparkAttributeError",
        "PySparkNotImplementedError",
        "PySparkRuntimeError",
        "PySparkImportError",
        "ImportError",
        "NameError",
        "SyntaxError",
        "NotImplementedError",
        # A file, a socket or a database cannot be reached.
        "OSError",
        # Every database driver uses these names.
        "OperationalError",
        "InterfaceError",
    }
)
_BAD_DATA_TYPES = {
    "NumberFormatException",
    "ArithmeticException",
    "DateTimeException",
    "SparkRuntimeException",
}
_BAD_CODE_IN_PYTHON = re.compile(
    r"(\w+\.)*(ImportError|NameError|SyntaxError|NotImplementedError|"
    r"Connection\w*Error|TimeoutError|OperationalError|InterfaceError)\b"
)
"""The start of what ``reason_of`` returns for an error in the Python of an executor."""
_LACKS_A_MODULE = re.compile(r"(\w+\.)*ModuleNotFoundError\b")
"""The same if a package is missing, on an executor or in the function itself."""
_IN_A_TASK = re.compile(
    "Job aborted due to stage failure|TASK_WRITE_FAILED|java.lang.OutOfMemoryError|maxResultSize|"
    # toLocalIterator passes errors on unchanged.
    r"Caused by: org\.apache\.spark\."
    r"(Spark(Runtime|Arithmetic|NumberFormat|DateTime|ArrayIndexOutOfBounds)|api\.python\.Python)"
    "Exception"
)
_LOST_RECORDS = re.compile(r"Could not read records in offset \[\d+, \d+\) for topic partition \S+")


def looks_lost(error: BaseException) -> bool:
    """True if the driver may be gone.

    Ask the session then, because sockets of the function raise the same errors.
    """
    names = _names(error)
    text = _text_of(error)
    if "Py4JJavaError" not in names and names & _LOST_TYPES:
        return True
    # While a session stops, a job may fail with any error: INTERNAL_ERROR, a NullPointerException.
    if "Py4JJavaError" in names and not _IN_A_TASK.search(text):
        return True
    return any(known in text for known in _LOST_TEXTS)


def blame_for(error: BaseException) -> type[OffloadError]:
    """Judge an error of a job that was not cancelled, on a session that still works.

    Returns:
        BadDataError: Some of the records are bad. Smaller batches can show which ones.
        DataLossError: Records of a range are no longer in the log. Smaller ranges do not help.
        WorkerLostError: A process that ran a task has died. Once it is an accident, the second time
            it is bad data.
        ClusterError: The cluster is to blame. The batch runs again.
        UnfitExecutorsError: The executors cannot run the job, whatever its records are.
        OffloadError: The function, the sink or the source is to blame.
    """
    # These are ours, raised within the function.
    if isinstance(error, UnfitExecutorsError):
        return UnfitExecutorsError
    if isinstance(error, ClusterError | ChannelClosedError):
        return ClusterError
    text = _text_of(error)
    names = _names(error)
    if _NO_SUCH_PARTITION.search(text):
        return BadDataError
    is_of_spark = (
        "PySparkException" in names
        or "Py4JError" in names
        or type(error).__module__.startswith("grpc")
    )
    # The texts of the function's own errors prove nothing.
    if is_of_spark:
        for blame, texts in _TEXTS.items():
            if any(known in text for known in texts):
                return blame
    if _LACKS_A_MODULE.match(reason_of(error)):
        return UnfitExecutorsError
    # Check this before bad code: a NumberFormatException is an IllegalArgumentException, too.
    if names & _BAD_DATA_TYPES:
        return BadDataError
    if (
        names & _BAD_CODE_TYPES
        or "IllegalArgumentException" in names
        or _BAD_CODE_IN_PYTHON.match(reason_of(error))
    ):
        return BadCodeError
    # An error in the driver is the function's, an error in a task that of the records.
    if "Py4JError" in names and not _IN_A_TASK.search(text):
        return BadCodeError
    return BadDataError


def reason_of(error: BaseException) -> str:
    """Return an error in one line; the texts of Spark have pages of stack traces."""
    if isinstance(error, ConfigError):
        # The first line of its text has only the number of problems.
        return f"ConfigError: {'; '.join(error.problems)}"[:LONGEST_REASON]
    full_text = _text_of(error)
    lost = _LOST_RECORDS.search(full_text)
    if lost:
        return f"Kafka has lost records: {lost[0]}"
    lines = [line for line in full_text.split("JVM stacktrace:")[0].splitlines() if line.strip()]
    # An error raised on an executor says more than the names of Spark's wrappers around it.
    python_error = _python_error(lines)
    if python_error:
        return python_error[:LONGEST_REASON]
    if lines and lines[0].startswith("An error occurred while calling"):
        # The next line names the Java exception.
        lines = lines[1:]
    name = type(error).__name__
    text = lines[0].strip().removeprefix(": ") if lines else ""
    return f"{name}: {text}"[:LONGEST_REASON] if text else name


def _python_error(lines: list[str]) -> str | None:
    """Return the last line of the first Python traceback, the first one that is not indented."""
    starts = (
        number for number, line in enumerate(lines) if "Traceback (most recent call last)" in line
    )
    frames = lines[next(starts, len(lines)) + 1 :]
    return next((line.strip() for line in frames if not line[0].isspace()), None)


def _text_of(error: BaseException) -> str:
    """Return the error's text, or "" if the driver is gone: Py4J asks the driver for the text."""
    try:
        return str(error)
    except Exception:
        # The session reports a driver that is gone. The caller only wants to know what to blame.
        return ""


def _names(error: BaseException) -> frozenset[str]:
    return frozenset(kind.__name__ for kind in type(error).__mro__)
