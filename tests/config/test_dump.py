from __future__ import annotations

import ssl
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from reactive_kafka.config import keys
from reactive_kafka.config.dump import dump
from tests.config.loading import incoming, loaded, outgoing


def test_a_dump_says_what_is_in_effect_in_the_words_of_the_file() -> None:
    tables = incoming(
        commit_interval=0.5, spark={"batch_max_bytes": 2**20}, linger_ms=None, fetch_min_bytes=3
    )
    tables |= {"tracing": {"enabled": False}}
    assert dump(loaded({"kafka": {"bootstrap_servers": ["a:1", "b:2"]}} | tables)) == {
        "kafka": {"bootstrap_servers": "a:1,b:2"},
        "incoming": {
            "orders": {
                "topics": ["orders"],
                "group_id": "billing",
                "enabled": True,
                "auto_offset_reset": "latest",
                "on_recreated_topic": "beginning",
                "cloud_events": True,
                "commit_strategy": "throttled",
                "commit_latest_unsafe": False,
                "enable_auto_commit": False,
                "commit_interval": "500ms",
                "unprocessed_record_max_age": "1m",
                "on_poison": "fail",
                "failure_strategy": "fail",
                "on_unreadable": "wait",
                "max_unpacked_bytes": "256MiB",
                "ordering": "partition",
                "keyless": "ordered",
                "ack": "post",
                "keep_out_of_order_acks": False,
                "offset_metadata_cache": True,
                "offset_metadata_strategy": "current",
                "unmatched": "nack",
                "broadcast": False,
                "concurrency": 1,
                "consumers": 1,
                "batch_max_records": 500,
                "batch_max_wait": "1s",
                "drain_timeout": "30s",
                "revoke_grace": "5s",
                "stale_results": "send",
                "health_enabled": True,
                "ready": "assigned",
                "tracing_enabled": True,
                "spark": {"batch_max_bytes": "1MiB"},
                "bootstrap_servers": "a:1,b:2",
                "fetch_min_bytes": 3,
            }
        },
        "outgoing": {},
        "tracing": {"enabled": False},
        "spark": {"master": "local[*]", "conf": {}},
        "http": {"enabled": True, "host": "127.0.0.1", "port": 9000},
    }


def _values(name: str) -> st.SearchStrategy[object]:
    durations = st.floats(0.001, 1).map(lambda seconds: round(seconds, 3))
    strategies: dict[str, st.SearchStrategy[object]] = {
        "commit_interval": durations,
        "batch_max_wait": durations,
        "drain_timeout": durations,
        "revoke_grace": durations,
        "unprocessed_record_max_age": durations,
        "concurrency": st.integers(1, 500),
        "max_in_flight": st.integers(500, 10**6),
        "batch_max_records": st.integers(1, 500),
        "topics": st.lists(st.sampled_from("abc"), min_size=1, unique=True),
        "group_id": st.just("g"),
        "value_deserializer": st.sampled_from(["json", "a:b"]),
        "ordering": st.sampled_from(["partition", "key", "unordered"]),
        "on_poison": st.sampled_from(["fail", "warn", "pause-partition", "dead-letter-queue"]),
        "commit_strategy": st.sampled_from(["throttled", "latest", "ignore", "a.b:C"]),
        "failure_strategy": st.sampled_from(
            ["fail", "ignore", "dead-letter-queue", "delayed-retry-topic", "a:b"]
        ),
        "failure_routes": st.dictionaries(
            st.sampled_from(["ValueError", "TokenError", "some.module.Error"]),
            st.sampled_from(["ignore", "dead-letter-queue", "delayed-retry-topic"])
            | st.fixed_dictionaries(
                {"strategy": st.just("ignore"), "after_retries": st.booleans()}
            ),
        ),
        "filter_headers": st.dictionaries(
            st.sampled_from(["service", "X-Tenant", "cloud.events"]),
            st.sampled_from(["a", "", ["a", "b,c"]]),
        ),
        "retry": st.fixed_dictionaries(
            {"max_attempts": st.integers(2, 9), "jitter": st.sampled_from([0, 0.25, 1])},
            optional={"never": st.just(["ValueError"]), "only": st.just(["a.B", "KeyError"])},
        ),
        "consumers": st.integers(1, 500),
        "restart": st.fixed_dictionaries({"max_attempts": st.integers(0, 9), "backoff": durations}),
    }
    return strategies[name]


NAMES = [
    "commit_interval",
    "batch_max_wait",
    "drain_timeout",
    "revoke_grace",
    "unprocessed_record_max_age",
    "concurrency",
]
NAMES += [
    "max_in_flight",
    "batch_max_records",
    "topics",
    "value_deserializer",
    "ordering",
    "on_poison",
]
NAMES += ["commit_strategy", "failure_strategy", "failure_routes", "consumers", "restart", "retry"]
NAMES += ["filter_headers"]


@given(
    st.fixed_dictionaries(
        {"group_id": st.just("g")}, optional={name: _values(name) for name in NAMES}
    )
)
def test_a_dump_loads_again_as_the_same_settings(channel: dict[str, object]) -> None:
    if channel.get("commit_strategy") == "ignore":
        assume(channel.get("on_poison") not in ("pause-partition", "dead-letter-queue"))
    assert channel.keys() <= keys.INCOMING.keys.keys() | keys.INCOMING.tables
    tables = incoming(**channel) | outgoing(compression_type="none", acks="all")
    settings = loaded({"kafka": {"session_timeout_ms": 9000}} | tables)
    again = loaded(dump(settings))
    # They quote what was written.
    assert replace(again, warnings=()) == replace(settings, source="code", warnings=())


def test_what_a_channel_without_commits_inherits_in_vain_is_not_in_its_dump() -> None:
    shown = dump(
        loaded({"kafka": {"on_poison": "pause-partition"}} | incoming(commit_strategy="ignore"))
    )
    assert "on_poison" not in shown["incoming"]["orders"]
    loaded(shown)


def test_objects_from_code_show_as_their_type() -> None:
    settings = loaded(incoming(security_protocol="SSL", ssl_context=ssl.create_default_context()))
    assert dump(settings)["incoming"]["orders"]["ssl_context"] == "<SSLContext>"


def test_tables_of_failures_show_what_differs_from_the_channel_and_load_again() -> None:
    tables = incoming(
        failure_strategy="delayed-retry-topic",
        failure_routes={"TokenError": "dead-letter-queue"},
        dead_letter_queue={"linger.ms": 5, "client.id": "letters"},
        delayed_retry={"topics": ["o_5"], "timeout": "5m", "max.poll.records": 7},
        client_id="orders",
        fetch_min_bytes=3,
    )
    settings = loaded({"kafka": {"compression.type": "none"}} | tables)
    shown = dump(settings)
    orders = shown["incoming"]["orders"]
    assert orders["failure_routes"] == {"TokenError": "dead-letter-queue"}
    assert orders["dead_letter_queue"] == {
        "topic": "dead-letter-topic-orders",
        "client_id": "letters",
        "compression_type": "none",
        "linger_ms": 5,
    }
    assert orders["delayed_retry"] == {
        "topics": ["o_5"],
        "max_retries": 1,
        "timeout": "5m",
        "max_poll_records": 7,
    }
    assert loaded(shown) == settings


def test_a_pattern_or_partitions_stand_for_the_topics_and_load_again() -> None:
    spelled = ["t:0:100", "t:1:-1", "t:2@2026-11-21T00:00:00+00:00", "t.u:3"]
    for source in ({"pattern": "orders-.*"}, {"assign": spelled}):
        settings = loaded(incoming(**source))
        orders = dump(settings)["incoming"]["orders"]
        assert {
            name: orders[name] for name in ("topics", "pattern", "assign") if name in orders
        } == source
        assert loaded(dump(settings)) == settings


def test_a_store_is_shown_without_who_may_use_it() -> None:
    checkpoint = {"store": "postgresql+asyncpg://u:canary@db/offsets", "state": "models:Sum"}
    tables = dump(loaded(incoming(commit_strategy="checkpoint", checkpoint=checkpoint)))
    assert tables["incoming"]["orders"]["checkpoint"] == {
        "store": "postgresql+asyncpg://***@db/offsets",
        "state": "models:Sum",
        "unsynced_max_age": "10s",
        "kafka_commit_interval": "1m",
    }
