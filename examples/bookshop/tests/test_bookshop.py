"""The bookshop's own tests: in memory, without Kafka and without Spark."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

# No invented customers: each test sends its own orders.
os.environ["BOOKSHOP_ORDERS_PER_SECOND"] = "0"

from bookshop.bank import BankAway, Declined, bank
from bookshop.handlers import charge
from bookshop.records import Order
from bookshop.service import app, web

from reactive_kafka.testing import TestApp

EMMA = Order(id="1", customer="ada", title="Emma", cents=999)


class BankOfTests:
    """Is away for the first calls; declines customers without money."""

    def __init__(self, away: int = 0) -> None:
        self.away = away

    async def charge(self, order: str, customer: str, cents: int) -> str:
        if self.away:
            self.away -= 1
            raise BankAway("no answer")
        if customer == "broke":
            raise Declined("no money")
        return f"transfer of {order}"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "bookshop.db"


@pytest.fixture
def shop(database: Path) -> Iterator[TestApp]:
    overrides = {
        "incoming": {
            "archive": {"checkpoint": {"store": f"sqlite:///{database}"}},
            "sales": {"enabled": False},
        }
    }
    app.dependency_overrides[bank] = BankOfTests
    yield TestApp(app, overrides=overrides)
    app.dependency_overrides.clear()


def rows(database: Path) -> list[tuple[str, int]]:
    with sqlite3.connect(database) as connection:
        return connection.execute("SELECT order_id, cents FROM invoices").fetchall()


async def test_an_order_is_charged_and_its_invoice_is_kept_once(
    shop: TestApp, database: Path
) -> None:
    async with shop as test:
        await test.send("orders", EMMA, key=EMMA.customer)
        await test.settled()
        assert len(test.records("invoices")) == 1
    assert rows(database) == [("1", 999)]


async def test_a_bank_that_is_away_is_asked_again(shop: TestApp) -> None:
    app.dependency_overrides[bank] = lambda: BankOfTests(away=2)
    async with shop as test:
        await test.send("orders", EMMA, key=EMMA.customer)
        await test.settled()
        assert [type(call.error) for call in test.handler(charge).calls] == [
            BankAway,
            BankAway,
            type(None),
        ]


async def test_nonsense_is_a_dead_letter_and_a_declined_order_has_no_invoice(
    shop: TestApp,
) -> None:
    async with shop as test:
        await test.send("orders", b"one book please", key="ada")
        await test.send("orders", EMMA.model_copy(update={"customer": "broke"}), key="broke")
        await test.settled()
        (letter,) = test.records("dead-letter-topic-orders")
        assert letter.value == b"one book please"
        assert test.records("invoices") == []


async def test_the_website_answers_when_the_broker_has_the_order(
    shop: TestApp, database: Path
) -> None:
    transport = httpx.ASGITransport(web)
    async with (
        shop as test,
        httpx.AsyncClient(transport=transport, base_url="http://shop") as web_user,
    ):
        answer = await web_user.post(
            "/orders", json={"customer": "ada", "title": "Emma", "cents": 999}
        )
        refused = await web_user.post("/orders", json={"customer": "ada", "cents": -1})
        assert (answer.status_code, refused.status_code) == (201, 422)
        figures = (await web_user.get("/figures")).json()
        assert figures["ready"], figures["reasons"]
        await test.settled()
    assert rows(database) == [(answer.json()["order"], 999)]
