"""How aiokafka's clients connect, and why they could not: its own errors do not say it, and some end its tasks."""

from __future__ import annotations

import ssl
from asyncio import IncompleteReadError
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from functools import wraps
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import aiokafka.errors as kafka_errors
from aiokafka.conn import AIOKafkaConnection, CloseReason

from reactive_kafka.broker.aiokafka import forked
from reactive_kafka.broker.aiokafka.credentials import TokenLogin, current
from reactive_kafka.broker.aiokafka.setup import within
from reactive_kafka.errors import BrokerError, FatalBrokerError, describe, text_of

START_DEADLINE_S = 20.0

WAYS = ("bootstrap_servers", "security_protocol", "sasl_mechanism")  # the arguments that errors name
MOST_NAMED = 2
KNOWN = (OSError, kafka_errors.KafkaError)  # of which aiokafka knows that they are reasons not to be connected
REFUSED = (
    kafka_errors.AuthenticationFailedError,
    kafka_errors.SaslAuthenticationFailed,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.IllegalSaslStateError,
    ssl.SSLCertVerificationError,
)


class Failure(NamedTuple):
    """Why a connection could not be made; *is_refusal*: nobody but the operator can mend it."""

    text: str
    is_refusal: bool


_starting: ContextVar[deque[Failure] | None] = ContextVar("_starting", default=None)
_failures: WeakKeyDictionary[Any, Failure] = WeakKeyDictionary()  # aiokafka's client -> why it has no connection


async def connect(client: Any, arguments: Mapping[str, Any], close: Callable[[], Awaitable[None]]) -> None:
    """Start a client of any kind; one that cannot connect is closed, or it would log that it was left open.

    The error says why each of its attempts has failed, and which of its *arguments* say where and how to connect. It is
    a FatalBrokerError where certificates or credentials were refused, and where it is no error of the client's at all
    (a name that cannot be encoded, a library that is missing, a token provider that raises).
    """
    given = [f"{name} = {arguments[name]!r}" for name in WAYS if arguments.get(name)]
    said = f", with {' and '.join(given)}" if given else ""
    failures = deque[Failure](maxlen=8)  # the tasks that the client has started keep the variable for good
    token = _starting.set(failures)
    try:
        await within(START_DEADLINE_S, client.start(), "connecting")
    except BrokerError as error:
        await close()
        reasons = list(dict.fromkeys(failure.text for failure in failures))[-MOST_NAMED:]
        if not reasons and isinstance(error.__cause__, kafka_errors.KafkaConnectionError):
            reasons = [f"the broker has not answered what it was asked: {_asking(arguments.get('security_protocol'))}"]
        kind = FatalBrokerError if any(failure.is_refusal for failure in failures) else type(error)
        raise kind(f"{error} ({'; '.join(reasons)}){said}" if reasons else f"{error}{said}") from error.__cause__
    except Exception as error:
        await close()
        raise FatalBrokerError(f"connecting: {describe(error)}{said}") from error
    except BaseException:
        await close()
        raise
    finally:
        _starting.reset(token)


def why_away(client: Any) -> str:
    """`` (...)`` with the reason why aiokafka's *client* could not connect the last time; empty: it could."""
    failure = _failures.get(client)
    return f" ({failure.text})" if failure is not None else ""


def _asking(protocol: str | None) -> str:
    return f"does it speak {protocol or 'PLAINTEXT'} there?"


def _failure(connection: AIOKafkaConnection, error: Exception) -> Failure:
    """What an attempt to connect has come to, in words that say where to look."""
    errors, protocol = (error, error.__cause__), connection._security_protocol
    text = text_of(error) or type(error).__name__
    alert = next((str(one) for one in errors if isinstance(one, ssl.SSLError) and "ALERT" in str(one.reason)), "")
    if alert and ("CERTIFICATE" in alert or "UNKNOWN_CA" in alert):
        text = f"{alert}: the broker wants a certificate of the client's, or refuses the one of ssl_certfile"
    elif any(isinstance(one, IncompleteReadError | ConnectionResetError | BrokenPipeError) for one in errors):
        text = f"the broker has closed the connection without a word: {_asking(protocol)}"
    elif isinstance(error, kafka_errors.UnsupportedSaslMechanismError):
        text = f"UnsupportedSaslMechanismError: the broker does not offer {connection._sasl_mechanism} there"
    elif isinstance(error, kafka_errors.IllegalSaslStateError):
        text = f"IllegalSaslStateError: the broker asks for no login: {_asking(protocol)}"
    is_refusal = bool(alert) or not isinstance(error, KNOWN) or any(isinstance(one, REFUSED) for one in errors)
    return Failure(f"{connection.host}:{connection.port}: {text}", is_refusal)


def _noting_why(connect: Any) -> Any:
    """A connection's ``connect`` that keeps why it failed, and raises nothing that aiokafka does not expect.

    What it does expect it logs, and tells nobody. Anything else would end the task that it happens in.
    """

    @wraps(connect)
    async def connects(self: AIOKafkaConnection) -> Any:
        client = getattr(self._on_close_cb, "__self__", None)  # None: it asks a bootstrap server
        self._ssl_context, problem = current(self._ssl_context)
        try:
            made = await connect(self)
        except Exception as error:
            failure = _failure(self, error)
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
    """A connection's method that raises KafkaConnectionError for uvloop's RuntimeError, as it does for OSError.

    Writing to a socket that the broker has closed raises OSError under asyncio's loop, and aiokafka knows that. Under
    uvloop's it raises RuntimeError, which passes every ``except`` of aiokafka's: it comes out of a commit, and it ends
    the client's own tasks. It happens whenever a request is sent between the end of a broker and the news of it.

    Source: aio-libs/aiokafka#1038, open.
    """

    @wraps(send)
    def sends(self: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return send(self, *arguments, **options)
        except kafka_errors.KafkaError:  # a RuntimeError itself
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
