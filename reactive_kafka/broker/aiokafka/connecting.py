"""How aiokafka's clients connect, and why they could not: its own errors do not say it, and some
end its tasks.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
from asyncio import IncompleteReadError
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from functools import wraps
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import aiokafka.conn
import aiokafka.errors as kafka_errors
from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.protocol import fetch

from reactive_kafka.broker.aiokafka import forked
from reactive_kafka.broker.aiokafka.credentials import TokenLogin, current
from reactive_kafka.broker.aiokafka.fetched.answers import VERSIONS
from reactive_kafka.broker.aiokafka.fetched.frames import FrameProtocol, read_frames
from reactive_kafka.broker.aiokafka.fetched.requests import built, encoded
from reactive_kafka.broker.aiokafka.setup import is_ours, within
from reactive_kafka.errors import BrokerError, FatalBrokerError, describe, text_of

START_DEADLINE_S = 20.0

# The arguments that errors name.
WAYS = ("bootstrap_servers", "security_protocol", "sasl_mechanism")
MOST_NAMED = 2
# Of which aiokafka knows that they are reasons not to be connected.
KNOWN = (OSError, kafka_errors.KafkaError)
REFUSED = (
    kafka_errors.AuthenticationFailedError,
    kafka_errors.SaslAuthenticationFailed,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.IllegalSaslStateError,
    ssl.SSLCertVerificationError,
)

_UNABLE = "no broker can be used"
_OPEN = "open the way there: firewalls drop silently"
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_NO_WAY = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT}
_NO_FAMILY = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENETUNREACH}
"""Of a name with several addresses, what comes of those that this machine cannot use anyway."""
_NO_TLS = (
    "WRONG_VERSION_NUMBER",
    "UNKNOWN_PROTOCOL",
    "HTTP_REQUEST",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
)
_NO_AUTHORITY = "name the authority that has issued it in ssl_cafile"
_OTHER_NAME = "connect by a name that stands in it, or have it issued for this one"
_OF_CERTIFICATES = {
    9: "look at the clock of this machine: it is not valid yet",
    10: "the broker needs a new one, if the clock of this machine is right",
    **dict.fromkeys((18, 19, 20, 21), _NO_AUTHORITY),
    **dict.fromkeys((62, 64), _OTHER_NAME),
}
"""OpenSSL's number of what is wrong with a certificate (X509_V_ERR) -> what to change."""


class Failure(NamedTuple):
    """Why a connection could not be made; *is_refusal*: nobody but the operator can mend it."""

    text: str
    is_refusal: bool


_starting: ContextVar[deque[Failure] | None] = ContextVar("_starting", default=None)
# Aiokafka's client -> why it has no connection.
_failures: WeakKeyDictionary[Any, Failure] = WeakKeyDictionary()


async def connect(
    client: Any, arguments: Mapping[str, Any], close: Callable[[], Awaitable[None]]
) -> None:
    """Start a client of any kind; one that cannot connect is closed, or it would log that it was
    left open.

    The error says why each of its attempts has failed, and which of its *arguments* say where and
    how to connect. It is a FatalBrokerError where certificates or credentials were refused, and
    where it is no error of the client's at all (a name that cannot be encoded, a library that is
    missing, a token provider that raises).
    """
    given = [f"{name} = {arguments[name]!r}" for name in WAYS if arguments.get(name)]
    said = f", with {' and '.join(given)}" if given else ""
    # The tasks that the client has started keep the variable for good.
    failures = deque[Failure](maxlen=8)
    token = _starting.set(failures)
    kept = is_ours.set(True)
    try:
        await within(START_DEADLINE_S, client.start(), "connecting")
    except BrokerError as error:
        await close()
        reasons = list(dict.fromkeys(failure.text for failure in failures))[-MOST_NAMED:]
        if not reasons and isinstance(error.__cause__, kafka_errors.KafkaConnectionError):
            reasons = [
                f"the broker has not answered what it was asked: {_asking(arguments.get('security_protocol'))}"
            ]
        elif not reasons and isinstance(error.__cause__, TimeoutError):
            reasons = [f"correct bootstrap_servers, or {_OPEN}"]
        kind = FatalBrokerError if any(failure.is_refusal for failure in failures) else type(error)
        what = (
            _UNABLE
            if isinstance(error.__cause__, kafka_errors.KafkaConnectionError) and failures
            else str(error)
        )
        raise kind(
            f"{what} ({'; '.join(reasons)}){said}" if reasons else f"{error}{said}"
        ) from error.__cause__
    except Exception as error:
        await close()
        raise FatalBrokerError(f"connecting: {describe(error)}{said}") from error
    except BaseException:
        await close()
        raise
    finally:
        _starting.reset(token)
        is_ours.reset(kept)


def why_away(client: Any) -> str:
    """`` (...)`` with the reason why aiokafka's *client* could not connect the last time; empty: it
    could.
    """
    failure = _failures.get(client)
    return f" ({failure.text})" if failure is not None else ""


def _asking(protocol: str | None) -> str:
    return f"does it speak {protocol or 'PLAINTEXT'} there? set security_protocol to what that port speaks"


def _failure(connection: AIOKafkaConnection, error: Exception, *, is_advertised: bool) -> Failure:
    """What an attempt to connect has come to, in words that say what to change.

    *is_advertised*: the address is none of the configuration's; a broker has named it.
    """
    errors = (error, error.__cause__)
    protocol = connection._security_protocol
    text = text_of(error) or type(error).__name__
    why, remedy = _of_network(error)
    if not why:
        why, remedy = _of_security(connection, error)
    elif is_advertised:
        remedy = "a broker advertises that address: reach it from here, or change the broker's advertised.listeners"
    if why:
        text = f"{why}: {remedy}"
    elif any(
        isinstance(one, IncompleteReadError | ConnectionResetError | BrokenPipeError)
        for one in errors
    ):
        text = f"the broker has closed the connection without a word: {_asking(protocol)}"
    elif remedy:
        text = f"{text}: {remedy}"
    is_alert = any(isinstance(one, ssl.SSLError) and "ALERT" in str(one.reason) for one in errors)
    is_refusal = (
        is_alert or not isinstance(error, KNOWN) or any(isinstance(one, REFUSED) for one in errors)
    )
    return Failure(f"{connection.host}:{connection.port}: {text}", is_refusal)


def _of_network(error: Exception) -> tuple[str, str]:
    """What is wrong on the way to a port, and what to change; or two empty texts."""
    text = text_of(error)
    remedy = "correct bootstrap_servers"
    if isinstance(error, socket.gaierror):
        return f"no host has this name ({text})", f"{remedy}, or have the name resolved here"
    if isinstance(error, TimeoutError) and error.errno is None:
        return "no answer in time", f"{remedy}, or {_OPEN}"
    # Of a name with several addresses asyncio tells all that it has tried in one error without a
    # number.
    numbers = (
        {error.errno}
        if isinstance(error, OSError) and error.errno
        else {*map(int, _ERRNO.findall(text))}
    )
    if errno.ECONNREFUSED in numbers and numbers <= {errno.ECONNREFUSED, *_NO_FAMILY}:
        return f"nobody listens there ({text})", f"start the broker, or {remedy}"
    if numbers and numbers <= _NO_WAY:
        return f"there is no way to it ({text})", f"{remedy}, or {_OPEN}"
    return "", ""


def _of_security(connection: AIOKafkaConnection, error: Exception) -> tuple[str, str]:
    """What is wrong with TLS or the login, and what to change. Without the former the error says it
    itself.
    """
    mechanism = connection._sasl_mechanism
    for one in (error, error.__cause__):
        if isinstance(one, ssl.SSLCertVerificationError):
            why = f"the broker's certificate is refused ({one.verify_message})"
            return why, _OF_CERTIFICATES.get(
                one.verify_code, "have it issued for this host by an authority of ssl_cafile"
            )
        if isinstance(one, ssl.SSLError):
            reason = str(one.reason)
            if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
                refused = "the broker wants a certificate of the client's, or refuses the one of ssl_certfile"
                return str(
                    one
                ), f"{refused}; set ssl_certfile and ssl_keyfile to one that it accepts"
            if "PROTOCOL_VERSION" in reason:
                return str(one), "have the broker speak TLS 1.2 or newer"
            if reason in _NO_TLS:
                return f"what answers there speaks no TLS ({reason})", _asking(
                    connection._security_protocol
                )
    if isinstance(error, kafka_errors.UnsupportedSaslMechanismError):
        why = f"UnsupportedSaslMechanismError: the broker does not offer {mechanism} there"
        return why, "set sasl_mechanism to one that it offers"
    if isinstance(error, kafka_errors.IllegalSaslStateError):
        return "IllegalSaslStateError: the broker asks for no login", _asking(
            connection._security_protocol
        )
    if isinstance(error, kafka_errors.SaslAuthenticationFailed):
        by_token = "have sasl_oauth_token_provider give a token that the broker accepts"
        by_name = "correct sasl_plain_username and sasl_plain_password"
        return (
            "",
            by_token if mechanism == "OAUTHBEARER" else by_name if mechanism != "GSSAPI" else "",
        )
    return "", ""


def _noting_why(connect: Any) -> Any:
    """A connection's ``connect`` that keeps why it failed, and raises nothing that aiokafka does
    not expect.

    What it does expect it logs, and tells nobody. Anything else would end the task that it happens
    in.
    """

    @wraps(connect)
    async def connects(self: AIOKafkaConnection) -> Any:
        # None: it asks a bootstrap server.
        client = getattr(self._on_close_cb, "__self__", None)
        self._ssl_context, problem = current(self._ssl_context)
        try:
            made = await connect(self)
        except Exception as error:
            failure = _failure(self, error, is_advertised=client is not None)
            if problem:
                failure = failure._replace(text=f"{failure.text}; {problem}")
            if client is not None:
                _failures[client] = failure
            if (starting := _starting.get()) is not None:
                starting.append(failure)
            if isinstance(error, KNOWN):
                raise
            raise kafka_errors.AuthenticationFailedError(describe(error)) from error
        if client is not None:
            _failures.pop(client, None)
        return made

    return connects


def _say_when_closed(send: Any) -> Any:
    """A connection's method that raises KafkaConnectionError for uvloop's RuntimeError, as it does
    for OSError.

    Writing to a socket that the broker has closed raises OSError under asyncio's loop, and aiokafka
    knows that. Under uvloop's it raises RuntimeError, which passes every ``except`` of aiokafka's:
    it comes out of a commit, and it ends the client's own tasks. It happens whenever a request is
    sent between the end of a broker and the news of it.

    Source: aio-libs/aiokafka#1038, open.
    """

    @wraps(send)
    def sends(self: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return send(self, *arguments, **options)
        except kafka_errors.KafkaError:
            # A RuntimeError itself.
            raise
        except RuntimeError as error:
            self.close(reason=CloseReason.CONNECTION_BROKEN)
            broken = f"Connection at {self.host}:{self.port} broken: {error}"
            raise kafka_errors.KafkaConnectionError(broken) from error

    return sends


for _name in ("send", "_send_sasl_token"):
    setattr(AIOKafkaConnection, _name, _say_when_closed(getattr(AIOKafkaConnection, _name)))
AIOKafkaConnection.connect = forked.noted(_noting_why(AIOKafkaConnection.connect))
AIOKafkaConnection.authenticator_oauth = lambda self: TokenLogin(
    sasl_oauth_token_provider=self._sasl_oauth_token_provider
)
aiokafka.conn.AIOKafkaProtocol = FrameProtocol
AIOKafkaConnection._read = staticmethod(read_frames)
fetch.FetchRequest.build = built
for _version in VERSIONS:
    getattr(fetch, f"FetchRequest_v{_version}").encode = encoded
