"""Names of modules in data: nothing that a record, a dead letter or a request says is ever
imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from reactive_kafka import App, Message
from reactive_kafka.testing import MemoryBroker, TestApp
from tests.app.handlers import note_values

NAME = "planted_by_data"
PLANTED = f"{NAME}:load"
VALUES = [
    PLANTED.encode(),
    f'{{"__class__": "{PLANTED}", "py/object": "{NAME}.load", "@type": "{NAME}.load"}}'.encode(),
    f"!!python/object/apply:{NAME}.load []".encode(),
    # A pickle that calls it.
    f"c{NAME}\nload\n(tR.".encode(),
]
HEADERS = tuple(
    (name, PLANTED.encode())
    for name in (
        "__TypeId__",
        "content-type",
        "deserializer",
        "value.deserializer",
        "dead-letter-reason",
        "dead-letter-cause",
        "dead-letter-exception-class-name",
        "dead-letter-topic",
        "delayed-retry-exception-class-name",
    )
)


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A module that anybody could import by its name; the list shows whether somebody has."""
    (tmp_path / f"{NAME}.py").write_text(
        "import sys\nsys.planted.append(__name__)\ndef load(data):\n    return data\n"
    )
    found: list[str] = []
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "planted", found, raising=False)
    yield found
    sys.modules.pop(NAME, None)


def application(**orders: Any) -> App:
    settings = {"group_id": "billing", "auto_offset_reset": "earliest", **orders}
    letters = {
        "group_id": "letters",
        "auto_offset_reset": "earliest",
        "topic": "dead-letter-topic-orders",
    }
    return App({"incoming": {"orders": settings, "letters": letters}})


async def test_what_a_record_a_letter_or_a_request_names_is_not_imported(
    imported: list[str],
) -> None:
    """Row S12 of the faults."""
    app = application(failure_strategy="dead-letter-queue", value_deserializer="json")
    seen, letters, broker = list[Any](), list[Message[bytes]](), MemoryBroker(partitions=1)

    @app.incoming("orders")
    async def handler(value: Any) -> None:
        seen.append(value)
        raise LookupError(PLANTED)

    @app.incoming("letters")
    async def read(letter: Message[bytes]) -> None:
        letters.append(letter)

    for value in VALUES:
        broker.produce("orders", value, key=PLANTED.encode(), headers=HEADERS)
    async with TestApp(app, broker=broker) as test:
        await test.settled()
        transport = httpx.ASGITransport(app=app.asgi)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for path in (
                "/",
                "/health",
                "/metrics",
                "/api/facts",
                f"/{PLANTED}",
                f"/health/{NAME}",
            ):
                await client.get(
                    path, params={"app": PLANTED}, headers={"x-module": PLANTED, "accept": PLANTED}
                )
    await broker.close()
    assert len(seen) == 1, "only JSON is decoded"
    assert [letter.record.value for letter in letters] == VALUES
    assert all(PLANTED in str(letter.headers) for letter in letters)
    assert imported == []


async def test_what_the_configuration_names_is(imported: list[str]) -> None:
    """Row S12 of the faults."""
    app, seen, broker = (
        application(value_deserializer=PLANTED),
        list[bytes](),
        MemoryBroker(partitions=1),
    )
    note_values(app, seen)

    @app.incoming("letters")
    async def read(letter: Message[bytes]) -> None: ...

    broker.produce("orders", b"a")
    async with TestApp(app, broker=broker) as test:
        await test.settled()
    await broker.close()
    assert (imported, seen) == ([NAME], [b"a"])
