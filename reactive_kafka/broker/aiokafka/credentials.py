"""What a client shows when it connects: TLS contexts, whose files may be replaced, and tokens,
which may be missing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from ssl import SSLContext
from typing import Any
from weakref import WeakKeyDictionary

import aiokafka.errors as kafka_errors
from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import OAuthAuthenticator
from aiokafka.helpers import create_ssl_context

from reactive_kafka.errors import FatalBrokerError, describe, escaped

TLS_FILES = ("ssl_cafile", "ssl_capath", "ssl_certfile", "ssl_keyfile")
TLS_SETTINGS = (*TLS_FILES, "ssl_cadata", "ssl_password")

TOKEN_DEADLINE_S = 10.0
"""How long a token is waited for: meanwhile its client makes no other connection."""


def tls_context(settings: Mapping[str, Any], *, check_hostname: bool) -> SSLContext:
    """A context of these settings; FatalBrokerError, with the key and the file, where one cannot be
    used.
    """
    source = _Source(settings, check_hostname)
    context = source.made()
    _sources[context] = source
    return context


def current(context: SSLContext | None) -> tuple[SSLContext | None, str]:
    """The context for the next connection of a client that was given *context*, and why it is an
    old one, if it is.

    A client keeps its context for good, and certificates may last for hours only: once a file was
    replaced the next connection is made with what is in it now. While that cannot be used, what was
    there before is.
    """
    source = None if context is None else _sources.get(context)
    if source is None:
        return context, ""
    problem = source.look()
    return source.newest or context, problem


class _Source:
    """What a context was made of."""

    def __init__(self, settings: Mapping[str, Any], check_hostname: bool) -> None:
        self._settings = settings
        self._check_hostname = check_hostname
        self._seen = self._stamps()
        # None: the first one, which this must not keep alive.
        self.newest: SSLContext | None = None

    def made(self) -> SSLContext:
        """A context of what is in the files now."""
        settings = self._settings
        try:
            context: SSLContext = create_ssl_context(
                **{
                    name.removeprefix("ssl_"): value
                    for name, value in settings.items()
                    if name != "ssl_password"
                },
                # Else OpenSSL asks for it in the terminal.
                password=settings.get("ssl_password") or _no_password,
            )
        except (OSError, ValueError) as error:
            # Asked for again with the next attempt: it may be being replaced.
            files = [name for name in TLS_FILES if settings.get(name)]
            missing = [name for name in files if not os.access(str(settings[name]), os.R_OK)]
            which = (
                ", ".join(f"{name} = {str(settings[name])!r}" for name in missing or files)
                or "ssl_cadata"
            )
            raise FatalBrokerError(f"TLS cannot be set up with {which}: {error}") from error
        context.check_hostname = self._check_hostname
        return context

    def look(self) -> str:
        """Make another context if a file has changed; returns why that was not possible."""
        stamps = self._stamps()
        if stamps == self._seen:
            return ""
        try:
            self.newest = self.made()
        except FatalBrokerError as error:
            return str(error)
        self._seen = stamps
        return ""

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        """What changes with the content of the files."""
        return [_stamp(str(self._settings[name])) for name in TLS_FILES if self._settings.get(name)]


_sources: WeakKeyDictionary[SSLContext, _Source] = WeakKeyDictionary()


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _no_password() -> str:
    raise ValueError("the key is encrypted, and there is no ssl_password")


# Aiokafka is untyped.
class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """The tokens of *provider*, any object with an async ``token()``; a method ``extensions()`` may
    give a dict.

    It is asked at each login. What it raises, and that it gives none in time, is a login that
    failed: aiokafka expects neither. Raised in one of its tasks it would end that one, and the
    client would be of no use any more.
    """

    def __init__(self, provider: Any) -> None:
        self._provider = provider

    async def token(self) -> str:
        try:
            async with asyncio.timeout(TOKEN_DEADLINE_S) as deadline:
                token = await self._provider.token()
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            # Else it is the provider's own.
            if isinstance(error, TimeoutError) and deadline.expired():
                late = f"sasl_oauth_token_provider has given no token within {TOKEN_DEADLINE_S:g} s"
                raise kafka_errors.AuthenticationFailedError(late) from error
            raise kafka_errors.AuthenticationFailedError(
                f"sasl_oauth_token_provider: {describe(error)}"
            ) from error
        if not isinstance(token, str):
            given = f"sasl_oauth_token_provider has given {type(token).__name__}, not a str"
            raise kafka_errors.AuthenticationFailedError(given)
        return token

    def extensions(self) -> dict[str, str]:
        made = getattr(self._provider, "extensions", None)
        return made() if callable(made) else {}


# Aiokafka is untyped.
class TokenLogin(OAuthAuthenticator):  # type: ignore[misc]
    """Fails where the broker refuses the token.

    It does so with a text, and with an error only after another round. aiokafka takes that text for
    a yes, and its next request is answered with nothing.

    Source: RFC 7628, section 3.2.2.
    """

    async def step(self, payload: bytes | None) -> Any:
        if payload:
            said = escaped(payload[:200].decode(errors="replace"))
            raise kafka_errors.SaslAuthenticationFailed(f"the broker refuses the token: {said}")
        return await super().step(payload)
