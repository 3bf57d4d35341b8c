"""The bookshop example: its own tests, and the whole shop as its one command starts it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.process import environment
from tests.examples.typed_page import printed_but_for_numbers, shown
from tests.faults.driver import free_port

FOLDER = Path(__file__).parents[2] / "examples" / "bookshop"


def test_its_tests_pass() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        command, cwd=FOLDER, env=environment({}), capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "4 passed" in ran.stdout


@pytest.mark.spark
def test_the_whole_shop_sells_books_and_closes_when_it_is_told_to(tmp_path: Path) -> None:
    port = free_port()
    shop = f"http://127.0.0.1:{port}"
    variables = {"BOOKSHOP_PORT": str(port), "TMPDIR": str(tmp_path)}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "bookshop"],
            cwd=FOLDER,
            env=environment(variables),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        figures = until_books_are_sold(shop, process)
        assert figures["ready"], figures
        assert figures["reasons"] == []
        until_the_log_has_what_the_readme_shows(tmp_path / "log")
        book = {"customer": "you", "title": "Emma", "cents": 999}
        assert httpx.post(f"{shop}/orders", json=book).status_code == 201
        assert "Bookshop" in httpx.get(shop).text
        assert "reactive_kafka_records_sent_total" in httpx.get(f"{shop}/kafka/metrics").text
        process.send_signal(signal.SIGINT)
        process.wait(60)
    finally:
        process.kill()
        process.wait()
    text = (tmp_path / "log").read_text()
    assert "Finished server process" in text
    assert "Task exception was never retrieved" not in text


def until_books_are_sold(shop: str, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, "the shop has ended by itself"
        try:
            figures: dict[str, Any] = httpx.get(f"{shop}/figures").json()
        except httpx.TransportError:
            figures = {"sales": {}}
        if figures["sales"]:
            return figures
        time.sleep(0.2)
    raise AssertionError("no book was sold in two minutes")


def until_the_log_has_what_the_readme_shows(log: Path) -> None:
    """Some customers have no money, but not each second one of them orders."""
    declined = shown("examples/bookshop/README.md")
    deadline = time.monotonic() + 60
    while not printed_but_for_numbers(declined, log.read_text()):
        assert time.monotonic() < deadline, f"not within a minute: {declined}"
        time.sleep(0.2)
