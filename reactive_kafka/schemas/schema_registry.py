"""Asks a schema registry until it answers, with one request for all who wait for the answer."""

from __future__ import annotations

import asyncio
from asyncio import Future
from functools import partial
from operator import itemgetter
from typing import Any, Protocol

from reactive_kafka.backoff import Backoff, Waits
from reactive_kafka.clock import Clock
from reactive_kafka.config.secrets import masked
from reactive_kafka.config.tables import SchemaRegistrySettings
from reactive_kafka.errors import DecodeError, EncodeError, describe
from reactive_kafka.formats.registered.channel_schemas import ChannelSchemas
from reactive_kafka.formats.registered.schema_questions import (
    ByGuid,
    ById,
    LatestOf,
    Schema,
    SchemaQuestion,
    SchemaWithId,
)
from reactive_kafka.observe.events import (
    Observer,
    SchemaAvailable,
    SchemaNotChecked,
    SchemaUnavailable,
)
from reactive_kafka.observe.wording import and_more
from reactive_kafka.schemas.answers import NoGuids, NotFound, Refused, RegistryAway
from reactive_kafka.schemas.memory_registry import MemoryRegistry
from reactive_kafka.schemas.rest import RestRegistry
from reactive_kafka.tasks import Handle, Tasks, log_failure

BACKOFF = Backoff(0.25, 10.0)
NOT_READY_S = 5.0
"""A channel that waits longer than this is not ready."""
QUESTIONS_NAMED = 3
"""Readiness names at most so many questions of a channel."""
GIVEN_UP_S = 10.0
"""How long a question without an answer counts after the last one who waited has given up.

A send is given up at its timeout, and its handler is called again after a pause of at most 5 s. The
registry is away during that pause, too.
"""
NOT_FOUND_CERTAIN_AFTER = 3
"""After so many answers "not found" the schema counts as missing. A follower may not know a new one
yet.
"""
REFUSED_S = 60.0
"""How long a refusal counts before the registry is asked again: the schema may be registered later.
"""
MEMORY = "memory://"


class RegistryClient(Protocol):
    """The requests to a registry. Each raises :class:`RegistryAway` and :class:`NotFound`."""

    async def schema(self, id: int) -> Schema:
        """Return the schema with this id, and all that it refers to."""

    async def by_guid(self, guid: str) -> Schema:
        """Return the schema with this GUID."""

    async def latest(self, subject: str) -> SchemaWithId:
        """Return the newest schema of a subject."""

    async def register(self, subject: str, schema: Schema) -> int:
        """Register a schema under a subject, and return its id.

        Raises:
            Refused: It is not compatible, or not a schema.
        """

    async def lookup(self, subject: str, schema: Schema) -> int:
        """Return the id of a schema that its subject has."""


class _OpenQuestion:
    """One question that has no answer yet."""

    def __init__(self, since: float) -> None:
        self.since = since
        # When the last one who waited has given up, and for which channel it waited.
        self.left_at = 0.0
        self.left_by: ChannelSchemas | None = None
        self.waiting: dict[Future[bool], ChannelSchemas] = {}
        # Why there is no answer.
        self.problem = ""
        # Names of the channels to which this problem was reported.
        self.reported_to: set[str] = set()
        self.task: Handle | None = None


class Registry:
    """The registry of one run. It makes one request at a time for each question."""

    def __init__(
        self, settings: SchemaRegistrySettings, clock: Clock, tasks: Tasks, observer: Observer
    ) -> None:
        self.url = ", ".join(str(masked("", url)) for url in settings.url or ())
        self.source: RegistryClient
        if self.url.startswith(MEMORY):
            self.source = MemoryRegistry()
        else:
            self.source = RestRegistry(settings)
        self._clock = clock
        self._tasks = tasks
        self._observer = observer
        self._open: dict[SchemaQuestion, _OpenQuestion] = {}
        # Those that are not waited for any more, in the order in which they were given up.
        self._given_up: dict[SchemaQuestion, _OpenQuestion] = {}
        # Why the registry looks up no GUIDs, if it has said so within REFUSED_S. Bytes that look
        # like a GUID differ in each record. A refusal of one GUID would not spare the next record
        # its three requests.
        self._no_guids = ""
        # By their id(): the channels that got this answer.
        self._without_guids: dict[int, ChannelSchemas] = {}

    def request(self, schemas: ChannelSchemas, ask: SchemaQuestion) -> Future[bool]:
        """Return a future: True when *schemas* has an answer, False if the application stops."""
        question = self._open.get(ask)
        if question is None:
            question = self._question(ask)
            self._open[ask] = question
            question.task = self._tasks.start(
                partial(self._answer, ask, question), f"schema registry: {ask}", log_failure
            )
        waiter: Future[bool] = asyncio.get_running_loop().create_future()
        question.waiting[waiter] = schemas
        waiter.add_done_callback(partial(self._left, ask, question))
        if question.task is None:
            # No task is started any more: the application stops.
            waiter.set_result(False)
        return waiter

    def want(self, schemas: ChannelSchemas, ask: SchemaQuestion) -> None:
        """Ask, unless the question is open already, and do not wait for the answer."""
        if ask not in self._open:
            self.request(schemas, ask)

    def remark(self, schemas: ChannelSchemas, text: str) -> None:
        """Report a problem of a schema that can be used all the same."""
        self._observer.on(SchemaNotChecked(channel=schemas.owner, reason=text))

    def _left(self, ask: SchemaQuestion, question: _OpenQuestion, waiter: Future[bool]) -> None:
        """Note that a caller has given up. The last one to leave ends the question."""
        schemas = question.waiting.pop(waiter, None)
        if question.waiting or self._open.get(ask) is not question:
            return
        del self._open[ask]
        if question.task is not None:
            question.task.cancel()
        if question.problem:
            question.left_at = self._clock.monotonic()
            question.left_by = schemas
            self._given_up[ask] = question
            self._forget_given_up()

    def _question(self, ask: SchemaQuestion) -> _OpenQuestion:
        """Return a new question.

        If the same one was given up a moment ago, it counts as open since it was first asked.
        """
        self._forget_given_up()
        before = self._given_up.pop(ask, None)
        if before is None:
            return _OpenQuestion(self._clock.monotonic())
        again = _OpenQuestion(before.since)
        again.problem = before.problem
        again.reported_to = before.reported_to
        return again

    def _forget_given_up(self) -> None:
        too_old = self._clock.monotonic() - GIVEN_UP_S
        while self._given_up:
            first = next(iter(self._given_up))
            if self._given_up[first].left_at > too_old:
                return
            del self._given_up[first]

    async def _answer(self, ask: SchemaQuestion, question: _OpenQuestion) -> None:
        """Ask until there is an answer, and give it to all who wait."""
        try:
            answer, is_refusal = await self._ask(ask, question)
        except BaseException:
            # The application is stopping, or nobody waits for the answer any more.
            self._end(ask, question, False)
            raise
        # The registry is there, so questions that were given up are no sign of an outage.
        self._given_up.clear()
        away_s = self._clock.monotonic() - question.since
        for name in sorted(question.reported_to):
            self._observer.on(
                SchemaAvailable(channel=name, url=self.url, asked=str(ask), away_s=away_s)
            )
        # Each channel once, though several of its records may wait.
        waiting = {id(schemas): schemas for schemas in question.waiting.values()}
        for schemas in waiting.values():
            schemas.answered(ask, answer)
            if is_refusal and isinstance(ask, ByGuid) and self._no_guids:
                # One timer for all GUIDs, because each record may have another one.
                self._without_guids[id(schemas)] = schemas
            elif is_refusal:
                asyncio.get_running_loop().call_later(REFUSED_S, schemas.forget, ask)
        self._end(ask, question, True)

    def _end(self, ask: SchemaQuestion, question: _OpenQuestion, is_answered: bool) -> None:
        if self._open.get(ask) is question:
            del self._open[ask]
        for waiter in list(question.waiting):
            if not waiter.done():
                waiter.set_result(is_answered)

    async def _ask(self, ask: SchemaQuestion, question: _OpenQuestion) -> tuple[Any, bool]:
        """Return the answer, and whether it is a refusal.

        A refusal is the error for the records that need the answer.
        """
        error_class: type[DecodeError] | type[EncodeError] = EncodeError
        if isinstance(ask, ById | ByGuid):
            error_class = DecodeError

        def refusal(reason: object) -> tuple[Any, bool]:
            return error_class(f"schema registry {self.url}: {ask}: {reason}"), True

        if isinstance(ask, ByGuid) and self._no_guids:
            return refusal(self._no_guids)
        waits = Waits(BACKOFF)
        times_not_found = 0
        while True:
            least_s = 0.0
            try:
                return await self._ask_once(ask), False
            except Refused as error:
                return refusal(error)
            except NotFound as error:
                times_not_found += 1
                if times_not_found >= NOT_FOUND_CERTAIN_AFTER:
                    if isinstance(error, NoGuids) and not self._no_guids:
                        self._no_guids = str(error)
                        asyncio.get_running_loop().call_later(REFUSED_S, self._ask_for_guids_again)
                    return refusal(error)
                problem = str(error)
            except RegistryAway as error:
                problem = str(error)
                least_s = error.wait_s
                times_not_found = 0
            except Exception as error:
                # A bug, of ours or in what the registry sends.
                problem = describe(error)
            self._report(ask, question, problem)
            await asyncio.sleep(max(least_s, waits.next_s()))

    def _ask_for_guids_again(self) -> None:
        self._no_guids = ""
        for schemas in self._without_guids.values():
            schemas.forget_guids()
        self._without_guids.clear()

    def _report(self, ask: SchemaQuestion, question: _OpenQuestion, problem: str) -> None:
        """Report a problem to each channel that waits, once."""
        if problem != question.problem:
            question.problem = problem
            question.reported_to.clear()
        waiting = {schemas.owner for schemas in question.waiting.values()}
        for name in sorted(waiting - question.reported_to):
            question.reported_to.add(name)
            self._observer.on(
                SchemaUnavailable(channel=name, reason=problem, url=self.url, asked=str(ask))
            )

    async def _ask_once(self, ask: SchemaQuestion) -> Any:
        if isinstance(ask, ById):
            return await self.source.schema(ask.id)
        if isinstance(ask, ByGuid):
            return await self.source.by_guid(ask.guid)
        if isinstance(ask, LatestOf):
            return await self.source.latest(ask.subject)
        if ask.register:
            return await self.source.register(ask.subject, ask.schema)
        return await self.source.lookup(ask.subject, ask.schema)

    def why(self, ask: SchemaQuestion) -> str:
        """Return why there is no answer yet."""
        question = self._open.get(ask) or self._given_up.get(ask)
        problem = "no answer yet"
        if question is not None and question.problem:
            problem = question.problem
        return f"schema registry {self.url}: {ask}: {problem}"

    def not_ready(self, schemas: ChannelSchemas) -> list[str]:
        """Return what a channel has waited for longer than a moment, and why.

        Records may name any number of schemas, so only the questions that are open for longest are
        in it, with the number of the others.
        """
        self._forget_given_up()
        latest = self._clock.monotonic() - NOT_READY_S
        late: list[tuple[float, SchemaQuestion]] = []
        for ask, question in self._open.items():
            is_waiting = any(waiting is schemas for waiting in question.waiting.values())
            if is_waiting and question.since <= latest:
                late.append((question.since, ask))
        for ask, question in self._given_up.items():
            if question.left_by is schemas and question.since <= latest:
                late.append((question.since, ask))
        late.sort(key=itemgetter(0))
        reasons = [self.why(ask) for _, ask in late[:QUESTIONS_NAMED]]
        if len(late) > QUESTIONS_NAMED:
            reasons[-1] = and_more(reasons[-1], len(late) - QUESTIONS_NAMED)
        return reasons
