"""A client that cannot be made, or started, is tried again and named by readiness; it ends
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from reactive_kafka import App, ConfigError, FatalBrokerError
from reactive_kafka.events import BrokerUnavailable, Event
from reactive_kafka.testing import TestApp
from tests.app.helpers import in_virtual_time, make_app, make_broker, now, send, until

CA = """\
-----BEGIN CERTIFICATE-----
MIIBdTCCARugAwIBAgIUNcO6I7GKadm/og38UeM4E2pVVGkwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjMyMTU2MzlaGA8yMTI2MTAzMDIxNTYz
OVowDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABF01
SG8XDXn7+5dylxmxBBaa51T3OsMHDOQ1lWQ2JTiheVTBEnQJ1fHGz/tDBVI7L53c
lbL2H1PCnREljtRgBU2jUzBRMB0GA1UdDgQWBBSWzRbYCMPRHzo231uJvlSq24Kz
izAfBgNVHSMEGDAWgBSWzRbYCMPRHzo231uJvlSq24KzizAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0gAMEUCIBQsGBz1ywlb4Kx0gq5pyphwlrgxK1F2xKdI
NYoaY4TiAiEAlPDiw9vCNZIiCO1VWfIw8FiVchJSPimyWD1+2lN4JLM=
-----END CERTIFICATE-----
"""
WHERE = ["incoming", "letters", "retries", "outgoing", "transactional"]


def application(broken: str, client: dict[str, Any]) -> App:
    """One whose clients all meet a closed port; that of *broken* gets the properties *client* too.

    The client of retries connects once their topics were looked at: for it there is a broker.
    """
    servers, paid = (
        ("embedded", {})
        if broken == "retries"
        else ("127.0.0.1:1", {"paid": {"transactional_id": "p"}})
    )
    of: Callable[[str], dict[str, Any]] = lambda name: client if name == broken else {}  # noqa: E731
    app = App(
        {
            "kafka": {"bootstrap_servers": servers},
            "http": {"enabled": False},
            "incoming": {
                "orders": {
                    "group_id": "billing",
                    "failure_strategy": "delayed-retry-topic",
                    "dead_letter_queue": {"topic": "letters", **of("letters")},
                    "delayed_retry": {"topics": ["orders_retry_1"], **of("retries")},
                    **of("incoming"),
                }
            },
            "outgoing": {"invoices": of("outgoing")}
            | {name: one | of("transactional") for name, one in paid.items()},
        }
    )

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def handler(value: bytes) -> bytes:
        return value

    for name in paid:
        app.emitter(name)
    return app


def reasons(app: App) -> str:
    return "; ".join(str(check.data["reason"]) for check in app.health().ready.checks)


@pytest.mark.parametrize("where", WHERE)
async def test_a_certificate_that_is_being_replaced_is_waited_for_and_ends_nothing(
    where: str, tmp_path: Path
) -> None:
    """Row J7 of the faults."""
    file = tmp_path / "ca.pem"
    file.write_text(CA)
    app = application(where, {"security_protocol": "SSL", "ssl_cafile": str(file)})
    app.configure()
    file.unlink()
    async with app:
        await until(lambda: f"ssl_cafile = '{file}': [Errno 2] No such file" in reasons(app), 20)
        assert (app.health().live.status, app.health().ready.status) == ("UP", "DOWN")
        assert {channel.state for channel in app.facts().channels} <= {"connecting", "running"}
        file.write_text("half of it")
        await until(lambda: f"ssl_cafile = '{file}': [X509" in reasons(app), 30)
        file.write_text(CA)
        await until(lambda: str(file) not in reasons(app), 30)
        assert {channel.state for channel in app.facts().channels} <= {"connecting", "running"}
        assert not app.health().ready.is_up


@pytest.mark.parametrize("where", WHERE)
async def test_a_file_that_is_missing_at_the_start_is_a_problem_of_the_configuration(
    where: str,
) -> None:
    """Row J6 of the faults."""
    app = application(where, {"security_protocol": "SSL", "ssl_cafile": "/nowhere.pem"})
    with pytest.raises(ConfigError, match=r"ssl_cafile = '/nowhere.pem': there is no such file"):
        await app.start()


@pytest.mark.parametrize("where", WHERE)
async def test_a_library_that_is_missing_is_named_and_ends_nothing(where: str) -> None:
    gssapi = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"}
    app = application(where, gssapi)
    async with app:
        await until(lambda: "gssapi library required" in reasons(app), 20)
        assert "sasl_mechanism = 'GSSAPI'" in reasons(app)
        assert app.health().live.is_up
        assert {channel.state for channel in app.facts().channels} <= {"connecting", "running"}


@in_virtual_time
async def test_attempts_to_make_a_client_come_at_growing_intervals() -> None:
    times, seen, broker = list[float](), list[int](), make_broker()

    class Note:
        def on(self, event: Event) -> None:
            if isinstance(event, BrokerUnavailable):
                times.append(now())

    # A reason is told once, so each attempt has one of its own.
    for name in "abcdefg":
        broker.fail_next(
            "start", FatalBrokerError(f"TLS cannot be set up with ssl_cafile = '{name}.pem'")
        )
    app = make_app()
    app.observe(Note())

    @app.incoming("orders")
    async def handler(value: bytes) -> None:
        seen.append(len(value))

    async with TestApp(app, broker=broker, start_timeout_s=120) as test:
        await send(test, b"1")
        await test.settled()
    assert seen == [1]
    await broker.close()
    waits = [round(after - before, 2) for before, after in pairwise(times)]
    assert waits[:5] == sorted(waits[:5])
    assert len(set(waits[:5])) > 3
