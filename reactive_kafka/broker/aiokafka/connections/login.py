"""Logs a new connection in, with SASL."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Protocol

import aiokafka.errors as kafka_errors
from aiokafka.conn import SaslGSSAPIAuthenticator, SaslPlainAuthenticator, ScramAuthenticator

from reactive_kafka.broker.aiokafka.connections.client_settings import (
    GSSAPI,
    OAUTHBEARER,
    PLAIN,
    ClientSettings,
)
from reactive_kafka.broker.aiokafka.credentials import TokenLogin
from reactive_kafka.broker.aiokafka.error_classes import class_for
from reactive_kafka.broker.wire.definitions import SASL_AUTHENTICATE, SASL_HANDSHAKE
from reactive_kafka.broker.wire.requests import Answer, Request

HANDSHAKE_VERSIONS = "1"
"""After version 0 the tokens would be sent without being Kafka's requests. Kafka has version 1
since 1.0.
"""
AUTHENTICATE_VERSIONS = "0-1"


class OpenConnection(Protocol):
    """What the login needs of a connection."""

    host: str

    def send(self, request: Request) -> Awaitable[Any]: ...


async def log_in(connection: OpenConnection, settings: ClientSettings) -> None:
    """Log in with the mechanism and the credentials of the settings.

    Raises:
        aiokafka.errors.KafkaError: The broker refuses the mechanism or the credentials.
        NoCommonVersionError: The broker is older than Kafka 1.0.
        Exception: The authenticator of the mechanism refuses what the broker has sent.
    """
    mechanism = settings.sasl_mechanism
    handshake = Request(SASL_HANDSHAKE, {"mechanism": mechanism}, HANDSHAKE_VERSIONS)
    answer: Answer = await connection.send(handshake)
    if answer.values["error_code"]:
        raise class_for(answer.values["error_code"])()
    offered = answer.values["mechanisms"]
    if mechanism not in offered:
        raise kafka_errors.UnsupportedSaslMechanismError(
            f"the broker offers {', '.join(offered)}, not {mechanism}"
        )
    authenticator = _authenticator(connection.host, settings)
    token: bytes | None = None
    while (step := await authenticator.step(token)) is not None:
        # The second value says whether the broker answers; it answers each of these requests.
        ours, _ = step
        token = await _exchange(connection, ours)


async def _exchange(connection: OpenConnection, token: bytes) -> bytes:
    """Send one token, and return the broker's."""
    request = Request(SASL_AUTHENTICATE, {"auth_bytes": token}, AUTHENTICATE_VERSIONS)
    answer: Answer = await connection.send(request)
    if code := answer.values["error_code"]:
        raise class_for(code)(answer.values["error_message"])
    theirs: bytes = answer.values["auth_bytes"]
    return theirs


def _authenticator(host: str, settings: ClientSettings) -> Any:
    """Return aiokafka's authenticator of the mechanism. Its ``step`` returns the next token."""
    loop = asyncio.get_running_loop()
    if settings.sasl_mechanism == GSSAPI:
        domain = settings.sasl_kerberos_domain_name or host
        principal = f"{settings.sasl_kerberos_service_name}@{domain}"
        return SaslGSSAPIAuthenticator(loop=loop, principal=principal)
    if settings.sasl_mechanism == OAUTHBEARER:
        return TokenLogin(sasl_oauth_token_provider=settings.sasl_oauth_token_provider)
    name_and_password = {
        "sasl_plain_username": settings.sasl_plain_username,
        "sasl_plain_password": settings.sasl_plain_password,
    }
    if settings.sasl_mechanism == PLAIN:
        return SaslPlainAuthenticator(loop=loop, **name_and_password)
    return ScramAuthenticator(
        loop=loop, sasl_mechanism=settings.sasl_mechanism, **name_and_password
    )
