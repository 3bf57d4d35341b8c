"""The credentials of a client: TLS contexts that follow replaced files, and OAuth tokens."""

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
"""How long to wait for a token. Its client makes no other connection meanwhile."""


def tls_context(settings: Mapping[str, Any], *, check_hostname: bool) -> SSLContext:
    """Create a TLS context.

    Raises:
        FatalBrokerError: A file cannot be used. The text names the key and the file.
    """
    source = _Source(settings, check_hostname)
    context = source.create()
    _sources[context] = source
    return context


def current(context: SSLContext | None) -> tuple[SSLContext | None, str]:
    """Return the context for the next connection, and why it is an outdated one, if it is.

    A client keeps its context for good, but certificates may last only hours. Once a file of
    *context* was replaced, the next connection uses its new content. While that cannot be used, the
    old content is used.
    """
    source = None if context is None else _sources.get(context)
    if source is None:
        return context, ""
    problem = source.look()
    return source.newest or context, problem


class _Source:
    """The settings that a context was made from, and the state of their files."""

    def __init__(self, settings: Mapping[str, Any], check_hostname: bool) -> None:
        self._settings = settings
        self._check_hostname = check_hostname
        self._seen = self._stamps()
        # None: the first context is current. This must not keep that one alive.
        self.newest: SSLContext | None = None

    def create(self) -> SSLContext:
        """Create a context from what is in the files now."""
        settings = self._settings
        try:
            context: SSLContext = create_ssl_context(
                **{
                    name.removeprefix("ssl_"): value
                    for name, value in settings.items()
                    if name != "ssl_password"
                },
                # Without a password function OpenSSL asks in the terminal.
                password=settings.get("ssl_password") or _no_password,
            )
        except (OSError, ValueError) as error:
            # The caller tries again: a file may be half replaced.
            files = [name for name in TLS_FILES if settings.get(name)]
            missing = [name for name in files if not os.access(str(settings[name]), os.R_OK)]
            named = [f"{name} = {str(settings[name])!r}" for name in missing or files]
            which = ", ".join(named) or "ssl_cadata"
            raise FatalBrokerError(f"TLS cannot be set up with {which}: {error}") from error
        context.check_hostname = self._check_hostname
        return context

    def look(self) -> str:
        """Create another context if a file has changed. Returns why that failed, or nothing."""
        stamps = self._stamps()
        if stamps == self._seen:
            return ""
        try:
            self.newest = self.create()
        except FatalBrokerError as error:
            return str(error)
        self._seen = stamps
        return ""

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        """Return values that change with the content of the files."""
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


# aiokafka is untyped.
class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """The OAuth tokens of *provider*, an object with an async ``token()``.

    It may have a method ``extensions()`` that returns a dict. It is asked at each login. If it
    raises, or gives no token in time, the login has failed. aiokafka expects neither: it would end
    one of its tasks, and the client would be useless.
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
            # Any other cancellation comes from the provider.
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


# aiokafka is untyped.
class TokenLogin(OAuthAuthenticator):  # type: ignore[misc]
    """A login that fails if the broker refuses the token.

    The broker refuses with a text, and with an error only after another round. aiokafka takes the
    text for consent, and gets no answer to its next request.

    Source: RFC 7628, section 3.2.2.
    """

    async def step(self, payload: bytes | None) -> Any:
        if payload:
            said = escaped(payload[:200].decode(errors="replace"))
            raise kafka_errors.SaslAuthenticationFailed(f"the broker refuses the token: {said}")
        return await super().step(payload)
