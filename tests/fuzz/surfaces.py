"""The targets that people and other programs meet: configuration, command line, HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from reactive_kafka import App, TopicPartition
from reactive_kafka.config import keys
from reactive_kafka.config.client_properties import PROPERTIES
from reactive_kafka.config.dump import dump
from reactive_kafka.config.load import read_settings, toml_of_quarkus
from reactive_kafka.config.microprofile.smallrye_attributes import names_of
from reactive_kafka.errors import ConfigError
from reactive_kafka.http.server import serve
from reactive_kafka.testing import MemoryBroker
from tests.cli.inside import cli_on, make_broker
from tests.fuzz import inputs
from tests.fuzz.budget import Target

SECTIONS = (*keys.PLAIN_SECTIONS, *keys.CHANNEL_SECTIONS)
KEYS = tuple(
    sorted(
        {
            name
            for section in (*keys.PLAIN_SECTIONS.values(), *keys.CHANNEL_SECTIONS.values())
            for name in (*section.keys, *section.tables)
        }
    )
)
ATTRIBUTES_AND_PROPERTIES = tuple(
    sorted({*names_of("incoming"), *names_of("outgoing"), *(prop.kafka for prop in PROPERTIES)})
)
QUARKUS_YAML = ".quarkus.yaml"
TOKENS = {
    ".toml": (
        b"[[",
        b"]]\n",
        b"[a.b]\n",
        b"= ",
        b"'''",
        b'"""',
        b"a." * 30,
        b"{a=",
        b"1979-05-27",
        b"\n",
        b"0x" + b"f" * 5000,
    ),
    ".yaml": (
        b"&a ",
        b"*a",
        b"<<: *a\n",
        b"!!int ",
        b"!!float ",
        b"!!bool ",
        b"!!set ",
        b"!!binary ",
        b"? ",
        b": ",
        b"- ",
        b"0x_",
        b"2020-13-99",
        b'""',
        b"_",
        b"{=: a}",
        b":1" * 9000,
        b"!a!b ",
        b"|\n",
        b">-\n",
        b"{",
        b"[",
        b"]",
        b"}",
        b"---\n",
        b'"\\U00110000"',
        b"%YAML 9.9\n",
        b"\n  ",
    ),
    ".json": (
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b'"',
        b"\\u0000",
        b"\\ud800",
        b"NaN",
        b"1e999",
        b"-",
        b"null",
    ),
    ".properties": (
        b"\\",
        b"\\\n ",
        b"=",
        b":",
        b"${",
        b"}",
        b"${a:",
        b"\\u00",
        b"\\ud800",
        b'"',
        b"%dev.",
        b"%prod.",
        b"\n",
        b"\r",
        b"#",
        b"::",
        b"$$",
        b"\f",
    ),
    QUARKUS_YAML: (
        b"mp:\n ",
        b"quarkus: ",
        b'"%dev":\n ',
        b"~: ",
        b"&a ",
        b"*a",
        b"<<: *a\n",
        b"---\n",
        b"\n  ",
        b"? ",
        b"{",
        b"[",
        b"]",
        b"}",
        b"- ",
        b"!!int ",
        b"${",
        b"|\n",
        b'"\\U00110000"',
    ),
}


@contextmanager
def configuration() -> Iterator[Target]:
    """A file of each kind, and an environment: ConfigError, each problem on one line."""
    with TemporaryDirectory() as folder:

        def check(draw: Random) -> None:
            suffix = draw.choice(tuple(TOKENS))
            file = Path(folder, f"a{suffix}")
            if suffix == ".properties":
                text = _properties(draw)
            elif suffix == QUARKUS_YAML:
                text = _quarkus_yaml(draw)
            else:
                text = _written(_tables(draw), suffix)
            data = text.encode("utf-8", "surrogatepass")
            file.write_bytes(
                data if draw.random() < 0.4 else inputs.mutated(draw, data, TOKENS[suffix])
            )
            try:
                reading = read_settings(file, environ=_environment(draw))
                settings = reading.checked()
            except ConfigError as error:
                assert error.problems
                assert all(problem.isprintable() for problem in error.problems)
                assert str(error).count("\n") == len(error.problems)
            else:
                json.dumps(dump(settings))
                if suffix in (".properties", QUARKUS_YAML):
                    # Without the environment it may not be one.
                    with suppress(ConfigError):
                        tomllib.loads(toml_of_quarkus(file, {})[0])
                assert all("\n" not in warning for warning in settings.warnings)

        yield check


def _properties(draw: Random) -> str:
    """Channels, with attributes that are SmallRye's, or Kafka's, most times."""
    starts = [
        f"mp.messaging.{side}.{name}."
        for side in ("incoming", "outgoing")
        for name in ("orders", '"a.b"')
    ]
    starts += ["mp.messaging.connector.smallrye-kafka.", "kafka.", "%prod.kafka.", "mp.messaging."]
    lines = ["kafka.group.id=g"]
    for _ in range(draw.randrange(8)):
        value = draw.choice(
            ("true", "earliest", "5", "a,b", "${a:b}", "${kafka.group.id}", inputs.text(draw))
        )
        lines.append(f"{draw.choice(starts)}{inputs.name(draw, ATTRIBUTES_AND_PROPERTIES)}={value}")
    return "\n".join(lines)


def _quarkus_yaml(draw: Random) -> str:
    """The same as YAML, in one table or in several."""
    lines = []
    for line in _properties(draw).split("\n"):
        name, _, value = line.partition("=")
        table, _, key = name.rpartition(".")
        shape = draw.choice(
            ("{name}: {value}", "{table}: {{{key}: {value}}}", "---\n{name}: [{value}, 1]")
        )
        parts = {"name": name, "table": table, "key": key, "value": value}
        lines.append(shape.format(**{part: json.dumps(text) for part, text in parts.items()}))
    return "\n".join(lines)


def _tables(draw: Random) -> dict[str, Any]:
    """Sections that are ours most times, with channels and keys that are ours most times."""
    tables: dict[str, Any] = {}
    for _ in range(draw.randrange(1, 4)):
        section = inputs.name(draw, SECTIONS)
        table = {
            inputs.name(draw, KEYS): inputs.value(draw, KEYS, 1) for _ in range(draw.randrange(6))
        }
        if section in keys.CHANNEL_SECTIONS:
            table = {inputs.name(draw, ("orders", "clicks")): {"group_id": "g", **table}}
        tables[section] = table
    return tables


def _written(tables: dict[str, Any], suffix: str) -> str:
    return (
        _toml(tables) if suffix == ".toml" else json.dumps(tables, ensure_ascii=suffix == ".json")
    )


def _toml(tables: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(name)} = {_inline(one)}\n" for name, one in tables.items())


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(name)} = {_inline(one)}" for name, one in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return '""' if value is None else json.dumps(value)


def _environment(draw: Random) -> dict[str, str]:
    environ = {"A": inputs.text(draw)}
    for _ in range(draw.randrange(3)):
        parts = [
            inputs.name(draw, SECTIONS),
            inputs.name(draw, ("ORDERS", "MY_ORDERS")),
            inputs.name(draw, KEYS),
        ]
        environ[f"REACTIVE_KAFKA__{'__'.join(parts[: draw.randint(1, 3)])}"] = draw.choice(
            (
                inputs.text(draw),
                json.dumps(inputs.value(draw)),
                "[" * 3000,
                "{" + "a." * 9000 + "b=1}",
            )
        )
    return environ


COMMANDS = (
    ("check",),
    ("lag",),
    ("offsets", "show"),
    ("offsets", "reset"),
    ("offsets", "export"),
    ("offsets", "import"),
    ("dlq", "show"),
    ("dlq", "replay"),
    ("dlq",),
    ("offsets",),
    (),
    ("init",),
    ("chek",),
    ("schema",),
    ("asyncapi",),
)
"""None of those that run for long, or fetch something."""
OPTIONS = (
    "--to",
    "--topic",
    "--partition",
    "--limit",
    "--config",
    "--group",
    "--json",
    "--yes",
    "--dry-run",
    "--values",
    "--help",
    "--app",
    "--app-dir",
    "--strict",
    "--version",
    "--nonsense",
    "--yaml",
    "--title",
    "--api-version",
)
WORDS = (
    "orders",
    "letters",
    "billing",
    "time:x",
    "_thread:lock",
    "no.such:app",
    "shop.py:app",
    "earliest",
    "latest",
    "by:-5",
    "2026-11-21T08:00:00Z",
    "2026-11-21",
    "5",
    "-5",
    "saved.json",
    "c.toml",
    ".",
    "/",
)


@contextmanager
def command_line() -> Iterator[Target]:
    """Any arguments, with hostile letters and files: exit code 0, 1 or 2, and nothing on the
    terminal but lines.
    """
    with TemporaryDirectory() as folder, _inside_of(Path(folder)):

        def check(draw: Random) -> None:
            broker = _with_letters(draw)
            data = json.dumps(
                {"format": "reactive-kafka offsets", "version": 1, "positions": []}
            ).encode()
            Path("saved.json").write_bytes(inputs.mutated(draw, data))
            tables = {
                "kafka": {"group_id": "billing", "bootstrap_servers": "memory:1"},
                "incoming": {"orders": {}},
            }
            whole = _toml(tables).encode()
            Path("c.toml").write_bytes(
                whole if draw.random() < 0.5 else inputs.mutated(draw, whole, TOKENS[".toml"])
            )
            words = [inputs.name(draw, (*WORDS, *OPTIONS)) for _ in range(draw.randrange(6))]
            words = [word.encode(errors="replace").decode().replace("\0", "") for word in words]
            ended = cli_on(broker, *draw.choice(COMMANDS), *words, servers=draw.random() < 0.7)
            assert ended.code in (0, 1, 2)
            assert ended.code == 0 or ended.err
            assert "Traceback" not in ended.out + ended.err
            for line in (ended.out + ended.err).splitlines(keepends=True):
                assert line.rstrip("\n").isprintable(), f"{words}: {line!r}"

        yield check


def _with_letters(draw: Random) -> MemoryBroker:
    broker = make_broker(2, "orders", "letters")
    for _ in range(draw.randrange(4)):
        pairs = [
            ("dead-letter-topic", b"orders"),
            ("dead-letter-partition", b"1"),
            ("dead-letter-offset", b"5"),
        ]
        pairs += inputs.headers(
            draw, ("dead-letter-reason", "dead-letter-exception-class-name", "x")
        )
        told = tuple((name.encode(errors="replace").decode(), value) for name, value in pairs)
        broker.produce(
            "letters", inputs.binary(draw), key=inputs.binary(draw), headers=told, partition=0
        )
    assert broker.log(TopicPartition("letters", 1)) == ()
    return broker


@contextmanager
def _inside_of(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        with patch.dict(os.environ):
            for name in [name for name in os.environ if name.startswith("REACTIVE_KAFKA")]:
                del os.environ[name]
            yield
    finally:
        os.chdir(before)


REQUESTS = (
    b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: application/openmetrics-text\r\nConnection: close\r\n\r\n",
    b"GET /api/channels?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST /api/channels/orders/pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
)
PIECES = (
    b"\r\n",
    b"\n",
    b"\0",
    b" HTTP/1.0\r\n",
    b"Content-Length: -1\r\n",
    b"Content-Length: 99999999999999999999\r\n",
    b"..%2f",
    b"Origin: http://localhost\r\n",
    b"Host: a\r\n",
    b"Transfer-Encoding: gzip\r\n",
    b"Authorization: Bearer x\r\n",
    b"%00",
    b"Cookie: " + b"x" * 9000,
    b"Expect: 100-continue\r\n",
    b"\x16\x03\x01",
    b"GET //evil HTTP/1.1\r\n",
    b"ffffffffffffffff\r\n",
)
LAST_REQUEST = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
PATIENCE_S = 1.0
"""For an answer to noise: whoever sends half a request is waited for, and need not be answered."""
ANSWERED_S = 60.0
"""For the answer that must come. A busy machine may stop for a second, and nobody waits longer than
it takes.
"""


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def http() -> Iterator[Target]:
    """Raw bytes to the real server: an answer that is none of its own errors, and the next request
    is answered.
    """
    app = App({"kafka": {"group_id": "g"}, "incoming": {"orders": {}}, "http": {"token": "x"}})
    app.configure()
    errors = _Errors()
    logging.getLogger().addHandler(errors)
    with asyncio.Runner() as runner:
        serving = serve(app._endpoints(is_mounted=False), "127.0.0.1", 0)
        server = runner.run(serving.__aenter__())

        def check(draw: Random) -> None:
            errors.lines.clear()
            request = inputs.mutated(draw, draw.choice(REQUESTS), PIECES)
            answer = runner.run(_answer(server.port, request, PATIENCE_S))
            for status in STATUS.findall(answer):
                assert int(status) < 500 or status == b"503", (request, answer[:300])
            after = runner.run(_answer(server.port, LAST_REQUEST, ANSWERED_S))
            assert STATUS.match(after), (request, after[:300])
            assert errors.lines == [], (request, errors.lines)

        try:
            yield check
        finally:
            runner.run(serving.__aexit__(None, None, None))
            logging.getLogger().removeHandler(errors)


async def _answer(port: int, request: bytes, within_s: float) -> bytes:
    """All that comes back until the server closes the connection, *within_s* at most."""
    answer = bytearray()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with suppress(ConnectionError, TimeoutError):
        writer.write(request)
        writer.write_eof()
        async with asyncio.timeout(within_s):
            while piece := await reader.read(65_536):
                answer += piece
    writer.transport.abort()
    return bytes(answer)
