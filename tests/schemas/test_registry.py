"""Who waits for which schema, in virtual time: moments are exact, and the registry answers what it
is told to.
"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from reactive_kafka.clock import Clock
from reactive_kafka.errors import DecodeError, EncodeError
from reactive_kafka.events import SchemaAvailable, SchemaUnavailable
from reactive_kafka.formats.registered.channel_schemas import ChannelSchemas, SchemaMissing
from reactive_kafka.formats.registered.schema_questions import (
    ByGuid,
    ById,
    IdOf,
    Schema,
    SchemaQuestion,
    SchemaWithId,
)
from reactive_kafka.schemas.answers import NoGuids, NotFound, Refused, RegistryAway
from reactive_kafka.schemas.schema_registry import Registry
from reactive_kafka.tasks import Tasks
from tests.app.helpers import Recorder, in_virtual_time, now, settle_down
from tests.config.values import schema_registry_settings

AVRO = Schema("AVRO", '"string"')


class Scripted:
    """A source that answers one thing after the other, the last one for ever; and notes when it was
    asked.
    """

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[float] = []

    async def _answer(self) -> Any:
        self.asked.append(now())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def schema(self, id: int) -> Schema:
        found: Schema = await self._answer()
        return found

    async def by_guid(self, guid: str) -> Schema:
        return await self.schema(0)

    async def latest(self, subject: str) -> SchemaWithId:
        found: SchemaWithId = await self._answer()
        return found

    async def register(self, subject: str, schema: Schema) -> int:
        found: int = await self._answer()
        return found

    lookup = register


def registry_of(source: Scripted, observer: Recorder | None = None) -> tuple[Registry, Tasks]:
    tasks = Tasks()
    registry = Registry(
        schema_registry_settings(url=("memory://",)), Clock(now, now), tasks, observer or Recorder()
    )
    registry.source = source
    return registry, tasks


def connected(registry: Registry, owner: str = "orders") -> ChannelSchemas:
    schemas = ChannelSchemas(owner)
    schemas.connect(registry)
    return schemas


def missing(schemas: ChannelSchemas, ask: SchemaQuestion) -> SchemaMissing:
    with pytest.raises(SchemaMissing) as raised:
        schemas.find(ask)
    return raised.value


@in_virtual_time
async def test_one_request_answers_all_channels_that_wait_for_the_same() -> None:
    source = Scripted(AVRO)
    registry, tasks = registry_of(source)
    channels = [connected(registry), connected(registry, "invoices")]
    waiters = [missing(schemas, ById(1)).arrives() for schemas in (*channels, *channels)]
    assert await asyncio.gather(*waiters) == [True] * 4
    assert [schemas.find(ById(1)) for schemas in channels] == [AVRO] * 2
    assert len(source.asked) == 1
    await tasks.end(1)


@in_virtual_time
async def test_waits_grow_and_readiness_names_the_reason_after_five_seconds() -> None:
    source = Scripted(RegistryAway("500: it has failed"))
    registry, tasks = registry_of(source)
    schemas, other, begun = connected(registry), connected(registry, "invoices"), now()
    waiter = missing(schemas, ById(1)).arrives()
    await asyncio.sleep(4.9)
    assert schemas.not_ready() == []
    await asyncio.sleep(0.11)
    assert schemas.not_ready() == ["schema registry memory://: schema 1: 500: it has failed"]
    assert other.not_ready() == []
    await asyncio.sleep(60)
    assert [round(at - begun, 2) for at in source.asked[:8]] == [
        0,
        0.25,
        0.75,
        1.75,
        3.75,
        7.75,
        15.75,
        25.75,
    ]
    source.answers = [AVRO]
    assert await waiter
    assert schemas.not_ready() == []
    await tasks.end(1)


@in_virtual_time
async def test_readiness_names_few_of_many_schemas_those_that_are_open_for_longest() -> None:
    source = Scripted(RegistryAway("500: it has failed"))
    registry, tasks = registry_of(source)
    schemas = connected(registry)
    waiters = []
    for number in range(20):
        waiters.append(missing(schemas, ById(number)).arrives())
        await asyncio.sleep(0.1)
    await asyncio.sleep(6)
    assert schemas.not_ready() == [
        "schema registry memory://: schema 0: 500: it has failed",
        "schema registry memory://: schema 1: 500: it has failed",
        "schema registry memory://: schema 2: 500: it has failed (17 more like it)",
    ]
    await tasks.end(1)
    assert await asyncio.gather(*waiters) == [False] * 20


@in_virtual_time
async def test_each_channel_that_waits_is_told_once_for_each_reason_and_when_it_is_over() -> None:
    recorder = Recorder()
    source = Scripted(
        *[RegistryAway("500: it has failed")] * 3,
        *[RegistryAway("429: too many requests")] * 2,
        AVRO,
    )
    registry, tasks = registry_of(source, recorder)
    waiting = [missing(connected(registry), ById(1)).arrives()]
    await asyncio.sleep(0.1)
    waiting += [
        missing(connected(registry, name), ById(1)).arrives() for name in ("invoices", "orders")
    ]
    assert all(await asyncio.gather(*waiting))
    told = [(event.channel, event.reason) for event in recorder.of(SchemaUnavailable)]
    assert told == [
        ("orders", "500: it has failed"),
        ("invoices", "500: it has failed"),
        ("invoices", "429: too many requests"),
        ("orders", "429: too many requests"),
    ]
    assert [event.text() for event in recorder.of(SchemaAvailable)] == [
        "schema registry memory://: schema 1: it has answered after 7.8 s"
    ] * 2
    assert await missing(connected(registry, "quick"), ById(1)).arrives()
    assert len(recorder.events) == 6
    await tasks.end(1)


@in_virtual_time
async def test_a_registry_that_asks_for_time_gets_it() -> None:
    registry, tasks = registry_of(Scripted(RegistryAway("429: too many requests", 30.0), AVRO))
    begun = now()
    assert await missing(connected(registry), ById(1)).arrives()
    assert now() - begun == 30
    await tasks.end(1)


@in_virtual_time
async def test_when_nobody_waits_any_more_nobody_is_asked_any_more() -> None:
    source = Scripted(RegistryAway("away"))
    registry, tasks = registry_of(source)
    schemas = connected(registry)
    first, second = (missing(schemas, ById(1)).arrives() for _ in range(2))
    await settle_down()
    first.cancel()
    await asyncio.sleep(1)
    asked = len(source.asked)
    assert asked > 1
    second.cancel()
    await asyncio.sleep(60)
    assert len(source.asked) == asked
    assert schemas.not_ready() == []
    await tasks.end(1)


@in_virtual_time
async def test_a_question_that_is_asked_again_a_moment_after_it_was_given_up_is_the_same_outage() -> (
    None
):
    """A send is given up at its timeout, and its handler is called again a little later."""
    recorder = Recorder()
    source = Scripted(RegistryAway("500: it has failed"))
    registry, tasks = registry_of(source, recorder)
    schemas = connected(registry)
    first = missing(schemas, ById(1)).arrives()
    await asyncio.sleep(4)
    first.cancel()
    await asyncio.sleep(2)
    reasons = ["schema registry memory://: schema 1: 500: it has failed"]
    assert schemas.not_ready() == reasons
    second = missing(schemas, ById(1)).arrives()
    await settle_down()
    assert schemas.not_ready() == reasons
    source.answers = [AVRO]
    assert await second
    assert len(recorder.of(SchemaUnavailable)) == 1
    (over,) = recorder.of(SchemaAvailable)
    assert over.away_s > 6
    await tasks.end(1)


@in_virtual_time
async def test_a_question_that_was_given_up_is_no_outage_once_the_registry_has_answered() -> None:
    source = Scripted(RegistryAway("500: it has failed"))
    registry, tasks = registry_of(source)
    schemas = connected(registry)
    waiter = missing(schemas, ById(1)).arrives()
    await asyncio.sleep(6)
    waiter.cancel()
    await settle_down()
    assert schemas.not_ready() != []
    source.answers = [AVRO]
    assert await missing(connected(registry, "invoices"), ById(2)).arrives()
    assert schemas.not_ready() == []
    await tasks.end(1)


@in_virtual_time
async def test_a_no_counts_when_it_was_said_three_times_in_a_row_and_is_forgotten_after_a_minute() -> (
    None
):
    no, away = NotFound("404: Schema not found"), RegistryAway("500: it has failed")
    source = Scripted(no, no, away, no, no, no, AVRO)
    registry, tasks = registry_of(source)
    schemas = connected(registry)
    assert await missing(schemas, ById(1)).arrives()
    assert len(source.asked) == 6
    for _ in range(2):
        with pytest.raises(
            DecodeError, match="schema registry memory://: schema 1: 404: Schema not found"
        ):
            schemas.find(ById(1))
    await asyncio.sleep(61)
    assert await missing(schemas, ById(1)).arrives()
    assert schemas.find(ById(1)) == AVRO
    await tasks.end(1)


@in_virtual_time
async def test_a_registry_without_guids_is_asked_for_them_again_after_a_minute_and_not_for_each_record() -> (
    None
):
    source = Scripted(*[NoGuids("404: it does not look up schemas by GUID")] * 3, AVRO)
    registry, tasks = registry_of(source)
    schemas, other = connected(registry), connected(registry, "invoices")
    begun, refused = now(), "404: it does not look up schemas by GUID"
    for number in range(100):
        ask = ByGuid(str(UUID(int=number)))
        for one in (schemas, other):
            assert await missing(one, ask).arrives()
            with pytest.raises(
                DecodeError, match=f"schema registry memory://: schema {ask.guid}: {refused}"
            ):
                one.find(ask)
    assert (len(source.asked), now() - begun) == (3, 0.75)
    await asyncio.sleep(61)
    for one in (schemas, other):
        assert await missing(one, ask).arrives()
        assert one.find(ask) == AVRO
    await tasks.end(1)


@in_virtual_time
async def test_a_guid_that_is_not_found_is_asked_for_again_after_a_minute_and_others_at_once() -> (
    None
):
    no = NotFound("404: Schema not found")
    source = Scripted(no, no, no, AVRO)
    registry, tasks = registry_of(source)
    schemas, first, second = connected(registry), ByGuid(str(UUID(int=1))), ByGuid(str(UUID(int=2)))
    for ask in (first, second):
        assert await missing(schemas, ask).arrives()
    with pytest.raises(DecodeError):
        schemas.find(first)
    assert schemas.find(second) == AVRO
    await asyncio.sleep(61)
    assert await missing(schemas, first).arrives()
    assert schemas.find(first) == AVRO
    await tasks.end(1)


@in_virtual_time
async def test_an_incompatible_schema_is_refused_at_once_and_tried_again_after_a_minute() -> None:
    registry, tasks = registry_of(Scripted(Refused("409: incompatible"), 7))
    schemas, ask = connected(registry), IdOf("orders-value", AVRO, True)
    assert await missing(schemas, ask).arrives()
    with pytest.raises(
        EncodeError, match="registering the schema of subject 'orders-value': 409: incompatible"
    ):
        schemas.find(ask)
    await asyncio.sleep(61)
    assert await missing(schemas, ask).arrives()
    assert schemas.find(ask) == 7
    await tasks.end(1)


@in_virtual_time
async def test_whoever_waits_when_the_application_ends_is_told() -> None:
    registry, tasks = registry_of(Scripted(RegistryAway("away")))
    schemas = connected(registry)
    waiter = missing(schemas, ById(1)).arrives()
    await settle_down()
    await tasks.end(1)
    assert await waiter is False
    assert await missing(schemas, ById(1)).arrives() is False


@in_virtual_time
async def test_a_bug_in_asking_is_told_and_tried_again_like_any_other_failure() -> None:
    registry, tasks = registry_of(Scripted(ZeroDivisionError("oops"), AVRO))
    assert await missing(connected(registry), ById(1)).arrives()
    await tasks.end(1)


def test_a_channels_memory_of_schemas_is_bounded() -> None:
    schemas = ChannelSchemas("orders")
    for id in range(1_500):
        schemas.answered(ById(id), AVRO)
    assert schemas.find(ById(1_499)) == AVRO
    missing(schemas, ById(0))
