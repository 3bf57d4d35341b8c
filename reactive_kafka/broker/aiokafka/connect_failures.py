"""Explains why a connection to a broker could not be made, and what to change."""

from __future__ import annotations

import errno
import re
import socket
import ssl
from asyncio import IncompleteReadError
from typing import NamedTuple

import aiokafka.errors as kafka_errors

from reactive_kafka.broker.aiokafka.connections.client_settings import ClientSettings
from reactive_kafka.errors import text_of

EXPECTED_ERRORS = (OSError, kafka_errors.KafkaError)
"""The errors of a connection that a client expects. It tries again."""
REFUSED = (
    kafka_errors.AuthenticationFailedError,
    kafka_errors.SaslAuthenticationFailed,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.IllegalSaslStateError,
    ssl.SSLCertVerificationError,
)
OPEN_THE_WAY = "open the way there: firewalls drop silently"

_ERRNO = re.compile(r"\[Errno (\d+)\]")
_UNREACHABLE = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT}
_UNUSABLE_ADDRESS = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENETUNREACH}
"""What connecting to an address family that this machine does not have fails with. A host name may
have addresses of several families.
"""
_NO_TLS_REASONS = (
    "WRONG_VERSION_NUMBER",
    "UNKNOWN_PROTOCOL",
    "HTTP_REQUEST",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
)
_NAME_AUTHORITY = "name the authority that has issued it in ssl_cafile"
_OTHER_NAME = "connect by a name that is in it, or have it issued for this one"
_CERTIFICATE_REMEDIES = {
    9: "look at the clock of this machine: it is not valid yet",
    10: "the broker needs a new one, if the clock of this machine is right",
    **dict.fromkeys((18, 19, 20, 21), _NAME_AUTHORITY),
    **dict.fromkeys((62, 64), _OTHER_NAME),
}
"""OpenSSL's code of a certificate error (X509_V_ERR) -> what to change."""


class ConnectFailure(NamedTuple):
    """Why a connection could not be made. ``is_refusal``: only the operator can solve it."""

    text: str
    is_refusal: bool


def check_protocol(protocol: str | None) -> str:
    """Return the advice to compare security_protocol with the protocol of the port."""
    return (
        f"does it speak {protocol or 'PLAINTEXT'} there? "
        "set security_protocol to what that port speaks"
    )


def explain_failure(
    address: str, settings: ClientSettings, error: Exception, *, is_advertised: bool
) -> ConnectFailure:
    """Return why an attempt to connect has failed, and what to change.

    *is_advertised*: a broker has named the address; it does not come from the configuration.
    """
    errors = (error, error.__cause__)
    protocol = settings.security_protocol
    text = text_of(error) or type(error).__name__
    why, remedy = _explain_network(error)
    if not why:
        why, remedy = _explain_security(settings, error)
    elif is_advertised:
        remedy = (
            "a broker advertises that address: reach it from here, "
            "or change the broker's advertised.listeners"
        )
    was_closed = any(
        isinstance(cause, IncompleteReadError | ConnectionResetError | BrokenPipeError)
        for cause in errors
    )
    if why:
        text = f"{why}: {remedy}"
    elif was_closed:
        text = f"the broker has closed the connection without a word: {check_protocol(protocol)}"
    elif remedy:
        text = f"{text}: {remedy}"
    is_alert = any(
        isinstance(cause, ssl.SSLError) and "ALERT" in str(cause.reason) for cause in errors
    )
    is_refusal = (
        is_alert
        or not isinstance(error, EXPECTED_ERRORS)
        or any(isinstance(cause, REFUSED) for cause in errors)
    )
    return ConnectFailure(f"{address}: {text}", is_refusal)


def _explain_network(error: Exception) -> tuple[str, str]:
    """Return what is wrong on the way to the port and what to change; two empty texts: nothing."""
    text = text_of(error)
    remedy = "correct bootstrap_servers"
    if isinstance(error, socket.gaierror):
        return f"no host has this name ({text})", f"{remedy}, or have the name resolved here"
    if isinstance(error, TimeoutError) and error.errno is None:
        return "no answer in time", f"{remedy}, or {OPEN_THE_WAY}"
    if isinstance(error, OSError) and error.errno:
        numbers = {error.errno}
    else:
        # If a host name has several addresses, asyncio lists all failures in the text of one error.
        numbers = {*map(int, _ERRNO.findall(text))}
    if errno.ECONNREFUSED in numbers and numbers <= {errno.ECONNREFUSED, *_UNUSABLE_ADDRESS}:
        return f"nothing listens there ({text})", f"start the broker, or {remedy}"
    if numbers and numbers <= _UNREACHABLE:
        return f"there is no way to it ({text})", f"{remedy}, or {OPEN_THE_WAY}"
    return "", ""


def _explain_security(settings: ClientSettings, error: Exception) -> tuple[str, str]:
    """Return what is wrong with TLS or the login, and what to change.

    The first text is empty if the text of the error says it already.
    """
    mechanism = settings.sasl_mechanism
    for cause in (error, error.__cause__):
        if isinstance(cause, ssl.SSLCertVerificationError):
            why = f"the broker's certificate is refused ({cause.verify_message})"
            default = "have it issued for this host by an authority of ssl_cafile"
            return why, _CERTIFICATE_REMEDIES.get(cause.verify_code, default)
        if isinstance(cause, ssl.SSLError):
            reason = str(cause.reason)
            if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
                return str(cause), (
                    "the broker wants a certificate of the client's, or refuses the one of "
                    "ssl_certfile; set ssl_certfile and ssl_keyfile to one that it accepts"
                )
            if "PROTOCOL_VERSION" in reason:
                return str(cause), "have the broker speak TLS 1.2 or newer"
            if reason in _NO_TLS_REASONS:
                why = f"what answers there speaks no TLS ({reason})"
                return why, check_protocol(settings.security_protocol)
    if isinstance(error, kafka_errors.UnsupportedSaslMechanismError):
        why = f"UnsupportedSaslMechanismError: the broker does not offer {mechanism} there"
        return why, "set sasl_mechanism to one that it offers"
    if isinstance(error, kafka_errors.IllegalSaslStateError):
        why = "IllegalSaslStateError: the broker asks for no login"
        return why, check_protocol(settings.security_protocol)
    if isinstance(error, kafka_errors.SaslAuthenticationFailed):
        if mechanism == "OAUTHBEARER":
            return "", "have sasl_oauth_token_provider give a token that the broker accepts"
        if mechanism == "GSSAPI":
            return "", ""
        return "", "correct sasl_plain_username and sasl_plain_password"
    return "", ""
