"""``control``: acts on a running service over HTTP, on a real server and an in-memory broker."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from reactive_kafka import App, TopicPartition
from reactive_kafka.cli.commands import commands
from reactive_kafka.testing import MemoryBroker
from tests.app.helpers import until
from tests.cli.process import Ended

TOKEN = "s3cret-T0ken"


def control(*arguments: str, token_file: Path | None, stdin: str | None = None) -> Ended:
    """Run ``control`` to its end; nobody sits at a terminal."""
    environ = {} if token_file is None else {"REACTIVE_KAFKA_TOKEN_FILE": str(token_file)}
    done = CliRunner().invoke(commands, ["control", *arguments], env=environ, input=stdin)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Ended(done.exit_code, done.stdout, done.stderr)


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    return file


@pytest.fixture
def wrong_token_file(tmp_path: Path) -> Path:
    file = tmp_path / "wrong"
    file.write_text("other")
    file.chmod(0o600)
    return file


async def test_an_operator_gets_past_a_bad_record(token_file: Path, wrong_token_file: Path) -> None:
    table = {
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "value_deserializer": "string",
        "commit_interval": "50ms",
    }
    http = {"port": 0, "token_file": str(token_file)}
    app = App({"incoming": {"orders": table}, "http": http})
    broker = MemoryBroker(partitions=1)
    # Not TestApp, which has no HTTP server.
    app._connector = broker.connector()
    handled: list[str] = []

    @app.incoming("orders")
    async def handle(value: str) -> None:
        if value == "bad":
            raise ValueError(value)
        handled.append(value)

    async with app:
        assert app.http is not None
        url = app.http.url

        async def act(*arguments: str) -> Ended:
            return await asyncio.to_thread(control, url, *arguments, token_file=token_file)

        paused = await act("pause", "orders", "--reason", "a look")
        assert (paused.code, paused.out) == (0, "the channel is paused\n")
        assert app.channel("orders").paused
        resumed = await act("resume", "orders", "--reason", "a look", "--json")
        assert json.loads(resumed.out)["state"] == "running"

        for value in ("a", "bad", "b"):
            broker.produce("orders", value.encode(), partition=0)
        await until(lambda: app.channel("orders").facts().state == "failed")
        await until(lambda: not app.channel("orders").assignment)
        place = ("--topic", "orders", "--partition", "0", "--offset")
        skipped = await act("skip", "orders", *place, "1", "--yes")
        assert skipped.out == "orders-0 offset 1 has not come yet, and is skipped when it comes\n"
        assert (await act("restart", "orders")).code == 0
        await until(lambda: handled == ["a", "b"])
        # A seek forgets what is settled and not committed.
        orders = TopicPartition("orders", 0)
        await until(lambda: broker.committed("g")[orders].offset == 3)

        sought = await act("seek", "orders", *place, "2", "--yes")
        assert sought.code == 0, sought.err
        await until(lambda: handled == ["a", "b", "b"])
        everywhere = ("--topic", "orders", "--all", "--timestamp", "2999-01-01T00:00:00Z", "--yes")
        assert (await act("seek", "orders", *everywhere)).code == 0
        assert (await act("log-level", "info", "--logger", "root")).code == 0

        assert (await act("stop", "orders")).out == "the channel is stopped\n"
        assert app.channel("orders").is_stopped
        assert (await act("start", "orders")).code == 0

        refused = await act("pause", "ordres")
        assert (refused.code, refused.out) == (1, "")
        assert "'ordres' is no incoming channel; there are: orders (HTTP 404)" in refused.err
        away = await act("skip", "orders", *place[:2], "--partition", "9", "--offset", "1", "--yes")
        assert away.code == 1
        wrong = await act(
            "seek", "orders", "--topic", "orders", "--all", "--offset", "middle", "--yes"
        )
        assert wrong.code == 2
        assert 'a number, "beginning" or "end" is wanted' in wrong.err

        stranger = await asyncio.to_thread(
            control, url, "pause", "orders", token_file=wrong_token_file
        )
        assert stranger.code == 1
        assert "does not accept the token: --token-file has to be" in stranger.err
        assert "other" not in stranger.err


async def test_letters_are_sent_back_and_the_command_waits_for_the_end(token_file: Path) -> None:
    table = {
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "value_deserializer": "string",
        "failure_strategy": "dead-letter-queue",
    }
    http = {"port": 0, "token_file": str(token_file)}
    app = App({"incoming": {"orders": table}, "http": http})
    broker = MemoryBroker(partitions=1)
    app._connector = broker.connector()
    handled: list[str] = []
    is_repaired = False

    @app.incoming("orders")
    async def handle(value: str) -> None:
        if not is_repaired:
            raise ValueError(value)
        handled.append(value)

    async with app:
        assert app.http is not None
        letters = TopicPartition("dead-letter-topic-orders", 0)
        for value in (b"a", b"b"):
            broker.produce("orders", value, partition=0)
        await until(lambda: letters.topic in broker.topics() and broker.end(letters) == 2)
        looked = await asyncio.to_thread(
            control, app.http.url, "letters", letters.topic, token_file=token_file
        )
        head, newest, oldest = looked.out.splitlines()
        assert head == "2 records of dead-letter-topic-orders, the newest first"
        assert newest.startswith(f"{letters.topic}-0 1  ")
        assert "from orders-0 1" in newest
        assert "ValueError: b" in newest
        assert "value b" in newest
        assert oldest.startswith(f"{letters.topic}-0 0  ")
        of_one = ("--of", "orders", "0", "0", "--json")
        one = await asyncio.to_thread(
            control, app.http.url, "letters", letters.topic, *of_one, token_file=token_file
        )
        assert [letter["origin"]["offset"] for letter in json.loads(one.out)["letters"]] == [0]
        last = await asyncio.to_thread(
            control, app.http.url, "letters", letters.topic, "--last", "1", token_file=token_file
        )
        assert last.out.splitlines() == [
            "1 record of dead-letter-topic-orders, the newest first",
            newest,
        ]

        record = ("record", "orders", "0", "1")
        told = await asyncio.to_thread(control, app.http.url, *record, token_file=token_file)
        assert told.code == 0
        title, *sentences = told.out.splitlines()
        assert title.startswith("channel orders: ")
        assert title.endswith(", dead-letter")
        assert any("dead-letter-topic-orders" in sentence for sentence in sentences)
        assert all(sentence.startswith("  ") for sentence in sentences)
        as_json = await asyncio.to_thread(
            control, app.http.url, *record, "--channel", "orders", "--json", token_file=token_file
        )
        assert json.loads(as_json.out)["channels"][0]["ending"] == "dead-letter"
        nobody = await asyncio.to_thread(
            control, app.http.url, "record", "elsewhere", "0", "1", token_file=token_file
        )
        assert nobody.code == 1
        assert "no channel of this application reads the topic 'elsewhere'" in nobody.err

        is_repaired = True
        words = (app.http.url, "replay", letters.topic, "--yes")
        first = await asyncio.to_thread(
            control, *words, "--limit", "1", "--json", token_file=token_file
        )
        assert json.loads(first.out)["replayed"] == 1
        rest = await asyncio.to_thread(control, *words, token_file=token_file)
        assert (rest.code, rest.out) == (0, "1 of 1 record replayed\n")
        await until(lambda: handled == ["a", "b"])
        unknown = await asyncio.to_thread(
            control, app.http.url, "replay", "orders", "--yes", token_file=token_file
        )
        assert unknown.code == 1
        assert "topics of dead letters: dead-letter-topic-orders" in unknown.err


class Answers(BaseHTTPRequestHandler):
    """Answers every request in the way that a test wants."""

    status = 200
    body = b"{}"
    headers_to_send: tuple[tuple[str, str], ...] = ()

    def do_POST(self) -> None:
        self.send_response(self.status)
        for name, value in self.headers_to_send:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.body)

    do_GET = do_POST

    def log_message(self, *_: Any) -> None:
        """Write nothing."""


@contextmanager
def server(status: int, body: bytes, **headers: str) -> Iterator[str]:
    kind = type(
        "Server",
        (Answers,),
        {"status": status, "body": body, "headers_to_send": tuple(headers.items())},
    )
    with HTTPServer(("127.0.0.1", 0), kind) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.server_port}"
        finally:
            listening.shutdown()
            thread.join()


def test_a_redirect_does_not_take_the_token_along(token_file: Path) -> None:
    with server(302, b"", Location="http://127.0.0.1:1/") as url:
        ended = control(url, "pause", "orders", token_file=token_file)
    assert ended.code == 1
    assert "HTTP 302" in ended.err


@pytest.mark.parametrize("body", [b"<html>hello", b"[1]", b"\xff", b""])
def test_a_server_that_is_none_of_ours_is_an_error(token_file: Path, body: bytes) -> None:
    with server(200, body) as url:
        ended = control(url, "pause", "orders", token_file=token_file)
    assert ended.code == 1
    assert "does not answer" in ended.err
    with server(418, b"\x1b[2Jteapot") as url:
        ended = control(url, "pause", "orders", token_file=token_file)
    assert "\x1b" not in ended.err
    assert "HTTP 418" in ended.err


@pytest.mark.parametrize("status", [200, 503])
def test_an_answer_that_breaks_off_is_an_error(token_file: Path, status: int) -> None:
    with server(status, b"20\r\nhalf", **{"Transfer-Encoding": "chunked"}) as url:
        ended = control(url, "pause", "orders", token_file=token_file)
    assert ended.code == 1
    assert f"Error: {url} does not answer: IncompleteRead" in ended.err


def test_a_wrong_token_and_a_wrong_path_say_what_to_name(token_file: Path) -> None:
    with server(401, b'{"error": "this needs the token: Authorization: Bearer ..."}') as url:
        ended = control(url, "pause", "orders", token_file=token_file)
    assert ended.code == 1
    assert (
        f"{url} does not accept the token: --token-file has to be the [http] token_file"
        in ended.err
    )
    with server(404, b"Not Found") as url:
        ended = control(f"{url}/page", "pause", "orders", token_file=token_file)
    assert ended.code == 1
    assert f"HTTP 404: Not Found; {url}/page has to be the URL of a service" in ended.err
    with server(404, b'{"error": "\'x\' is no incoming channel; there are: orders"}') as url:
        ended = control(url, "pause", "x", token_file=token_file)
    assert ended.err.strip() == "Error: 'x' is no incoming channel; there are: orders (HTTP 404)"


def test_the_answers_of_workers_are_a_line_each(token_file: Path) -> None:
    workers = [
        {"worker": 1, "status": 200, "result": "orders-0 offset 1 is skipped"},
        {"worker": 2, "status": 409, "error": "not mine"},
    ]
    body = json.dumps({"result": "done by 1 of 2 workers", "workers": workers}).encode()
    with server(200, body) as url:
        ended = control(url, "pause", "orders", token_file=token_file)
    assert ended.out.splitlines() == [
        "done by 1 of 2 workers",
        "worker 1: orders-0 offset 1 is skipped",
        "worker 2: not mine",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ftp://x", "pause", "orders"), "is no URL of a service"),
        (("shop:9000", "pause", "orders"), "is no URL of a service"),
        (("http://[::1", "pause", "orders"), "is no URL of a service"),
        (("http://shop:port", "pause", "orders"), "is no URL of a service"),
        (("http://shop:99999", "pause", "orders"), "is no URL of a service"),
        (("http://u:p@shop", "pause", "orders"), "a URL without user"),
        (("http://shop", "explode", "orders"), "No such command 'explode'"),
        (("http://shop", "pause"), "Missing argument 'CHANNEL'"),
        (("http://shop", "log-level", "loud"), "is not one of"),
        (("http://shop", "seek", "o", "--topic", "t", "--offset", "1", "--yes"), "--all is wanted"),
        (("http://shop", "letters", "t", "--last", "0"), "--last"),
        (("http://shop", "letters", "t", "--of", "orders", "x", "1"), "--of"),
        (("http://shop", "record", "orders", "3"), "Missing argument 'OFFSET'"),
        (("http://shop", "record", "orders", "x", "1"), "PARTITION"),
        (("http://shop", "replay", "t", "--offset", "1", "--yes"), "belong together"),
        (("http://shop", "replay", "t"), "use --yes"),
        (("http://shop", "seek", "o", "--topic", "t", "--all", "--yes"), "--timestamp is wanted"),
        (("http://shop", "seek", "o", "--topic", "t", "--all", "--offset", "1"), "use --yes"),
        (
            ("http://shop", "skip", "o", "--topic", "t", "--partition", "1", "--offset", "1"),
            "use --yes",
        ),
    ],
)
def test_wrong_usage_is_named(token_file: Path, arguments: tuple[str, ...], said: str) -> None:
    ended = control(*arguments, token_file=token_file)
    assert ended.code == 2
    assert said in " ".join(ended.err.split())


def test_without_a_token_nothing_is_sent(tmp_path: Path) -> None:
    ended = control("http://127.0.0.1:1", "pause", "orders", token_file=None)
    assert ended.code == 2
    assert "REACTIVE_KAFKA_TOKEN_FILE" in ended.err
    ended = control("http://127.0.0.1:1", "pause", "orders", token_file=tmp_path / "missing")
    assert ended.code == 2
    assert "there is no such file" in ended.err
    empty = tmp_path / "empty"
    empty.write_text("\n")
    ended = control("http://127.0.0.1:1", "pause", "orders", token_file=empty)
    assert ended.code == 2
    assert "the file is empty" in ended.err


def test_a_service_that_does_not_run_is_an_error(token_file: Path) -> None:
    ended = control("http://127.0.0.1:1", "pause", "orders", token_file=token_file)
    assert ended.code == 1
    assert "http://127.0.0.1:1 does not answer" in ended.err
