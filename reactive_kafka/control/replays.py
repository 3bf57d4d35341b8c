"""Sends dead letters of a running application back, in the background, and says how far it is."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from reactive_kafka.broker.topic_lookup import UnknownTopicError
from reactive_kafka.control.arguments import ReplayArguments
from reactive_kafka.control.letter_access import AppLetters, LetterAccess
from reactive_kafka.dead_letters.letters import ReplayError
from reactive_kafka.dead_letters.replay import (
    Replayed,
    carry_out_replay,
    plan_replay,
    producing_of,
)
from reactive_kafka.errors import BrokerError, describe
from reactive_kafka.http.action_requests import ActionAnswer, ActionError
from reactive_kafka.observe.safe_text import one_line
from reactive_kafka.observe.wording import count_of

WAITED_S = 10.0
"""How long the first answer waits for the end of a replay. It continues after it."""
MOST_REMEMBERED = 20
"""How many replays that have ended can still be asked about."""

ReplayState = Literal["counting", "writing", "done", "failed"]


@dataclass(slots=True)
class RunningReplay:
    """One replay, from its request to its end."""

    number: str
    topic: str
    to: str | None
    state: ReplayState = "counting"
    # Letters that were read to count them.
    read: int = 0
    # Target topic -> records to write there.
    targets: Mapping[str, int] = field(default_factory=dict)
    written: Replayed = field(default_factory=Replayed)
    # Records that stay, and the first of them with the reason.
    refused: int = 0
    refused_first: list[dict[str, Any]] = field(default_factory=list)
    replayed_before: int = 0
    # What it has failed with.
    error: BaseException | None = None

    @property
    def has_ended(self) -> bool:
        return self.state in ("done", "failed")

    def answer(self) -> ActionAnswer:
        """Return how far it is: 202 while it runs."""
        body = {
            "replay": self.number,
            "topic": self.topic,
            "to": self.to,
            "state": self.state,
            "records": sum(self.targets.values()),
            "targets": dict(sorted(self.targets.items())),
            "replayed": self.written.records,
            "restamped": self.written.restamped,
            "replayed_before": self.replayed_before,
            "refused": self.refused,
            "refused_first": self.refused_first,
        }
        if self.error is not None:
            body["error"] = one_line(str(self.error) or describe(self.error))
            return ActionAnswer(_status_of(self.error), body)
        body["result"] = self._said()
        return ActionAnswer(200 if self.has_ended else 202, body)

    def _said(self) -> str:
        if self.state == "counting":
            return f"{count_of(self.read)} of {self.topic} read so far"
        of = f"{self.written.records} of {count_of(sum(self.targets.values()))}"
        if self.state == "writing":
            return f"{of} replayed so far"
        stay = f"; {self.refused} cannot be sent back" if self.refused else ""
        return f"{of} replayed{stay}"


class Replays:
    """The replays of dead letters that operators have asked for."""

    def __init__(self, letters: LetterAccess) -> None:
        self._letters = letters
        # The newest last.
        self._replays: dict[str, RunningReplay] = {}

    async def start(self, topic: str, asked: ReplayArguments) -> ActionAnswer:
        """Begin a replay, and wait for its end for a while.

        Raises:
            ActionError: No channel writes dead letters to the topic, or a replay of it runs.
        """
        cluster, tasks = self._letters.of(topic)
        if asked.to == topic:
            raise ActionError(400, f'replay: "to" is {topic}, the topic that is read')
        for other in self._replays.values():
            if other.topic == topic and not other.has_ended:
                raise ActionError(409, f"replay {other.number} of {topic} is under way")
        replay = RunningReplay(secrets.token_hex(4), topic, asked.to)
        work = partial(_carry_out, replay, cluster, asked)

        def fails(error: BaseException) -> None:
            replay.error = error
            replay.state = "failed"

        handle = tasks.start(work, f"replay of {topic}", fails)
        if handle is None:
            raise ActionError(503, "the application stops: nothing can be changed now")
        self._remember(replay)
        handle.task.add_done_callback(lambda _: _cut_off(replay))
        await asyncio.wait([handle.task], timeout=WAITED_S)
        return replay.answer()

    def progress(self, number: str) -> ActionAnswer:
        """Return how far a replay is.

        Raises:
            ActionError: There is no such replay.
        """
        replay = self._replays.get(number)
        if replay is None:
            known = ", ".join(self._replays) or "none"
            raise ActionError(
                404, f"there is no replay {one_line(repr(number), 100)}; there are: {known}"
            )
        return replay.answer()

    def _remember(self, replay: RunningReplay) -> None:
        self._replays[replay.number] = replay
        ended = [number for number, other in self._replays.items() if other.has_ended]
        for number in ended[: max(0, len(ended) - MOST_REMEMBERED)]:
            del self._replays[number]


async def _carry_out(replay: RunningReplay, cluster: AppLetters, asked: ReplayArguments) -> None:
    """Count, then write."""

    def read(count: int) -> None:
        replay.read += count

    wanted = await plan_replay(cluster, replay.topic, replay.to, asked.limit, read, only=asked.only)
    replay.targets = dict(wanted.counts)
    replay.replayed_before = wanted.done
    replay.refused = wanted.refused_count
    replay.refused_first = [
        {"partition": str(partition), "offset": offset, "reason": why}
        for partition, offset, why in wanted.refused
    ]
    replay.state = "writing"
    if wanted.counts:
        producing = producing_of(cluster.channels, replay.topic)
        await carry_out_replay(cluster, wanted, producing, replay.written)
    replay.state = "done"


def _cut_off(replay: RunningReplay) -> None:
    """Note the end of a task that was cancelled, because the application stops."""
    if not replay.has_ended:
        replay.state = "failed"
        replay.error = ReplayError(
            "the application has stopped; the next replay continues from there"
        )


def _status_of(error: BaseException) -> int:
    if isinstance(error, UnknownTopicError):
        return 404
    if isinstance(error, ReplayError):
        return 409
    return 503 if isinstance(error, BrokerError) else 500
