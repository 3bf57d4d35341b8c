"""Lists what an application reads and writes: topics with their messages. Pure.

Includes the topics of dead letters, delayed retries and replies.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Union

from reactive_kafka.channel.client_roles import group_of_retries
from reactive_kafka.config.settings import IncomingSettings
from reactive_kafka.failure import headers
from reactive_kafka.formats.annotation_schemas import DescribedType
from reactive_kafka.formats.payload_type import is_union, name_of, parts_of, payload_type_of
from reactive_kafka.handlers.introspection import owner_of
from reactive_kafka.handlers.signature import name_of_handler
from reactive_kafka.outgoing.reply_headers import CORRELATION_ID
from reactive_kafka.planning.channel_plans import AppPlan, IncomingPlan, OutgoingPlan
from reactive_kafka.records import Record

# Headers in each dead letter and each retry.
_ORIGIN = ("exception-class-name", "topic", "partition", "offset")
# Headers that SmallRye writes and we do not, because the letter has the same in other places.
_NOT_OURS = ("-key", "-data", "-dlq")
# Return annotations with which nothing is sent.
_NOTHING = (None, types.NoneType)
_UNKNOWN = DescribedType(Any, "validation")


@dataclass(frozen=True, slots=True)
class MessageContent:
    """One kind of message."""

    name: str
    # The type of the value.
    asked: DescribedType = _UNKNOWN
    # The format of the value, and of the key. None: not known.
    format: str | None = None
    key_format: str | None = None
    # Headers that a message may have.
    headers: frozenset[str] = frozenset()
    # Headers that every message has.
    required: frozenset[str] = frozenset()
    about: str = ""


@dataclass(frozen=True, slots=True)
class Flow:
    """Messages that go one way between the application and some topics."""

    name: str
    action: Literal["receive", "send"]
    # The raw properties of the client: connection and credentials.
    client: Mapping[str, Any]
    contents: tuple[MessageContent, ...]
    topics: Sequence[str] = ()
    # The pattern of the topics, instead of topics.
    pattern: str | None = None
    group_id: str | None = None
    functions: tuple[Callable[..., Any], ...] = ()
    reply_topic: str | None = None


def flows_of(spec: AppPlan) -> Iterator[Flow]:
    """Yield all flows of an application. Memory channels have no topic, so they are left out."""
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
        for handler in handlers:
            # A list, because types need not be hashable.
            if handler.payload_type not in payloads:
                payloads.append(handler.payload_type)
    contents = tuple(
        MessageContent(
            name=_type_name(payload) or settings.name,
            asked=DescribedType(payload, "validation"),
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


def _failed(settings: IncomingSettings, contents: Sequence[MessageContent]) -> Iterator[Flow]:
    """Yield the flows of records that failed: delayed retries and dead letters."""
    retry = settings.delayed_retry
    if retry is not None:
        needed = {
            headers.COUNT,
            headers.FIRST_PROCESSING,
            *(headers.DELAYED + name for name in _ORIGIN),
        }
        about = (
            f"A record of {settings.name} that failed: it is tried again after the delay in the "
            "topic's name."
        )
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
    letters = settings.dead_letter_queue
    if letters is not None:
        letter = MessageContent(
            name=f"dead-letter-of-{settings.name}",
            headers=frozenset(
                name for name in headers.DEAD_LETTER_NAMES if not name.endswith(_NOT_OURS)
            ),
            required=frozenset(headers.DEAD_LETTER + name for name in _ORIGIN),
            about=(
                f"A record of {settings.name} that failed for good: its own bytes, which may be "
                "the ones that could not be read."
            ),
        )
        yield Flow(
            f"send-dead-letters-of-{settings.name}",
            "send",
            letters.client,
            (letter,),
            (letters.topic,),
        )


def _senders(channel: str, spec: AppPlan) -> Iterator[tuple[Callable[..., Any], Any]]:
    """Yield each function whose results go to a channel, and the type of what it sends."""
    for plan in spec.handlers:
        if channel in plan.outgoing:
            handler = plan.handler
            yield (
                handler.function,
                _item_type(handler.returns) if handler.yields else handler.returns,
            )
    for source in spec.sources:
        if channel in source.outgoing:
            yield source.function, _item_type(source.returns)


def _item_type(iterator: Any) -> Any:
    """Return the X of an ``AsyncIterator[X]``."""
    return next(iter(typing.get_args(iterator)), Any)


def _sent(spec: OutgoingPlan, senders: Sequence[tuple[Callable[..., Any], Any]]) -> Iterator[Flow]:
    settings = spec.settings
    sent: list[Any] = []
    for annotation in [_value_of(returns) for _, returns in senders] or [Any]:
        if annotation not in sent:
            sent.append(annotation)
    contents = []
    for annotation in sent:
        value_format = settings.value_serializer
        if value_format is None and annotation is not Any:
            value_format = _format_of(annotation)
        contents.append(
            MessageContent(
                name=_type_name(annotation) or settings.name,
                asked=DescribedType(annotation, "serialization"),
                format=value_format,
                key_format=settings.key_serializer,
                headers=frozenset(settings.propagate_headers or ()),
            )
        )
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
        reply = MessageContent(
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
    """Return the type of the values that a function sends; Any if the annotation says nothing."""
    kinds = (typing.get_origin(part) or part for part in parts_of(returned))
    if any(isinstance(kind, type) and issubclass(kind, Record) for kind in kinds):
        # A Record has a value of any type.
        return Any
    if not is_union(returned):
        return Any if returned in _NOTHING else returned
    members = tuple(member for member in typing.get_args(returned) if member not in _NOTHING)
    return members[0] if len(members) == 1 else Union[members]  # noqa: UP007


def _format_of(annotation: Any) -> str:
    """Return the format for values of a type, if no format is configured."""
    base = payload_type_of(annotation).base
    if base is bytes:
        return "bytes"
    return "string" if base is str else "json"


def _type_name(annotation: Any) -> str | None:
    """Return the name of a type; None for a type that says nothing."""
    return None if annotation in (Any, object) else name_of(annotation)


def described(function: Callable[..., Any]) -> tuple[str, str]:
    """Return the name of a function, and its docstring."""
    return name_of_handler(function), inspect.cleandoc(owner_of(function).__doc__ or "")
