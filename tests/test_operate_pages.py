"""The pages about choosing and operating say what measurements, code and settings say."""

from __future__ import annotations

import ast
import dataclasses
import json
import math
import re
from functools import cache
from pathlib import Path

import pytest

import reactive_kafka.events
from reactive_kafka.config.load import read_settings
from reactive_kafka.runtime.signals import CLOSING_S
from tests import pages


def table(page: str, heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, without its head."""
    text = pages.page(page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in text.splitlines()
        if line.startswith("| ")
    ]
    assert rows, f"no table below {heading} in {page}"
    return rows[1:]


def test_the_page_why_repeats_the_measured_rows_of_lost_and_repeated() -> None:
    measured = {
        contender.strip(): (guarantee, lost, kills, restarts)
        for contender, guarantee, _, _, _, lost, kills, restarts in table(
            "benchmarks/peers_results.md", "Lost and repeated"
        )
    }
    shown = table("docs/why.md", "Lost and repeated")
    assert len(shown) >= 10
    for contender, *figures in shown:
        assert measured[contender] == tuple(figures)


def test_the_page_why_hides_no_peer_that_does_better() -> None:
    """Of peers that promise at least once, those that repeat less after kills are shown."""
    rows = table("benchmarks/peers_results.md", "Lost and repeated")
    (ours,) = (int(row[6].replace(",", "")) for row in rows if row[0] == "reactive_kafka")
    better = {
        re.sub(r"[,\s].*", "", row[0])
        for row in rows
        if row[1].startswith("at least once") and int(row[6].replace(",", "")) < ours
    }
    shown = {re.sub(r"[,\s].*", "", row[0]) for row in table("docs/why.md", "Lost and repeated")}
    assert better <= shown


def said_by_the_code(text: str) -> bool:
    """Whether the package has every fixed part of a text in one of its string literals."""
    fixed = re.split(r"\bTOPIC(?:-N)?\b|\bN\b|\.\.\.|: ", text)
    return all(part.strip(" '()=") in _literals() for part in fixed)


@cache
def _literals() -> str:
    """The text of all string literals of the package, one a line; adjoining ones are one."""
    found = []
    for path in (pages.ROOT / "reactive_kafka").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [
                    part.value if isinstance(part, ast.Constant) else "\0" for part in node.values
                ]
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


@pytest.mark.parametrize(
    ("heading", "column"),
    [
        ("Nothing is consumed", 0),
        ("Not ready", 0),
        ("Duplicates after a deployment", 0),
        ("TLS and logins", 0),
    ],
)
def test_the_texts_that_troubleshooting_quotes_are_those_of_the_code(
    heading: str, column: int
) -> None:
    quoted = [
        text
        for row in table("docs/troubleshooting.md", heading)
        for text in re.findall(r"`([^`]+ [^`]+)`", row[column])
    ]
    assert quoted
    assert [text for text in quoted if not said_by_the_code(text)] == []


def test_a_text_that_the_code_does_not_say_is_found() -> None:
    assert said_by_the_code("the topic 'TOPIC' does not exist and the broker creates none")
    assert not said_by_the_code("the topic 'TOPIC' has gone fishing")


# -- time to stop


def longest_stop_s(drain_timeout_s: float) -> float:
    """When the process has ended at the latest, counted from the signal."""
    return drain_timeout_s + CLOSING_S


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


@pytest.mark.parametrize(
    ("page", "setting"),
    [
        ("docs/docker.md", r"stop_grace_period: (\d+s)"),
        ("docs/docker.md", r"--stop-timeout (\d+)"),
        ("docs/kubernetes.md", r"terminationGracePeriodSeconds: (\d+)"),
        ("docs/systemd.md", r"TimeoutStopSec=(\d+)"),
    ],
)
def test_each_grace_period_on_the_pages_is_longer_than_a_stop_takes(
    page: str, setting: str
) -> None:
    default = read_settings({"incoming": {"orders": {"group_id": "billing"}}}, environ={})
    stop_s = longest_stop_s(default.checked().incoming["orders"].drain_timeout_s)
    shown = re.findall(setting, pages.page(page).read_text())
    assert shown
    assert all(seconds(grace) >= stop_s for grace in shown)


def test_the_unit_signals_the_service_only_and_restarts_it_after_a_failure() -> None:
    (unit, *_) = [block.text for block in pages.blocks(pages.page("docs/systemd.md"), "ini")]
    settings = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line)
    assert settings["KillMode"] == "mixed"
    assert settings["Restart"] == "on-failure"
    assert settings["ExecStart"].endswith(" --exit-on-failure")
    assert settings.keys() >= {"TimeoutStopSec", "DynamicUser", "WorkingDirectory"}
    # Named in the text only.
    text = pages.page("docs/systemd.md").read_text()
    for word in ("LoadCredential", "RestartPreventExitStatus", "WatchdogSec", "MemoryMax"):
        assert f"{word}=" in text or f"`{word}`" in text


@pytest.mark.parametrize("page", ["docs/docker.md", "docs/kubernetes.md", "docs/systemd.md"])
def test_every_variable_on_the_pages_sets_what_it_names(page: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    secret.chmod(0o600)
    text = pages.page(page).read_text()
    # The last part of a value is enough: a file exists, an address is any text.
    values = dict.fromkeys(re.findall(r"REACTIVE_KAFKA__\w+", text), "text")
    for name in values:
        if name.endswith("_FILE"):
            values[name] = str(secret)
        elif name.endswith("SECURITY_PROTOCOL"):
            values[name] = "SASL_SSL"
        elif name.endswith("SASL_MECHANISM"):
            values[name] = "PLAIN"
    password = {
        "REACTIVE_KAFKA__KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
        "REACTIVE_KAFKA__KAFKA__SASL_MECHANISM": "PLAIN",
        "REACTIVE_KAFKA__KAFKA__SASL_PLAIN_USERNAME": "shop",
    }
    if any(name.endswith("PASSWORD_FILE") for name in values):
        values = password | values
    settings = read_settings({"incoming": {"orders": {"group_id": "billing"}}}, environ=values)
    assert settings.checked().incoming


# -- sizing


def number(text: str) -> float:
    return float(text.replace(",", ""))


WAIT_S = 0.010
"""What the handler of the measured table waits."""


def capacity(concurrency: float, wait_s: float, cpu_s: float) -> float:
    """The recipe of docs/sizing.md: records per second of one process."""
    return min(concurrency / wait_s, 1 / cpu_s)


def test_the_capacity_that_sizing_computes_is_near_what_was_measured() -> None:
    measured = {
        row[0]: (row[1], row[3])
        for row in table("docs/performance.md", "Throughput over records in flight")
        if row[0][0].isdigit()
    }
    shown = [
        row for row in table("docs/sizing.md", "Does the formula hold?") if row[0][0].isdigit()
    ]
    assert [row[0] for row in shown] == list(measured)
    for concurrency, rate, cpu_us, formula in shown:
        assert measured[concurrency] == (rate, cpu_us)
        computed = capacity(number(concurrency), WAIT_S, number(cpu_us) / 1e6)
        assert computed == pytest.approx(number(formula), abs=1)
        assert -0.02 <= computed / number(rate) - 1 <= 0.11


def test_the_example_of_sizing_is_computed_right() -> None:
    rate, wait_s, cpu_s = (
        number(row[2]) for row in table("docs/sizing.md", "1. Measure") if row[2] != "---"
    )
    computed = {row[0]: row[2] for row in table("docs/sizing.md", "2. Compute")}
    handlers = rate * wait_s * 1.5
    processes = math.ceil(rate * cpu_s / 0.6)
    assert number(computed["handlers at once, in all"]) == pytest.approx(handlers)
    assert number(computed["processes"]) == processes
    assert number(computed["`concurrency` of each process"]) == pytest.approx(handlers / processes)
    # It reaches the peak, with the reserve.
    assert capacity(handlers / processes, wait_s, cpu_s) * processes >= rate * 1.5


def test_the_memory_of_sizing_is_what_was_measured() -> None:
    text = pages.page("docs/sizing.md").read_text()
    peaks = table("benchmarks/peers_results.md", "A handler that does nothing")
    ours = max(int(row[6]) for row in peaks if row[0] in ("reactive_kafka, `bytes`",))
    assert f"about {ours} MB" in text
    assert f"{ours} MB + 1,000 × 15 kB + 3 × 32 MB = {ours + 15 + 96} MB" in text
    growth = table("benchmarks/growth_results.md", "The model")
    each = [
        (row[1], float(re.findall(r"\+ ([\d.]+) each", row[4])[0]))
        for row in growth
        if row[0] == "memory, KB"
    ]
    by_kind = {sizes.split()[-1]: kb for sizes, kb in each}
    assert by_kind["flight"] < 5
    assert round(by_kind["partitions"]) == 4
    assert round(by_kind["channels"]) == 65


# -- logging


def test_the_json_lines_of_the_page_about_logging_have_the_fields_of_their_event() -> None:
    (block,) = pages.blocks(pages.page("docs/logging.md"), "json")
    lines = [json.loads(line) for line in block.text.splitlines()]
    (event,) = [line for line in lines if "event_type" in line]
    kind = getattr(reactive_kafka.events, event["event_type"])
    formatted = {"time", "level", "logger", "message", "event_type", "exception"}
    known = {field.name for field in dataclasses.fields(kind)} | {"topic", "partition"}
    assert event.keys() - formatted <= known
    assert event["message"].startswith(f"{event['channel']}: ")


def test_the_page_about_logging_names_every_logger_that_speaks() -> None:
    sources = [path.read_text() for path in (pages.ROOT / "reactive_kafka").rglob("*.py")]
    found = {
        logger
        for source in sources
        for logger in re.findall(r'getLogger\("(reactive_kafka[\w.]*)"\)', source)
    }
    named = {logger for row in table("docs/logging.md", "The loggers") for logger in [row[0]]}
    silent = {logger for logger in found if not any(f"`{logger}`" in row for row in named)}
    assert silent == set()
