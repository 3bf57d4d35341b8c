"""The service's own tests: in memory, and with ``ON_KAFKA=1`` on a real Kafka."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from payments.bank import BankAway, Declined, bank
from payments.handlers import settle
from payments.service import app, web

from reactive_kafka.testing import TestApp

REAL = bool(os.environ.get("ON_KAFKA"))


class BankOfTests:
    """Charges each payment once, as the real one does; declines the account ``broke``."""

    def __init__(self) -> None:
        self.charged: dict[str, int] = {}
        # So many answers get lost.
        self.away = 0
        self.order: list[str] = []
        self.at_once = Counter[str]()
        # Nobody is charged before so many accounts are there.
        self.opens_with = 1
        self.is_open = asyncio.Event()

    async def charge(self, account: str, cents: int, *, once: str) -> str:
        self.at_once[account] += 1
        assert self.at_once[account] == 1, "two payments of an account at once"
        if self.at_once.total() >= self.opens_with:
            self.is_open.set()
        await asyncio.wait_for(self.is_open.wait(), 20)
        await asyncio.sleep(0)
        self.at_once[account] -= 1
        if account == "broke":
            raise Declined("no money")
        if once not in self.charged:
            self.order.append(once)
        self.charged[once] = cents
        if self.away:
            self.away -= 1
            raise BankAway("no answer")
        return f"transfer of {once}"


@pytest.fixture(scope="session")
def spans() -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def the_bank(spans: InMemorySpanExporter) -> Iterator[BankOfTests]:
    made = BankOfTests()
    app.dependency_overrides[bank] = lambda: made
    spans.clear()
    yield made
    app.dependency_overrides.clear()


@pytest.fixture
async def test(the_bank: BankOfTests) -> AsyncIterator[TestApp]:
    async with TestApp(app, real=REAL, start_timeout_s=30) as running:
        yield running


def payment(number: int, account: str = "ada") -> dict[str, object]:
    return {"id": f"p{number}", "account": account, "cents": 100 + number}


async def test_a_payment_is_charged_and_has_its_receipt(
    test: TestApp, the_bank: BankOfTests
) -> None:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(web), base_url="http://payments"
    ) as client:
        assert (await client.post("/payments", json=payment(1))).status_code == 202
        assert (await client.post("/payments", json={"id": "p2", "cents": -1})).status_code == 422
    await test.settled()
    assert the_bank.charged == {"p1": 101}
    (receipt,) = test.records("receipts")
    assert (receipt.key, receipt.value) == (b"ada", b'{"payment":"p1","transfer":"transfer of p1"}')


async def test_a_bank_that_is_away_is_asked_again_and_charges_once(
    test: TestApp, the_bank: BankOfTests
) -> None:
    the_bank.away = 2
    await test.send("payments", payment(1), key="ada")
    await test.settled(timeout=20)
    assert [type(call.error) for call in test.handler(settle).calls] == [
        BankAway,
        BankAway,
        type(None),
    ]
    assert the_bank.charged == {"p1": 101}
    assert len(test.records("receipts")) == 1


async def test_a_payment_that_is_declined_is_not_tried_again(
    test: TestApp, the_bank: BankOfTests
) -> None:
    await test.send("payments", payment(1, "broke"), key="broke")
    await test.settled()
    (call,) = test.handler(settle).calls
    assert isinstance(call.error, Declined)
    assert test.records("receipts") == test.records("dead-letter-topic-payments") == []


async def test_what_is_no_payment_becomes_a_dead_letter_and_holds_up_nobody(
    test: TestApp, the_bank: BankOfTests
) -> None:
    await test.send("payments", b"{", key="ada")
    await test.send("payments", payment(2), key="ada")
    await test.settled()
    (letter,) = test.records("dead-letter-topic-payments")
    assert letter.value == b"{"
    assert the_bank.charged == {"p2": 102}


async def test_an_account_is_charged_in_order_and_accounts_side_by_side(
    test: TestApp, the_bank: BankOfTests
) -> None:
    the_bank.opens_with = 4
    for number in range(40):
        account = f"account-{number % 4}"
        await test.send("payments", payment(number, account), key=account)
    await test.settled(timeout=30)
    for first in range(4):
        assert [one for one in the_bank.order if int(one[1:]) % 4 == first] == [
            f"p{n}" for n in range(first, 40, 4)
        ]


async def test_a_trace_goes_from_the_request_to_the_receipt(
    test: TestApp, the_bank: BankOfTests, spans: InMemorySpanExporter
) -> None:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(web), base_url="http://payments"
    ) as client:
        await client.post("/payments", json=payment(1))
    await test.settled()
    found = {span.name: span for span in spans.get_finished_spans()}
    chain = [found["send payments"], found["process payments"], found["send receipts"]]
    assert len({span.context.trace_id for span in chain}) == 1
    for before, after in itertools.pairwise(chain):
        assert after.parent is not None
        assert after.parent.span_id == before.context.span_id
