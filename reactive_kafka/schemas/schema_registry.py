"""Who waits for which schema, and the registry that is asked until it answers."""

from __future__ import annotations

import asyncio
from asyncio import Future
from functools import partial
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
from reactive_kafka.schemas.answers import NoGuids, NotFound, Refused, RegistryAway
from reactive_kafka.schemas.memory_registry import MemoryRegistry
from reactive_kafka.schemas.rest import RestRegistry
from reactive_kafka.tasks import Handle, Tasks, log_failure

BACKOFF = Backoff(0.25, 10.0)
NOT_READY_S = 5.0
"""Who waits for longer than this is not ready."""
GIVEN_UP_S = 10.0
"""For how long a question without an answer still counts when nobody waits any more. A send is
given up at its timeout, and its handler is called again after a pause of 5 s at most: the registry
is away meanwhile, too."""
CERTAIN = 3
"""So often it has to say that it has no such schema: a follower may not have heard of a new one
yet.
"""
REFUSED_S = 60.0
"""For how long a refusal stands, before the registry is asked again: schemas may be registered
later.
"""
MEMORY = "memory://"


class RegistryClient(Protocol):
    """Whoever has the schemas. Each call raises :class:`RegistryAway` and :class:`NotFound`."""

    async def schema(self, id: int) -> Schema:
        """The schema with this id, and all that it refers to."""

    async def by_guid(self, guid: str) -> Schema:
        """The schema with this GUID."""

    async def latest(self, subject: str) -> SchemaWithId:
        """The newest of a subject."""

    async def register(self, subject: str, schema: Schema) -> int:
        """The id of a schema, which its subject has from then on. Refused: it is not compatible, or
        no schema.
        """

    async def lookup(self, subject: str, schema: Schema) -> int:
        """The id of a schema that its subject has."""


class _Asked:
    """One question that has no answer yet."""

    def __init__(self, since: float) -> None:
        self.since = since
        # When the last one who waited has given up.
        self.left_at = 0.0
        self.left_by: ChannelSchemas | None = None
        self.waiting: dict[Future[bool], ChannelSchemas] = {}
        # Why there is no answer.
        self.problem = ""
        # Channels that have been told of it.
        self.told: set[str] = set()
        self.task: Handle | None = None


class Registry:
    """The registry of one run: one request at a time for each question, whoever asks it."""

    def __init__(
        self, settings: SchemaRegistrySettings, clock: Clock, tasks: Tasks, observer: Observer
    ) -> None:
        self.url = ", ".join(str(masked("", url)) for url in settings.url or ())
        self.source: RegistryClient = (
            MemoryRegistry() if self.url.startswith(MEMORY) else RestRegistry(settings)
        )
        self._clock = clock
        self._tasks = tasks
        self._observer = observer
        self._asked: dict[SchemaQuestion, _Asked] = {}
        # In the order in which they were.
        self._given_up: dict[SchemaQuestion, _Asked] = {}
        # Why the registry looks up no GUIDs, if it has said so within REFUSED_S. Bytes that look
        # like a GUID differ in each record, so a "no" for one of them would not spare the next one
        # its three requests.
        self._no_guids = ""
        # By their id: those that have got this answer.
        self._without_guids: dict[int, ChannelSchemas] = {}

    def request(self, schemas: ChannelSchemas, ask: SchemaQuestion) -> Future[bool]:
        """True when *schemas* has an answer; False: the application stops."""
        asked = self._asked.get(ask)
        if asked is None:
            asked = self._asked[ask] = self._question(ask)
            asked.task = self._tasks.start(
                partial(self._answer, ask, asked), f"schema registry: {ask}", log_failure
            )
        waiter: Future[bool] = asyncio.get_running_loop().create_future()
        asked.waiting[waiter] = schemas
        waiter.add_done_callback(partial(self._left, ask, asked))
        if asked.task is None:
            waiter.set_result(False)
        return waiter

    def want(self, schemas: ChannelSchemas, ask: SchemaQuestion) -> None:
        """Ask, if that is not being done already; nobody waits."""
        if ask not in self._asked:
            self.request(schemas, ask)

    def remark(self, schemas: ChannelSchemas, text: str) -> None:
        """Report what is odd about a schema."""
        self._observer.on(SchemaNotChecked(channel=schemas.owner, reason=text))

    def _left(self, ask: SchemaQuestion, asked: _Asked, waiter: Future[bool]) -> None:
        """Nobody waits there any more; the last one to leave ends the question."""
        schemas = asked.waiting.pop(waiter, None)
        if not asked.waiting and self._asked.get(ask) is asked:
            del self._asked[ask]
            if asked.task is not None:
                asked.task.cancel()
            if asked.problem:
                asked.left_at = self._clock.monotonic()
                asked.left_by = schemas
                self._given_up[ask] = asked
                self._forget_given_up()

    def _question(self, ask: SchemaQuestion) -> _Asked:
        """A new question. If it was given up a moment ago it has had no answer since it was asked
        first.
        """
        self._forget_given_up()
        before = self._given_up.pop(ask, None)
        if before is None:
            return _Asked(self._clock.monotonic())
        again = _Asked(before.since)
        again.problem = before.problem
        again.told = before.told
        return again

    def _forget_given_up(self) -> None:
        gone = self._clock.monotonic() - GIVEN_UP_S
        while self._given_up:
            first = next(iter(self._given_up))
            if self._given_up[first].left_at > gone:
                return
            del self._given_up[first]

    async def _answer(self, ask: SchemaQuestion, asked: _Asked) -> None:
        try:
            answer, is_refusal = await self._ask(ask, asked)
        except BaseException:
            # The application stops.
            self._end(ask, asked, False)
            raise
        # The registry is there.
        self._given_up.clear()
        away_s = self._clock.monotonic() - asked.since
        for name in sorted(asked.told):
            self._observer.on(
                SchemaAvailable(channel=name, url=self.url, asked=str(ask), away_s=away_s)
            )
        for schemas in {id(one): one for one in asked.waiting.values()}.values():
            schemas.answered(ask, answer)
            if is_refusal and isinstance(ask, ByGuid) and self._no_guids:
                # One timer for all, for each record may have another GUID.
                self._without_guids[id(schemas)] = schemas
            elif is_refusal:
                asyncio.get_running_loop().call_later(REFUSED_S, schemas.forget, ask)
        self._end(ask, asked, True)

    def _end(self, ask: SchemaQuestion, asked: _Asked, is_answered: bool) -> None:
        if self._asked.get(ask) is asked:
            del self._asked[ask]
        for waiter in list(asked.waiting):
            if not waiter.done():
                waiter.set_result(is_answered)

    async def _ask(self, ask: SchemaQuestion, asked: _Asked) -> tuple[Any, bool]:
        """The answer, and whether that is a refusal, which is the error for records that need
        it.
        """
        refused: type[DecodeError] | type[EncodeError] = (
            DecodeError if isinstance(ask, ById | ByGuid) else EncodeError
        )
        if isinstance(ask, ByGuid) and self._no_guids:
            return refused(f"schema registry {self.url}: {ask}: {self._no_guids}"), True
        waits = Waits(BACKOFF)
        times = 0
        while True:
            least_s = 0.0
            try:
                return await self._once(ask), False
            except Refused as error:
                return refused(f"schema registry {self.url}: {ask}: {error}"), True
            except NotFound as error:
                times += 1
                if times >= CERTAIN:
                    if isinstance(error, NoGuids) and not self._no_guids:
                        self._no_guids = str(error)
                        asyncio.get_running_loop().call_later(REFUSED_S, self._ask_for_guids_again)
                    return refused(f"schema registry {self.url}: {ask}: {error}"), True
                problem = str(error)
            except RegistryAway as error:
                problem = str(error)
                least_s = error.wait_s
                times = 0
            except Exception as error:
                # A bug, of ours or of what the registry sends.
                problem = describe(error)
            self._tell(ask, asked, problem)
            await asyncio.sleep(max(least_s, waits.next_s()))

    def _ask_for_guids_again(self) -> None:
        self._no_guids = ""
        for schemas in self._without_guids.values():
            schemas.forget_guids()
        self._without_guids.clear()

    def _tell(self, ask: SchemaQuestion, asked: _Asked, problem: str) -> None:
        """Tell each channel that waits, once for each reason."""
        if problem != asked.problem:
            asked.problem = problem
            asked.told.clear()
        for name in sorted({one.owner for one in asked.waiting.values()} - asked.told):
            asked.told.add(name)
            self._observer.on(
                SchemaUnavailable(channel=name, reason=problem, url=self.url, asked=str(ask))
            )

    async def _once(self, ask: SchemaQuestion) -> Any:
        if isinstance(ask, ById):
            return await self.source.schema(ask.id)
        if isinstance(ask, ByGuid):
            return await self.source.by_guid(ask.guid)
        if isinstance(ask, LatestOf):
            return await self.source.latest(ask.subject)
        call = self.source.register if ask.register else self.source.lookup
        return await call(ask.subject, ask.schema)

    def why(self, ask: SchemaQuestion) -> str:
        """Why there is no answer yet."""
        asked = self._asked.get(ask) or self._given_up.get(ask)
        return f"schema registry {self.url}: {ask}: {(asked.problem if asked else '') or 'no answer yet'}"

    def not_ready(self, schemas: ChannelSchemas) -> list[str]:
        """Why a channel has waited for longer than a moment."""
        self._forget_given_up()
        late = self._clock.monotonic() - NOT_READY_S
        waited = [
            self.why(ask)
            for ask, asked in self._asked.items()
            if asked.since <= late and any(one is schemas for one in asked.waiting.values())
        ]
        given_up = [
            self.why(ask)
            for ask, asked in self._given_up.items()
            if asked.since <= late and asked.left_by is schemas
        ]
        return waited + given_up
