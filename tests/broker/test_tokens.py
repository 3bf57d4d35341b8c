"""A provider of tokens may fail and hang: the client hears of nothing but a login that failed."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import AuthenticationFailedError, SaslAuthenticationFailed

from reactive_kafka.broker.aiokafka.credentials import TOKEN_DEADLINE_S, TokenLogin, Tokens
from tests.app.helpers import in_virtual_time, now


class Vault:
    """A provider that is no class of the client's."""

    async def token(self) -> str:
        return "t0ken"


class Sealed:
    """One that raises."""

    async def token(self) -> str:
        raise KeyError("the vault is sealed")


class Silent:
    """One that never answers."""

    async def token(self) -> str:
        await asyncio.Event().wait()
        raise AssertionError


class Telling(Vault):
    """One that has extensions."""

    def extensions(self) -> dict[str, str]:
        return {"logicalCluster": "lkc-1"}


async def test_what_the_provider_gives_is_sent_with_its_extensions() -> None:
    said, is_answered = await TokenLogin(sasl_oauth_token_provider=Tokens(Telling())).step(None)
    assert (said, is_answered) == (
        b"n,,\x01auth=Bearer t0ken\x01logicalCluster=lkc-1\x01\x01",
        True,
    )
    # Or the client would refuse it.
    assert isinstance(Tokens(Vault()), AbstractTokenProvider)
    assert await Tokens(Vault()).token() == "t0ken"
    assert Tokens(Vault()).extensions() == {}


async def test_what_the_provider_raises_is_a_login_that_failed() -> None:
    """Row J9 of the faults."""
    with pytest.raises(
        AuthenticationFailedError,
        match="sasl_oauth_token_provider: KeyError: 'the vault is sealed'",
    ):
        await Tokens(Sealed()).token()


@in_virtual_time
async def test_a_provider_that_hangs_is_waited_for_only_so_long() -> None:
    """Row J9 of the faults."""
    began = now()
    with pytest.raises(
        AuthenticationFailedError, match="sasl_oauth_token_provider has given no token within 10 s"
    ):
        await Tokens(Silent()).token()
    assert now() - began == pytest.approx(TOKEN_DEADLINE_S)


class Failing:
    """One that raises what it was made with."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def token(self) -> str:
        raise self.error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            TimeoutError("the identity provider does not answer"),
            "TimeoutError: the identity provider does not answer",
        ),
        # Of a task of its own.
        (asyncio.CancelledError(), "CancelledError"),
        (SystemExit("no credentials"), "SystemExit: no credentials"),
    ],
)
async def test_an_error_of_the_provider_is_its_own_whatever_it_is(
    error: BaseException, said: str
) -> None:
    """Row J9 of the faults."""
    with pytest.raises(AuthenticationFailedError, match=f"sasl_oauth_token_provider: {said}"):
        await Tokens(Failing(error)).token()


async def test_who_waits_for_a_token_can_be_cancelled() -> None:
    waiting = asyncio.create_task(Tokens(Silent()).token())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


class Wordless:
    """One whose token is none."""

    async def token(self) -> None:
        return None


async def test_what_is_no_text_is_no_token() -> None:
    with pytest.raises(
        AuthenticationFailedError, match="sasl_oauth_token_provider has given NoneType, not a str"
    ):
        await Tokens(Wordless()).token()


async def test_a_token_that_the_broker_refuses_is_no_login() -> None:
    """Row S1 of the faults."""
    login = TokenLogin(sasl_oauth_token_provider=Tokens(Vault()))
    await login.step(None)
    refused = b'{"status":"invalid_token"}\x1b[31m'
    with pytest.raises(
        SaslAuthenticationFailed,
        match=r'the broker refuses the token: {"status":"invalid_token"}\\x1b',
    ):
        await login.step(refused)
    accepted = TokenLogin(sasl_oauth_token_provider=Tokens(Vault()))
    await accepted.step(None)
    assert await accepted.step(b"") is None
