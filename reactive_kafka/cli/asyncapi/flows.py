"""What an application reads and writes: each channel with its topics and messages, dead letters and
retries. Pure.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Union

from reactive_kafka.channel.client_roles import group_of_retries
from reactive_kafka.config.schema import IncomingSettings
from reactive_kafka.failure import headers
from reactive_kafka.formats.schemas import Asked
from reactive_kafka.formats.wanted import is_union, name_of, parts_of, wanted
from reactive_kafka.handlers.introspection import owner_of
from reactive_kafka.handlers.signature import name_of_handler
from reactive_kafka.outgoing.replies import CORRELATION_ID
from reactive_kafka.planning.channel_plans import AppPlan, IncomingPlan, OutgoingPlan
from reactive_kafka.records import Record

# In each dead letter and each retry.
_ORIGIN = ("exception-class-name", "topic", "partition", "offset")
# Names of SmallRye's for what the letter is anyway.
_NOT_OURS = ("-key", "-data", "-dlq")
# Nothing is sent.
_NOTHING = (None, types.NoneType)
_UNKNOWN = Asked(Any, "validation")


@dataclass(frozen=True, slots=True)
class Content:
    """One kind of message."""

    name: str
    # The type of its value.
    asked: Asked = _UNKNOWN
    # Of the value; None: not known, as for the key.
    format: str | None = None
    key_format: str | None = None
    # Those that may be there.
    headers: frozenset[str] = frozenset()
    # Those that always are.
    required: frozenset[str] = frozenset()
    about: str = ""


@dataclass(frozen=True, slots=True)
class Flow:
    """What goes one way between the application and some topics."""

    name: str
    action: Literal["receive", "send"]
    # Raw properties: connection and credentials.
    client: Mapping[str, Any]
    contents: tuple[Content, ...]
    topics: Sequence[str] = ()
    # Instead of topics.
    pattern: str | None = None
    group_id: str | None = None
    functions: tuple[Callable[..., Any], ...] = ()
    reply_topic: str | None = None


def flows_of(spec: AppPlan) -> Iterator[Flow]:
    """All of them. Memory channels have no topic, and are left out."""
    for incoming in spec.incoming.values():
        flow = _received(incoming)
        yield flow
        yield from _failed(incoming.settings, flow.contents)
    for name, outgoing in spec.outgoing.items():
        yield from _sent(outgoing, list(_senders(name, spec)))


def _received(spec: IncomingPlan) -> Flow:
    settings = spec.settings
    payloads: list[Any] = [Any]
    handlers = [each.handler for each in spec.handlers]
    functions: tuple[Callable[..., Any], ...] = tuple(handler.function for handler in handlers)
    if spec.spark is not None:
        payloads = [bytes if spec.spark.model is None else spec.spark.model]
        functions = (spec.spark.function,)
    elif handlers:
        payloads = []
        # Types need not be hashable.
        for handler in handlers:
            payloads += [] if handler.payload_type in payloads else [handler.payload_type]
    contents = tuple(
        Content(
            name=_type_name(payload) or settings.name,
            asked=Asked(payload, "validation"),
            format=settings.value_deserializer or _format_of(payload),
            key_format=settings.key_deserializer,
        )
        for payload in payloads
    )
    return Flow(
        name=f"receive-{settings.name}",
        action="receive",
        client=settings.client,
        contents=contents,
        topics=settings.subscription.topics,
        pattern=settings.pattern,
        group_id=settings.group_id,
        functions=functions,
    )


def _failed(settings: IncomingSettings, contents: Sequence[Content]) -> Iterator[Flow]:
    """What becomes of records that failed."""
    if (retry := settings.delayed_retry) is not None:
        needed = {
            headers.COUNT,
            headers.FIRST_PROCESSING,
            *(headers.DELAYED + name for name in _ORIGIN),
        }
        about = f"A record of {settings.name} that failed: it is tried again after the delay in the topic's name."
        again = tuple(
            replace(
                content,
                name=f"retry-of-{settings.name}",
                headers=headers.DELAYED_NAMES,
                required=frozenset(needed),
                about=about,
            )
            for content in contents
        )
        send = Flow(
            f"send-retries-of-{settings.name}", "send", settings.client, again, retry.topics
        )
        yield send
        name = f"receive-retries-of-{settings.name}"
        group = group_of_retries(settings)
        yield replace(send, name=name, action="receive", client=retry.client, group_id=group)
    if (letters := settings.dead_letter_queue) is not None:
        letter = Content(
            name=f"dead-letter-of-{settings.name}",
            headers=frozenset(
                name for name in headers.DEAD_LETTER_NAMES if not name.endswith(_NOT_OURS)
            ),
            required=frozenset(headers.DEAD_LETTER + name for name in _ORIGIN),
            about=f"A record of {settings.name} that failed for good: its own bytes, which may be what cannot be read.",
        )
        yield Flow(
            f"send-dead-letters-of-{settings.name}",
            "send",
            letters.client,
            (letter,),
            (letters.topic,),
        )


def _senders(channel: str, spec: AppPlan) -> Iterator[tuple[Callable[..., Any], Any]]:
    """Each function whose results go to a channel, and the type of what it sends."""
    for plan in spec.handlers:
        if channel in plan.outgoing:
            handler = plan.handler
            yield handler.function, _one_of(handler.returns) if handler.yields else handler.returns
    for source in spec.sources:
        if channel in source.outgoing:
            yield source.function, _one_of(source.returns)


def _one_of(iterator: Any) -> Any:
    """What an ``AsyncIterator[X]`` yields."""
    return next(iter(typing.get_args(iterator)), Any)


def _sent(spec: OutgoingPlan, senders: Sequence[tuple[Callable[..., Any], Any]]) -> Iterator[Flow]:
    settings = spec.settings
    sent: list[Any] = []
    for annotation in [_value_of(returns) for _, returns in senders] or [Any]:
        sent += [annotation] if annotation not in sent else []
    contents = [
        Content(
            name=_type_name(annotation) or settings.name,
            asked=Asked(annotation, "serialization"),
            format=settings.value_serializer
            or (None if annotation is Any else _format_of(annotation)),
            key_format=settings.key_serializer,
            headers=frozenset(settings.propagate_headers or ()),
        )
        for annotation in sent
    ]
    yield Flow(
        name=f"send-{settings.name}",
        action="send",
        client=settings.client,
        contents=tuple(contents),
        topics=(settings.topic,),
        functions=tuple(dict.fromkeys(function for function, _ in senders)),
        reply_topic=settings.reply_topic,
    )
    if settings.reply_topic is not None:
        needed = frozenset((CORRELATION_ID,))
        reply = Content(
            f"reply-to-{settings.name}",
            headers=needed,
            required=needed,
            about="The reply to a request.",
        )
        yield Flow(
            f"receive-replies-to-{settings.name}",
            "receive",
            settings.client,
            (reply,),
            (settings.reply_topic,),
        )


def _value_of(returned: Any) -> Any:
    """The type of the values that a function sends; Any where its annotation says nothing, or
    Record.
    """
    kinds = (typing.get_origin(part) or part for part in parts_of(returned))
    if any(isinstance(kind, type) and issubclass(kind, Record) for kind in kinds):
        # Which has a value of any type.
        return Any
    if not is_union(returned):
        return Any if returned in _NOTHING else returned
    some = tuple(member for member in typing.get_args(returned) if member not in _NOTHING)
    return some[0] if len(some) == 1 else Union[some]  # noqa: UP007


def _format_of(annotation: Any) -> str:
    """What values of a type are read or written as, if no format is configured."""
    base = wanted(annotation).base
    return "bytes" if base is bytes else "string" if base is str else "json"


def _type_name(annotation: Any) -> str | None:
    """The type as a name; None if it says nothing."""
    return None if annotation in (Any, object) else name_of(annotation)


def described(function: Callable[..., Any]) -> tuple[str, str]:
    """The name of a function, and its docstring."""
    return name_of_handler(function), inspect.cleandoc(owner_of(function).__doc__ or "")
