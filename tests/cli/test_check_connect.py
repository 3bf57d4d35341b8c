"""``check --connect``: what an application would not find when it connects."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reactive_kafka.cli.commands import commands
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
    ended = check(folder, broker_with("orders"))
    assert ended.exit_code == 1
    assert "2 problems with what it connects to" in ended.stderr
    assert "[outgoing.invoices]: there is no topic 'invoices'" in ended.stderr
    assert (
        "[incoming.orders] dead letters: there is no topic 'dead-letter-topic-orders'"
        in ended.stderr
    )
    assert "is fine" not in ended.stdout


def test_a_topic_that_the_application_creates_need_not_be_there(folder: Path) -> None:
    (folder / "shop.toml").write_text(CONFIG + "[topics.invoices]\ncreate = true\n")
    ended = check(folder, broker_with("orders", "dead-letter-topic-orders"))
    assert ended.exit_code == 0, ended.output


def test_json_has_what_is_missing_among_the_problems(folder: Path) -> None:
    ended = check(folder, broker_with("orders", "invoices"), "--json")
    assert ended.exit_code == 1
    (problem,) = json.loads(ended.stdout)["problems"]
    assert "dead-letter-topic-orders" in problem


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


def test_brokers_that_are_away_are_reported_within_the_limit(folder: Path) -> None:
    (folder / "shop.toml").write_text(
        CONFIG.replace("[kafka]", '[kafka]\nbootstrap_servers = "127.0.0.1:1"')
    )
    target = f"{MODULE}:app"
    ended = cli("check", target, "--connect", "--config", "shop.toml", cwd=folder, timeout_s=30)
    assert ended.code == 1
    assert "brokers 127.0.0.1:1: no broker can be used" in ended.err
