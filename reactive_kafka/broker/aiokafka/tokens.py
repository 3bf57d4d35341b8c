"""OAUTHBEARER: tokens of a provider that may fail, hang, or give what the broker refuses."""

from __future__ import annotations

import asyncio
from typing import Any

import aiokafka.errors as kafka_errors
from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import OAuthAuthenticator

from reactive_kafka.errors import describe, escaped

TOKEN_DEADLINE_S = 10.0
"""How long a token is waited for: meanwhile its client makes no other connection."""


class Tokens(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka is untyped
    """The tokens of *provider*, any object with an async ``token()``; a method ``extensions()`` may give a dict.

    It is asked at each login. What it raises, and that it gives none in time, is a login that failed: aiokafka expects
    neither. Raised in one of its tasks it would end that one, and the client would be of no use any more.
    """

    def __init__(self, provider: Any) -> None:
        self._provider = provider

    async def token(self) -> str:
        try:
            async with asyncio.timeout(TOKEN_DEADLINE_S):
                return await self._provider.token()  # type: ignore[no-any-return]
        except TimeoutError as error:
            late = f"sasl_oauth_token_provider has given no token within {TOKEN_DEADLINE_S:g} s"
            raise kafka_errors.AuthenticationFailedError(late) from error
        except Exception as error:
            raise kafka_errors.AuthenticationFailedError(f"sasl_oauth_token_provider: {describe(error)}") from error

    def extensions(self) -> dict[str, str]:
        made = getattr(self._provider, "extensions", None)
        return made() if callable(made) else {}


class TokenLogin(OAuthAuthenticator):  # type: ignore[misc]  # aiokafka is untyped
    """Fails where the broker refuses the token.

    It does so with a text, and with an error only after another round. aiokafka takes that text for a yes, and its next
    request is answered with nothing.

    Source: RFC 7628, section 3.2.2.
    """

    async def step(self, payload: bytes | None) -> Any:
        if payload:
            said = escaped(payload[:200].decode(errors="replace"))
            raise kafka_errors.SaslAuthenticationFailed(f"the broker refuses the token: {said}")
        return await super().step(payload)
