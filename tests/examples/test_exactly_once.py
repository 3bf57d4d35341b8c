"""The ledger of examples/exactly_once: two bookings a payment, both or none, and never twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from reactive_kafka.errors import EncodeError, OutcomeUnknownError, TransientBrokerError
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.helpers import in_virtual_time, make_broker, tp
from tests.cli.process import cli
from tests.examples.spark import example

FOLDER = Path(__file__).parents[2] / "examples" / "exactly_once"


def accounts(test: TestApp) -> Counter[str]:
    """Account -> its balance, by the bookings that are committed."""
    found: Counter[str] = Counter()
    for booking in test.records("bookings"):
        found[(booking.key or b"").decode()] += int(booking.value or b"0")
    return found


def written(broker: MemoryBroker) -> int:
    """How many bookings stand in the topic, committed or not."""
    return sum(
        len(broker.log(tp(number, "bookings"))) for number in range(broker.topics()["bookings"])
    )


@in_virtual_time
async def test_a_payment_is_booked_twice_over_and_its_position_with_it() -> None:
    module = example("exactly_once/ledger.py")
    async with TestApp(module.app) as test:
        await test.send("payments", module.Payment("Ada", "Bob", 300), partition=0)
        await test.settled()
        assert accounts(test) == {"Ada": -300, "Bob": 300}
        assert test.committed("payments") == {tp(0, "payments"): 1}


@in_virtual_time
@pytest.mark.parametrize("is_stored", [True, False])
async def test_what_a_broker_leaves_in_doubt_is_booked_once(is_stored: bool) -> None:
    module, broker = example("exactly_once/ledger.py"), make_broker(1)
    async with TestApp(module.app, broker=broker) as test:
        broker.fail_next("commit_in", TransientBrokerError("away"))
        broker.fail_next("end", OutcomeUnknownError("no answer"), stored=is_stored)
        for _ in range(3):
            await test.send("payments", module.Payment("Ada", "Bob", 300))
        await test.settled(60)
        assert accounts(test) == {"Ada": -900, "Bob": 900}
        assert written(broker) > 6, "nothing was aborted"
    await broker.close()


@in_virtual_time
async def test_a_payment_that_is_refused_becomes_a_dead_letter_and_no_booking() -> None:
    module = example("exactly_once/ledger.py")
    async with TestApp(module.app) as test:
        await test.send("payments", module.Payment("Ada", "Bob", 0))
        await test.send("payments", module.Payment("Bob", "Ada", 1))
        await test.settled()
        assert accounts(test) == {"Ada": 1, "Bob": -1}
        assert len(test.records("dead-letter-topic-payments")) == 1


@in_virtual_time
async def test_salaries_are_paid_to_all_or_to_none() -> None:
    module = example("exactly_once/ledger.py")
    async with TestApp(module.app) as test:
        with pytest.raises(EncodeError):
            await module.pay_salaries({"Ada": 100, "Bob": object()})
        assert test.records("payments") == []
        await module.pay_salaries({"Ada": 100, "Bob": 200})
        await test.settled()
        assert accounts(test) == {"company": -300, "Ada": 100, "Bob": 200}


def test_it_passes_its_check() -> None:
    ended = cli("check", "ledger:app", cwd=FOLDER)
    assert ended.code == 0, ended.err
