"""Sessions that end, and logins that are refused meanwhile: work goes on with the next
connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from reactive_kafka.broker.aiokafka import credentials
from reactive_kafka.events import BrokerUnavailable
from tests.broker.hazards.faults import until
from tests.broker.security.guarded import PASSWORD, REAUTH_S, WRONG, Guarded, Tokens
from tests.broker.security.service import Service, serving

pytestmark = pytest.mark.kafka

SESSIONS = 3
MOST_S = 60.0


def has_ended_under_way(caplog: pytest.LogCaptureFixture) -> bool:
    """True if the broker has ended a session while a request was under way, by the client's log.

    An idle connection ends without a word.
    """
    return any("Connection at" in one and "closed" in one for one in caplog.messages)


async def keep_sending(service: Service, caplog: pytest.LogCaptureFixture) -> list[bytes]:
    """Send orders, one in ten of them bad; returns them.

    Some sessions end meanwhile, and one at least while a request is under way. How many are depends
    on the machine.
    """
    sent: list[bytes] = []
    began = time.monotonic()
    while time.monotonic() < began + SESSIONS * (REAUTH_S + 0.5) or not has_ended_under_way(caplog):
        assert time.monotonic() < began + MOST_S, "no session ended under a request"
        number = len(sent)
        orders = [
            b"%s %d" % (b"bad" if one % 10 == 5 else b"good", one)
            for one in range(number, number + 10)
        ]
        await service.send(*orders)
        sent += orders
        await asyncio.sleep(0.02)
    return sent


@pytest.mark.parametrize("way", ["SCRAM-SHA-256", "OAUTHBEARER"])
async def test_when_sessions_end_nothing_is_lost_repeated_or_rebalanced(
    guarded: Guarded, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    """Row J9 of the faults."""
    settings = guarded.way(way, "SHORT")
    # Only members of the classic protocol may send heartbeats as often as this one, so that some
    # are on their way when a session ends.
    async with serving(guarded, settings, channel={"group_protocol": "classic"}) as service:
        await service.until_ready()
        sent = await keep_sending(service, caplog)
        await service.until_committed(len(sent))
        await service.until_ready()
    assert service.handled == sent
    assert await service.dead_letters() == [order for order in sent if order.startswith(b"bad")]
    assert service.assignments == 1
    assert not service.of(BrokerUnavailable)
    if way == "OAUTHBEARER":
        provider: Tokens = settings["sasl_oauth_token_provider"]
        # At each login.
        assert provider.asked > 2 * SESSIONS


async def test_when_sessions_end_transactions_write_once(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    """Row J9 of the faults."""
    async with serving(
        guarded, guarded.way("SCRAM-SHA-256", "SHORT"), transactional=True
    ) as service:
        await service.until_ready()
        sent = await keep_sending(service, caplog)
        await until(lambda: set(service.handled) >= set(sent), "all is handled")
        await until(lambda: not service.reasons, "it is ready")
    assert await service.written() == [order for order in sent if order.startswith(b"good")]
    assert await service.dead_letters() == [order for order in sent if order.startswith(b"bad")]
    assert service.assignments == 1


# -- logins that are refused while it runs

Mend = Callable[[], object]


@contextmanager
def a_provider_that_raises(guarded: Guarded, provider: Tokens) -> Iterator[Mend]:
    """The provider has no token."""
    provider.error = KeyError("the vault is sealed")
    yield lambda: setattr(provider, "error", None)


@contextmanager
def a_provider_that_hangs(guarded: Guarded, provider: Tokens) -> Iterator[Mend]:
    """The provider does not answer."""
    provider.may_answer.clear()
    yield provider.may_answer.set


@contextmanager
def tokens_that_have_ended(guarded: Guarded, provider: Tokens) -> Iterator[Mend]:
    """The provider gives old tokens."""
    provider.lives_s = -60.0
    yield lambda: setattr(provider, "lives_s", 3600.0)


@contextmanager
def another_password(guarded: Guarded, provider: None) -> Iterator[Mend]:
    """The user gets another password, and then the old one again."""
    guarded.give_password(WRONG, only="SCRAM-SHA-256")
    try:
        yield lambda: guarded.give_password(PASSWORD, only="SCRAM-SHA-256")
    finally:
        guarded.give_password(PASSWORD, only="SCRAM-SHA-256")


@pytest.mark.parametrize(
    ("way", "wrong", "words"),
    [
        (
            "OAUTHBEARER",
            a_provider_that_raises,
            "sasl_oauth_token_provider: KeyError: 'the vault is sealed'",
        ),
        (
            "OAUTHBEARER",
            a_provider_that_hangs,
            "sasl_oauth_token_provider has given no token within 0.5 s",
        ),
        (
            "OAUTHBEARER",
            tokens_that_have_ended,
            'the broker refuses the token: {"status":"invalid_token"}',
        ),
        (
            "SCRAM-SHA-256",
            another_password,
            "SaslAuthenticationFailed: Authentication failed during authentication",
        ),
    ],
)
async def test_a_login_that_is_refused_while_it_runs_is_named_and_ends_nothing(
    guarded: Guarded,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    wrong: Callable[..., AbstractContextManager[Mend]],
    words: str,
) -> None:
    """Rows J7, J9 of the faults."""
    monkeypatch.setattr(credentials, "TOKEN_DEADLINE_S", 0.5)
    settings = guarded.way(way, "SHORT")
    channel = {"group_protocol": "classic", "session_timeout_ms": 30_000}
    async with serving(guarded, settings, channel=channel) as service:
        await service.send(b"1", b"bad 2", b"3")
        await service.until_committed(3)
        with wrong(guarded, settings.get("sasl_oauth_token_provider")) as mend:
            await service.until_named("no broker answers", words)
            await service.send(b"4", b"bad 5", b"6")
            mend()
            await service.until_committed(6)
            await service.until_ready()
        assert service.handled == [b"1", b"bad 2", b"3", b"4", b"bad 5", b"6"]
        assert await service.dead_letters() == [b"bad 2", b"bad 5"]
        assert service.assignments == 1
