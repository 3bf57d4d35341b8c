"""``check`` prints what is in effect, or all that is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.inside import cli_in
from tests.cli.process import cli

SHOP = """\
from dataclasses import dataclass

from reactive_kafka import App, Batch, Message

app = App()


@dataclass
class Order:
    id: int


@app.incoming("orders", ack="manual")
@app.outgoing("invoices")
async def invoice(message: Message[Order]) -> dict:
    return {}


@app.incoming("clicks")
def count(clicks: Batch[bytes]) -> None: ...
"""
CONFIG = """\
[kafka]
bootstrap_servers = "kafka:9092"
group_id = "shop"
security_protocol = "SASL_SSL"
sasl_mechanism = "PLAIN"
sasl_plain_username = "shop"
sasl_plain_password = "hunter2"

[incoming.orders]
topic = "shop.orders"
commit_interval = "3s"

[incoming.clicks]
group_id = "clicks"

[incoming.idle]
group_id = "idle"

[outgoing.invoices]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "reactive-kafka.toml").write_text(CONFIG)
    return tmp_path


MANY = """\
from reactive_kafka import App

app = App()

def is_big(message):
    return len(message.payload) > 9

@app.incoming("orders")
async def rest(order: bytes) -> None: ...

@app.incoming("orders", when=is_big)
@app.outgoing("invoices")
def big(order: bytes) -> bytes:
    return order
"""


def test_it_prints_all_handlers_of_a_channel_in_the_order_in_which_they_are_asked(
    tmp_path: Path,
) -> None:
    (tmp_path / "shop.py").write_text(MANY)
    config = '[incoming.orders]\ngroup_id = "shop"\nbroadcast = false\n[outgoing.invoices]\n'
    (tmp_path / "reactive-kafka.toml").write_text(config)
    ended = cli_in(tmp_path, "check", "shop:app")
    assert (ended.code, ended.err) == (0, "")
    lines = [line for line in ended.out.splitlines() if line.startswith(("  handler", "  from"))]
    assert lines == [
        "  handler = shop.big(bytes), in worker threads, sends to invoices, when shop.is_big",
        "  handler = shop.rest(bytes), on the event loop",
        "  from = shop.big",
    ]


def test_it_prints_each_channel_with_its_handler_and_settings_without_a_broker(
    folder: Path,
) -> None:
    ended = cli("check", "shop:app", "--all", cwd=folder)
    assert (ended.code, ended.err) == (0, "")
    blocks = {block.splitlines()[0]: block.splitlines()[1:] for block in ended.out.split("\n\n")}
    orders = blocks["incoming orders: topic shop.orders, group shop"]
    assert (
        "  handler = shop.invoice(Message[Order]), on the event loop, sends to invoices" in orders
    )
    assert {"  commit_strategy = throttled", "  commit_interval = 3s", "  ack = manual"} <= set(
        orders
    )
    clicks = blocks["incoming clicks: topic clicks, group clicks"]
    assert "  handler = shop.count(Batch[bytes]), in worker threads" in clicks
    assert (
        "  handler = none: for `async for message in app.channel(...)`"
        in blocks["incoming idle: topic idle, group idle"]
    )
    assert "  from = shop.invoice" in blocks["outgoing invoices: topic invoices"]
    assert ended.out.splitlines()[-1] == "shop:app is fine: 3 incoming, 1 outgoing"


def test_a_secret_file_that_others_may_read_is_warned_of(folder: Path) -> None:
    """Row J6 of the faults."""
    secret = folder / "password"
    secret.write_text("hunter2")
    secret.chmod(0o644)
    config = CONFIG.replace(
        'sasl_plain_password = "hunter2"', 'sasl_plain_password_file = "password"'
    )
    (folder / "reactive-kafka.toml").write_text(config)
    ended = cli_in(folder, "check", "shop:app")
    assert (ended.code, ended.err) == (0, "")
    (warning,) = (line for line in ended.out.splitlines() if line.startswith("warning "))
    assert (
        "line 7: [kafka] sasl_plain_password_file = 'password': everybody on this machine may read"
        in warning
    )
    assert "(its mode is 0644): chmod 600" in warning


SENDERS = """\
from collections.abc import AsyncIterator

from reactive_kafka import App

app = App()


@app.incoming("orders")
@app.outgoing("lines")
@app.outgoing("audit")
async def split(order: dict) -> AsyncIterator[dict]:
    yield order


@app.outgoing("temperatures")
@app.outgoing("audit")
async def measure() -> AsyncIterator[float]:
    yield 21.5


@app.outgoing("temperatures")
async def measure_outside() -> AsyncIterator[float]:
    yield 3.5
"""
ALL_SENT = """\
[kafka]
group_id = "shop"
[incoming.orders]
[outgoing.lines]
[outgoing.audit]
[outgoing.temperatures]
[outgoing.unfed]
"""


def test_it_shows_the_sources_and_who_yields_and_what_feeds_each_outgoing_channel(
    tmp_path: Path,
) -> None:
    (tmp_path / "shop.py").write_text(SENDERS)
    (tmp_path / "reactive-kafka.toml").write_text(ALL_SENT)
    ended = cli_in(tmp_path, "check", "shop:app")
    assert (ended.code, ended.err) == (0, "")
    blocks = {block.splitlines()[0]: block.splitlines()[1:] for block in ended.out.split("\n\n")}
    orders = blocks["incoming orders: topic orders, group shop"]
    assert (
        "  handler = shop.split(dict), on the event loop, sends what it yields to audit, lines"
        in orders
    )
    assert "source shop.measure: sends what it yields to audit, temperatures" in blocks
    assert "source shop.measure_outside: sends what it yields to temperatures" in blocks
    feeds = {head: body[0] for head, body in blocks.items() if head.startswith("outgoing")}
    assert feeds == {
        "outgoing lines: topic lines": "  from = shop.split",
        "outgoing audit: topic audit": "  from = shop.split, source shop.measure",
        "outgoing temperatures: topic temperatures": "  from = source shop.measure, source shop.measure_outside",
        "outgoing unfed: topic unfed": "  from = no handler or source",
    }
    assert ended.out.splitlines()[-1] == "shop:app is fine: 1 incoming, 4 outgoing, 2 sources"


def test_without_all_it_prints_what_differs_from_the_defaults(folder: Path) -> None:
    ended = cli_in(folder, "check", "shop:app")
    block = ended.out.split("\n\n")[1].splitlines()
    assert block == [
        "incoming orders: topic shop.orders, group shop",
        "  handler = shop.invoice(Message[Order]), on the event loop, sends to invoices",
        "  commit_interval = 3s",
        "  ack = manual",
        "  sasl_mechanism = PLAIN",
        "  sasl_plain_password = ***",
        "  sasl_plain_username = shop",
        "  security_protocol = SASL_SSL",
    ]


def test_sources_are_lines_variables_decorators_and_defaults(folder: Path) -> None:
    env = {"REACTIVE_KAFKA__INCOMING__ORDERS__REVOKE_GRACE": "7s"}
    ended = cli_in(folder, "check", "shop:app", "--sources", "--all", env=env)
    block = ended.out.split("\n\n")[1].splitlines()
    variable = "environment variable REACTIVE_KAFKA__INCOMING__ORDERS__REVOKE_GRACE"
    assert {
        "  commit_interval = 3s  # reactive-kafka.toml:11",
        # Of [kafka].
        "  sasl_mechanism = PLAIN  # reactive-kafka.toml:5",
        "  ack = manual  # derived",
        "  ordering = partition  # default",
        f"  revoke_grace = 7s  # {variable}",
    } <= set(block)
    assert "brokers        kafka:9092  # reactive-kafka.toml:2" in ended.out


def test_json_has_channels_handlers_settings_with_sources_and_warnings(folder: Path) -> None:
    ended = cli_in(folder, "check", "shop:app", "--json")
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(ended.out)
    orders = found["channels"]["incoming"]["orders"]
    assert orders["settings"]["commit_interval"] == {
        "value": "3s",
        "source": "reactive-kafka.toml:11",
        "default": False,
    }
    assert orders["settings"]["topics"]["value"] == ["shop.orders"]
    assert orders["settings"]["ordering"]["default"] is True
    assert orders["handlers"] == [
        "shop.invoice(Message[Order]), on the event loop, sends to invoices"
    ]
    assert found["channels"]["outgoing"]["invoices"]["from"] == "shop.invoice"
    assert found["warnings"] == found["problems"] == []
    assert "hunter2" not in ended.out


def test_json_has_the_problems_of_a_wrong_configuration_too(folder: Path) -> None:
    wrong = CONFIG.replace("commit_interval", "comit_interval") + "[http]\nport = 70000\n"
    (folder / "bad.toml").write_text(wrong)
    ended = cli_in(folder, "check", "shop:app", "--config", "bad.toml", "--json")
    assert ended.code == 2
    problems = json.loads(ended.out)["problems"]
    assert ["comit_interval" in problems[0], "70000" in problems[1]] == [True, True]


def test_json_has_warnings_and_strict_counts_them(folder: Path) -> None:
    unused = CONFIG.replace(
        "[incoming.orders]", '[incoming.orders]\ndead_letter_queue = { topic = "letters" }'
    )
    (folder / "unused.toml").write_text(unused)
    options = ("--config", "unused.toml", "--json")
    ended = cli_in(folder, "check", "shop:app", *options)
    (warning,) = json.loads(ended.out)["warnings"]
    assert "has no effect" in warning
    assert cli_in(folder, "check", "shop:app", *options, "--strict").code == 2


def test_secrets_are_masked(folder: Path) -> None:
    ended = cli_in(folder, "check", "shop:app")
    assert "sasl_plain_password = ***" in ended.out
    assert "hunter2" not in ended.out + ended.err


def test_what_has_no_effect_is_a_warning_and_with_strict_an_error(folder: Path) -> None:
    unused = CONFIG.replace(
        "[incoming.orders]", '[incoming.orders]\ndead_letter_queue = { topic = "letters" }'
    )
    (folder / "unused.toml").write_text(unused)
    told = "warning        unused.toml, line 10: [incoming.orders] dead_letter_queue.topic = 'letters': has no effect"
    ended = cli_in(folder, "check", "shop:app", "--config", "unused.toml")
    assert (ended.code, ended.err) == (0, "")
    (line,) = [line for line in ended.out.splitlines() if line.startswith("warning")]
    assert line.startswith(told)
    assert ended.out.endswith("shop:app is fine: 3 incoming, 1 outgoing\n")
    ended = cli_in(folder, "check", "shop:app", "--config", "unused.toml", "--strict")
    assert ended.code == 2
    assert told in ended.out
    assert ended.err.endswith("Error: 1 warning, and with --strict there must be none\n")
    assert "is fine" not in ended.out
    assert cli_in(folder, "check", "shop:app", "--strict").code == 0


@pytest.mark.parametrize(
    ("more", "is_told"),
    [
        ("", True),
        ("\n@app.on_start\ndef begin() -> None: ...\n", False),
        ("\napp.emitter('invoices')\n", False),
    ],
)
def test_an_application_that_nothing_was_declared_for_is_told(
    more: str, is_told: bool, folder: Path
) -> None:
    (folder / "empty.py").write_text("from reactive_kafka import App\n\napp = App()\n" + more)
    ended = cli_in(folder, "check", "empty:app")
    assert (ended.code, ended.err) == (0, "")
    told = "\nwarning: the application has no handler, source or hook: is the module that declares them imported?\n"
    assert (told in ended.out) is is_told
    assert cli_in(folder, "check", "empty:app", "--strict").code == (2 if is_told else 0)


def test_every_problem_is_listed_and_it_exits_with_2(folder: Path) -> None:
    (folder / "bad.toml").write_text(
        CONFIG.replace("commit_interval", "comit_interval") + "[http]\nport = 70000\n"
    )
    ended = cli_in(folder, "check", "shop:app", "--config", "bad.toml")
    assert ended.code == 2
    assert "2 problems in the configuration" in ended.err
    assert "bad.toml, line 11: [incoming.orders] comit_interval" in ended.err
    assert "[http] port = 70000" in ended.err
    assert ended.out == ""


def test_a_handler_that_does_not_fit_is_a_problem_too(folder: Path) -> None:
    (folder / "other.toml").write_text(CONFIG.replace("[incoming.orders]", "[incoming.ordres]"))
    ended = cli_in(folder, "check", "shop:app", "--config", "other.toml")
    assert ended.code == 2
    assert "no [incoming.orders] is configured" in ended.err
    assert "did you mean 'ordres'?" in ended.err


def test_config_replaces_what_the_app_was_given(folder: Path) -> None:
    (folder / "prod.toml").write_text(CONFIG.replace("kafka:9092", "prod:9092"))
    ended = cli_in(folder, "check", "shop:app", "--config", "prod.toml")
    assert ended.out.splitlines()[:2] == ["configuration  prod.toml", "brokers        prod:9092"]


def test_a_file_that_is_not_there_is_wrong_usage(folder: Path) -> None:
    ended = cli_in(folder, "check", "shop:app", "--config", "nowhere.toml")
    assert ended.code == 2
    assert "nowhere.toml" in ended.err


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ('pattern = "orders-.*"', "incoming orders: pattern orders-.*, group shop"),
        ('topics = ["a", "b"]', "incoming orders: topics a, b, group shop"),
        ('assign = ["t:0", "t:1:-1"]', "incoming orders: partitions t:0, t:1:-1, group shop"),
        (
            'assign = ["t:4@2026-11-21T00:00:00Z"]\ncommit_strategy = "ignore"',
            "incoming orders: partition t:4@2026-11-21T00:00:00+00:00, no group",
        ),
    ],
)
def test_it_says_what_is_read_whatever_names_it(keys: str, line: str, folder: Path) -> None:
    group = "" if line.endswith("no group") else 'group_id = "shop"\n'
    (folder / "reads.toml").write_text(
        f"[incoming.orders]\n{group}{keys}\n[incoming.clicks]\ngroup_id = 'c'\n[outgoing.invoices]\n"
    )
    ended = cli_in(folder, "check", "shop:app", "--config", "reads.toml")
    assert (ended.code, ended.err) == (0, "")
    assert line in ended.out.splitlines()
    assert "  pattern = " not in ended.out
    assert "  assign = " not in ended.out


SPARK_SHOP = """\
from dataclasses import dataclass

from reactive_kafka import App

app = App()


@dataclass
class Click:
    page: str


@app.spark("clicks", payload=Click, corrupt="show")
def by_page(df, batch) -> None: ...


@app.spark("views")
def count(df, batch) -> None: ...
"""
SPARK_CONFIG = """\
[kafka]
group_id = "shop"

[incoming.clicks.spark]
mode = "ranges"
max_concurrent_jobs = 2
pool = "big"

[incoming.views]

[spark]
remote = "sc://spark:15002/;token=hunter2"
"""


@pytest.mark.spark
def test_it_names_where_spark_is_and_mode_pool_and_payload_of_each_spark_function(
    tmp_path: Path,
) -> None:
    (tmp_path / "shop.py").write_text(SPARK_SHOP)
    (tmp_path / "reactive-kafka.toml").write_text(SPARK_CONFIG)
    ended = cli_in(tmp_path, "check", "shop:app", "--all")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert "spark          sc://spark:15002/;token=***" in lines
    assert (
        "  handler = shop.by_page, batches on Spark: mode ranges, 2 at once, pool big, payload Click, corrupt ones too"
        in lines
    )
    assert (
        "  handler = shop.count, batches on Spark: mode records, one at a time, pool views" in lines
    )
    assert "  spark.pool = big" in lines
    assert "hunter2" not in ended.out
    views = lines[lines.index("incoming views: topic views, group shop") :]
    for said in (
        "batch_max_records = 50000",
        "batch_max_wait = 2s",
        "timeout = 10m",
        "pool = views",
        "mode = records",
    ):
        assert f"  spark.{said}" in views
    for of_handlers in ("batch_max_records", "batch_max_wait", "concurrency"):
        assert not any(line.startswith(f"  {of_handlers} = ") for line in lines)


STAGES = """
from reactive_kafka import App, Batch

app = App("reactive-kafka.toml")
emitter = app.emitter("mails")

@app.incoming("orders")
@app.outgoing("stage")
async def price(order: dict) -> dict: ...

@app.outgoing("stage")
async def late_orders():
    yield {}

@app.incoming("stage")
@app.outgoing("invoices")
def invoice(batch: Batch[dict]): ...

@app.incoming("mails")
async def mail(text: str): ...
"""


def test_it_shows_memory_channels_with_who_sends_and_who_handles(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(STAGES)
    channels = "[incoming.orders]\ngroup_id = 'g'\n[outgoing.invoices]\n[memory.mails]\n[memory.stage]\nmax_in_flight = 5"
    (tmp_path / "reactive-kafka.toml").write_text(channels)
    ended = cli_in(tmp_path, "check", "shop:app")
    assert (ended.code, ended.err) == (0, "")
    blocks = {block.splitlines()[0]: block.splitlines()[1:] for block in ended.out.split("\n\n")}
    assert blocks["memory stage: at most 5 values in flight"] == [
        "  from = shop.price, source shop.late_orders",
        "  handler = shop.invoice(Batch[dict]), in worker threads, sends to invoices",
    ]
    assert blocks["memory mails: at most 1000 values in flight"] == [
        "  from = app.emitter()",
        "  handler = shop.mail(str), on the event loop",
    ]
    assert "  from = shop.invoice" in blocks["outgoing invoices: topic invoices"]
    assert (
        ended.out.splitlines()[-1] == "shop:app is fine: 1 incoming, 1 outgoing, 1 source, 2 memory"
    )


def test_a_memory_channel_without_a_handler_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(STAGES.replace('@app.incoming("mails")', ""))
    channels = (
        "[incoming.orders]\ngroup_id = 'g'\n[outgoing.invoices]\n[memory.stage]\n[memory.mails]\n"
    )
    (tmp_path / "reactive-kafka.toml").write_text(channels)
    ended = cli_in(tmp_path, "check", "shop:app")
    assert ended.code == 2
    assert (
        "line 5: [memory.mails]: no handler takes its values: it needs an @app.incoming('mails')"
        in ended.err
    )
