"""Confluent's serialisers behind an adapter, against ours: ``python -m benchmarks.serialisers``.

It prints what each needs, what a record takes, and what a record that needs a schema does while the
registry is away.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import statistics
import subprocess
import sys
import threading
import time
import tomllib
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OURS = "ours"
THEIRS = "Confluent's"
THEIR_PACKAGE = "confluent-kafka[schemaregistry,avro,json,protobuf]"
MODULES = {
    OURS: (
        "reactive_kafka.schemas.schema_registry",
        "reactive_kafka.formats.registered.avro, fastavro",
        "reactive_kafka.formats.registered.json_schema, jsonschema",
        "reactive_kafka.formats.registered.protobuf, google.protobuf.message_factory",
    ),
    THEIRS: (
        "confluent_kafka.schema_registry.avro",
        "confluent_kafka.schema_registry.json_schema",
        "confluent_kafka.schema_registry.protobuf",
    ),
}
FORMATS = ("avro", "json-schema", "protobuf")
KINDS = ("dict", "dataclass", "pydantic")
TOPIC = "orders"
AT_ONCE = 20
"""How many records ask for the same unknown schema at the same time."""


# -- what each needs


def closure(requirements: Iterable[str]) -> set[str]:
    """The names of all packages that requirements install here, themselves among them."""
    found: set[str] = set()
    seen: set[tuple[str, str]] = set()
    todo: list[tuple[Requirement, str]] = [(Requirement(text), "") for text in requirements]
    while todo:
        one, of_extra = todo.pop()
        if one.marker is not None and not one.marker.evaluate({"extra": of_extra}):
            continue
        name = canonicalize_name(one.name)
        found.add(name)
        needed = metadata.requires(name) or []
        for extra in ("", *one.extras):
            if (name, extra) not in seen:
                seen.add((name, extra))
                todo.extend((Requirement(text), extra) for text in needed)
    return found


def megabytes(package: str) -> float:
    """What the files of an installed package take."""
    files = metadata.files(package) or []
    paths = [one.locate() for one in files]
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6  # type: ignore[attr-defined]


def needed() -> dict[str, dict[str, float]]:
    """Whose -> the packages that only this one needs, with their megabytes."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    base = closure(project["dependencies"])
    ours = closure([one for format in FORMATS for one in extras[format]])
    each = {OURS: ours - base, THEIRS: closure([THEIR_PACKAGE]) - base}
    return {
        whose: {
            one: megabytes(one)
            for one in sorted(packages - each[OURS if whose == THEIRS else THEIRS])
        }
        for whose, packages in each.items()
    }


def import_ms(whose: str, runs: int) -> float:
    """How long a process that has imported reactive_kafka takes to import all three formats; the
    median.
    """
    code = (
        "import reactive_kafka, time\n"
        "began = time.perf_counter()\n"
        f"import {', '.join(MODULES[whose])}\n"
        "print(time.perf_counter() - began)"
    )
    took = [
        float(
            subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True
            ).stdout
        )
        for _ in range(runs)
    ]
    return statistics.median(took) * 1e3


# -- what a record takes


class Codec(NamedTuple):
    """How one of them reads and writes a format, as a kind of value."""

    decode: Callable[[bytes], Any]
    encode: Callable[[Any], bytes | None]


def values() -> dict[str, Any]:
    """The same order as each kind of value."""
    from benchmarks.contenders.ours_formats import OrderData
    from benchmarks.orders import OrderModel, order

    one = order(7)
    return {"dict": one, "dataclass": OrderData(**one), "pydantic": OrderModel(**one)}


def json_schema_text() -> str:
    """The order as JSON Schema."""
    from benchmarks.orders import OrderModel

    return json.dumps(OrderModel.model_json_schema())


def order_message() -> Any:
    """The order as a class of Protobuf, as protoc generates it."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3", package="shop")
    message = file.message_type.add(name="Order")
    kinds = (
        ("id", field.TYPE_INT64),
        ("customer", field.TYPE_STRING),
        ("item", field.TYPE_STRING),
        ("quantity", field.TYPE_INT32),
        ("price", field.TYPE_DOUBLE),
        ("paid", field.TYPE_BOOL),
    )
    for number, (name, kind) in enumerate(kinds, 1):
        message.field.add(name=name, number=number, type=kind, label=field.LABEL_OPTIONAL)
    message.field.add(
        name="note",
        number=len(kinds) + 1,
        type=field.TYPE_STRING,
        label=field.LABEL_OPTIONAL,
        proto3_optional=True,
        oneof_index=0,
    )
    message.oneof_decl.add(name="_note")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def confluents(format: str, kind: str, client: Any) -> Codec:
    """Confluent's serialisers with the adapter that a channel would need: the shortest one for a
    flat order.
    """
    from confluent_kafka.serialization import MessageField, SerializationContext

    from benchmarks.contenders.ours_formats import OrderData
    from benchmarks.orders import SCHEMA, OrderModel

    context = SerializationContext(TOPIC, MessageField.VALUE)
    made_of: dict[str, Callable[[dict[str, Any]], Any]] = {
        "dict": lambda found: found,
        "dataclass": lambda found: OrderData(**found),
        "pydantic": OrderModel.model_validate,
    }
    as_dict: dict[str, Callable[[Any], dict[str, Any]]] = {
        "dict": lambda value: value,
        "dataclass": vars,
        "pydantic": OrderModel.model_dump,
    }
    made = made_of[kind]
    plain = as_dict[kind]
    if format == "avro":
        from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

        read = AvroDeserializer(client)
        write = AvroSerializer(client, SCHEMA)
        return Codec(
            lambda data: made(read(data, context)), lambda value: write(plain(value), context)
        )
    if format == "json-schema":
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

        text = json_schema_text()
        # The class checks the data. Ours does not check them against the schema, too, so theirs
        # need not do that.
        checks = {"validate": kind == "dict"}
        read = JSONDeserializer(text, schema_registry_client=client, conf=checks)
        write = JSONSerializer(text, client, conf=checks)
        return Codec(
            lambda data: made(read(data, context)), lambda value: write(plain(value), context)
        )
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

    message = order_message()
    names = [field.name for field in message.DESCRIPTOR.fields if field.name != "note"]
    settings = {"use.deprecated.format": False}
    read = ProtobufDeserializer(message, settings, client)
    write = ProtobufSerializer(message, client, settings)

    def fields(found: Any) -> dict[str, Any]:
        note = found.note if found.HasField("note") else None
        return {**{name: getattr(found, name) for name in names}, "note": note}

    return Codec(
        lambda data: made(fields(read(data, context))),
        lambda value: write(message(**plain(value)), context),
    )


def our_own(format: str, kind: str, data: bytes) -> Codec:
    """Our decoder and encoder of a channel, with the schema of *data* known."""
    from benchmarks.contenders.ours_formats import OrderData
    from benchmarks.orders import OrderModel
    from reactive_kafka.formats.decoders import decoder_for
    from reactive_kafka.formats.encoders import encoder_for
    from reactive_kafka.formats.registered.channel_schemas import (
        ChannelSchemas,
        SchemaMissing,
        SchemaSource,
    )
    from reactive_kafka.formats.registered.schema_questions import ById, IdOf, SchemaWithId

    schema = our_schema(format)
    schemas = ChannelSchemas(TOPIC)
    id = int.from_bytes(data[1:5], "big")
    schemas.answered(ById(id), schema)
    source = SchemaSource(schemas, TOPIC, register=False)
    wanted: Any = {"dict": dict[str, Any], "dataclass": OrderData, "pydantic": OrderModel}[kind]
    decode = decoder_for(wanted, format, source)
    assert decode is not None
    encode = encoder_for(format, source)
    try:
        encode(values()[kind])
    except SchemaMissing as missing:
        schemas.answered(
            missing.ask, id if isinstance(missing.ask, IdOf) else SchemaWithId(id, schema)
        )
    return Codec(decode, encode)


def our_schema(format: str) -> Any:
    """The order's schema as the registry gives it."""
    from benchmarks.orders import SCHEMA
    from reactive_kafka.formats.registered.schema_questions import Schema

    if format == "avro":
        return Schema("AVRO", SCHEMA)
    if format == "json-schema":
        return Schema("JSON", json_schema_text())
    return Schema("PROTOBUF", b64encode(order_message().DESCRIPTOR.file.serialized_pb).decode())


def taken_us(
    calls: Sequence[Callable[[Any], object]], value: Any, records: int, runs: int
) -> list[float]:
    """Microseconds of CPU a call, of the best run of each; they take turns, so that a slow moment
    hits them all.

    The first call of each, which fills caches, does not count.
    """
    best = [inf] * len(calls)
    for call in calls:
        call(value)
    for _ in range(runs):
        for at, call in enumerate(calls):
            began = time.process_time()
            for _ in range(records):
                call(value)
            best[at] = min(best[at], time.process_time() - began)
    return [one / records * 1e6 for one in best]


def speeds(records: int, runs: int) -> Iterator[tuple[str, str, str, float, float]]:
    """Format, kind, what is done, and the microseconds of ours and of Confluent's."""
    from confluent_kafka.schema_registry import SchemaRegistryClient

    each = values()
    for format in FORMATS:
        client = SchemaRegistryClient.new_client({"url": f"mock://{format}"})
        for kind in KINDS:
            theirs = confluents(format, kind, client)
            data = theirs.encode(each[kind])
            assert data is not None
            ours = our_own(format, kind, data)
            assert ours.decode(data) == theirs.decode(data) == each[kind]
            written = ours.encode(each[kind])
            assert written is not None
            assert theirs.decode(written) == each[kind]
            own, other = taken_us((ours.decode, theirs.decode), data, records, runs)
            yield format, kind, "decode", own, other
            own, other = taken_us((ours.encode, theirs.encode), each[kind], records, runs)
            yield format, kind, "encode", own, other


# -- what a record does while the registry is away


class Registry:
    """A registry with the schema 1, on a loopback port. It counts what it is asked."""

    def __init__(self) -> None:
        from benchmarks.orders import SCHEMA

        self.asked = 0
        counted = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                counted.asked += 1
                body = json.dumps({"schema": SCHEMA}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                pass

        self._answers = Answers
        self._server: ThreadingHTTPServer | None = None

    def start(self, port: int) -> None:
        """Listen."""
        ThreadingHTTPServer.allow_reuse_address = True
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._answers)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Close the port."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


@contextmanager
def refusing() -> Iterator[tuple[int, Callable[[], None]]]:
    """A port where nobody listens, and what has a registry listen there."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    registry = Registry()
    try:
        yield port, lambda: registry.start(port)
    finally:
        registry.stop()


@contextmanager
def silent() -> Iterator[tuple[int, Callable[[], None]]]:
    """A port that accepts and never answers, and what has a registry answer there."""
    held: list[socket.socket] = []
    listener = socket.create_server(("127.0.0.1", 0), backlog=50)
    port = listener.getsockname()[1]
    registry = Registry()

    def accept() -> None:
        try:
            while True:
                held.append(listener.accept()[0])
        except OSError:
            return

    def repair() -> None:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for one in held:
            one.close()
        registry.start(port)

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield port, repair
    finally:
        listener.close()
        for one in held:
            one.close()
        registry.stop()


AWAY = {"refused": refusing, "no answer": silent}


class Seen(NamedTuple):
    """What a record that needs the schema did while the registry was away.

    Attributes:
        blocked_s: How long the call blocked its thread, or the task that awaited it.
        outcome: What it raised; or that it was not over.
        heals: What had to be done once the registry was back, and how long it took.
    """

    blocked_s: float
    outcome: str
    heals: str


LONGEST_S = 30.0
"""How long a call is awaited once the registry is back."""


def said(error: BaseException) -> str:
    """The class of an error and the beginning of its text."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:60]}{'...' if len(text) > 60 else ''}"


def as_avro() -> bytes:
    """An order with the schema 1."""
    from benchmarks import orders

    return orders.as_avro(1)(7)


def theirs_away(port: int, repair: Callable[[], None], limit_s: float) -> Seen:
    """Confluent's AvroDeserializer, in a thread: it blocks."""
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer

    read = AvroDeserializer(SchemaRegistryClient({"url": f"http://127.0.0.1:{port}"}))
    outcome: list[str] = []

    def call() -> None:
        try:
            read(as_avro(), None)
        except Exception as error:
            outcome.append(said(error))
        else:
            outcome.append("decoded")

    began = time.monotonic()
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(limit_s)
    blocked_s = time.monotonic() - began
    was_over = bool(outcome)
    told = (
        outcome[0]
        if was_over
        else f"still blocked, with its own timeout of {read._registry._rest_client.timeout} s"
    )
    repair()
    began = time.monotonic()
    if was_over:
        read(as_avro(), None)
        return Seen(blocked_s, told, f"the caller calls again: {time.monotonic() - began:.2f} s")
    thread.join(LONGEST_S)
    return Seen(
        blocked_s,
        told,
        f"the call came back {time.monotonic() - began:.2f} s later: {outcome or 'not at all'}",
    )


async def theirs_async_away(port: int, repair: Callable[[], None], limit_s: float) -> Seen:
    """Confluent's AsyncAvroDeserializer, in a task: it is awaited."""
    from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AsyncAvroDeserializer

    read = await AsyncAvroDeserializer(
        AsyncSchemaRegistryClient({"url": f"http://127.0.0.1:{port}"})
    )
    began = time.monotonic()
    try:
        async with asyncio.timeout(limit_s):
            await read(as_avro(), None)
        told = "decoded"
    except TimeoutError:
        told = "still awaited"
    except Exception as error:
        told = said(error)
    blocked_s = time.monotonic() - began
    repair()
    began = time.monotonic()
    await read(as_avro(), None)
    return Seen(blocked_s, told, f"the caller calls again: {time.monotonic() - began:.2f} s")


async def ours_away(port: int, repair: Callable[[], None], limit_s: float) -> Seen:
    """A channel's decoder, and what the channel does with what it raises: it waits for the
    schema.
    """
    from reactive_kafka.formats.registered.channel_schemas import SchemaMissing

    async with our_channel(port) as decode:
        began = time.monotonic()
        try:
            decode(as_avro())
        except SchemaMissing as missing:
            blocked_s = time.monotonic() - began
            waiting = missing.arrives()
            await asyncio.wait([waiting], timeout=limit_s)
            told = f"SchemaMissing; the record waits: {missing.why().split(': ', 2)[2][:60]}"
        repair()
        began = time.monotonic()
        await waiting
        decode(as_avro())
        return Seen(blocked_s, told, f"by itself: {time.monotonic() - began:.2f} s")


async def asked_at_once() -> dict[str, tuple[int, int]]:
    """Whose -> the requests and the threads that 20 records take, which need the same unknown
    schema at once.
    """
    from confluent_kafka.schema_registry import AsyncSchemaRegistryClient, SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AsyncAvroDeserializer, AvroDeserializer

    from reactive_kafka.formats.registered.channel_schemas import SchemaMissing

    found: dict[str, tuple[int, int]] = {}

    async def counted(whose: str, work: Callable[[int], Any]) -> None:
        registry = Registry()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        registry.start(port)
        try:
            threads = await work(port)
        finally:
            registry.stop()
        found[whose] = registry.asked, threads

    async def ours(port: int) -> int:
        async with our_channel(port) as decode:
            waiting = []
            for _ in range(AT_ONCE):
                try:
                    decode(as_avro())
                except SchemaMissing as missing:
                    waiting.append(missing.arrives())
            await asyncio.wait(waiting)
            decode(as_avro())
        return 1

    async def blocking(port: int) -> int:
        read = AvroDeserializer(SchemaRegistryClient({"url": f"http://127.0.0.1:{port}"}))
        threads = [threading.Thread(target=read, args=(as_avro(), None)) for _ in range(AT_ONCE)]
        for one in threads:
            one.start()
        for one in threads:
            await asyncio.to_thread(one.join)
        return AT_ONCE

    async def awaited(port: int) -> int:
        read = await AsyncAvroDeserializer(
            AsyncSchemaRegistryClient({"url": f"http://127.0.0.1:{port}"})
        )
        await asyncio.gather(*(read(as_avro(), None) for _ in range(AT_ONCE)))
        return 0

    await counted(OURS, ours)
    await counted(THEIRS, blocking)
    await counted(f"{THEIRS}, async", awaited)
    return found


@asynccontextmanager
async def our_channel(port: int) -> AsyncIterator[Callable[[bytes], Any]]:
    """The Avro decoder of a channel whose registry is at *port*."""
    from reactive_kafka.clock import SYSTEM_CLOCK
    from reactive_kafka.config.tables import SchemaRegistrySettings
    from reactive_kafka.formats.decoders import decoder_for
    from reactive_kafka.formats.registered.channel_schemas import ChannelSchemas, SchemaSource
    from reactive_kafka.schemas.schema_registry import Registry as Asking
    from reactive_kafka.tasks import Tasks

    class Deaf:
        def on(self, event: object) -> None:
            pass

    tasks = Tasks()
    schemas = ChannelSchemas(TOPIC)
    settings = SchemaRegistrySettings(url=(f"http://127.0.0.1:{port}",))
    schemas.connect(Asking(settings, SYSTEM_CLOCK, tasks, Deaf()))
    decode = decoder_for(dict[str, Any], "avro", SchemaSource(schemas, TOPIC))
    assert decode is not None
    yield decode
    await tasks.end(5)


# -- the page


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serialisers", description=__doc__)
    parser.add_argument("--records", type=int, default=3_000, help="of a run")
    parser.add_argument("--runs", type=int, default=10, help="of which the best counts")
    parser.add_argument(
        "--limit", type=float, default=30.0, help="for how many seconds a call is watched"
    )
    options = parser.parse_args(arguments)

    packages = needed()
    rows: list[tuple[str, ...]] = []
    for whose in (OURS, THEIRS):
        sizes = packages[whose]
        named = ", ".join(
            f"{name} {size:.1f}" for name, size in sorted(sizes.items(), key=lambda one: -one[1])
        )
        took = f"{import_ms(whose, options.runs):.0f}"
        rows.append((whose, str(len(sizes)), f"{sum(sizes.values()):.1f}", named or "-", took))
    print(
        table(("", "packages that only it needs", "MB", "which", "import, ms"), rows),
        end="\n\n",
        flush=True,
    )

    measured = speeds(options.records, options.runs)
    rows = [
        (format, kind, doing, f"{ours:.1f}", f"{theirs:.1f}", f"{theirs / ours:.1f}")
        for format, kind, doing, ours, theirs in measured
    ]
    head = ("format", "value", "", "ours, µs", "Confluent's, µs", "Confluent's / ours")
    print(table(head, rows), end="\n\n", flush=True)

    rows = []
    for name, away in AWAY.items():
        for whose, play in (
            (OURS, ours_away),
            (THEIRS, None),
            (f"{THEIRS}, async", theirs_async_away),
        ):
            with away() as (port, repair):
                if play is None:
                    seen = theirs_away(port, repair, options.limit)
                else:
                    seen = asyncio.run(play(port, repair, options.limit))
            rows.append((name, whose, f"{seen.blocked_s:.3f}", seen.outcome, seen.heals))
    print(
        table(("the registry", "", "the call took, s", "it came to", "once it is back"), rows),
        end="\n\n",
    )

    rows = [
        (whose, str(asked), str(threads))
        for whose, (asked, threads) in asyncio.run(asked_at_once()).items()
    ]
    print(
        table(
            (f"{AT_ONCE} records need one new schema at once", "requests", "threads that wait"),
            rows,
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
