"""Who is answered: by the name that a request gives the server, by its origin, and by its token."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from reactive_kafka import App, ConfigError
from reactive_kafka.http.asgi import make_asgi
from reactive_kafka.http.guard import OPEN, Guard, guard_of
from reactive_kafka.testing import MemoryBroker
from tests.config.values import http_settings, secret_of
from tests.http.applike import FactsApp
from tests.http.test_asgi import PATHS

CLOSED = tuple(path for path in PATHS if path not in OPEN)
TOKEN = "s3cret-T0ken"
BEARER = {"authorization": f"Bearer {TOKEN}"}


def ours(**http: Any) -> Guard:
    return guard_of(http_settings(**http), is_mounted=False)


def answer(guard: Guard, method: str, path: str, **headers: str) -> int:
    """The status; 200: it is answered."""
    refusal = guard.refusal(method, path, headers)
    return 200 if refusal is None else refusal.status


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:9000",
        "LOCALHOST.",
        "a.localhost:1",
        "127.0.0.1:9000",
        "[::1]:9000",
        "[::1]",
        "::1",
        "10.1.2.3:9000",
        "192.168.0.1",
        "kafka.example.com",
        "Kafka.Example.com:443",
        "bound",
        "",
    ],
)
@pytest.mark.parametrize("path", PATHS)
def test_it_answers_by_addresses_and_by_its_names(host: str, path: str) -> None:
    guard = ours(host="bound", hosts=("kafka.example.com",))
    assert answer(guard, "GET", path, host=host) == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "bound"])
def test_dead_letters_are_read_with_the_token_only_wherever_it_listens(host: str) -> None:
    """They have the values of records."""
    path = "/api/dlq/dead-letter-topic-orders"
    headers = {"host": "localhost"}
    assert answer(ours(host=host), "GET", path, **headers) == 404
    guard = ours(host=host, token=TOKEN)
    assert answer(guard, "GET", path, **headers) == 401
    assert answer(guard, "GET", path, **headers, **BEARER) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:9000",
        "localhost.evil.example",
        "kafka.example.com.evil.example",
        "1.2.3.4.5",
        "127.0.0.1.evil.example",
        "a:b:c",
        "[evil]",
        "10.1",
        "x",
        "127.0.0.1:9000@evil.example",
    ],
)
def test_a_name_that_is_none_of_its_own_is_refused(host: str) -> None:
    """Row S9 of the faults: a page of that name would read the answer."""
    local, open_to_all = (
        ours(host=bound, hosts=("kafka.example.com",)) for bound in ("127.0.0.1", "0.0.0.0")
    )
    assert {
        answer(local, method, path, host=host)
        for method in ("GET", "HEAD", "POST")
        for path in PATHS
    } == {421}
    assert {answer(open_to_all, "GET", path, host=host) for path in CLOSED} == {421}
    assert {answer(open_to_all, "GET", path, host=host) for path in OPEN} == {200}, (
        "whoever scrapes a service by name"
    )
    mounted = guard_of(http_settings(), is_mounted=True)
    assert {answer(mounted, "GET", path, host=host) for path in PATHS} == {200}, (
        "it has its application's names"
    )


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_what_could_change_something_needs_a_token_wherever_it_listens(method: str) -> None:
    """Row S4 of the faults."""
    for bound in ("127.0.0.1", "::1", "localhost", "0.0.0.0"):
        for path in (*PATHS, "/api/channels/orders/pause"):
            asked = {"host": "localhost:9000"}
            is_action = method == "POST" and path not in PATHS
            expected = 404 if is_action else 405
            assert answer(ours(host=bound), method, path, **asked, **BEARER) == expected, (
                "actions and dead letters need a token"
            )
            guard = ours(host=bound, token=secret_of(TOKEN))
            assert answer(guard, method, path, **asked) == 401
            assert answer(guard, method, path, **asked, **BEARER) == 200
            assert (
                answer(guard_of(http_settings(token=TOKEN), is_mounted=True), method, path, **asked)
                == 401
            )


@pytest.mark.parametrize("path", PATHS)
def test_reading_needs_a_token_beyond_loopback_and_probes_and_metrics_never_do(path: str) -> None:
    """Row S4 of the faults."""
    expected = 200 if path in OPEN else 401
    for guard in (
        *(ours(host=bound, token=TOKEN) for bound in ("0.0.0.0", "::", "10.1.2.3", "some.name")),
        guard_of(http_settings(token=TOKEN), is_mounted=True),
    ):
        assert answer(guard, "GET", path, host="10.1.2.3") == expected
        assert answer(guard, "GET", path, host="10.1.2.3", **BEARER) == 200
    for bound in ("127.0.0.1", "127.0.0.2", "::1", "localhost"):
        assert answer(ours(host=bound, token=TOKEN), "GET", path, host="localhost") == 200
    assert answer(ours(host="0.0.0.0"), "GET", path, host="10.1.2.3") == 200, (
        "without a token nothing is protected"
    )


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer  {TOKEN} ", 200),
        (TOKEN, 401),
        (f"Basic {TOKEN}", 401),
        ("Bearer", 401),
        (f"Bearer {TOKEN}x", 401),
        (f"Bearer {TOKEN[:-1]}", 401),
        ("Bearer \u00e9", 401),
        ("", 401),
    ],
)
def test_the_token_is_the_whole_token(given: str, status: int) -> None:
    guard = ours(token=secret_of(TOKEN))
    assert answer(guard, "POST", "/api/x", host="localhost", authorization=given) == status
    assert TOKEN not in repr(guard)


@pytest.mark.parametrize(
    ("origin", "host", "status"),
    [
        ("http://localhost:9000", "localhost:9000", 200),
        ("https://kafka.example.com", "kafka.example.com", 200),
        # What a proxy in front of it sends.
        ("https://kafka.example.com", "127.0.0.1:9000", 200),
        ("http://localhost:3000", "localhost:9000", 403),
        ("http://evil.example", "localhost:9000", 403),
        ("http://evil.example", "", 403),
        ("null", "localhost:9000", 403),
        ("", "localhost:9000", 403),
    ],
)
def test_a_page_of_another_origin_changes_nothing_even_with_the_token(
    origin: str, host: str, status: int
) -> None:
    """Row S9 of the faults."""
    guard = ours(token=TOKEN, hosts=("kafka.example.com",))
    assert answer(guard, "POST", "/api/x", host=host, origin=origin, **BEARER) == status
    assert answer(guard, "GET", "/", host=host, origin=origin) == 200, (
        "the browser shows it to nobody else"
    )


async def test_a_refusal_says_why_and_has_the_headers_of_every_answer() -> None:
    asgi = make_asgi(FactsApp(), lambda: ours(host="0.0.0.0", token=TOKEN))
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=asgi), base_url="http://10.1.2.3"
    ) as client:
        refused = await client.get("/")
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert refused.text == "this needs the token: Authorization: Bearer ...\n"
        assert refused.headers["content-security-policy"].startswith("default-src 'none'; ")
        assert (await client.get("/api/channels", headers=BEARER)).status_code == 200
        elsewhere = await client.get("/", headers={"host": "evil.example", **BEARER})
        assert elsewhere.status_code == 421
        assert (
            elsewhere.text
            == "this Host is not a name of this server; list its names in [http] hosts\n"
        )


async def test_mounted_elsewhere_its_paths_are_still_its_own() -> None:
    guarded = make_asgi(FactsApp(), lambda: guard_of(http_settings(token=TOKEN), is_mounted=True))
    asgi = Starlette(routes=[Mount("/kafka", guarded)])
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=asgi), base_url="http://any"
    ) as client:
        assert (await client.get("/kafka/metrics")).status_code == 200
        assert (await client.get("/kafka/")).status_code == 401
        assert (await client.get("/kafka/", headers=BEARER)).status_code == 200


@pytest.mark.parametrize(
    ("token", "path", "status", "said"),
    [
        (TOKEN, "/metrics", 200, "# HELP"),
        (TOKEN, "/health/live", 200, "{"),
        (None, "/api/dlq/letters", 404, "actions and dead letters need a token"),
    ],
)
async def test_a_root_that_a_proxy_has_removed_is_no_part_of_its_paths(
    token: str | None, path: str, status: int, said: str
) -> None:
    """``FastAPI(root_path="/m")`` names one to what is mounted into it at ``/``."""
    guarded = make_asgi(FactsApp(), lambda: guard_of(http_settings(token=token), is_mounted=True))
    transport = httpx.ASGITransport(app=guarded, root_path=path[:2])
    async with httpx.AsyncClient(transport=transport, base_url="http://any") as client:
        answer = await client.get(path)
    assert answer.status_code == status
    assert answer.text.startswith(said)


def app_with(http: dict[str, Any]) -> App:
    app = App({"incoming": {"orders": {"group_id": "g"}}, "http": {"port": 0, **http}})
    app._connector = MemoryBroker().connector()

    @app.incoming("orders")
    async def handler(value: bytes) -> None: ...

    return app


async def test_a_running_service_asks_for_the_token_of_its_file(tmp_path: Path) -> None:
    """Row S4 of the faults."""
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    app = app_with({"token_file": str(file), "host": "0.0.0.0"})
    async with app, httpx.AsyncClient(trust_env=False) as client:
        assert app.http is not None
        url = f"http://127.0.0.1:{app.http.port}"
        seen = {path: (await client.get(url + path)).status_code for path in PATHS}
        assert seen == {path: 200 if path in OPEN else 401 for path in PATHS}
        assert (await client.get(url, headers=BEARER)).status_code == 200
        assert (await client.post(f"{url}/api/channels/orders/pause")).status_code == 401
        assert (
            await client.get(url, headers={"host": "evil.example", **BEARER})
        ).status_code == 421
        pod = {"host": f"{socket.gethostbyname('localhost')}:9000"}
        assert (await client.get(f"{url}/health/ready", headers=pod)).status_code == 200


def test_a_token_file_that_others_may_read_is_warned_of_and_a_bad_one_shows_nothing(
    tmp_path: Path,
) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o644)
    settings = app_with({"token_file": str(file)}).configure()
    assert settings.http.token == TOKEN
    assert any("token_file" in warning and "chmod 600" in warning for warning in settings.warnings)
    file.write_text(f"{TOKEN} {TOKEN}")
    with pytest.raises(
        ConfigError, match="expected printable ASCII characters without spaces"
    ) as raised:
        app_with({"token_file": str(file)}).configure()
    assert TOKEN not in str(raised.value)


@pytest.mark.parametrize("hosts", ["a:9000", ["a", "A."], [], ["http://a"], [3], 3, "a b"])
def test_hosts_that_are_no_names_are_an_error(hosts: Any) -> None:
    with pytest.raises(ConfigError, match="expected a list of different host names, without ports"):
        app_with({"hosts": hosts}).configure()
