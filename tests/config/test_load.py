from __future__ import annotations

import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reactive_kafka.config import keys
from reactive_kafka.config.client_properties import find
from reactive_kafka.config.keys import NoMeaning, meaning
from reactive_kafka.config.settings import (
    HttpSettings,
    IncomingSettings,
    OutgoingSettings,
    Settings,
    SparkSettings,
)
from reactive_kafka.config.tables import (
    DeadLetterSettings,
    DelayedRetrySettings,
    RestartSettings,
    RetrySettings,
    SparkChannelSettings,
)
from tests.config.loading import incoming, loaded, only_problem, outgoing, problems, write

CONTRACT = """
[kafka]
bootstrap_servers = "localhost:9092"
[incoming.orders]
topic = "orders"
group_id = "billing"
auto_offset_reset = "latest"
value_deserializer = "json"
commit_strategy = "throttled"
commit_interval = "5s"
commit_latest_unsafe = false
unprocessed_record_max_age = "60s"
on_poison = "fail"
failure_strategy = "fail"
ordering = "partition"
ack = "post"
concurrency = 1
consumers = 1
keep_out_of_order_acks = false
restart = { backoff = "1s", max_backoff = "1m", max_attempts = 0 }
offset_metadata_cache = true
offset_metadata_strategy = "current"
batch_max_records = 500
batch_max_wait = "1s"
max_in_flight = 1000
drain_timeout = "30s"
revoke_grace = "5s"
enable_auto_commit = false
[incoming.orders.failure_routes]
"ValidationError" = "dead-letter-queue"
[incoming.orders.retry]
max_attempts = 3
backoff = "200ms"
max_backoff = "10s"
[incoming.orders.dead_letter_queue]
topic = "dead-letter-topic-orders"
[outgoing.invoices]
topic = "invoices"
value_serializer = "json"
max_in_flight = 1024
wait_for_write = false
[spark]
master = "local[*]"
[spark.conf]
"spark.sql.shuffle.partitions" = 4
[incoming.clicks]
group_id = "clicks"
[incoming.clicks.spark]
mode = "records"
batch_max_records = 50000
batch_max_bytes = "64MiB"
batch_max_wait = "2s"
timeout = "10m"
[http]
enabled = true
host = "127.0.0.1"
port = 9000
"""
CLIENT = {"bootstrap_servers": "localhost:9092"}


def test_the_contracts_example_is_read_as_it_stands(tmp_path: Path) -> None:
    path = write(tmp_path, "reactive-kafka.toml", CONTRACT)
    retry = RetrySettings(max_attempts=3, backoff_s=0.2, max_backoff_s=10.0)
    orders = IncomingSettings(
        name="orders",
        topics=("orders",),
        group_id="billing",
        value_deserializer="json",
        max_in_flight_is_set=True,
        failure_routes={"ValidationError": "dead-letter-queue"},
        dead_letter_queue=DeadLetterSettings(topic="dead-letter-topic-orders", client=CLIENT),
        retry=retry,
        client=CLIENT,
    )
    assert loaded(path) == Settings(
        source=str(path),
        incoming={
            "orders": orders,
            "clicks": IncomingSettings(
                name="clicks", topics=("clicks",), group_id="clicks", client=CLIENT
            ),
        },
        outgoing={
            "invoices": OutgoingSettings(
                name="invoices", topic="invoices", value_serializer="json", client=CLIENT
            )
        },
        spark=SparkSettings(conf={"spark.sql.shuffle.partitions": 4}),
    )


def test_a_configuration_that_says_nothing_has_the_defaults_of_the_settings() -> None:
    settings = loaded({"incoming": {"a": {"group_id": "g"}}, "outgoing": {"b": {}}})
    assert settings == Settings(
        incoming={"a": IncomingSettings(name="a", topics=("a",), group_id="g", client=CLIENT)},
        outgoing={"b": OutgoingSettings(name="b", topic="b", client=CLIENT)},
    )


def test_every_key_reaches_its_field() -> None:
    spark = {
        "mode": "ranges",
        "batch_max_records": 7,
        "batch_max_bytes": 8,
        "batch_max_wait": 9,
        "timeout": 10,
        "max_concurrent_jobs": 3,
        "pool": "p",
        "on_failure": "bisect",
    }
    given = {
        "topics": ["t"],
        "group_id": "g",
        "auto_offset_reset": "none",
        "value_deserializer": "int",
        "key_deserializer": "a:b",
        "commit_strategy": "ignore",
        "commit_interval": 1,
        "unprocessed_record_max_age": 2,
        "on_poison": "warn",
        "failure_strategy": "ignore",
        "ordering": "unordered",
        "ack": "none",
        "concurrency": 3,
        "batch_max_records": 4,
        "batch_max_wait": 5,
        "max_in_flight": 6,
        "drain_timeout": 7,
        "revoke_grace": 8,
        "consumers": 5,
        "enable_auto_commit": True,
    }
    tables = {
        "incoming": {"a": given | {"retry": {"max_attempts": 2, "backoff": 3, "max_backoff": 4}}}
    }
    (channel,) = loaded(tables).incoming.values()
    assert channel == IncomingSettings(
        name="a",
        topics=("t",),
        group_id="g",
        auto_offset_reset="none",
        value_deserializer="int",
        key_deserializer="a:b",
        commit_strategy="ignore",
        commit_interval_s=1,
        unprocessed_record_max_age_s=2,
        on_poison="warn",
        failure_strategy="ignore",
        ordering="unordered",
        ack="none",
        concurrency=3,
        batch_max_records=4,
        batch_max_wait_s=5,
        max_in_flight=6,
        max_in_flight_is_set=True,
        drain_timeout_s=7,
        revoke_grace_s=8,
        consumers=5,
        enable_auto_commit=True,
        retry=RetrySettings(max_attempts=2, backoff_s=3, max_backoff_s=4),
        client=CLIENT,
    )
    more = {
        "pattern": "a.*",
        "commit_strategy": "latest",
        "commit_latest_unsafe": True,
        "ordering": "key",
        "key": "a:b",
        "on_poison": "dead-letter-queue",
        "failure_strategy": "delayed-retry-topic",
        "restart": {"max_attempts": 1, "backoff": 2, "max_backoff": 3},
        "dead_letter_queue": {"topic": "d"},
        "delayed_retry": {"topics": ["r_1", "r_2"], "max_retries": 5, "timeout": "1s"},
        "failure_routes": {"ValueError": "ignore"},
    }
    assert loaded(incoming(**more)).incoming["orders"] == IncomingSettings(
        name="orders",
        topics=(),
        group_id="billing",
        pattern="a.*",
        commit_strategy="latest",
        commit_latest_unsafe=True,
        ordering="key",
        key="a:b",
        on_poison="dead-letter-queue",
        failure_strategy="delayed-retry-topic",
        failure_routes={"ValueError": "ignore"},
        restart=RestartSettings(max_attempts=1, backoff_s=2, max_backoff_s=3),
        dead_letter_queue=DeadLetterSettings(topic="d", client=CLIENT),
        delayed_retry=DelayedRetrySettings(
            topics=("r_1", "r_2"), max_retries=5, timeout_s=1, client=CLIENT
        ),
        client=CLIENT,
    )
    settings = loaded(
        incoming(spark=spark)
        | {"spark": {"remote": "sc://h:1", "jars": "j", "conf": {"spark.x": 1}}}
    )
    assert settings.spark == SparkSettings(remote="sc://h:1", jars="j", conf={"spark.x": 1})
    assert settings.incoming["orders"].spark == SparkChannelSettings(
        mode="ranges",
        batch_max_records=7,
        batch_max_bytes=8,
        batch_max_wait_s=9,
        timeout_s=10,
        max_concurrent_jobs=3,
        pool="p",
        on_failure="bisect",
    )
    sender: dict[str, Any] = {
        "topic": "t",
        "value_serializer": "json",
        "key_serializer": "string",
        "max_in_flight": 2,
    }
    (out,) = loaded(outgoing(**sender, wait_for_write=False, send_timeout="1m")).outgoing.values()
    assert out == OutgoingSettings(
        name="invoices", **sender, wait_for_write=False, send_timeout_s=60, client=CLIENT
    )
    http = {
        "enabled": False,
        "host": "::1",
        "port": 0,
        "hosts": ["A.example.", "b"],
        "peers": "a:1, [::1]:65535",
        "token": "s3cret",
    }
    assert loaded({"http": http}).http == HttpSettings(
        enabled=False,
        host="::1",
        port=0,
        hosts=("a.example", "b"),
        peers=("a:1", "[::1]:65535"),
        token="s3cret",
    )


# -- which layer wins


@given(st.sets(st.sampled_from(["code", "file", "environment", "overrides"]), min_size=1))
def test_the_highest_layer_that_says_something_wins(
    tmp_path_factory: pytest.TempPathFactory, said: set[str]
) -> None:
    spellings = {
        "code": "commit-interval",
        "file": "commit_interval",
        "overrides": "commit-interval",
    }
    tables = {
        layer: incoming(**({spelling: f"{layer}"} if layer in said else {}))
        for layer, spelling in spellings.items()
    }
    seconds = {"code": 1.0, "file": 2.0, "environment": 3.0, "overrides": 4.0}
    for layer, spelling in spellings.items():
        if layer in said:
            tables[layer]["incoming"]["orders"][spelling] = seconds[layer]
    interval = f"commit_interval = {seconds['file']}" if "file" in said else ""
    path = write(tmp_path_factory.mktemp("config"), "a.toml", f"[incoming.orders]\n{interval}")
    environ = (
        {"REACTIVE_KAFKA__INCOMING__ORDERS__COMMIT_INTERVAL": "3"} if "environment" in said else {}
    )
    settings = loaded(path, environ, code=tables["code"], overrides=tables["overrides"])
    winner = max(said, key=lambda layer: seconds[layer])
    assert settings.incoming["orders"].commit_interval_s == seconds[winner]


def test_tables_as_the_source_win_over_code() -> None:
    assert loaded(
        {"http": {"port": 2}}, code={"http": {"port": 1, "host": "::1"}}
    ).http == HttpSettings(port=2, host="::1")


def test_the_names_of_one_property_are_one_across_layers(tmp_path: Path) -> None:
    path = write(tmp_path, "a.toml", "[incoming.orders]\nsession.timeout.ms = 8000\n")
    code = incoming(session_timeout_ms=7000)
    assert loaded(path, code=code).incoming["orders"].client["session_timeout_ms"] == 8000
    environ = {"REACTIVE_KAFKA__INCOMING__ORDERS__SESSION_TIMEOUT_MS": "9000"}
    assert loaded(path, environ, code=code).incoming["orders"].client["session_timeout_ms"] == 9000


def test_a_channel_wins_over_kafka_even_from_a_lower_layer() -> None:
    settings = loaded(incoming(concurrency=2), overrides={"kafka": {"concurrency": 3}})
    assert settings.incoming["orders"].concurrency == 2


def test_topics_of_a_higher_layer_replace_the_topic_of_a_lower_one() -> None:
    topics = {"incoming": {"orders": {"topics": ["a", "b"]}}}
    assert loaded(incoming(topic="x"), overrides=topics).incoming["orders"].topics == ("a", "b")
    topic = {"incoming": {"orders": {"topic": "x"}}}
    assert loaded(incoming(topics=["a", "b"]), overrides=topic).incoming["orders"].topics == ("x",)


def test_without_a_source_the_variable_names_the_file_else_the_current_folder_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    problem = only_problem(None)
    assert "there is no configuration" in problem
    assert str(tmp_path / "reactive-kafka.toml") in problem
    assert "--config" in problem
    assert "$REACTIVE_KAFKA_CONFIG" in problem
    named = write(tmp_path, "named.toml", "[http]\nport = 1\n")
    assert loaded(None, {"REACTIVE_KAFKA_CONFIG": str(named)}).http.port == 1
    write(tmp_path, "reactive-kafka.toml", "[http]\nport = 2\n")
    assert loaded(None).http.port == 2
    assert loaded(None).source == "reactive-kafka.toml"
    assert loaded({}).http.port == 9000, "tables read no file"
    assert "there is no such file" in only_problem(None, {"REACTIVE_KAFKA_CONFIG": "none.toml"})


def test_the_environment_alone_is_a_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {
        "REACTIVE_KAFKA__KAFKA__BOOTSTRAP_SERVERS": "a:1,b:2",
        "REACTIVE_KAFKA__INCOMING__ORDERS__GROUP_ID": "2024",
        "REACTIVE_KAFKA__INCOMING__ORDERS__TOPICS": '["a", "b"]',
        "REACTIVE_KAFKA__INCOMING__ORDERS__RETRY__MAX_ATTEMPTS": "3",
        "REACTIVE_KAFKA__OUTGOING__INVOICES__WAIT_FOR_WRITE": "false",
    }
    settings = loaded(None, environ)
    orders = settings.incoming["orders"]
    assert (orders.group_id, orders.topics, orders.retry.max_attempts) == ("2024", ("a", "b"), 3)
    assert settings.outgoing["invoices"].wait_for_write is False
    assert settings.bootstrap_servers == "a:1,b:2"


def test_none_in_code_means_not_given() -> None:
    assert (
        loaded(incoming(key_deserializer=None), overrides={"http": {"port": None}}).http.port
        == 9000
    )


def test_references_are_replaced_but_not_in_values_from_the_environment() -> None:
    environ = {
        "GROUP": "g-${GROUP}",
        "N": "4",
        "REACTIVE_KAFKA__INCOMING__ORDERS__CLIENT_ID": "${GROUP}",
    }
    orders = loaded(
        incoming(group_id="${GROUP}", concurrency="${N}", topics=["t${N}"]), environ
    ).incoming["orders"]
    assert (orders.group_id, orders.concurrency, orders.topics) == ("g-${GROUP}", 4, ("t4",))
    assert orders.client["client_id"] == "${GROUP}"


# -- what is wrong


def nested(levels: int) -> dict[str, Any]:
    table: dict[str, Any] = {"ack": "post"}
    for _ in range(levels):
        table = {"a": table}
    return table


def holding_itself() -> dict[str, Any]:
    table: dict[str, Any] = {"group_id": "billing"}
    table["table"] = table
    return table


@pytest.mark.parametrize(
    "make", [holding_itself, lambda: nested(10_000), lambda: {"topics": [holding_itself()]}]
)
def test_tables_of_code_that_hold_themselves_or_go_on_for_ever_are_refused_by_name(
    make: Callable[[], dict[str, Any]],
) -> None:
    line = only_problem({"incoming": {"orders": make()}})
    assert line.startswith("code: incoming.orders.")
    assert line.endswith("...: nested too deeply: at most 64 levels are read")
    assert only_problem(None, overrides={"incoming": {"orders": make()}}).startswith(
        "command line: incoming.orders."
    )
    assert only_problem(None, code=make()).startswith("code: ")


def test_all_problems_come_in_one_error_each_with_its_place(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "a.toml",
        """[kafka]
bootstrap_servers = 5
[incoming.orders]
comit_interval = "5s"
pattern = "x.*("
ordering = "keys"
topic = "${NOT_SET}"
[incoming.orders.retry]
backoff = "20s"
[kafak]
a = 1
b = 2
[schema_registry]
urls = "http://a"
""",
    )
    lines = problems(path, {"REACTIVE_KAFKA__HTTP__PORT": "70000"}, overrides={"http": {"host": 1}})
    assert lines == [
        f"{path}, line 2: [kafka] bootstrap_servers = 5: "
        'expected "host:port", several with commas or as a list, or "embedded"',
        f"{path}, line 3: [incoming.orders]: group_id is missing; give the channel one, or all channels one in [kafka]",
        f"{path}, line 4: [incoming.orders] comit_interval = '5s': unknown key; did you mean 'commit_interval'?",
        f"{path}, line 5: [incoming.orders] pattern = 'x.*(': "
        'expected a regular expression that matches whole topic names, such as "orders-.*"; '
        "missing ), unterminated subpattern at position 3",
        f"{path}, line 6: [incoming.orders] ordering = 'keys': "
        'expected one of "partition", "key", "unordered"; did you mean \'key\'?',
        f"{path}, line 7: [incoming.orders] topic = '${{NOT_SET}}': "
        "${NOT_SET} is not set and has no default; set NOT_SET or write ${NOT_SET:-default}",
        f"{path}, line 9: [incoming.orders] retry.backoff = '20s': retry.backoff is longer than retry.max_backoff"
        " (channel incoming.orders)",
        f"{path}, line 10: [kafak]: unknown section; did you mean [kafka]?",
        f"{path}, line 14: [schema_registry] urls = 'http://a': unknown key; did you mean 'url'?",
        "environment variable REACTIVE_KAFKA__HTTP__PORT: [http] port = 70000: expected a whole number from 0 to 65535",
        "command line: [http] host = 1: expected a string that is not empty",
    ]


MISPLACED = {"bootstrap_servers": "a:1", "group_id": "g"}
# Of no type that any key takes.
MISTYPED = object()


@pytest.mark.parametrize("name", sorted(keys.INCOMING.keys))
def test_every_key_with_a_value_of_the_wrong_type_is_exactly_one_problem(name: str) -> None:
    """Row J5 of the faults."""
    table, _, key = name.rpartition(".")
    line = only_problem(incoming(**({table: {key: MISTYPED}} if table else {key: MISTYPED})))
    assert line.startswith(f"code: [incoming.orders] {name} = <object>: expected ")


_OWN = [
    (section, name)
    for section in (keys.INCOMING, keys.OUTGOING, keys.HTTP, keys.KAFKA)
    for name in section.keys
]


@given(
    st.sampled_from(_OWN),
    st.integers(0, 40),
    st.sampled_from(string.ascii_lowercase),
    st.booleans(),
)
def test_every_misspelt_key_is_exactly_one_problem_that_names_it(
    place: tuple[keys.Section, str], at: int, letter: str, removes: bool
) -> None:
    """Row J5 of the faults."""
    section, name = place
    table, _, key = name.rpartition(".")
    at %= len(key)
    misspelt = key[:at] + ("" if removes else letter) + key[at + 1 :]
    assume(misspelt)
    assume(_is_unknown(section, misspelt if not table else f"{table}.{misspelt}"))
    where, _, _ = section.title.partition(".")
    body: dict[str, Any] = {table: {misspelt: 5}} if table else {misspelt: 5}
    if section is keys.INCOMING and name != "group_id":
        body["group_id"] = "g"
    line = only_problem({where: {"x": body} if "." in section.title else body})
    assert misspelt in line
    assert "unknown key" in line


def _is_unknown(section: keys.Section, name: str) -> bool:
    try:
        meaning(section, (name,))
    except NoMeaning as error:
        return "unknown key" in str(error)
    return False


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (
            {"kafka": {"topic": "t"}},
            "[kafka] topic = 't': does not belong here but in [incoming.X] or [outgoing.X]",
        ),
        (outgoing(group_id="g"), "does not belong here but in [incoming.X] or [kafka]"),
        (incoming(allow_insecure_sasl=True), "does not belong here but in [kafka]"),
        (
            {"bootstrap_servers": "a"},
            "[bootstrap_servers]: does not belong at the top but in [kafka]",
        ),
        (
            {"nonsense": {}},
            "allowed are [kafka], [spark], [http], [schema_registry], [tracing], [incoming.X], ",
        ),
        (incoming(retry=3), "[incoming.orders] retry = 3: expected a table: [incoming.X.retry]"),
        (
            incoming(retry={"backoff": {"x": 1}}),
            "retry.backoff.x = 1: unknown key; did you mean 'retry.backoff'?",
        ),
        (incoming(commit_interval={"s": 5}), "commit_interval.s = 5: expected a duration"),
        ({"incoming": 3}, "incoming = 3: expected a table: [incoming.X]"),
        ({"incoming": {"orders": 3}}, "incoming.orders = 3: expected a table: [incoming.orders]"),
        ({"http": 3}, "http = 3: expected a table: [http]"),
        ({"spark": {"conf": 3}}, "spark.conf = 3: expected a table: [spark.conf]"),
        (
            {"spark": {"conf": {"spark.x": [1]}}},
            "[spark] conf.spark.x = [1]: expected a string, a number or a boolean",
        ),
        (
            {"schema-registry": {"url": "x"}},
            "[schema_registry] url = 'x': expected \"http://host:8081\"",
        ),
        ({"incoming": {"my orders": {"group_id": "g"}}}, "the channel's name cannot be its topic"),
        (incoming(max_attempts=3), "did you mean 'retry.max_attempts'?"),
    ],
)
def test_a_key_in_the_wrong_place_says_where_it_belongs(tables: dict[str, Any], said: str) -> None:
    assert said in only_problem(tables)


def test_a_misspelt_group_id_is_not_reported_as_missing_too() -> None:
    assert "did you mean 'group_id'?" in only_problem({"incoming": {"a": {"grup_id": "g"}}})


def test_what_is_not_built_yet_may_be_written_with_its_default() -> None:
    defaults = {
        "keep_out_of_order_acks": False,
        "offset-metadata-cache": True,
        "offset_metadata_strategy": "current",
    }
    assert loaded(incoming(**defaults)) == loaded(incoming())


def test_an_empty_spark_table_and_an_empty_retry_table_are_fine() -> None:
    assert loaded(incoming(spark={}, retry={})).incoming["orders"].spark == SparkChannelSettings()


def test_no_key_of_ours_is_also_a_raw_property() -> None:
    names = {name for section in (keys.INCOMING, keys.OUTGOING) for name in section.keys}
    assert [name for name in names if find(name)] == []


# -- channels that only the environment names


def test_a_channel_that_only_a_variable_names_beside_those_of_a_file_is_a_misspelling(
    tmp_path: Path,
) -> None:
    path = write(
        tmp_path, "a.toml", '[incoming.orders]\ngroup_id = "g"\n[incoming.clicks]\ngroup_id = "g"\n'
    )
    name = "REACTIVE_KAFKA__INCOMING__ORDRES__TOPIC"
    assert only_problem(path, {name: "o"}) == (
        f"environment variable {name}: [incoming.ordres]: {path} has no such channel"
        " (there are 'clicks', 'orders'); did you mean 'orders'?"
    )


def test_a_variable_may_add_a_channel_where_nothing_else_names_any() -> None:
    settings = loaded(
        {"kafka": {"group_id": "g"}}, {"REACTIVE_KAFKA__INCOMING__ORDERS__TOPIC": "o"}
    )
    assert settings.incoming["orders"].topics == ("o",)


# -- words


def test_values_are_shown_as_they_are_written() -> None:
    assert "concurrency = true: expected" in only_problem(incoming(concurrency=True))


def test_an_outgoing_channel_passes_on_lingers_compresses_and_partitions() -> None:
    written = {
        "propagate_headers": "trace, tenant",
        "propagate_key": True,
        "linger": "5ms",
        "compression": "gzip",
    }
    written["reply_topic"] = "answers"
    channel = loaded(outgoing(**written, partitioner="app:choose")).outgoing["invoices"]
    assert (channel.propagate_headers, channel.propagate_key) == (("trace", "tenant"), True)
    assert channel.reply_topic == "answers"
    assert (channel.linger_s, channel.partitioner) == (0.005, "app:choose")
    assert channel.client["compression_type"] == "gzip"


@pytest.mark.parametrize(
    "wrong", [{"propagate_headers": ["a", "a"]}, {"partitioner": "nothing"}, {"linger": "-1s"}]
)
def test_an_outgoing_channel_says_what_it_takes(wrong: dict[str, Any]) -> None:
    assert next(iter(wrong)) in only_problem(outgoing(**wrong))


POLLS = "records are polled as handlers need them, and failing polls are repeated until they work"
IN_RETRY = [
    f"retry.{key}" for key in ("max_attempts", "backoff", "max_backoff", "jitter", "never", "only")
]


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (
            incoming(qqqq=1),
            "; docs/configuration.md has those of [incoming.X], and `reactive-kafka schema` prints them",
        ),
        (
            incoming(interval=1),
            "; the nearest: 'commit_interval'; docs/configuration.md has those of [incoming.X], and `reactive-kafka "
            "schema` prints them",
        ),
        (
            outgoing(qqqq=1),
            "; docs/configuration.md has those of [outgoing.X], and `reactive-kafka schema` prints them",
        ),
        (
            {"http": {"qqqq": 1}},
            "; allowed are enabled, host, port, service_name, hosts, peers, token",
        ),
        ({"kafka": {"failure_route": {"ValueError": "fail"}}}, "; did you mean 'failure_routes'?"),
        (incoming(retry={"except": ["ValueError"]}), "; allowed are " + ", ".join(IN_RETRY)),
        (incoming(retry={"exept": 1}), "; allowed are " + ", ".join(IN_RETRY)),
        (incoming(retry={"backof": 1}), "; did you mean 'retry.backoff'?"),
        *(
            (incoming(**{name: 1}), f": SmallRye has it; here: {POLLS}")
            for name in ("poll-timeout", "poll_timeout")
        ),
        (
            incoming(**{"throttled.unprocessed-record-max-age.ms": 1}),
            "; did you mean 'unprocessed_record_max_age'?",
        ),
        (
            outgoing(waitForWriteCompletion=True),
            ": SmallRye has it; here: always so: the ack of the incoming record follows the write",
        ),
    ],
)
def test_an_unknown_key_is_told_with_what_is_near_or_where_all_are(
    tables: dict[str, Any], said: str
) -> None:
    assert only_problem(tables).endswith(f"unknown key{said}")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("dlq", "dead-letter-queue"),
        ("dead-letter", "dead-letter-queue"),
        ("retry", "delayed-retry-topic"),
        ("skip", "ignore"),
        ("stop", "fail"),
    ],
)
def test_a_failure_strategy_by_another_name_is_understood(word: str, meant: str) -> None:
    assert only_problem(incoming(failure_strategy=word)).endswith(f"; did you mean {meant!r}?")
    assert only_problem(incoming(failure_routes={"KeyError": word})).endswith(
        f"; did you mean {meant!r}?"
    )


@pytest.mark.parametrize(
    "peers",
    [["a"], ["a:0"], ["a:65536"], ["http://a:1"], ["u@a:1"], ["a:1", "a:1"], [], "a:1,", 9000],
)
def test_peers_are_different_addresses_with_their_ports(peers: object) -> None:
    assert 'expected a list of different "host:port"' in only_problem({"http": {"peers": peers}})


@pytest.mark.parametrize("name", ["", " ", ".", "..", "a\nb", "a\0", "\x1b[31m"])
@pytest.mark.parametrize("kind", ["incoming", "outgoing", "memory"])
def test_a_name_of_a_channel_that_no_path_and_no_line_of_a_log_can_have_is_refused(
    kind: str, name: str
) -> None:
    table: dict[str, dict[str, str]] = {
        "incoming": {"topic": "orders", "group_id": "billing"},
        "outgoing": {"topic": "orders"},
        "memory": {},
    }
    problem = only_problem({kind: {name: table[kind]}})
    assert f"a channel cannot have the name {name!r}: " in problem
    assert problem.isprintable()


@pytest.mark.parametrize("name", ["a b", "a/b", "größe", "...", "x" * 300])
def test_other_names_of_channels_are_as_free_as_they_were(name: str) -> None:
    assert name in loaded({"memory": {name: {}}}).memory
