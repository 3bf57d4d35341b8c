"""Settings that have no effect beside the others are told, each in one line with its place, and
nothing is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.config.loading import incoming, loaded, only_problem, outgoing, unused, write

STORED = {"store": "sqlite:///offsets.db"}
SASL = {"sasl.username": "u", "sasl.password": "canary"}
LETTERS = (
    'has no effect: neither failure_strategy, nor a route, nor on_poison is "dead-letter-queue"'
)
RETRY = 'has no effect: neither failure_strategy nor a route is "delayed-retry-topic"'
LATEST = (
    'commit_latest_unsafe = true: has no effect: it goes with commit_strategy = "latest", and it is'
)
POISON = 'has no effect: with commit_strategy = "ignore" no record ever becomes poison'
CHECKPOINT = 'has no effect: it goes with commit_strategy = "checkpoint", and it is "throttled"'


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (
            incoming(limit="a") | {"limits": {"a": {"concurrency": 1}, "b": {"concurrency": 2}}},
            '[limits.b]: has no effect: no incoming channel has limit = "b"',
        ),
        (
            incoming(dead_letter_queue={"topic": "d"}),
            f"[incoming.orders] dead_letter_queue.topic = 'd': {LETTERS}",
        ),
        (incoming(dead_letter_queue={}), f"[incoming.orders.dead_letter_queue]: {LETTERS}"),
        (
            incoming(dead_letter_queue={"linger.ms": 5}),
            f"dead_letter_queue.linger.ms = 5: {LETTERS}",
        ),
        (
            incoming(failure_strategy="dead-letter-queue", delayed_retry={"max_retries": 5}),
            f"delayed_retry.max_retries = 5: {RETRY}",
        ),
        (
            incoming(group_protocol="consumer", session_timeout_ms=6000),
            'session_timeout_ms = 6000: has no effect: with group_protocol = "consumer" the broker decides',
        ),
        (
            incoming(**{"group.protocol": "consumer", "partition.assignment.strategy": "range"}),
            "partition.assignment.strategy = 'range': has no effect: with group_protocol",
        ),
        (
            incoming(assign=["orders:0:0"], group_instance_id="a"),
            "group_instance_id = 'a': has no effect: with assign the channel joins no group",
        ),
        (
            incoming(assign=["orders:*"], **{"session.timeout.ms": 9000}),
            "session.timeout.ms = 9000: has no effect: with assign the channel joins no group",
        ),
        (
            incoming(assign=["orders:0:0"], **{"rebalance.timeout.ms": 10_000}),
            "rebalance.timeout.ms = 10000: has no effect: with assign the channel joins no group",
        ),
        (
            incoming(assignor="range"),
            "assignor = 'range': has no effect: it goes with group_protocol = \"consumer\"",
        ),
        (incoming(commit_latest_unsafe=True), f'{LATEST} "throttled"'),
        (incoming(commit_latest_unsafe=True, enable_auto_commit=True), f'{LATEST} "ignore"'),
        (
            incoming(keep_out_of_order_acks=True, commit_strategy="ignore"),
            "keep_out_of_order_acks = true: has no effect: kept acks are stored with a committed position",
        ),
        (
            incoming(commit_strategy="ignore", commit_interval="1s"),
            "commit_interval = '1s': has no effect: with commit_strategy = \"ignore\" nothing is committed",
        ),
        (
            incoming(enable_auto_commit=True, max_uncommitted=5000),
            'max_uncommitted = 5000: has no effect: with commit_strategy = "ignore" nothing is committed',
        ),
        (
            incoming(commit_every=100, commit_strategy="latest"),
            'commit_every = 100: has no effect: commit_strategy = "latest" commits at each ack',
        ),
        (
            incoming(commit_every=100, enable_auto_commit=True),
            'commit_every = 100: has no effect: commit_strategy = "ignore" commits nothing',
        ),
        (
            incoming(commit_every=100, commit_strategy="os:getcwd"),
            '"os:getcwd" decides itself when to commit',
        ),
        (
            incoming(concurrency_per_partition=5, concurrency=9),
            'concurrency_per_partition = 5: has no effect: with ordering = "partition" one handler of a partition',
        ),
        (
            incoming(keyless="unordered"),
            'keyless = \'unordered\': has no effect: it goes with ordering = "key", and it is "partition"',
        ),
        (
            incoming(concurrency_per_partition=5, ordering="unordered", spark={}),
            "5: has no effect: it limits handlers",
        ),
        (
            incoming(attempt_timeout="5m"),
            "attempt_timeout = '5m': has no effect: a record is poison before its attempt has taken so long",
        ),
        (
            incoming(attempt_timeout="5m", spark={}, unprocessed_record_max_age=0),
            "attempt_timeout = '5m': has no effect: it limits handlers, and a Spark job is limited by spark.timeout",
        ),
        (incoming(checkpoint=STORED), CHECKPOINT),
        (
            incoming(key="header:tenant"),
            'key = \'header:tenant\': has no effect: it goes with ordering = "key", and it is "partition"',
        ),
        (incoming(key="a:b", ordering="unordered"), 'and it is "unordered"'),
        (
            incoming(on_poison="dead-letter-queue", unprocessed_record_max_age=0),
            "on_poison = 'dead-letter-queue': has no effect: unprocessed_record_max_age = 0 turns off the watch",
        ),
        (
            incoming(on_poison="warn", unprocessed_record_max_age=0),
            "on_poison = 'warn': has no effect: unprocessed_record_max_age = 0 turns off the watch",
        ),
        (incoming(on_poison="dead-letter-queue", commit_strategy="ignore"), POISON),
        (incoming(on_poison="warn", commit_strategy="ignore"), f"on_poison = 'warn': {POISON}"),
        (
            incoming(unprocessed_record_max_age="5s", commit_strategy="ignore"),
            f"unprocessed_record_max_age = '5s': {POISON}",
        ),
        (incoming(on_poison="pause-partition", enable_auto_commit=True), POISON),
        (
            {"kafka": {"commit_strategy": "ignore"}} | incoming(on_poison="pause-partition"),
            "(channel incoming.orders)",
        ),
        (
            {"kafka": {"commit_strategy": "ignore", "on_poison": "pause-partition"}} | incoming(),
            "[kafka] on_poison = 'pause-partition': ",
        ),
        (
            incoming(**SASL, security_protocol="PLAINTEXT"),
            "sasl.username = 'u': has no effect: security.protocol is PLAINTEXT, which has no SASL",
        ),
        (outgoing(**SASL, security_protocol="SSL"), "security.protocol is SSL, which has no SASL"),
        (
            incoming(revoke_grace="55s"),
            "revoke_grace = '55s': raise rebalance.timeout.ms, or lower revoke_grace: a revocation needs "
            "heartbeat_interval_ms (2 s) + revoke_grace (55 s) + the last commit (5 s) + the join (1 s) = 63 s, and "
            "the group waits rebalance_timeout_ms (60 s), so handlers get less",
        ),
        (
            incoming(rebalance_timeout_ms=10_000),
            "rebalance_timeout_ms = 10000: raise rebalance.timeout.ms, or lower revoke_grace: a revocation needs ",
        ),
        (
            incoming(**{"rebalance.timeout.ms": 12_999}),
            "+ revoke_grace (5 s) + the last commit (5 s) + the join (1 s)",
        ),
        (
            incoming(heartbeat_interval_ms=50_000, session_timeout_ms=60_000),
            "heartbeat_interval_ms (50 s) + ",
        ),
        (
            incoming(enable_auto_commit=True, rebalance_timeout_ms=16_000),
            "+ the second commit to Kafka (5 s) + the join (1 s) = 18 s",
        ),
        (
            incoming(spark={}, drain_timeout="53s"),
            "+ drain_timeout (53 s) + the last commit (5 s) + ",
        ),
        (
            outgoing(ssl_capath="/etc/ssl", security_protocol="PLAINTEXT"),
            "is PLAINTEXT, which has no TLS",
        ),
        (
            incoming(retry={"backoff": "1s", "max_attempts": 1}),
            "retry.backoff = '1s': has no effect without retry= of a decorator: retry.max_attempts = 1 is one call, "
            "and no wait",
        ),
        (
            incoming(retry={"max_backoff": "1m"}),
            "retry.max_backoff = '1m': has no effect without retry= of a decorator: retry.max_attempts = 1 is",
        ),
        (
            incoming(restart={"backoff": "3s"}),
            "restart.backoff = '3s': has no effect: with restart.max_attempts = 0 a failed channel stays stopped",
        ),
        (
            incoming(spark={"mode": "ranges", "batch_max_bytes": "1MiB"}),
            "spark.batch_max_bytes = '1MiB': has no effect: with spark.mode = \"ranges\" no bytes are counted",
        ),
        (
            incoming() | {"http": {"enabled": False, "port": 9100, "token": "canary"}},
            "[http] port = 9100: has no effect: enabled = false",
        ),
    ],
)
def test_what_has_no_effect_is_told_and_refuses_nothing(tables: dict[str, Any], said: str) -> None:
    (line,) = unused(tables)
    assert line.startswith("code: ")
    assert said in line
    assert "canary" not in line


def test_a_variable_that_switches_a_strategy_leaves_its_table_where_it_is(tmp_path: Path) -> None:
    text = """\
[incoming.orders]
group_id = "g"
failure_strategy = "dead-letter-queue"
dead_letter_queue = { topic = "letters" }
commit_strategy = "checkpoint"
checkpoint = { store = "sqlite:///offsets.db" }
"""
    file, variable = write(tmp_path, "a.toml", text), "REACTIVE_KAFKA__INCOMING__ORDERS__"
    assert unused(file) == []
    switched = {variable + "FAILURE_STRATEGY": "fail", variable + "COMMIT_STRATEGY": "throttled"}
    assert unused(file, switched) == [
        f"{file}, line 4: [incoming.orders] dead_letter_queue.topic = 'letters': {LETTERS}",
        f"{file}, line 6: [incoming.orders] checkpoint.store = '{STORED['store']}': {CHECKPOINT} "
        "(channel incoming.orders)",
    ]
    channel = loaded(file, switched).incoming["orders"]
    assert (channel.dead_letter_queue, channel.checkpoint) == (None, None)


@pytest.mark.parametrize(
    "tables",
    [
        incoming(commit_strategy="latest", commit_interval="1s", max_uncommitted=5000),
        incoming(
            assign=["orders:0:0"],
            failure_strategy="delayed-retry-topic",
            group_instance_id="a",
        ),
        {"kafka": {"group.instance.id": "a"}} | incoming(assign=["orders:0:0"]),
        incoming(enable_auto_commit=True, commit_interval="1s"),
        incoming(
            commit_strategy="ignore",
            commit_interval="1s",
            failure_routes={"ValueError": "delayed-retry-topic"},
        ),  # the client of retries commits
        incoming(commit_strategy="ignore", unprocessed_record_max_age=0),
        incoming(
            commit_strategy="ignore", unprocessed_record_max_age="5s", restart={"max_attempts": 1}
        ),
        {"kafka": {"unprocessed_record_max_age": "5s", "commit_interval": "1s"}}
        | incoming(commit_strategy="ignore"),
        {"kafka": {"retry": {"max_attempts": 3}}} | incoming(retry={"backoff": "1s"}),
        {"kafka": {"restart": {"backoff": "3s"}, "retry": {"backoff": "1s"}}} | incoming(),
        incoming(
            commit_strategy="ignore",
            commit_interval="5s",
            on_poison="fail",
            unprocessed_record_max_age=60,
            restart={"backoff": "1s", "max_attempts": 0},
            retry={"max_attempts": 1, "backoff": "200ms"},
        ),
        # app.asgi has them.
        incoming() | {"http": {"enabled": False, "token": "x", "hosts": ["a"]}},
    ],
)
def test_what_has_an_effect_or_is_said_of_all_channels_is_not_told(tables: dict[str, Any]) -> None:
    assert unused(tables) == []


@pytest.mark.parametrize(
    "tables",
    [
        incoming(),
        incoming(rebalance_timeout_ms=14_000),
        incoming(revoke_grace="51s"),
        incoming(rebalance_timeout_ms=6_000, revoke_grace="200ms", heartbeat_interval_ms=100),
        incoming(drain_timeout="10m"),
    ],
)
def test_what_a_revocation_has_time_for_is_not_told(tables: dict[str, Any]) -> None:
    assert unused(tables) == []


def test_kept_acks_that_nothing_would_store_are_not_kept() -> None:
    tables = incoming(keep_out_of_order_acks=True, commit_strategy="ignore")
    assert not loaded(tables).incoming["orders"].keep_out_of_order_acks


def test_what_is_wrong_in_itself_is_a_problem_whether_it_is_used_or_not() -> None:
    assert "not a topic" in only_problem(incoming(dead_letter_queue={"topic": "not a topic"}))
    assert "expected" in only_problem(incoming(checkpoint={"store": "nonsense"}))


def test_credentials_without_any_protocol_stay_a_problem() -> None:
    assert "no effect while security.protocol is PLAINTEXT" in only_problem(incoming(**SASL))
