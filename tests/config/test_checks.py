from __future__ import annotations

from typing import Any

import pytest

from tests.config.loading import incoming, only_problem, outgoing, unused

SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "u", "sasl.password": "canary"}
STORED = {"store": "sqlite:///offsets.db"}
REMOTE = {"bootstrap_servers": "broker:9092"}


class Tokens:
    async def token(self) -> str:
        return ""


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (incoming(ack="none"), 'ack = \'none\': ack = "none" needs commit_strategy = "ignore"'),
        (
            {"kafka": {"ack": "none"}} | incoming(),
            'ack = \'none\': ack = "none" needs commit_strategy = "ignore"',
        ),
        (incoming(topic="a", topics=["b"]), "topic and topics exclude each other; keep one"),
        (incoming(topics=["a"], pattern="b"), "topics and pattern exclude each other; keep one"),
        (incoming(topic="a", assign=["a:0"]), "topic and assign exclude each other; keep one"),
        (
            incoming(enable_auto_commit=True, commit_strategy="throttled"),
            "enable_auto_commit = true: leave one of them out: with enable_auto_commit the client commits, and "
            'commit_strategy = "throttled" would commit, too (with auto commits, commit_strategy is "ignore")',
        ),
        (
            incoming(**{"enable.auto.commit": True}, commit_strategy="a:b"),
            'commit_strategy = "a:b" would commit, too',
        ),
        (
            {"kafka": {"commit_strategy": "latest"}} | incoming(enable_auto_commit=True),
            'commit_strategy = "latest" would commit, too',
        ),
        (
            incoming(keep_out_of_order_acks=True, spark={"mode": "ranges"}),
            "a Spark batch is repeated as a whole, so there are no acks to keep",
        ),
        (
            incoming(commit_strategy="checkpoint"),
            "commit_strategy = 'checkpoint': needs checkpoint.store: the URL of a",
        ),
        ({"kafka": {"commit_strategy": "checkpoint"}} | incoming(), "needs checkpoint.store"),
        (
            incoming(
                commit_strategy="checkpoint", checkpoint=STORED | {"state": "a:B"}, ordering="key"
            ),
            'checkpoint.state = \'a:B\': states need ordering = "partition", and it is "key"',
        ),
        (
            incoming(
                keep_out_of_order_acks=True,
                commit_strategy="checkpoint",
                checkpoint=STORED | {"state": "a:B"},
            ),
            "so the state that it set would be lost",
        ),
        (
            incoming(commit_strategy="checkpoint", checkpoint=STORED | {"unsynced_max_age": "5s"}),
            "checkpoint.unsynced_max_age (5 s) is not above commit_interval (5 s), so the channel would never be ready",
        ),
        (
            incoming(assign=["a:0"], consumers=2),
            "leave consumers at 1: with assign, several would each read the same records",
        ),
        (
            incoming(max_in_flight=3, consumers=4),
            "max_in_flight = 3: max_in_flight (3) is divided among the consumers (4), so at least one could never read",
        ),
        (incoming(restart={"backoff": "2m"}), "restart.backoff is longer than restart.max_backoff"),
        (incoming(retry={"backoff": "11s"}), "retry.backoff is longer than retry.max_backoff"),
        (
            incoming(retry={"max_backoff": "100ms"}),
            "retry.backoff is longer than retry.max_backoff",
        ),
        (
            incoming(max_in_flight=10, batch_max_records=11),
            "max_in_flight is below batch_max_records",
        ),
        (
            incoming(max_in_flight=49_999, spark={}),
            "max_in_flight is below spark.batch_max_records (50000)",
        ),
        (incoming(max_in_flight=9, concurrency=10), "concurrency is above max_in_flight (9)"),
        (
            incoming(session_timeout_ms=3000, heartbeat_interval_ms=3000),
            "a heartbeat every 3000 ms cannot keep a session of 3000 ms alive",
        ),
        (incoming(heartbeat_interval_ms=45_000), "cannot keep a session of 45000 ms alive"),
        (incoming(revoke_grace="1m"), "the group waits 60000 ms for a revocation"),
        (incoming(rebalance_timeout_ms=5000), "the group waits 5000 ms for a revocation"),
        (outgoing(acks=1, enable_idempotence=True), 'enable.idempotence needs acks = "all"'),
        (incoming(**SASL, **REMOTE), "SASL PLAIN without TLS sends the password in clear text"),
        (incoming(**SASL, bootstrap_servers="localhost:1,10.0.0.1:2"), "SASL PLAIN without TLS"),
        (
            incoming(**{"security.protocol": "SASL_SSL"}),
            "PLAIN needs sasl_plain_username and sasl_plain_password",
        ),
        (
            incoming(
                **{
                    "security.protocol": "SASL_SSL",
                    "sasl.mechanism": "SCRAM-SHA-256",
                    "sasl.username": "u",
                }
            ),
            "SCRAM-SHA-256 needs sasl_plain_password",
        ),
        (
            incoming(**{"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}),
            "OAUTHBEARER needs sasl_oauth_token_provider",
        ),
        (
            incoming(**{"sasl.username": "u", "sasl.password": "canary"}),
            "no effect while security.protocol is PLAINTEXT",
        ),
        (
            incoming(**{"ssl.ca.location": "ca.pem"}),
            "no effect while security.protocol is PLAINTEXT",
        ),
        (
            incoming(**{"security.protocol": "SSL", "ssl.key.location": __file__}),
            "a key needs its certificate",
        ),
    ],
)
def test_a_contradiction_is_one_problem(tables: dict[str, Any], said: str) -> None:
    line = only_problem(tables)
    assert said in line
    assert "canary" not in line


@pytest.mark.parametrize(
    "tables",
    [
        incoming(ack="none", commit_strategy="ignore"),
        incoming(commit_strategy="checkpoint", checkpoint=STORED),
        incoming(commit_strategy="checkpoint", checkpoint=STORED, ordering="key"),
        incoming(commit_strategy="checkpoint", checkpoint=STORED | {"unsynced_max_age": 0}),
        {"kafka": {"checkpoint": STORED}} | incoming(),
        {"kafka": {"checkpoint": STORED}} | incoming(commit_strategy="checkpoint"),
        {
            "kafka": {"group_id": None},
            "incoming": {
                "a": {"assign": ["t:0"], "commit_strategy": "checkpoint", "checkpoint": STORED}
            },
        },
        incoming(ack="none", enable_auto_commit=True),
        incoming(ack="manual", enable_auto_commit=True),
        incoming(enable_auto_commit=True, commit_strategy="ignore"),
        incoming(enable_auto_commit=False, commit_strategy="throttled"),
        incoming(commit_strategy="latest", commit_latest_unsafe=True),
        incoming(ordering="key", key="header:tenant", commit_strategy="latest"),
        {"kafka": {"on_poison": "pause-partition"}} | incoming(commit_strategy="ignore"),
        {"kafka": {"on_poison": "dead-letter-queue"}} | incoming(enable_auto_commit=True),
        incoming(consumers=4, max_in_flight=4),
        incoming(consumers=5000),
        incoming(retry={"backoff": "20s", "max_backoff": "20s", "max_attempts": 2}),
        # The window grows with the batch as long as nobody sets it.
        incoming(batch_max_records=2000),
        incoming(spark={"batch_max_records": 10**6}),
        incoming(max_in_flight=10),
        # The window grows with it.
        incoming(concurrency=10_000),
        {"kafka": {"batch_max_records": 100}} | incoming(max_in_flight=10),
        incoming(max_in_flight=50_000, spark={}),
        incoming(session_timeout_ms=6000),
        incoming(revoke_grace="2m", rebalance_timeout_ms=180_000),
        outgoing(enable_idempotence=True),
        outgoing(acks=0),
        incoming(**SASL),
        incoming(**SASL, bootstrap_servers="127.0.0.2:1,[::1]:2,localhost"),
        incoming(**SASL, bootstrap_servers="embedded"),
        incoming(**SASL, **REMOTE, **{"sasl.mechanism": "SCRAM-SHA-512"}),
        {"kafka": {"allow_insecure_sasl": True}} | incoming(**SASL, **REMOTE),
        incoming(**SASL | {"security.protocol": "SASL_SSL"}, **REMOTE),
        incoming(
            **{"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"},
            sasl_oauth_token_provider=Tokens(),
        ),
    ],
)
def test_what_only_looks_like_a_contradiction_is_fine(tables: dict[str, Any]) -> None:
    assert unused(tables) == []


def test_a_contradiction_in_kafka_is_told_once_for_all_channels() -> None:
    """Row S2 of the faults."""
    line = only_problem(
        {
            "kafka": {"group_id": "g", **SASL, **REMOTE},
            "incoming": {"a": {}, "b": {}},
            "outgoing": {"c": {}},
        }
    )
    assert line.startswith("code: [kafka] security.protocol = 'SASL_PLAINTEXT': SASL PLAIN")


def test_a_contradiction_between_kafka_and_a_channel_names_the_channel() -> None:
    line = only_problem(
        {"kafka": {"retry": {"max_backoff": "1s"}}} | incoming(retry={"backoff": "2s"})
    )
    assert line.endswith("(channel incoming.orders)")


def test_a_broken_value_is_not_reported_as_a_contradiction_too() -> None:
    assert "expected a duration" in only_problem(
        incoming(retry={"backoff": "11s", "max_backoff": "soon"})
    )
    assert "sasl.jaas.config" in only_problem(
        incoming(**{"security.protocol": "SASL_SSL", "sasl.jaas.config": "canary"})
    )
