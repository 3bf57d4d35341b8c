"""``channels``: from an application, and from a configuration alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from reactive_kafka.cli.commands import commands
from tests.cli.process import Ended

SHOP = """\
from reactive_kafka import App

app = App()


@app.incoming("orders")
@app.outgoing("invoices")
async def invoice(order: dict) -> dict:
    return {}


@app.incoming("clicks")
@app.outgoing("stage")
async def count(click: bytes) -> bytes:
    return click


@app.incoming("stage")
async def store(click: bytes) -> None: ...
"""
CONFIG = """\
[kafka]
bootstrap_servers = "kafka:9092"
group_id = "shop"

[incoming.orders]
topic = "shop.orders"

[incoming.clicks]
pattern = "clicks-.*"
group_id = "clicks"
value_deserializer = "bytes"
failure_strategy = "dead-letter-queue"

[incoming.again]
assign = ["shop.orders:0:5..9"]

[outgoing.invoices]
value_serializer = "json"

[memory.stage]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "channels_shop.py").write_text(SHOP)
    (tmp_path / "config.toml").write_text(CONFIG)
    return tmp_path


def run(folder: Path, *arguments: str) -> Ended:
    where = ("--config", str(folder / "config.toml"))
    done = CliRunner().invoke(commands, ["channels", *arguments, *where])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Ended(done.exit_code, done.stdout, done.stderr)


def test_the_channels_of_an_application_have_handlers(folder: Path) -> None:
    ended = run(folder, "channels_shop:app", "--app-dir", str(folder))
    assert ended.code == 0, ended.err
    assert ended.out.splitlines() == [
        "incoming  reads               group   handler                format  commits    on failure",
        "orders    shop.orders         shop    channels_shop.invoice  -       throttled  fail",
        "clicks    pattern clicks-.*   clicks  channels_shop.count    bytes   throttled  dead-letter-queue",
        "again     shop.orders:0:5..9  -       -                      -       ignore     fail",
        "",
        "outgoing  writes    from                   format  transactions",
        "invoices  invoices  channels_shop.invoice  json    -",
        "",
        "memory  from                 handler",
        "stage   channels_shop.count  channels_shop.store",
    ]


def test_a_configuration_alone_has_no_column_for_handlers(folder: Path) -> None:
    ended = run(folder)
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert lines[0].split() == ["incoming", "reads", "group", "format", "commits", "on", "failure"]
    assert lines[1].split() == ["orders", "shop.orders", "shop", "-", "throttled", "fail"]


def test_json_has_the_same(folder: Path) -> None:
    found = json.loads(run(folder, "channels_shop:app", "--app-dir", str(folder), "--json").out)
    assert found["incoming"][1] == {
        "channel": "clicks",
        "topics": [],
        "pattern": "clicks-.*",
        "assign": [],
        "group": "clicks",
        "handlers": ["channels_shop.count"],
        "on_spark": False,
        "format": "bytes",
        "commit_strategy": "throttled",
        "failure_strategy": "dead-letter-queue",
    }
    assert found["outgoing"][0]["from"] == ["channels_shop.invoice"]
    alone = json.loads(run(folder, "--json").out)
    assert alone["incoming"][1] == found["incoming"][1] | {"handlers": None, "on_spark": None}


def test_no_channels_is_said(folder: Path) -> None:
    (folder / "config.toml").write_text("[http]\nport = 1\n")
    assert run(folder).out == "there are no channels\n"


def test_a_broken_configuration_is_wrong_usage(folder: Path) -> None:
    (folder / "config.toml").write_text("[incoming.orders]\n")
    ended = run(folder)
    assert ended.code == 2
    assert "group_id is missing" in ended.err
