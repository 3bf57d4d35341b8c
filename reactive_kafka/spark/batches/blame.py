"""What is to blame for the failure of a Spark job, by the error's types, condition and text. Pure."""

from __future__ import annotations

import re
from enum import Enum, auto

from reactive_kafka.spark.batches.batch import reason_of as words_of


class Blame(Enum):
    """What made a job fail."""

    BAD_DATA = auto()  # some of the records: smaller batches can show which
    BAD_CODE = auto()  # the function, the sink or the source: it would fail for every record
    DATA_LOSS = auto()  # records of a range are no longer in the log: smaller ranges do not help
    WORKER_LOST = auto()  # a process that ran a task died: an accident once, bad data the second time
    CLUSTER = auto()  # not the batch: it runs again


_LOST_TYPES = frozenset({"ConnectionError", "EOFError", "Py4JNetworkError", "Py4JError", "RpcError"})
_LOST_TEXTS = (
    "SparkContext was shut down",
    "Cannot call methods on a stopped SparkContext",
    "'NoneType' object has no attribute 'sc'",  # of a session whose context was stopped
    "'NoneType' object has no attribute 'setLocalProperty'",
    "INVALID_HANDLE.SESSION_",
    "[NO_ACTIVE_SESSION]",
    "StatusCode.UNAVAILABLE",
    "failed to connect to all addresses",
)
_CLUSTER_TEXTS = (
    "PYTHON_VERSION_MISMATCH",
    "Python in worker has different version",
    "Cannot run program",  # no Python at all where the executors are
    "Python worker failed to connect back",
    "All masters are unresponsive",
    "Master removed our application",
    "Application has been killed",
    "org.apache.kafka.common.errors.TimeoutException",  # executors did not reach Kafka
    "org.apache.kafka.common.errors.DisconnectException",
    "java.util.concurrent.TimeoutException: Cannot fetch record for offset",
)
_DATA_LOSS_TEXTS = ("KafkaIllegalStateException", "KAFKA_DATA_LOSS", "OffsetOutOfRangeException")
_WORKER_TEXTS = ("Python worker exited unexpectedly", "ExecutorLostFailure", "FetchFailed")
_BAD_CODE_TEXTS = (
    "org.apache.kafka.common.errors.",  # rights, certificates
    "SPARK_JOB_CANCELLED",  # by the function itself: the jobs that we cancel are not judged
    "OPERATION_CANCELED",
    "java.net.ConnectException",  # a sink that is away
    "java.net.UnknownHostException",
    "java.net.SocketTimeoutException",
    "No space left on device",
    "Mkdirs failed to create",
    "AccessControlException",
)
_BAD_CODE_TYPES = frozenset(
    {
        "AnalysisException",
        "ParseException",
        "UnsupportedOperationException",
        "SparkNoSuchElementException",
        "PicklingError",
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
        "OSError",  # a file, a socket, a database that is away
        "OperationalError",  # the name in every database driver
        "InterfaceError",
    }
)
_BAD_DATA_TYPES = frozenset(
    {"NumberFormatException", "ArithmeticException", "DateTimeException", "SparkRuntimeException"}
)
_BAD_CODE_IN_PYTHON = re.compile(
    r"(\w+\.)*(ModuleNotFoundError|ImportError|NameError|SyntaxError|NotImplementedError|"
    r"Connection\w*Error|TimeoutError|OperationalError|InterfaceError)\b"
)
"""The start of the line that ``reason_of`` makes of an error in an executor's Python."""
_IN_A_TASK = re.compile(
    "Job aborted due to stage failure|TASK_WRITE_FAILED|java.lang.OutOfMemoryError|maxResultSize|"
    r"Caused by: org\.apache\.spark\."  # toLocalIterator passes errors on as they are
    r"(Spark(Runtime|Arithmetic|NumberFormat|DateTime|ArrayIndexOutOfBounds)|api\.python\.Python)Exception"
)
_LOST_RECORDS = re.compile(r"Could not read records in offset \[\d+, \d+\) for topic partition \S+")


def looks_lost(error: BaseException) -> bool:
    """Whether the driver may be gone. The session has to be asked: a function's own sockets raise the same errors."""
    names = _names(error)
    if "Py4JJavaError" not in names and names & _LOST_TYPES:
        return True
    return any(text in str(error) for text in _LOST_TEXTS)


def blame_for(error: BaseException) -> Blame:
    """Judge an error of a function or of Spark. The session lives on, and the job was not cancelled."""
    text, names = str(error), _names(error)
    if _is_sparks(error, names):
        for texts, blame in (
            (_CLUSTER_TEXTS, Blame.CLUSTER),
            (_DATA_LOSS_TEXTS, Blame.DATA_LOSS),
            (_WORKER_TEXTS, Blame.WORKER_LOST),
            (_BAD_CODE_TEXTS, Blame.BAD_CODE),
        ):
            if any(known in text for known in texts):
                return blame
    if names & _BAD_DATA_TYPES:  # before bad code: a NumberFormatException is an IllegalArgumentException, too
        return Blame.BAD_DATA
    if names & _BAD_CODE_TYPES or _BAD_CODE_IN_PYTHON.match(words_of(error)):
        return Blame.BAD_CODE
    if "IllegalArgumentException" in names:
        return Blame.BAD_CODE
    if "Py4JError" in names:  # in the driver it is the function's own doing, in a task the records'
        return Blame.BAD_DATA if _IN_A_TASK.search(text) else Blame.BAD_CODE
    return Blame.BAD_DATA


def reason_of(error: BaseException) -> str:
    """The error in one line; lost records are named by their range."""
    lost = _LOST_RECORDS.search(str(error))
    return f"Kafka has lost records: {lost[0]}" if lost else words_of(error)


def _names(error: BaseException) -> frozenset[str]:
    return frozenset(one.__name__ for one in type(error).__mro__)


def _is_sparks(error: BaseException, names: frozenset[str]) -> bool:
    """Whether Spark raised it: texts of a function's own errors mean nothing."""
    return "PySparkException" in names or "Py4JError" in names or type(error).__module__.startswith("grpc")
