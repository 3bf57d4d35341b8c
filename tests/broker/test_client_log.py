"""What aiokafka logs: each of its lines is told by an event of ours, or stays in the log, once a
second at most.
"""

from __future__ import annotations

import ast
import itertools
import logging
from collections.abc import Iterator
from pathlib import Path

import aiokafka
import pytest

import reactive_kafka.events
from reactive_kafka.broker.aiokafka.client_log import (
    COVERED_BY_EVENTS,
    LOGGERS,
    QuietFilter,
    as_ours,
)

SOURCE = Path(aiokafka.__file__).parent
LEVELS = {"warning", "warn", "error", "exception", "critical", "fatal", "log"}

BUGS_OF_THE_CLIENT = (
    "A cycle of length %d was found: %r",
    "Could not parse member data: %r",
    "Expected more than one potential consumer for partition %r",
    "Expected partition %r to be assigned to a consumer",
    "Partition %r is assigned to more than one consumer",
    "Partition %r is assigned to multiple consumers following sticky assignment generation %d",
    "Stickiness is violated for topic %r\nPartition movements for this topic occurred among the following consumer "
    "pairs:\n%r",
    "The consumer %r is assigned more partitions than the maximum possible",
    "Unexpected error in coordinator routine",
    "Unexpected error in fetcher routine",
    "Unexpected error in sender routine",
)
"""Somebody has to hear of these: they tell more than our events."""
ANSWERS_THAT_END_A_REQUEST = (
    "'%s' is not a valid topic name",
    "Attempt to fetch offsets for partition %s failed due to: %s",
    "Could not add consumer group due to unexpected error: %s",
    "Could not add partition %s due to unexpected error: %s",
    "Could not commit offset for partition %s due to unexpected error: %s",
    "Could not end transaction due to unexpected error: %s",
    "Error fetching metadata for topic %s: %s",
    "FindCoordinator Request failed: %s",
    "Heartbeat failed: %r",
    "LeaveGroup request failed: %s",
    "No broker metadata found in MetadataResponse -- ignoring.",
    "Received unknown topic or partition error in ListOffset request for partition %s. The topic/partition may not "
    "exist or the user may not have Describe access to it.",
    "Unexpected error during InitProducerIdRequest: %s",
    "Unexpected error from SyncGroup: %s",
    "Unexpected error in join group '%s' response: %s",
    "Unexpected error while fetching data: %s",
    "Unknown error fetching offsets for %s: %s",
)
"""Answers that are rare, and that brokers give for reasons of many kinds: the line has the code
next to the request.
"""
SETTINGS = (
    "Unrecognized ``auto_offset_reset`` config, using NONE",
    "client_rack is set to %r but broker only supports FetchRequest v%d (v11+ required for KIP-392 rack-aware "
    "fetching). The consumer will fall back to fetching from the partition leader.",
)
"""What is odd about the configuration, or about the broker that it names."""
NOT_USED_BY_US = (
    "Auto offset commit failed: %s",
    "Failed to commit on finallization: %s",
    "Kafka 0.8.2 quirk -- FindCoordinatorResponse correlation id does not match request. This should go away once at "
    "least one topic has been initialized on the broker",
    "OffsetCommit failed before join, ignoring: %s",
    "OffsetCommit failed for group %s - %s",
    "OffsetCommit failed for group %s due to group error (%s), will rejoin",
    "OffsetCommit failed for group %s on partition %s with offset %s: %s",
    "OffsetCommit failed for unauthorized topics %s",
    "OffsetFetchRequest -- unknown topic %s",
    "Sending username and password in the clear",
    'Unable connect to "%s:%s": %s',
    "Unable connect to node with id %s: %s",
    'Unable to request metadata from "%s:%s": %s',
    "Unable to request metadata from node with id %s: %r",
    "Unable to update metadata from %s",
    "Unexpected exception in AIOKafkaConnection",
    "User provided listener %s for group %s failed on partition assignment: %s",
    "User provided subscription listener %s for group %s failed on_partitions_revoked",
    "error in consumer iterator: %s",
    "socket.inet_pton not available on this platform. consider `pip install win_inet_pton`",
)
"""We connect, commit, ask for positions and iterate by ourselves, and our listener raises nothing."""
SINCE_0_15 = (
    "Attempt to join group %s failed: group.instance.id %s is now owned by another member. This consumer has been "
    "fenced and must be restarted.",
    "Heartbeat failed for group %s: group.instance.id %s is now owned by another member. This consumer has been "
    "fenced and must be restarted.",
    "Producer metrics collector callback failed",
    "SyncGroup for group %s failed: group.instance.id %s is now owned by another member. This consumer has been "
    "fenced and must be restarted.",
)
"""Of its own membership and its callbacks for metrics. We use neither."""
LOGGERS_SINCE_0_15 = {"aiokafka.producer.message_accumulator"}
IS_0_14 = aiokafka.__version__.startswith("0.14.")
STAYS = {
    *BUGS_OF_THE_CLIENT,
    *ANSWERS_THAT_END_A_REQUEST,
    *SETTINGS,
    *NOT_USED_BY_US,
    *(() if IS_0_14 else SINCE_0_15),
}


def logging_calls(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in LEVELS
        ):
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id in ("log", "logger", "logging"):
                yield node


def lines_of_the_client() -> dict[str, str]:
    """What it logs as a warning or worse -> where."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for call in logging_calls(ast.parse(path.read_text())):
            line, where = call.args[0], f"{path.relative_to(SOURCE)}:{call.lineno}"
            assert isinstance(line, ast.Constant), f"{where} logs something that is no text"
            assert isinstance(line.value, str), f"{where} logs something that is no text"
            found[line.value] = where
    return found


def loggers_of_the_client() -> set[str]:
    """The names of the loggers that its modules make."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("getLogger"):
                module = ".".join(("aiokafka", *path.relative_to(SOURCE).with_suffix("").parts))
                name = node.args[0]
                found.add(name.value if isinstance(name, ast.Constant) else module)
    return found


def is_told(line: str) -> bool:
    return line.startswith(tuple(COVERED_BY_EVENTS))


def test_each_line_of_the_client_is_told_by_us_or_stays_and_that_is_decided_for_none_that_is_gone() -> (
    None
):
    lines = lines_of_the_client()
    assert {
        line: where for line, where in lines.items() if not is_told(line) and line not in STAYS
    } == {}
    assert [line for line in STAYS if line not in lines] == []
    assert [line for line in STAYS if is_told(line)] == []
    assert [
        start for start in COVERED_BY_EVENTS if not any(line.startswith(start) for line in lines)
    ] == []


@pytest.mark.parametrize("start", COVERED_BY_EVENTS)
def test_what_is_silenced_names_events_that_there_are(start: str) -> None:
    names = COVERED_BY_EVENTS[start].split()
    assert names
    assert [name for name in names if not hasattr(reactive_kafka.events, name)] == []


def test_each_logger_of_the_client_has_the_filter() -> None:
    missing = LOGGERS_SINCE_0_15 if IS_0_14 else set()
    assert loggers_of_the_client() == set(LOGGERS) - missing
    for name in LOGGERS:
        assert [type(one) for one in logging.getLogger(name).filters].count(QuietFilter) == 1, name


PLACES = itertools.count()
"""Numbers of lines in the client's code: one passes once a second."""


def logged(name: str, line: str, *, times: int = 1) -> list[logging.LogRecord]:
    """What passes of a line that the client logs as a warning, with DEBUG off."""
    passed = list[logging.LogRecord]()

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            passed.append(record)

    logger, noting = logging.getLogger(name), Noting()
    logger.addHandler(noting)
    try:
        place = next(PLACES)
        for _ in range(times):
            logger.handle(
                logger.makeRecord(name, logging.WARNING, "client.py", place, line, (), None)
            )
    finally:
        logger.removeHandler(noting)
    return passed


@pytest.mark.parametrize("line", [line for line in lines_of_the_client() if is_told(line)])
def test_a_line_that_we_tell_is_not_in_the_log_of_our_clients(line: str) -> None:
    with as_ours():
        assert [record for name in LOGGERS for record in logged(name, line)] == []


def test_a_client_of_the_applications_own_logs_as_ever() -> None:
    (record,) = logged("aiokafka.producer.sender", "Got error produce response: %s")
    assert record.levelno == logging.WARNING


@pytest.mark.parametrize("name", LOGGERS)
def test_a_line_that_stays_is_there_once_a_second(name: str) -> None:
    with as_ours():
        assert len(logged(name, "Unexpected error in sender routine", times=100)) == 1
