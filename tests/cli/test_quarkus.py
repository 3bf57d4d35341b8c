"""An ``application.properties`` on the command line: as it is, beside other files, and printed as
TOML.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.inside import cli_in
from tests.config.loading import loaded

SHOP = """\
from reactive_kafka import App

app = App("application.properties")


@app.incoming("orders")
@app.outgoing("invoices")
async def invoice(order: dict) -> dict:
    return order
"""
PROPERTIES = """\
kafka.bootstrap.servers=kafka:9092
quarkus.application.name=shop
mp.messaging.incoming.orders.connector=smallrye-kafka
mp.messaging.incoming.orders.topic=shop-orders
mp.messaging.incoming.orders.ordered=key
%dev.mp.messaging.incoming.orders.topic=dev-orders
mp.messaging.outgoing.invoices.connector=smallrye-kafka
"""

YAML = """\
kafka.bootstrap.servers: kafka:9092
quarkus:
  application:
    name: shop
mp:
  messaging:
    incoming:
      orders:
        connector: smallrye-kafka
        topic: shop-orders
        ordered: key
    outgoing:
      invoices:
        connector: smallrye-kafka
"%dev":
  mp.messaging.incoming.orders.topic: dev-orders
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "application.properties").write_text(PROPERTIES)
    return tmp_path


def test_an_application_may_name_the_file_itself(folder: Path) -> None:
    ended = cli_in(folder, "check", "shop:app")
    assert (ended.code, ended.err) == (0, "")
    assert "configuration  application.properties" in ended.out
    assert "incoming orders: topic shop-orders, group shop" in ended.out


def test_later_files_win_key_by_key(folder: Path) -> None:
    (folder / "more.toml").write_text("[incoming.orders]\nconcurrency = 3\n")
    ended = cli_in(
        folder, "check", "shop:app", "--config", "application.properties", "--config", "more.toml"
    )
    assert (ended.code, ended.err) == (0, "")
    assert "configuration  application.properties, more.toml" in ended.out
    assert "  concurrency = 3\n" in ended.out
    assert "  ordering = key\n" in ended.out


def test_the_yaml_of_quarkus_is_read_as_its_properties_are(folder: Path) -> None:
    ended = cli_in(folder, "check", "--from-quarkus", "application.properties")
    (folder / "application.yaml").write_text(YAML)
    as_yaml = cli_in(folder, "check", "--from-quarkus", "application.yaml")
    assert (as_yaml.code, as_yaml.err) == (0, "")
    assert as_yaml.out == ended.out.replace("application.properties", "application.yaml")
    served = cli_in(folder, "check", "shop:app", "--config", "application.yaml")
    assert (served.code, served.err) == (0, "")
    assert "incoming orders: topic shop-orders, group shop" in served.out


def test_what_is_printed_is_a_configuration_that_says_the_same(folder: Path) -> None:
    ended = cli_in(folder, "check", "--from-quarkus", "application.properties")
    assert (ended.code, ended.err) == (0, "")
    printed = folder / "reactive-kafka.toml"
    printed.write_text(ended.out)
    theirs, ours = (loaded(file) for file in (folder / "application.properties", printed))
    assert (ours.incoming, ours.outgoing) == (theirs.incoming, theirs.outgoing)
    assert ours.bootstrap_servers == "kafka:9092"


def test_the_profile_is_the_environments(folder: Path) -> None:
    environ = {**os.environ, "REACTIVE_KAFKA_PROFILE": "dev"}
    ended = cli_in(folder, "check", "--from-quarkus", "application.properties", env=environ)
    assert 'topic = "dev-orders"' in ended.out
    assert ended.out.startswith("# What application.properties means, profile dev.\n")


def test_problems_are_told_and_nothing_is_printed(folder: Path) -> None:
    with (folder / "application.properties").open("a") as file:
        file.write(
            "mp.messaging.incoming.orders.lazy-client=true\nmp.messaging.incoming.orders.ordred=key\n"
        )
    ended = cli_in(folder, "check", "--from-quarkus", "application.properties")
    assert (ended.code, ended.out) == (2, "")
    assert "2 problems in the configuration" in ended.err
    assert "line 8: mp.messaging.incoming.orders.lazy-client = 'true': not supported" in ended.err
    assert "did you mean 'ordered'?" in ended.err


def test_strict_refuses_warnings_here_too(folder: Path) -> None:
    with (folder / "application.properties").open("a") as file:
        file.write("smallrye.messaging.worker.p.max-concurrency=3\n")
    assert cli_in(folder, "check", "--from-quarkus", "application.properties").code == 0
    ended = cli_in(folder, "check", "--from-quarkus", "application.properties", "--strict")
    assert ended.code == 2
    assert "1 warning, and with --strict there must be none" in ended.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("shop:app", "--from-quarkus", "application.properties"),
            "--from-quarkus cannot be combined with MODULE:APP",
        ),
        (
            ("--config", "shop.py", "--from-quarkus", "application.properties"),
            "cannot be combined with MODULE:APP and --config",
        ),
        ((), "Missing argument 'MODULE:APP'"),
        (("--from-quarkus", "none.properties"), "does not exist"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(
    folder: Path, arguments: tuple[str, ...], said: str
) -> None:
    ended = cli_in(folder, "check", *arguments)
    assert ended.code == 2
    assert said in ended.err
