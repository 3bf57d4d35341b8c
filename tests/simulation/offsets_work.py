"""What the handlers of an application do with offsets: states, transactions, strings."""

from __future__ import annotations

import json
import random
from asyncio import Future
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from reactive_kafka import Batch, Message
from reactive_kafka.errors import AlreadyStoredError
from reactive_kafka.records import TopicPartition
from tests.simulation.offset_rules import Fold, fold_of
from tests.simulation.scenario import TOPIC, Load

if TYPE_CHECKING:
    from tests.simulation.member import Member

STRANGE = ("", "rk1 0000 1 2 3 4", "rk9", "a b  c", "\u00e9\u4e2d\U0001f600", "x" * 300)
"""Strings that look like ours, hold blanks, or characters of two units."""


class OffsetsWork:
    """One application's."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._scenario = member.world.scenario
        self._said = 0

    # -- states and transactions

    @asynccontextmanager
    async def block(self, messages: Sequence[Message[Any]]) -> AsyncIterator[None]:
        """Where the scenario has transactions: one that writes these records, and settles them at
        its end.
        """
        if not self._scenario.transactions or messages[0].topic != TOPIC:
            yield
            return
        transaction = (
            messages.transaction() if isinstance(messages, Batch) else messages[0].transaction()
        )
        try:
            async with transaction as connection:
                for message in messages:
                    connection.insert((message.topic, message.partition), message.offset)
                yield
        except AlreadyStoredError:
            self._member.world.bite("duplicate")
            raise

    def fold(self, message: Message[Any], load: Load, call: int, *, early: bool) -> None:
        """Have the record in the state of its partition: some before they are handled, the others
        after it.
        """
        is_early = load.behaviour in ("flaky", "bad", "slow")
        if not self._scenario.states or message.topic != TOPIC or early != is_early:
            return
        state = fold_of(message.checkpoint.get())
        self._note("got", message, state, call)
        new = (state or Fold(message.offset)).plus(message.offset)
        message.checkpoint.set(new.value)
        self._note("set", message, new, call)

    def _note(self, kind: str, message: Message[Any], state: Fold | None, call: int) -> None:
        text = None if state is None else json.dumps(state.value)
        self._member.note(
            kind,
            tp=(message.topic, message.partition),
            offset=message.offset,
            state=text,
            call=call,
        )

    # -- strings

    def ack(self, message: Message[Any]) -> Future[bool]:
        """Ack it by hand, some of them with a string."""
        dice = random.Random(
            f"string {self._scenario.seed} {message.topic} {message.partition} {message.offset}"
        )
        if not self._scenario.strings or dice.random() < 0.5:
            return message.ack()
        text = self._text(dice)
        answer = message.ack(text)
        # late: it changed nothing.
        if not (answer.done() and not answer.result()):
            self._supplied((message.topic, message.partition), message.offset, text)
        return answer

    def settle_some(self, messages: Sequence[Message[Any]]) -> None:
        """A handler that is through acks some of its messages by itself, with a string."""
        if not self._scenario.strings or self._scenario.settings.get("ack") is not None:
            return
        for message in messages:
            if self._scenario.transactions or message.offset % 5 == 0:
                self.say(TopicPartition(message.topic, message.partition))
            else:
                self.ack(message)

    def say(self, partition: TopicPartition) -> None:
        """Supply a string for the next position of a partition."""
        dice = random.Random(f"string {self._scenario.seed} {self._member.who} {self._said}")
        text = self._text(dice)
        if self._member.app.channel(TOPIC).store_offset_metadata(partition, text):
            self._supplied(tuple(partition), -1, text)

    def _text(self, dice: random.Random) -> str:
        self._said += 1
        own = f"{self._member.who}.{self._said}"
        return own + dice.choice(STRANGE) if dice.random() < 0.9 else dice.choice(STRANGE) + own

    def _supplied(self, tp: Any, offset: int, text: str) -> None:
        self._member.note("said", tp=tp, offset=offset, text=text)
