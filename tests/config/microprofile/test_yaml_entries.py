"""A YAML file of Quarkus is the properties that it means, and is read as they are."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp

import pytest

from reactive_kafka.config.load import toml_of_quarkus
from reactive_kafka.config.microprofile.yaml_entries import yaml_entries
from reactive_kafka.config.settings import Settings
from reactive_kafka.errors import ConfigError
from tests.config import loading
from tests.config.microprofile.reading import FOLDER
from tests.config.microprofile.reading import written as properties

SHOP = """\
# YAML supports comments
quarkus:
  application:
    name: shop
kafka:
  bootstrap:
    servers: PLAINTEXT://kafka:9092
mp:
  messaging:
    connector:
      smallrye-kafka:
        health-enabled: off
    incoming:
      orders:
        connector: smallrye-kafka
        topics: [shop-orders, "more-orders"]
        ordered:
          ~: key
          max-concurrency: 8
        auto.offset.reset: earliest
        auto:
          commit:
            interval:
              ms: 250
        failure-strategy: ${strategy:ignore}
      "my.orders":
        connector: smallrye-kafka
        group.id: 7
        topic: null
    outgoing:
      invoices: {connector: smallrye-kafka, topic: bills, propagate-record-key: yes}
"%dev":
  mp:
    messaging:
      incoming:
        orders:
          topics:
            - orders-of-dev
"%{test,stage}":
  mp.messaging.incoming.orders.topics: orders-of-test
"""
THE_SAME = """\
quarkus.application.name=shop
kafka.bootstrap.servers=kafka:9092
mp.messaging.connector.smallrye-kafka.health-enabled=false
mp.messaging.incoming.orders.connector=smallrye-kafka
mp.messaging.incoming.orders.topics=shop-orders,more-orders
mp.messaging.incoming.orders.ordered=key
mp.messaging.incoming.orders.ordered.max-concurrency=8
mp.messaging.incoming.orders.auto.offset.reset=earliest
mp.messaging.incoming.orders.auto.commit.interval.ms=250
mp.messaging.incoming.orders.failure-strategy=${strategy:ignore}
mp.messaging.incoming."my.orders".connector=smallrye-kafka
mp.messaging.incoming."my.orders".group.id=7
mp.messaging.outgoing.invoices.connector=smallrye-kafka
mp.messaging.outgoing.invoices.topic=bills
mp.messaging.outgoing.invoices.propagate-record-key=true
%dev.mp.messaging.incoming.orders.topics=orders-of-dev
%{test,stage}.mp.messaging.incoming.orders.topics=orders-of-test
"""


def written(text: str, name: str = "application.yaml") -> Path:
    """The text in a file, which is alone in its folder."""
    path = Path(mkdtemp(dir=FOLDER.name)) / name
    path.write_text(text)
    return path


def channels(settings: Settings) -> object:
    return settings.bootstrap_servers, settings.incoming, settings.outgoing


@pytest.mark.parametrize("name", ["application.yaml", "application.yml", "shop.YAML"])
@pytest.mark.parametrize("profile", ["prod", "dev", "stage"])
def test_the_yaml_of_a_service_says_what_its_properties_say(name: str, profile: str) -> None:
    environ = {"REACTIVE_KAFKA_PROFILE": profile}
    path = written(SHOP, name)
    settings = loading.loaded(path, environ)
    assert channels(settings) == channels(loading.loaded(properties(THE_SAME), environ))
    assert settings.incoming.keys() == {"orders", "my.orders"}
    topics = {
        "prod": ("shop-orders", "more-orders"),
        "dev": ("orders-of-dev",),
        "stage": ("orders-of-test",),
    }
    assert settings.incoming["orders"].topics == topics[profile]
    toml, _ = toml_of_quarkus(path, environ)
    again = loading.write(path.parent, "reactive-kafka.toml", toml)
    assert channels(loading.loaded(again, environ)) == channels(settings)


def found(text: str) -> dict[str, str]:
    return {entry.key: entry.value for entry in yaml_entries("application.yaml", text)}


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        (
            "mp: {a: 1, b: 1.50, c: 0x10, d: 2020-01-01, e: 1_000}",
            {"a": "1", "b": "1.50", "c": "0x10", "d": "2020-01-01", "e": "1_000"},
        ),
        (
            "mp: {a: yes, b: TRUE, c: Off, d: 'yes'}",
            {"a": "true", "b": "true", "c": "false", "d": "yes"},
        ),
        (
            "mp: {a: null, b: ~, c: , d: '', e: 'null'}",
            {"a": "", "b": "", "c": "", "d": "", "e": "null"},
        ),
        ("mp: {a: [x, 'y,z', 1], b: []}", {"a": r"x,y\,z,1", "b": ""}),
        ("mp: {a: [{b: 1}, x]}", {"a[0].b": "1", "a[1]": "x"}),
        ("mp: {a: {~: 1, b: 2}}", {"a": "1", "a.b": "2"}),
        ("mp: {a: {'': 1, b: 2}}", {"a": "1", "a.b": "2"}),
        ("mp: {a: {}}", {}),
        ("mp:\n  a: |\n    x\n    y\n", {"a": "x\ny\n"}),
        (
            "mp: &m {a: 1}\nother: 2\nmp.more: {<<: *m, b: 2}",
            {"a": "1", "more.a": "1", "more.b": "2"},
        ),
        ("base: &b {a: 1, b: 1}\nmp: {<<: *b, b: 2}", {"a": "1", "b": "2"}),
        ("mp: {a: 1, b: 1}\n---\nmp: {b: 2}\n---\n", {"a": "1", "b": "2"}),
    ],
)
def test_a_table_is_a_name_with_dots(text: str, entries: dict[str, str]) -> None:
    mine = {
        name.removeprefix("mp."): value
        for name, value in found(text).items()
        if name.startswith("mp")
    }
    assert mine == entries


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "mp: {messaging: {incoming: {my.orders: {topic: t}}}}",
            'mp.messaging.incoming."my.orders".topic',
        ),
        (
            "mp: {messaging: {incoming: {'\"my.orders\"': {topic: t}}}}",
            'mp.messaging.incoming."my.orders".topic',
        ),
        (
            "mp.messaging.incoming: {my.orders: {topic: t}}",
            'mp.messaging.incoming."my.orders".topic',
        ),
        (
            "'%dev': {mp: {messaging: {outgoing: {my.out: {topic: t}}}}}",
            '%dev.mp.messaging.outgoing."my.out".topic',
        ),
        ("mp: {messaging: {incoming: {orders.topic: t}}}", "mp.messaging.incoming.orders.topic"),
        (
            "mp: {messaging: {incoming: {orders: {group.id: t}}}}",
            "mp.messaging.incoming.orders.group.id",
        ),
        ("mp.messaging.incoming.orders: {group: {id: t}}", "mp.messaging.incoming.orders.group.id"),
    ],
)
def test_a_name_with_dots_is_a_channel_where_channels_stand_and_a_path_elsewhere(
    text: str, name: str
) -> None:
    assert found(text) == {name: "t"}


def test_problems_name_the_line_of_the_file() -> None:
    path = written(
        "mp:\n  messaging:\n    incoming:\n      orders:\n        group.id: g\n        comit-strategy: latest\n"
        "        ordered: keys\n"
    )
    lines = loading.problems(path)
    assert [line.partition(": ")[0] for line in lines] == [f"{path}, line 6", f"{path}, line 7"]
    assert (
        "mp.messaging.incoming.orders.comit-strategy = 'latest': unknown attribute; did you mean"
        in lines[0]
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("mp:\n  a: 1\n  a: 2\n", "line 3: a is in line 2, too"),
        ("mp: {a: 1, a: 2}\n", "line 1: a is in line 1, too"),
        ("mp:\n  a: [\n", "line 3: not YAML: "),
        ("mp:\n  ? [a]\n  : 1\n", "line 2: expected a name as key"),
        ("mp: 1\n---\n[a]\n", "line 3: expected tables such as mp: at the top"),
        ("mp:\n  a: &a\n    b: *a\n", "an alias inside of the value that it stands for"),
        ("mp: " + "{a: " * 70 + "}" * 70, "nested too deeply"),
        (
            "mp:\n  a0: &a0 1\n"
            + "".join(f"  a{n + 1}: &a{n + 1} {'{a: ' * 60}*a{n}{'}' * 60}\n" for n in range(17)),
            "nested too deeply",
        ),
        ("mp: &m {<<: x}", "not YAML: "),
    ],
)
def test_what_no_yaml_of_quarkus_is_names_the_line(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=r"application\.yaml, line ") as raised:
        yaml_entries("application.yaml", text)
    assert problem in str(raised.value)


def test_a_small_file_cannot_fill_the_memory() -> None:
    names = (
        "mp:\n  ? "
        + "x" * 100_000
        + "\n  :\n"
        + "".join(f"    k{number}: 1\n" for number in range(5_000))
    )
    values = "a: &a " + "x" * 100_000 + "\nmp: {a: [" + "*a, " * 5_000 + "]}\n"
    documents = "---\na: &a [" + "1, " * 1_500 + "]\nmp: [" + "*a, " * 10 + "]\n"
    for text in (names, values, documents * 3):
        with pytest.raises(
            ConfigError, match=r"too many characters|more than 20000 keys and values"
        ):
            yaml_entries("application.yaml", text)


def test_the_file_of_a_profile_stands_beside_it_and_wins() -> None:
    path = written(
        "mp.messaging.incoming.orders: {group.id: g, topic: a, auto.offset.reset: earliest}\n"
    )
    (path.parent / "application-dev.yaml").write_text("mp.messaging.incoming.orders.topic: b\n")
    (path.parent / "application-dev.yml").write_text(
        "mp.messaging.incoming.orders: {topic: c, auto.offset.reset: none}\n"
    )
    (path.parent / "application-dev.properties").write_text(
        "mp.messaging.incoming.orders.topic=d\n"
    )
    assert loading.loaded(path, {}).incoming["orders"].topics == ("a",)
    orders = loading.loaded(path, {"REACTIVE_KAFKA_PROFILE": "dev"}).incoming["orders"]
    assert (orders.topics, orders.auto_offset_reset) == (("b",), "none")


def test_the_environment_wins_over_it() -> None:
    path = written("mp: {messaging: {incoming: {orders: {group.id: g, topic: a}}}}\n")
    settings = loading.loaded(path, {"MP_MESSAGING_INCOMING_ORDERS_TOPIC": "b"})
    assert settings.incoming["orders"].topics == ("b",)


@pytest.mark.parametrize(
    "text",
    [
        "kafka: {bootstrap.servers: 'kafka:9092'}\nincoming:\n  orders: {group_id: g}\n",
        "incoming:\n  mp: {group_id: g}\n  quarkus: {group_id: g}\n",
        "# mp:\nincoming:\n  'orders':\n    group_id: g\n# quarkus:\n",
    ],
)
def test_a_yaml_file_of_our_own_stays_one(text: str) -> None:
    assert loading.loaded(written(text)).incoming.keys() <= {"orders", "mp", "quarkus"}


@pytest.mark.parametrize(
    "text",
    [
        "mp:\n  messaging:\n",
        "quarkus:\n",
        "'%dev':\n",
        '"mp.messaging.incoming.a.topic": t\n',
        "smallrye.config: x",
    ],
)
def test_a_file_with_a_table_of_quarkus_at_its_top_is_one_of_quarkus(text: str) -> None:
    path = written("---\n" + text)
    assert "What " in toml_of_quarkus(path, {})[0]
