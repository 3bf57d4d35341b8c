"""Carries out the actions of an operator, through the same calls that an application has."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol

from reactive_kafka.channel.channel import Channel
from reactive_kafka.config.settings import Settings
from reactive_kafka.control.arguments import (
    letters_arguments,
    log_level_arguments,
    no_arguments,
    pause_arguments,
    replay_arguments,
    resume_arguments,
    seek_arguments,
    skip_arguments,
)
from reactive_kafka.control.letter_access import LetterAccess, RunningParts
from reactive_kafka.control.letter_looks import LetterLooks
from reactive_kafka.control.replays import Replays
from reactive_kafka.errors import (
    BrokerError,
    ChannelClosedError,
    NotOwnerError,
    ReactiveKafkaError,
    describe,
)
from reactive_kafka.http.action_requests import (
    CHANNEL_ACTIONS,
    LOG_LEVEL,
    NOT_ASSIGNED,
    REPLAY,
    ActionAnswer,
    ActionError,
    ActionRequest,
)
from reactive_kafka.observe.events import ActionTaken
from reactive_kafka.observe.facts import AppFacts
from reactive_kafka.observe.log_setup import LOGGER
from reactive_kafka.observe.safe_text import one_line
from reactive_kafka.observe.wording import first_of
from reactive_kafka.records import TopicPartition
from reactive_kafka.tasks import log_failure

WAITED_S = 10.0
"""How long an answer waits for a stop, a start, a restart or a seek. They continue after it."""
CUT_OFF = "it is under way, and its request was cut off"
"""The result of an action whose request ended before its answer."""
MOST_NAMED = 10
"""How many partitions an answer names."""
MOST_ARGUMENTS = 500
"""How many characters of the arguments are in the audit line."""

_Outcome = Literal["ok", "refused", "failed"]
_Change = Callable[[Channel, str, Mapping[str, Any]], Awaitable[ActionAnswer]]


class ControlledApp(Protocol):
    """What actions need of an application."""

    @property
    def settings(self) -> Settings: ...
    def channel(self, name: str) -> Channel: ...
    def facts(self) -> AppFacts: ...


class OperatorActions:
    """The actions of one application.

    Args:
        note: Called with each action, for the log and the metrics.
        running: Returns the run of the application; None: nothing runs.
    """

    def __init__(
        self,
        app: ControlledApp,
        note: Callable[[ActionTaken], None],
        running: Callable[[], RunningParts | None],
    ) -> None:
        self._app = app
        self._note = note
        self._running = running
        letters = LetterAccess(lambda: app.settings, running)
        self._replays = Replays(letters)
        self._letters = LetterLooks(letters)
        self._taken = 0
        self._changes: dict[str, _Change] = {
            "pause": _pause,
            "resume": _resume,
            "restart": self._restart,
            "stop": self._stop,
            "start": self._start,
            "seek": self._seek,
            "skip": _skip,
        }

    async def act(self, request: ActionRequest) -> ActionAnswer:
        """Carry out one action, and leave one line in the log. A refusal is an answer, too.

        Cancellation:
            The action continues, and has its line.
        """
        try:
            answer = await self._carry_out(request)
        except ActionError as refusal:
            answer = refusal.answer()
        except asyncio.CancelledError:
            self._report(request, ActionAnswer(202, {"result": CUT_OFF}))
            raise
        except Exception as failure:
            # Its traceback is for the log only.
            LOGGER.exception("the action %s has failed", request.action)
            answer = ActionAnswer(500, {"error": f"it has failed: {describe(failure)}"})
        self._report(request, answer)
        return answer

    def _report(self, request: ActionRequest, answer: ActionAnswer) -> None:
        """Leave the line of an action in the log."""
        self._taken += 1
        is_for_channel = request.action in CHANNEL_ACTIONS
        arguments = dict(request.arguments)
        if not is_for_channel and request.target:
            arguments["topic"] = request.target
        self._note(
            ActionTaken(
                channel=request.target if is_for_channel else "*",
                number=self._taken,
                action=request.action,
                arguments=one_line(json.dumps(arguments), limit=MOST_ARGUMENTS),
                remote=one_line(request.remote, limit=100),
                status=answer.status,
                outcome=_outcome(answer.status),
                result=one_line(str(answer.body.get("error", answer.body.get("result", "done")))),
                has_changed=answer.has_changed,
            )
        )

    def progress(self, replay: str) -> ActionAnswer:
        """Return how far a replay of dead letters is."""
        try:
            return self._replays.progress(replay)
        except ActionError as refusal:
            return refusal.answer()

    async def letters(self, topic: str, query: Mapping[str, str]) -> ActionAnswer:
        """Read the last dead letters of a topic. Nothing changes, so it leaves no line."""
        try:
            return await self._letters.look(topic, letters_arguments(query))
        except ActionError as refusal:
            return refusal.answer()

    async def _carry_out(self, request: ActionRequest) -> ActionAnswer:
        facts = self._app.facts()
        if facts.stopping or not facts.started:
            state = "stops" if facts.stopping else "is starting, or has ended"
            raise ActionError(503, f"the application {state}: nothing can be changed now")
        if request.action == LOG_LEVEL:
            return _log_level(request.action, request.arguments)
        if request.action == REPLAY:
            asked = replay_arguments(request.action, request.arguments)
            return await self._replays.start(request.target, asked)
        try:
            return await self._changes[request.action](
                self._channel(request.target), request.action, request.arguments
            )
        except NotOwnerError as error:
            raise ActionError(409, one_line(str(error)), NOT_ASSIGNED) from error
        except BrokerError as error:
            raise ActionError(503, one_line(str(error))) from error
        except ChannelClosedError as error:
            status = 503 if self._app.facts().stopping else 409
            raise ActionError(status, one_line(str(error))) from error
        except ReactiveKafkaError as error:
            raise ActionError(409, one_line(str(error))) from error

    def _channel(self, name: str) -> Channel:
        known = self._app.settings.incoming
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise ActionError(
                404, f"{one_line(repr(name), 100)} is no incoming channel; there are: {names}"
            )
        return self._app.channel(name)

    async def _restart(
        self, channel: Channel, action: str, arguments: Mapping[str, Any]
    ) -> ActionAnswer:
        no_arguments(action, arguments)
        state = channel.facts().state
        if state != "failed":
            raise ActionError(
                409,
                f"channel {channel.name!r} is {state}: restart is for one that has failed; stop "
                "and start it instead",
            )
        return await self._in_time(channel, action, channel.restart)

    async def _stop(
        self, channel: Channel, action: str, arguments: Mapping[str, Any]
    ) -> ActionAnswer:
        no_arguments(action, arguments)
        return await self._in_time(channel, action, channel.stop)

    async def _start(
        self, channel: Channel, action: str, arguments: Mapping[str, Any]
    ) -> ActionAnswer:
        no_arguments(action, arguments)
        return await self._in_time(channel, action, channel.start)

    async def _seek(
        self, channel: Channel, action: str, arguments: Mapping[str, Any]
    ) -> ActionAnswer:
        asked = seek_arguments(action, arguments)
        ours = sorted(place for place in channel.assignment if place.topic == asked.topic)
        if asked.partition is not None:
            wanted = TopicPartition(asked.topic, asked.partition)
            if wanted not in ours:
                raise _not_ours(channel, wanted)
            _check_end(channel, wanted, asked.where)
            ours = [wanted]
        elif not ours:
            raise _not_ours(channel, f"no partition of {asked.topic}")

        async def seek() -> None:
            await _seek_each(channel, ours, asked.where)

        places = ", ".join(map(str, ours))
        return await self._in_time(channel, action, seek, f"{places}: to {asked.where}")

    async def _in_time(
        self,
        channel: Channel,
        action: str,
        change: Callable[[], Awaitable[None]],
        result: str | None = None,
    ) -> ActionAnswer:
        """Make a change, and wait for it for a while. It ends also if the client does not wait."""
        name = f"{action} of {channel.name} by an operator"
        # What it has raised, or None. Nothing: it was cut off, or has not ended.
        outcomes: list[BaseException | None] = []
        is_answered = False

        async def run() -> None:
            try:
                await change()
            except Exception as error:
                if is_answered:
                    raise
                outcomes.append(error)
            else:
                outcomes.append(None)

        def fails(error: BaseException) -> None:
            if is_answered:
                LOGGER.warning("%s has failed after its answer: %s", name, describe(error))
            else:
                log_failure(error)

        tasks = None
        if (running := self._running()) is not None:
            tasks = running.tasks
        handle = None
        if tasks is not None:
            handle = tasks.start(run, name, fails)
        if handle is None:
            raise ActionError(503, "the application stops: nothing can be changed now")
        try:
            await asyncio.wait([handle.task], timeout=WAITED_S)
        finally:
            # Even if the request was cut off. Nobody is told of an outcome that comes later.
            is_answered = not handle.task.done()
        if is_answered:
            said = f"it is under way, and has not ended after {WAITED_S:g} s"
            return _answer(channel, action, said, status=202)
        if not outcomes:
            raise ActionError(503, f"the application stops: the {action} was cut off")
        [error] = outcomes
        if error is not None:
            raise error
        return _answer(channel, action, result)


async def _seek_each(
    channel: Channel, places: Sequence[TopicPartition], where: int | str | datetime
) -> None:
    """Seek in each of these partitions.

    Raises:
        NotOwnerError: None of them is ours any more.
        ActionError: It has worked in some of them only. The text names these.
    """
    moved: list[TopicPartition] = []
    taken: list[NotOwnerError] = []
    for place in places:
        try:
            await channel.seek(place, where)  # type: ignore[arg-type]
        except NotOwnerError as error:
            # A rebalance has come between. The others may still be ours.
            taken.append(error)
        except BrokerError as error:
            # The next one would wait for the broker as long.
            if not moved:
                raise
            raise ActionError(503, _moved_only(moved, places, error)) from error
        else:
            moved.append(place)
    if taken and not moved:
        raise taken[0]
    if taken:
        raise ActionError(409, _moved_only(moved, places, *taken))


def _moved_only(
    moved: Sequence[TopicPartition],
    wanted: Sequence[TopicPartition],
    *errors: ReactiveKafkaError,
) -> str:
    """Return the sentence of a seek that has worked in some partitions only."""
    only = f"only {len(moved)} of {len(wanted)} partitions have moved"
    why = "; ".join(map(str, errors))
    return one_line(f"{only}, {first_of(moved, MOST_NAMED)}: {why}")


async def _pause(channel: Channel, action: str, arguments: Mapping[str, Any]) -> ActionAnswer:
    asked = pause_arguments(action, arguments)
    partitions = None if asked.partition is None else [asked.partition]
    channel.pause(asked.reason, partitions=partitions)
    return _answer(channel, action)


async def _resume(channel: Channel, action: str, arguments: Mapping[str, Any]) -> ActionAnswer:
    asked = resume_arguments(action, arguments)
    partitions = None if asked.partition is None else [asked.partition]
    channel.resume(asked.reason, partitions=partitions)
    left = channel.facts().paused_by
    said = f"still paused by: {'; '.join(left)}" if left and partitions is None else None
    return _answer(channel, action, said)


async def _skip(channel: Channel, action: str, arguments: Mapping[str, Any]) -> ActionAnswer:
    asked = skip_arguments(action, arguments)
    record = f"{asked.partition} offset {asked.offset}"
    said = {
        "skipped": f"{record} is skipped",
        "waiting": f"{record} has not come yet, and is skipped when it comes",
        "settled": f"{record} was settled before: nothing has changed",
    }
    try:
        outcome = channel.skip(asked.partition, asked.offset)
    except NotOwnerError as error:
        raise _not_ours(channel, asked.partition) from error
    return _answer(channel, action, said[outcome], has_changed=outcome != "settled")


def _log_level(action: str, given: Mapping[str, Any]) -> ActionAnswer:
    asked = log_level_arguments(action, given)
    is_root = asked.logger == "root"
    known = logging.root.manager.loggerDict
    if not is_root and not isinstance(known.get(asked.logger), logging.Logger):
        raise ActionError(
            404,
            f"there is no logger {one_line(repr(asked.logger), 100)}; root and reactive_kafka are "
            "always there",
        )
    logger = logging.getLogger(None if is_root else asked.logger)
    was = logging.getLevelName(logger.level).lower()
    logger.setLevel(asked.level.upper())
    return ActionAnswer(
        200,
        {
            "action": action,
            "result": f"{asked.logger}: {asked.level}, was {was}",
            "logger": asked.logger,
            "level": asked.level,
            "was": was,
        },
    )


def _answer(
    channel: Channel,
    action: str,
    result: str | None = None,
    *,
    status: int = 200,
    has_changed: bool = True,
) -> ActionAnswer:
    """Return the answer for a change that was made: the state of the channel after it."""
    facts = channel.facts()
    return ActionAnswer(
        status,
        {
            "channel": channel.name,
            "action": action,
            "result": result or f"the channel is {facts.state}",
            "state": facts.state,
            "paused_by": list(facts.paused_by),
        },
        has_changed,
    )


def _not_ours(channel: Channel, what: object) -> ActionError:
    ours = ", ".join(map(str, sorted(channel.assignment))) or "no partition"
    return ActionError(
        409,
        one_line(
            f"channel {channel.name!r} does not have {what} at the moment; this process has {ours}"
        ),
        NOT_ASSIGNED,
    )


def _check_end(channel: Channel, place: TopicPartition, where: object) -> None:
    """Refuse an offset behind the end of the log, as far as that is known: it is a typo.

    Kafka has no such position. ``auto_offset_reset`` would choose another one, which may be the
    beginning.
    """
    ends = {one.partition: one.log_end for one in channel.facts().partitions}
    log_end = ends.get(place)
    if isinstance(where, int) and log_end is not None and where > log_end:
        raise ActionError(
            409,
            f"{place} ends at offset {log_end}: there is no offset {where}, and auto_offset_reset "
            'would choose another one; "end" is the end',
        )


def _outcome(status: int) -> _Outcome:
    if status < 300:
        return "ok"
    return "refused" if status < 500 else "failed"
