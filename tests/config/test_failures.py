from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactive_kafka.config.dump import dump
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.config.tables import DeadLetterSettings, DelayedRetrySettings
from tests.config.loading import incoming, loaded, only_problem, problems, write

CLIENT = {"bootstrap_servers": "localhost:9092"}
LETTERS, RETRY = (
    {"failure_strategy": "dead-letter-queue"},
    {"failure_strategy": "delayed-retry-topic"},
)
VARIABLE = "REACTIVE_KAFKA__INCOMING__ORDERS__"


def channel(tables: Any = None, environ: Any = None, **keys: Any) -> IncomingSettings:
    return loaded((tables or {}) | incoming(**keys), environ).incoming["orders"]


def letters(tables: Any = None, **keys: Any) -> DeadLetterSettings:
    settings = channel(tables, **keys).dead_letter_queue
    assert settings is not None
    return settings


def retry(tables: Any = None, **keys: Any) -> DelayedRetrySettings:
    settings = channel(tables, **keys).delayed_retry
    assert settings is not None
    return settings


# -- what is there


@pytest.mark.parametrize(
    ("keys", "has_letters", "has_retry"),
    [
        ({}, False, False),
        ({"failure_strategy": "ignore", "failure_routes": {"ValueError": "fail"}}, False, False),
        (LETTERS, True, False),
        (RETRY, True, True),
        ({"on_poison": "dead-letter-queue"}, True, False),
        ({"failure_routes": {"ValueError": "dead-letter-queue"}}, True, False),
        ({"failure_routes": {"ValueError": "delayed-retry-topic"}}, True, True),
        ({"failure_strategy": "my:strategy"}, False, False),
        ({"failure_strategy": "my:strategy", "dead_letter_queue": {}}, True, False),
        ({"failure_strategy": "my:strategy", "dead_letter_queue": {"topic": "d"}}, True, False),
        (
            {"failure_routes": {"ValueError": "my:strategy"}, "delayed_retry": {"max_retries": 1}},
            False,
            True,
        ),
    ],
)
def test_dead_letters_and_retries_are_set_up_where_they_are_needed(
    keys: dict[str, Any], has_letters: bool, has_retry: bool
) -> None:
    settings = channel(**keys)
    assert (settings.dead_letter_queue is not None, settings.delayed_retry is not None) == (
        has_letters,
        has_retry,
    )


def test_a_custom_strategy_gets_the_dead_letters_that_all_channels_have() -> None:
    tables = {"kafka": {"dead_letter_queue": {"topic": "all-dead"}}}
    assert letters(tables, failure_strategy="my:strategy").topic == "all-dead"
    assert channel(tables).dead_letter_queue is None


def test_topics_and_limits_come_from_the_channels_name_where_nothing_is_said() -> None:
    assert letters(**LETTERS) == DeadLetterSettings(topic="dead-letter-topic-orders", client=CLIENT)
    assert retry(**RETRY) == DelayedRetrySettings(
        topics=("orders_retry_10000", "orders_retry_20000", "orders_retry_50000"),
        max_retries=3,
        client=CLIENT,
    )
    assert retry(**RETRY, delayed_retry={"topics": ["a_1", "b_2"]}).max_retries == 2
    assert retry(**RETRY, delayed_retry={"topics": ["a_1"], "max_retries": 4}).max_retries == 4


def test_a_window_that_nobody_set_grows_with_concurrency() -> None:
    assert channel(concurrency=10_000).max_in_flight == 20_000
    assert channel(concurrency=500).max_in_flight == 1000
    assert channel(consumers=1500).max_in_flight == 1500
    assert channel(concurrency=10_000, max_in_flight=10_000).max_in_flight == 10_000


def test_auto_commits_make_the_strategy_ignore_where_none_was_given() -> None:
    assert channel(enable_auto_commit=True).commit_strategy == "ignore"
    assert channel(**{"enable.auto.commit": True}).enable_auto_commit
    assert channel({"kafka": {"enable.auto.commit": True}}).commit_strategy == "ignore"
    assert (
        channel({"kafka": {"enable.auto.commit": True}}, enable_auto_commit=False).commit_strategy
        == "throttled"
    )


def test_a_group_is_optional_for_assigned_partitions_without_commits() -> None:
    table = {"assign": ["t:0"], "commit_strategy": "ignore"}
    assert loaded({"incoming": {"orders": table}}).incoming["orders"].group_id is None


# -- the clients' properties


@given(
    own=st.booleans(),
    of_kafkas_table=st.booleans(),
    of_channel=st.booleans(),
    of_kafka=st.booleans(),
    table=st.sampled_from(["dead_letter_queue", "delayed_retry"]),
)
def test_the_nearest_property_wins_in_the_client_of_a_table(
    own: bool, of_kafkas_table: bool, of_channel: bool, of_kafka: bool, table: str
) -> None:
    def says(given: bool, value: str) -> dict[str, Any]:
        return {"client.id": value} if given else {}

    settings = channel(
        {"kafka": says(of_kafka, "kafka") | {table: says(of_kafkas_table, "kafkas table")}},
        **RETRY,
        **says(of_channel, "channel"),
        **{table: says(own, "own")},
    )
    order = (
        (own, "own"),
        (of_kafkas_table, "kafkas table"),
        (of_channel, "channel"),
        (of_kafka, "kafka"),
    )
    client = getattr(settings, table).client
    assert client.get("client_id") == next((value for given, value in order if given), None)
    assert settings.client.get("client_id") == next(
        (value for given, value in order[2:] if given), None
    )


def test_the_producer_of_dead_letters_shares_the_connection_and_nothing_of_the_consumer() -> None:
    kafka = {
        "linger.ms": 1,
        "compression.type": "zstd",
        "acks": 0,
        "enable.idempotence": False,
        "client.rack": "r",
    }
    tls = {"security.protocol": "SSL", "ssl.ca.location": __file__, "bootstrap_servers": "a:1"}
    own = {"linger.ms": 2, "request_timeout_ms": 3}
    found = letters(
        {"kafka": kafka}, **LETTERS, **tls, **{"fetch.min.bytes": 9}, dead_letter_queue=own
    )
    assert found.client == {
        "bootstrap_servers": "a:1",
        "security_protocol": "SSL",
        "ssl_cafile": __file__,
        "compression_type": "zstd",
        "linger_ms": 2,
        "request_timeout_ms": 3,
    }


def test_the_consumer_of_retries_has_the_channels_properties_under_its_own() -> None:
    found = retry(
        {"kafka": {"linger.ms": 1}},
        **RETRY,
        **{"fetch.min.bytes": 9, "max.poll.records": 1},
        **{"delayed-retry": {"max.poll.records": 2, "client-rack": "r"}},
    )
    assert found.client == CLIENT | {
        "fetch_min_bytes": 9,
        "max_poll_records": 2,
        "client_rack": "r",
    }


def test_dead_letters_may_go_to_other_brokers() -> None:
    for name in ("bootstrap_servers", "bootstrap.servers", "bootstrap-servers"):
        found = letters(
            **LETTERS, topic="t", dead_letter_queue={"topic": "t", name: ["b:2", "c:3"]}
        )
        assert found == DeadLetterSettings(topic="t", client={"bootstrap_servers": "b:2,c:3"})


# -- routes


def test_the_names_of_routes_keep_their_spelling(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "a.toml",
        """[kafka.failure-routes]
ValueError = "ignore"
KeyError = "fail"
[incoming.orders]
group_id = "g"
[incoming.orders.failure_routes]
ValueError = "fail"
"my_package.TokenError" = "dead-letter-queue"
other.deep.Kaputt = "my.module:Strategy.of"
""",
    )
    routes = loaded(path).incoming["orders"].failure_routes
    assert routes == {
        "ValueError": "fail",
        "KeyError": "fail",
        "my_package.TokenError": "dead-letter-queue",
        "other.deep.Kaputt": "my.module:Strategy.of",
    }
    assert "***" not in repr(routes), "the name of an exception makes no secret of its strategy"


def test_the_environment_reaches_tables_and_routes() -> None:
    environ = {
        VARIABLE + "DEAD_LETTER_QUEUE__TOPIC": "2024",
        VARIABLE + "DEAD_LETTER_QUEUE__LINGER_MS": "5",
        VARIABLE + "RESTART__MAX_ATTEMPTS": "3",
        VARIABLE + "FAILURE_ROUTES__KeyError": "dead-letter-queue",
        VARIABLE + "FAILURE_ROUTES__my__Kaputt": "fail",
        VARIABLE + "FAILURE_ROUTES__VALUEERROR": "fail",
        VARIABLE + "FAILURE_ROUTES__A_B_TIMEOUT": "fail",
        "REACTIVE_KAFKA__KAFKA__FAILURE_ROUTES__OSError": "ignore",
    }
    settings = channel(
        None, environ, failure_routes={"ValueError": "ignore", "a_b.Timeout": "ignore"}
    )
    assert settings.failure_routes == {
        "OSError": "ignore",
        "ValueError": "fail",
        "a_b.Timeout": "fail",
        "KeyError": "dead-letter-queue",
        "my.Kaputt": "fail",
    }
    assert settings.dead_letter_queue == DeadLetterSettings(
        topic="2024", client=CLIENT | {"linger_ms": 5}
    )
    assert settings.restart.max_attempts == 3


def test_a_route_may_let_retries_go_first(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "a.toml",
        """[kafka.failure_routes]
KeyError = { strategy = "ignore", after_retries = true }
OSError = { strategy = "ignore", after-retries = true }
[incoming.orders]
group_id = "g"
retry.max_attempts = 2
[incoming.orders.failure_routes]
OSError = "fail"
ValueError.strategy = "fail"
a.b.Kaputt = { strategy = "my.module:Strategy.of", after_retries = true }
"c.Kaputt" = { strategy = "fail", after_retries = false }
""",
    )
    orders = loaded(path).incoming["orders"]
    assert orders.failure_routes == {
        "KeyError": "ignore",
        "OSError": "fail",
        "ValueError": "fail",
        "a.b.Kaputt": "my.module:Strategy.of",
        "c.Kaputt": "fail",
    }
    assert orders.after_retries == {"KeyError", "a.b.Kaputt"}
    environ = {VARIABLE + "FAILURE_ROUTES__ValueError__after_retries": "true"}
    again = channel(None, environ, failure_routes={"ValueError": "ignore"})
    assert (again.failure_routes, again.after_retries) == ({"ValueError": "ignore"}, {"ValueError"})


def test_a_variable_in_capitals_cannot_name_an_exception_that_nothing_else_names() -> None:
    name = VARIABLE + "FAILURE_ROUTES__KEYERROR"
    assert only_problem(incoming(), {name: "fail"}) == (
        f"environment variable {name}: [incoming.orders] failure_routes.KEYERROR = 'fail': "
        "in capitals it names no exception: spell it as in Python, or name it in a file"
    )


@pytest.mark.parametrize(
    "exception",
    ["socket.timeout", "zlib.error", "a.b.StrategyError", "Outer.Strategies"],
)
def test_an_exception_may_have_any_name_that_is_not_like_a_key(exception: str) -> None:
    *tables, last = exception.split(".")
    nested: dict[str, Any] = {last: "ignore"}
    for table in reversed(tables):
        nested = {table: nested}
    for routes in (nested, {exception: "ignore"}):
        assert channel(failure_routes=routes).failure_routes == {exception: "ignore"}


# -- what is wrong

ONE_OF = 'expected one of "fail", "ignore", "dead-letter-queue", "delayed-retry-topic" or "module:object"'
ROUTE_KEY = "unknown key of a route"
ROUTE_KEYS = "allowed are strategy, after_retries"
COMES_BACK = "its dead letters would come back to it"


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (
            {"failure_routes": {"TokenError": "dead-leter-queue"}},
            f" failure_routes.TokenError = 'dead-leter-queue': {ONE_OF}; did you mean 'dead-letter-queue'?",
        ),
        (
            {"failure_routes": {"not a name": "fail"}},
            " failure_routes.not a name = 'fail': expected the name of an exception as key: "
            '"ValueError", "package.module.SomeError"',
        ),
        (
            {"failure_routes": {"KeyError": {"after_retries": True}}},
            f" failure_routes.KeyError.after_retries = true: the route has no strategy; allowed are {ONE_OF[9:]}",
        ),
        (
            {"failure_routes": {"KeyError": {"stratgey": "fail"}}},
            f" failure_routes.KeyError.stratgey = 'fail': {ROUTE_KEY}; did you mean 'strategy'? {ROUTE_KEYS}",
        ),
        (
            {"failure_routes": {"a.b.KeyError": {"stratgey": "fail", "after_retries": True}}},
            f" failure_routes.a.b.KeyError.stratgey = 'fail': {ROUTE_KEY}; did you mean 'strategy'? {ROUTE_KEYS}",
        ),
        (
            {"failure_routes": {"KeyError": {"strategy": "fail", "after-retires": True}}},
            f" failure_routes.KeyError.after-retires = true: {ROUTE_KEY}; did you mean 'after_retries'? {ROUTE_KEYS}",
        ),
        (
            {"failure_routes": {"a.KeyError": {"strategy": "fail", "topic": "ignore"}}},
            f" failure_routes.a.KeyError.topic = 'ignore': {ROUTE_KEY}; {ROUTE_KEYS}",
        ),
        (
            {"failure_routes": {"KeyError": {"strategy": "fail", "after_retries": "yes"}}},
            " failure_routes.KeyError.after_retries = 'yes': expected true or false",
        ),
        (
            {"retry": {"never": ["KeyError", "a.B"], "only": ["a.B"], "max_attempts": 2}},
            " retry.never = ['KeyError', 'a.B']: retry.never and retry.only both name a.B",
        ),
        (
            {"retry": {"jitter": 2, "max_attempts": 2}},
            " retry.jitter = 2: expected a number from 0 to 1",
        ),
        (
            {"retry": {"never": ["no name"], "max_attempts": 2}},
            " retry.never = ['no name']: "
            'expected a list of different exceptions: "ValueError", "package.module.SomeError"',
        ),
        (
            {"failure_routes": 3},
            " failure_routes = 3: expected a table: [incoming.X.failure_routes]",
        ),
        (
            {**LETTERS, "dead_letter_queue": {"topic": "orders"}},
            f" dead_letter_queue.topic = 'orders': the channel reads 'orders': {COMES_BACK}",
        ),
        (
            {**LETTERS, "pattern": ".*orders"},
            f" failure_strategy = 'dead-letter-queue': the channel reads 'dead-letter-topic-orders': {COMES_BACK}",
        ),
        (
            {"on_poison": "dead-letter-queue", "assign": ["dead-letter-topic-orders:0"]},
            f" on_poison = 'dead-letter-queue': the channel reads 'dead-letter-topic-orders': {COMES_BACK}",
        ),
        (
            {**RETRY, "dead_letter_queue": {"topic": "r_5"}, "delayed_retry": {"topics": ["r_5"]}},
            f" dead_letter_queue.topic = 'r_5': the channel reads 'r_5': {COMES_BACK}",
        ),
        (
            {**RETRY, "topics": ["a", "r_5"], "delayed_retry": {"topics": ["r_5"]}},
            " delayed_retry.topics = ['r_5']: the channel reads 'r_5': a retry would come back at once, not later",
        ),
        (
            {**RETRY, "delayed_retry": {"topics": ["r_120001"]}},
            " delayed_retry.topics = ['r_120001']: the first retry comes after 120001 ms, "
            "which is beyond delayed_retry.timeout: there would be no retry at all",
        ),
        (
            {**RETRY, "dead_letter_queue": {"bootstrap_servers": "b:1"}},
            " dead_letter_queue.bootstrap_servers = 'b:1': leave it out: one producer writes dead letters and "
            "delayed retries, and retries must stay on the channel's brokers",
        ),
        (
            {**LETTERS, "dead_letter_queue": {"acks": 0}},
            " dead_letter_queue.acks = 0: a record is settled when the broker has confirmed its dead letter, "
            "and with acks = 0 it confirms nothing",
        ),
        (
            {**LETTERS, "dead_letter_queue": {"acks": 1, "enable.idempotence": True}},
            ' dead_letter_queue.acks = 1: enable.idempotence needs acks = "all"',
        ),
        (
            {**LETTERS, "dead_letter_queue": {"security.protocol": "SASL_SSL"}},
            " dead_letter_queue.security.protocol = 'SASL_SSL': PLAIN needs sasl_plain_username and ",
        ),
        (
            {**RETRY, "delayed_retry": {"heartbeat.interval.ms": 45000}},
            " delayed_retry.heartbeat.interval.ms = 45000: a heartbeat every 45000 ms cannot keep a session of 45000 ms alive; "
            "a third of it is usual",
        ),
        (
            {**LETTERS, "dead_letter_queue": {"fetch.min.bytes": 5}},
            " dead_letter_queue.fetch.min.bytes = 5: "
            "a property of consumers, and this is a table of producer properties",
        ),
        (
            {**LETTERS, "dead_letter_queue": {"linger.mss": 5}},
            " dead_letter_queue.linger.mss = 5: unknown key; did you mean 'linger.ms'?",
        ),
        (
            {**LETTERS, "dead_letter_queue": {"nonsense": 5}},
            " dead_letter_queue.nonsense = 5: unknown key; allowed are topic, bootstrap_servers, "
            "and the client properties of a producer",
        ),
        (
            {**LETTERS, "dead_letter_queue": {"delivery.timeout.ms": 5}},
            " dead_letter_queue.delivery.timeout.ms = 5: aiokafka has no such property; use send_timeout",
        ),
        (
            {**RETRY, "delayed_retry": {"max_retries": 0}},
            " delayed_retry.max_retries = 0: expected a whole number of at",
        ),
        (
            {**RETRY, "delayed_retry": {"timeout": 0}},
            " delayed_retry.timeout = 0: expected a duration",
        ),
    ],
)
def test_what_cannot_work_is_one_problem(keys: dict[str, Any], problem: str) -> None:
    line = only_problem(incoming(**keys))
    assert line.removeprefix("code: [incoming.orders").removeprefix("]").startswith(problem)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (
            {"assign": ["t:0"]},
            'assign needs none only with commit_strategy = "ignore" or "checkpoint"',
        ),
        (
            {"assign": ["t:0"], "enable_auto_commit": True},
            "with enable_auto_commit the client commits for it",
        ),
        (
            {"assign": ["t:0"], "commit_strategy": "ignore", **RETRY},
            "delayed retries are read by a group that is named after it",
        ),
        ({"commit_strategy": "ignore"}, "give the channel one, or all channels one in [kafka]"),
        (
            {"pattern": "a.*", "commit_strategy": "ignore"},
            "give the channel one, or all channels one in [kafka]",
        ),
    ],
)
def test_a_group_that_cannot_be_missing_is_a_problem(keys: dict[str, Any], reason: str) -> None:
    line = only_problem({"incoming": {"orders": keys}})
    assert line == f"code: [incoming.orders]: group_id is missing; {reason}"


def test_a_channel_whose_name_cannot_be_part_of_a_topics_has_to_name_them() -> None:
    line = only_problem({"incoming": {"my orders": {"group_id": "g", "topic": "t", **LETTERS}}})
    assert (
        "failure_strategy = 'dead-letter-queue': the channel's name cannot be part of its dead-letter topic"
        in line
    )
    keys = {"group_id": "g", "topic": "t", **RETRY, "dead_letter_queue": {"topic": "d"}}
    line = only_problem({"incoming": {"my orders": keys}})
    assert (
        "failure_strategy = 'delayed-retry-topic': the channel's name cannot be part of its retry topics'"
        in line
    )


def test_tables_for_all_channels_may_stand_where_a_channel_does_not_need_them() -> None:
    kafka = {
        "dead_letter_queue": {"topic": "d", "linger.ms": 1},
        "delayed_retry": {"max_retries": 2},
    }
    assert channel({"kafka": kafka}).dead_letter_queue is None
    assert "does not belong here but in [incoming.X]" in only_problem(
        {"kafka": {"delayed_retry": {"topics": ["a_1"]}}} | incoming()
    )


def test_a_broken_strategy_is_not_reported_as_an_unused_table_too() -> None:
    assert "did you mean" in only_problem(
        incoming(failure_strategy="dead-leter-queue", dead_letter_queue={"topic": "d"})
    )
    assert "did you mean" in only_problem(
        incoming(on_poison="dead-leter-queue", dead_letter_queue={"topic": "d"})
    )


@pytest.mark.parametrize(
    "name", ["sasl.password", "ssl.key.password", "sasl_plain_pasword", "sasl_pw", "ssl.kye"]
)
def test_a_secret_in_a_table_is_never_shown(name: str) -> None:
    lines = problems(incoming(**LETTERS, dead_letter_queue={name: "canary", "acks": 7}))
    assert any("dead_letter_queue.acks = 7" in line for line in lines)
    assert "canary" not in "".join(lines)


def test_a_secret_of_a_table_reaches_its_client_and_neither_a_repr_nor_a_dump() -> None:
    sasl = {"security.protocol": "SASL_SSL", "sasl.username": "u", "sasl.password": "canary"}
    settings = loaded(incoming(**RETRY, dead_letter_queue=sasl, delayed_retry=sasl))
    orders = settings.incoming["orders"]
    for table in (orders.dead_letter_queue, orders.delayed_retry):
        assert table is not None
        assert table.client["sasl_plain_password"] == "canary"
    assert "canary" not in repr(settings) + json.dumps(dump(settings))
