"""Every way in, right and wrong: a wrong one is named by readiness, loses nothing, and is mended
without a restart.
"""

from __future__ import annotations

import shutil
import socket
import ssl
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.broker.security.guarded import MECHANISMS, PASSWORD, WRONG, Guarded, Tokens
from tests.broker.security.service import Service, serving

pytestmark = pytest.mark.kafka

Settings = dict[str, Any]
Mend = Callable[[], object]


async def works(service: Service) -> None:
    """It handles each order once, commits, and writes the dead letter."""
    await service.until_committed(3)
    assert service.handled == [b"1", b"bad 2", b"3"]
    assert await service.dead_letters() == [b"bad 2"]
    await service.until_ready()


async def is_refused(service: Service, *words: str) -> None:
    """Readiness says why, and nothing was done."""
    await service.send(b"1", b"bad 2", b"3")
    await service.until_named(*words)
    assert (service.handled, service.assignments, await service.committed()) == ([], 0, None)


@pytest.mark.parametrize("way", ["TLS", "MTLS", *MECHANISMS])
async def test_by_every_way_in_it_reads_commits_and_writes_dead_letters(
    guarded: Guarded, way: str
) -> None:
    """Rows S1, S2 of the faults."""
    async with serving(guarded, guarded.way(way)) as service:
        await service.send(b"1", b"bad 2", b"3")
        await works(service)


# -- what is mended while it runs


@contextmanager
def wrong_password(guarded: Guarded, _: Path, mechanism: str) -> Iterator[tuple[Settings, Mend]]:
    """The user's password on the broker becomes the one that the application has."""
    try:
        yield (
            guarded.way(mechanism) | {"sasl_plain_password": WRONG},
            lambda: guarded.give_password(WRONG, only=mechanism),
        )
    finally:
        guarded.give_password(PASSWORD, only=mechanism)


@contextmanager
def wrong_token(guarded: Guarded, _: Path) -> Iterator[tuple[Settings, Mend]]:
    """The provider gives tokens that have ended, and then good ones."""
    way = guarded.way("OAUTHBEARER")
    tokens: Tokens = way["sasl_oauth_token_provider"]
    tokens.lives_s = -60.0
    yield way, lambda: setattr(tokens, "lives_s", 3600.0)


@contextmanager
def wrong_server(
    guarded: Guarded, _: Path, listener: str, shown: str
) -> Iterator[tuple[Settings, Mend]]:
    """The broker gets another certificate."""
    try:
        yield guarded.way("TLS", listener), lambda: guarded.show_certificate(listener, "server")
    finally:
        guarded.show_certificate(listener, shown)


@contextmanager
def wrong_authority(guarded: Guarded, folder: Path) -> Iterator[tuple[Settings, Mend]]:
    """The file of the authority is replaced."""
    file = folder / "ca.crt"
    shutil.copy(guarded.folder / "foreign.crt", file)
    yield (
        guarded.way("TLS") | {"ssl_cafile": str(file)},
        lambda: shutil.copy(guarded.folder / "ours.crt", file),
    )


@contextmanager
def wrong_client(guarded: Guarded, folder: Path, shown: str) -> Iterator[tuple[Settings, Mend]]:
    """The files of the client's certificate and key are replaced."""

    def put(name: str) -> None:
        for suffix in ("crt", "key"):
            shutil.copy(guarded.folder / f"{name}.{suffix}", folder / f"tls.{suffix}")

    put(shown)
    files = {"ssl_certfile": str(folder / "tls.crt"), "ssl_keyfile": str(folder / "tls.key")}
    yield guarded.way("MTLS") | files, lambda: put("client")


INVALID = "SaslAuthenticationFailed: Authentication failed during authentication due to invalid credentials"
BY_NAME = "correct sasl_plain_username and sasl_plain_password"
REFUSED_BY_BROKER = (
    "the broker wants a certificate of the client's, or refuses the one of ssl_certfile"
)


@pytest.mark.parametrize(
    ("wrong", "more", "words"),
    [
        pytest.param(
            wrong_password,
            ("SCRAM-SHA-256",),
            (INVALID, BY_NAME, "SCRAM-SHA-256"),
            id="password-256",
        ),
        pytest.param(
            wrong_password,
            ("SCRAM-SHA-512",),
            (INVALID, BY_NAME, "SCRAM-SHA-512"),
            id="password-512",
        ),
        pytest.param(
            wrong_token,
            (),
            (
                "the broker refuses the token",
                "invalid_token",
                "have sasl_oauth_token_provider give a token",
            ),
            id="token",
        ),
        pytest.param(
            wrong_server, ("EXPIRED", "server-expired"), ("certificate has expired",), id="expired"
        ),
        pytest.param(
            wrong_server,
            ("ELSEWHERE", "server-elsewhere"),
            ("IP address mismatch, certificate is not valid for '127.0.0.1'",),
            id="host-name",
        ),
        pytest.param(
            wrong_authority, (), ("unable to get local issuer certificate",), id="authority"
        ),
        pytest.param(wrong_client, ("client-expired",), (REFUSED_BY_BROKER,), id="client-expired"),
        pytest.param(
            wrong_client, ("client-foreign",), (REFUSED_BY_BROKER,), id="client-authority"
        ),
    ],
)
async def test_what_is_wrong_is_named_and_mended_without_a_restart(
    guarded: Guarded,
    tmp_path: Path,
    wrong: Callable[..., AbstractContextManager[tuple[Settings, Mend]]],
    more: tuple[str, ...],
    words: tuple[str, ...],
) -> None:
    """Rows J7, S1, S2 of the faults."""
    with wrong(guarded, tmp_path, *more) as (settings, mend):
        async with serving(guarded, settings) as service:
            await is_refused(
                service, f"bootstrap_servers = '{settings['bootstrap_servers']}'", *words
            )
            mend()
            await works(service)


# -- what only another configuration mends


def wrong_plain_password(guarded: Guarded) -> tuple[Settings, Settings]:
    """The broker's names and passwords for PLAIN stand in its configuration."""
    right = guarded.way("PLAIN")
    return right | {"sasl_plain_password": WRONG}, right


def wrong_mechanism(guarded: Guarded) -> tuple[Settings, Settings]:
    """The listener does not offer PLAIN."""
    return guarded.way("PLAIN", "SHORT"), guarded.way("SCRAM-SHA-256", "SHORT")


def no_certificate(guarded: Guarded) -> tuple[Settings, Settings]:
    """The broker asks for a certificate, and there is none."""
    return guarded.way("TLS", "MTLS"), guarded.way("MTLS")


def key_of_another(guarded: Guarded) -> tuple[Settings, Settings]:
    """The key does not belong to the certificate."""
    right = guarded.way("MTLS")
    return right | {"ssl_keyfile": str(guarded.folder / "server.key")}, right


def clear_to_tls(guarded: Guarded) -> tuple[Settings, Settings]:
    """Nothing says that there is TLS."""
    return {"bootstrap_servers": guarded.at("TLS")}, guarded.way("TLS")


def tls_to_clear(guarded: Guarded) -> tuple[Settings, Settings]:
    """There is no TLS, though the configuration says so."""
    right = guarded.way("TLS")
    return right | {"bootstrap_servers": guarded.open}, right


def no_login(guarded: Guarded) -> tuple[Settings, Settings]:
    """TLS alone, where a login is asked for."""
    return guarded.way("TLS", "SASL"), guarded.way("PLAIN")


def login_to_tls(guarded: Guarded) -> tuple[Settings, Settings]:
    """A login where TLS is all there is."""
    return guarded.way("PLAIN", "TLS"), guarded.way("TLS")


def old_tls(guarded: Guarded) -> tuple[Settings, Settings]:
    """The listener speaks nothing newer than TLS 1.1."""
    assert tls_1_1_speaks(guarded.at("OLD")) == "TLSv1.1"
    return guarded.way("TLS", "OLD"), guarded.way("TLS")


def other_host(guarded: Guarded) -> tuple[Settings, Settings]:
    """The certificate is another host's; the configuration may say that this does not matter."""
    wrong = guarded.way("TLS", "ELSEWHERE")
    return wrong, wrong | {"ssl.endpoint.identification.algorithm": ""}


def tls_1_1_speaks(address: str) -> str | None:
    """The version of a connection by a client that takes TLS 1.1."""
    host, port = address.split(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with (
        socket.create_connection((host, int(port))) as plain,
        context.wrap_socket(plain) as connection,
    ):
        return connection.version()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            wrong_plain_password,
            ("Authentication failed: Invalid username or password", "sasl_mechanism = 'PLAIN'"),
        ),
        (
            wrong_mechanism,
            ("the broker does not offer PLAIN there: set sasl_mechanism to one that it offers",),
        ),
        (no_certificate, (REFUSED_BY_BROKER,)),
        (key_of_another, ("TLS cannot be set up with", "server.key", "key values mismatch")),
        (clear_to_tls, ("does it speak PLAINTEXT there?",)),
        (tls_to_clear, ("does it speak SSL there?",)),
        (no_login, ("does it speak SSL there?",)),
        (login_to_tls, ("the broker asks for no login: does it speak SASL_SSL there?",)),
        (old_tls, ("tlsv1 alert protocol version",)),
        (other_host, ("certificate is not valid for '127.0.0.1'",)),
    ],
)
async def test_what_is_wrong_in_the_configuration_is_named_and_another_start_does_what_was_left(
    guarded: Guarded, wrong: Callable[[Guarded], tuple[Settings, Settings]], words: tuple[str, ...]
) -> None:
    """Rows J7, S1, S2 of the faults."""
    settings, right = wrong(guarded)
    async with serving(guarded, settings) as service:
        await is_refused(service, *words)
    async with serving(guarded, right, topics=service.topics) as again:
        await works(again)
