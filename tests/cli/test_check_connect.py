"""``check --connect``: what an application would not find when it connects."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reactive_kafka.cli.commands import commands
from reactive_kafka.errors import FatalBrokerError
from reactive_kafka.testing import MemoryBroker
from tests.cli.process import cli
from tests.schemas.server import RegistryServer

MODULE = "connected_shop"
SHOP = """\
from reactive_kafka import App

app = App()


@app.incoming("orders")
@app.outgoing("invoices")
async def invoice(order: bytes) -> bytes:
    return order
"""
CONFIG = """\
[kafka]
group_id = "shop"

[incoming.orders]
failure_strategy = "dead-letter-queue"

[outgoing.invoices]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / f"{MODULE}.py").write_text(SHOP)
    (tmp_path / "shop.toml").write_text(CONFIG)
    yield tmp_path
    sys.modules.pop(MODULE, None)
    while str(tmp_path.resolve()) in sys.path:
        sys.path.remove(str(tmp_path.resolve()))


def check(folder: Path, broker: MemoryBroker, *options: str) -> Result:
    arguments = ["check", f"{MODULE}:app", "--connect", "--app-dir", str(folder)]
    arguments += ["--config", str(folder / "shop.toml"), *options]
    return CliRunner().invoke(commands, arguments, obj=lambda servers: broker.connector())


def broker_with(*topics: str) -> MemoryBroker:
    broker = MemoryBroker()
    for topic in topics:
        broker.create_topic(topic, 2)
    return broker


ALL = ("orders", "invoices", "dead-letter-topic-orders")


def test_it_is_fine_if_everything_is_there(folder: Path) -> None:
    ended = check(folder, broker_with(*ALL))
    assert ended.exit_code == 0, ended.output
    assert "connected_shop:app is fine" in ended.stdout


def test_every_topic_that_is_missing_is_named_with_its_use(folder: Path) -> None:
    config = CONFIG + "[incoming.refunds]\nenabled = false\n"
    (folder / "shop.toml").write_text(config)
    ended = check(folder, broker_with("orders"))
    assert ended.exit_code == 1
    assert "2 problems with what it connects to" in ended.stderr
    assert "[outgoing.invoices]: there is no topic 'invoices'" in ended.stderr
    assert "[incoming.refunds]: there is no topic 'refunds'" in ended.stderr
    assert "is fine" not in ended.stdout


CREATED = (
    "[incoming.orders] dead letters: there is no topic 'dead-letter-topic-orders' at localhost:9092"
)


def test_a_letter_topic_that_is_missing_is_created_by_the_start(folder: Path) -> None:
    broker = broker_with("orders", "invoices")
    ended = check(folder, broker)
    assert ended.exit_code == 0, ended.output
    assert f"{CREATED}: the start creates it\n" in ended.stdout
    assert "dead-letter-topic-orders" not in broker.topics()
    as_json = json.loads(check(folder, broker, "--json").stdout)
    assert as_json["created"] == [f"{CREATED}: the start creates it"]
    assert as_json["problems"] == []


def test_a_letter_topic_is_not_created_without_the_topic_of_its_channel(folder: Path) -> None:
    ended = check(folder, broker_with("invoices"))
    assert ended.exit_code == 1
    assert f"{CREATED}, and it is created only when the channel's own topic exists" in ended.stderr
    # The start creates that one first.
    (folder / "shop.toml").write_text(CONFIG + "[topics.orders]\ncreate = true\n")
    ended = check(folder, broker_with("invoices"))
    assert ended.exit_code == 0, ended.output
    assert (
        "[incoming.orders]: there is no topic 'orders' at localhost:9092: the start" in ended.stdout
    )
    assert f"{CREATED}: the start creates it" in ended.stdout


def test_a_topic_that_the_start_cannot_create_is_a_problem(folder: Path) -> None:
    broker = broker_with("orders", "invoices")
    broker.fail_next("create_topic", FatalBrokerError("the right CREATE on it is missing"))
    ended = check(folder, broker)
    assert ended.exit_code == 1
    assert (
        f"{CREATED}, or the right to see it is missing, and the start cannot create it: "
        "the right CREATE on it is missing"
    ) in ended.stderr


def test_a_declared_topic_is_tried_as_it_is_declared(folder: Path) -> None:
    more = "[topics.invoices]\ncreate = true\nreplication_factor = 3\n"
    (folder / "shop.toml").write_text(CONFIG + more)
    ended = check(folder, broker_with(*ALL[:1], ALL[2]))
    assert ended.exit_code == 1
    assert "the start cannot create it: replication factor 3: there is 1 broker" in ended.stderr


def test_a_channel_may_read_the_letters_that_another_one_creates(folder: Path) -> None:
    more = '[incoming.letters]\nenabled = false\ntopic = "dead-letter-topic-orders"\n'
    (folder / "shop.toml").write_text(CONFIG + more)
    ended = check(folder, broker_with("orders", "invoices"))
    assert ended.exit_code == 0, ended.output
    assert "[incoming.orders] dead letters, [incoming.letters]: there is no topic" in ended.stdout


def test_a_topic_that_the_application_creates_need_not_be_there(folder: Path) -> None:
    (folder / "shop.toml").write_text(CONFIG + "[topics.invoices]\ncreate = true\n")
    ended = check(folder, broker_with("orders", "dead-letter-topic-orders"))
    assert ended.exit_code == 0, ended.output
    assert "[outgoing.invoices]: there is no topic 'invoices'" in ended.stdout


def test_json_has_what_is_missing_among_the_problems(folder: Path) -> None:
    ended = check(folder, broker_with("orders", "dead-letter-topic-orders"), "--json")
    assert ended.exit_code == 1
    (problem,) = json.loads(ended.stdout)["problems"]
    assert "'invoices'" in problem


@pytest.mark.parametrize(
    ("reads", "missing"),
    [
        ('pattern = "ord.*"', None),
        ('pattern = "refunds.*"', "[incoming.orders]: no topic"),
        ('assign = ["orders:1"]', None),
        ('assign = ["orders:7"]', "[incoming.orders]: there is no partition orders-7"),
    ],
)
def test_patterns_and_partitions_are_looked_for(
    reads: str, missing: str | None, folder: Path
) -> None:
    config = CONFIG.replace("[incoming.orders]", f"[incoming.orders]\n{reads}")
    (folder / "shop.toml").write_text(config)
    ended = check(folder, broker_with(*ALL))
    assert ended.exit_code == (0 if missing is None else 1), ended.output
    assert missing is None or missing in ended.stderr


def test_a_registry_is_asked_and_one_that_is_away_is_reported(
    folder: Path, registry: RegistryServer
) -> None:
    config = folder / "shop.toml"
    config.write_text(CONFIG + f'\n[schema_registry]\nurl = "{registry.url}"\n')
    ended = check(folder, broker_with(*ALL))
    assert ended.exit_code == 0, ended.output
    config.write_text(CONFIG + '\n[schema_registry]\nurl = "http://127.0.0.1:1"\n')
    ended = check(folder, broker_with(*ALL))
    assert ended.exit_code == 1
    assert "schema registry http://127.0.0.1:1: " in ended.stderr


def test_a_store_that_cannot_be_opened_is_reported(folder: Path) -> None:
    store = f"file://{folder}/positions"
    more = f'commit_strategy = "checkpoint"\ncheckpoint = {{ store = "{store}" }}\n'
    config = folder / "shop.toml"
    config.write_text(CONFIG.replace("[incoming.orders]\n", f"[incoming.orders]\n{more}"))
    ended = check(folder, broker_with(*ALL))
    assert ended.exit_code == 0, ended.output

    # The parent of this folder is a file.
    config.write_text(config.read_text().replace("/positions", "/shop.toml/positions"))
    ended = check(folder, broker_with(*ALL))
    assert ended.exit_code == 1
    assert "[incoming.orders] checkpoint store: " in ended.stderr


def test_the_table_of_an_outbox_is_created_and_tried(folder: Path) -> None:
    store = f"sqlite:///{folder}/shop.db"
    config = CONFIG.replace(
        "[incoming.orders]\n",
        f'[incoming.orders]\ncommit_strategy = "checkpoint"\ncheckpoint = {{ store = "{store}" }}\n',
    ).replace("[outgoing.invoices]\n", "[outgoing.invoices]\noutbox = true\n")
    (folder / "shop.toml").write_text(config)
    ended = check(folder, broker_with(*ALL))
    assert ended.exit_code == 0, ended.output
    with closing(sqlite3.connect(folder / "shop.db")) as database:
        assert database.execute("SELECT count(*) FROM reactive_kafka_outbox").fetchone() == (0,)
        # As of an older or another application.
        database.execute("DROP TABLE reactive_kafka_outbox")
        database.execute("CREATE TABLE reactive_kafka_outbox (id INTEGER PRIMARY KEY)")
    ended = check(folder, broker_with(*ALL))
    assert ended.exit_code == 1
    for right in ("INSERT", "SELECT"):
        words = f"[outgoing.invoices] outbox: {right} on the table reactive_kafka_outbox: {store}: "
        assert words in ended.stderr
    assert "DELETE on the table" not in ended.stderr


def test_brokers_that_are_away_are_reported_within_the_limit(folder: Path) -> None:
    (folder / "shop.toml").write_text(
        CONFIG.replace("[kafka]", '[kafka]\nbootstrap_servers = "127.0.0.1:1"')
    )
    target = f"{MODULE}:app"
    ended = cli("check", target, "--connect", "--config", "shop.toml", cwd=folder, timeout_s=30)
    assert ended.code == 1
    assert "brokers 127.0.0.1:1: no broker can be used" in ended.err
