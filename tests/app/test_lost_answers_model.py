"""Transactions whose answers are lost, with seeks and rebalances in between: no output is lost, and
none is doubled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reactive_kafka import App, Channel, Message, TransientBrokerError
from reactive_kafka.errors import NotOwnerError
from reactive_kafka.events import TransactionAborted
from reactive_kafka.testing import TestApp, run_in_virtual_time
from tests.app.brokers import Hold
from tests.app.helpers import (
    Recorder,
    in_virtual_time,
    make_broker,
    now,
    rebalanced,
    running,
    send,
    tp,
    until,
)
from tests.app.test_exactly_once import app_with, position, values

RECORDS = 4

End = Literal["answered", "stored, no answer", "not stored, no answer", "held before", "held after"]


@dataclass(frozen=True)
class Step:
    """What happens to the transaction of one call.

    Attributes:
        end: What becomes of the request that ends it.
        back: By how many records somebody seeks back while that request is on its way, 0: to the
            record itself; None: nobody seeks.
        rebalances: Whether the group rebalances meanwhile, and the partition comes straight back.
        claims: How many claims of the id fail afterwards, so that its outcome is in doubt for
            longer.
        late: Whether a held request or answer comes when the client has given up waiting.
    """

    end: End = "answered"
    back: int | None = None
    rebalances: bool = False
    claims: int = 0
    late: bool = False


@dataclass
class Call:
    """One call of the handler."""

    offset: int
    token: bytes
    # How many seeks came before it.
    epoch: int
    # The group's position is another one after its transaction than before.
    could_tell: bool


@dataclass
class Play:
    """One run: a handler that writes a token of its own for each call."""

    # Number of a call -> what happens to its transaction.
    steps: Mapping[int, Step]
    calls: list[Call] = field(default_factory=list)
    seeks: int = 0
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    # Requests that are held now.
    held: int = 0

    def app(self, test: list[TestApp]) -> App:
        """The application, whose handler prepares what the broker does to its own transaction."""
        app = app_with(commit_interval="100ms")

        @app.incoming("orders")
        @app.outgoing("invoices")
        async def handler(message: Message[bytes]) -> bytes:
            [running_app] = test
            number, offset = len(self.calls), message.offset
            token = b"%d-%d" % (offset, number)
            could_tell = position(running_app.broker) != offset + 1
            self.calls.append(Call(offset, token, self.seeks, could_tell))
            if (step := self.steps.get(number)) is not None:
                self._prepare(running_app, step, offset)
            return token

        return app

    def _prepare(self, test: TestApp, step: Step, offset: int) -> None:
        broker = test.broker
        if step.end in ("held before", "held after"):
            hold = broker.hold("end", answer=step.end == "held after")
            task = asyncio.create_task(self._meanwhile(test, step, offset, hold))
            self.tasks.add(task)
        elif step.end != "answered":
            broker.fail_next(
                "end", TransientBrokerError("no answer"), stored=step.end == "stored, no answer"
            )
        if step.claims:
            broker.fail_next("claim", TransientBrokerError("away"), times=step.claims)

    async def _meanwhile(self, test: TestApp, step: Step, offset: int, hold: Hold) -> None:
        # A request that a step before it lets fail does not arrive here.
        await hold.arrived()
        self.held += 1
        try:
            if step.back is not None:
                await self._seek(test.app.channel("orders"), max(0, offset - step.back))
            if step.rebalances:
                test.broker.rebalance("billing")
            if step.late:
                await asyncio.sleep(15)
        finally:
            hold.release()
            self.held -= 1

    async def _seek(self, channel: Channel, offset: int) -> None:
        """Seek; the rebalance of another step may have the partition away for a moment."""
        while True:
            try:
                await channel.seek(tp(), offset)
            except NotOwnerError:
                await asyncio.sleep(0.1)
            else:
                self.seeks += 1
                return

    async def rests(self, test: TestApp) -> bool:
        """Wait until all is handled and the position is at the end; whether nothing is handled in
        20 s after that.
        """
        await until(lambda: position(test.broker) == RECORDS and not self.held, 300)
        seen, began = len(self.calls), now()
        await until(lambda: now() >= began + 20, 30)
        return seen == len(self.calls) and position(test.broker) == RECORDS

    def check(self, test: TestApp) -> None:
        """Every record's last call counts, and of the calls between two seeks no more than one
        does.
        """
        seen = values(test.broker)
        assert len(seen) == len(set(seen))
        for offset in range(RECORDS):
            calls = [call for call in self.calls if call.offset == offset]
            assert calls[-1].token in seen, (
                f"the output of the last call of record {offset} is lost"
            )
            for epoch in range(self.seeks + 1):
                counted = [call for call in calls if call.epoch == epoch and call.token in seen]
                # Where the position cannot tell what became of a transaction, its records are
                # handled again.
                assert len(counted) <= 1 or not all(call.could_tell for call in counted[:-1]), (
                    counted
                )


async def played(steps: Mapping[int, Step]) -> Play:
    """Play a run until all is handled and the position is at the end."""
    play, test = Play(steps), list[TestApp]()
    app = play.app(test)
    async with running(app, broker=make_broker()) as started:
        test.append(started)
        await send(started, *[b"%d" % number for number in range(RECORDS)])
        while not await play.rests(started):
            pass
        play.check(started)
        for task in play.tasks:
            if task.done():
                task.result()
            task.cancel()
        await started.broker.close()
    return play


SEEK_IN_THE_END = {2: Step("held after", back=0), 3: Step("not stored, no answer")}
DOUBTS = {
    2: Step("held after", back=0, late=True, claims=2),
    3: Step("not stored, no answer", claims=1),
}


@pytest.mark.parametrize("steps", [SEEK_IN_THE_END, DOUBTS])
@in_virtual_time
async def test_a_record_that_is_read_again_while_its_transaction_ends_loses_no_output(
    steps: dict[int, Step],
) -> None:
    play = await played(steps)
    assert [call.offset for call in play.calls][:4] == [0, 1, 2, 2]


@in_virtual_time
async def test_a_partition_whose_transaction_is_in_doubt_is_retained_if_it_comes_straight_back() -> (
    None
):
    """The group stands where only the transaction can have put it, so that is not told as
    aborted.
    """
    recorder, calls = Recorder(), list[bytes]()
    app = app_with(recorder, revoke_grace="2s")

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(order: bytes) -> bytes:
        calls.append(order)
        return order

    async with running(app) as test:
        test.broker.fail_next("end", TransientBrokerError("no answer"), stored=True)
        test.broker.fail_next("claim", TransientBrokerError("away"), times=8)
        await send(test, b"a", b"b")
        await until(lambda: position(test.broker) == 1)
        await rebalanced(test)
        await until(lambda: position(test.broker) == 2, 60)
        assert calls == values(test.broker) == [b"a", b"b"]
        assert not recorder.of(TransactionAborted)


STEPS = st.builds(
    Step,
    end=st.sampled_from(
        ["answered", "stored, no answer", "not stored, no answer", "held before", "held after"]
    ),
    back=st.none() | st.integers(0, RECORDS - 1),
    rebalances=st.booleans(),
    claims=st.integers(0, 3),
    late=st.booleans(),
)


@settings(max_examples=60)
@example(
    {
        0: Step(claims=1),
        3: Step("held before", back=0, late=True),
        4: Step("stored, no answer"),
        5: Step("held before"),
    }
)
@example({2: Step("held before", back=0, rebalances=True), 3: Step("held before", back=0)})
@example(
    {3: Step("held before", back=1), 4: Step("held before", back=0, rebalances=True, late=True)}
)
@given(st.dictionaries(st.integers(0, 8), STEPS, max_size=6))
def test_no_answer_that_is_lost_loses_or_doubles_an_output(steps: dict[int, Step]) -> None:
    run_in_virtual_time(lambda clock: played(steps))
