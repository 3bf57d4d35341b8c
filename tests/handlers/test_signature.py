"""What a handler's signature asks for. Quoted annotations are what ``from __future__ import
annotations`` makes.
"""

import functools
import inspect
import operator
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, TypeVar

import pytest

from reactive_kafka import Batch, Message, Record
from reactive_kafka.errors import ConfigError
from reactive_kafka.handlers.signature import (
    HandlerFunction,
    Shape,
    draft_handler,
    name_and_place,
    why_no_source,
)

if TYPE_CHECKING:
    from decimal import Decimal

T = TypeVar("T")


@dataclass
class Order:
    id: int


def spec_of(handler: Any) -> HandlerFunction:
    """Both looks at a signature at once."""
    return draft_handler(handler).to_function()


async def payload(order: Order) -> None: ...
async def text_payload(order: "Order | None") -> "Order": ...  # type: ignore[empty-body]
async def anything(value): ...  # type: ignore[no-untyped-def]
async def optional(value: Optional[str]) -> None: ...  # noqa: UP045
async def literal(value: Literal["a", "b"]) -> None: ...
async def annotated(value: Annotated[str, "an id"]) -> None: ...
async def message(message: Message[Order]) -> None: ...
async def text_message(message: "Message[Order]") -> None: ...
async def inner_text(message: Message["Order"]) -> None: ...
async def bare_message(message: Message) -> None: ...  # type: ignore[type-arg]
async def generic_message(message: Message[T]) -> None: ...
async def annotated_message(message: Annotated[Message[bytes], "raw"]) -> None: ...
async def tombstones(message: Message[Order | None]) -> None: ...
async def batch(batch: Batch[Order]) -> None: ...
async def bare_batch(batch: Batch) -> None: ...  # type: ignore[type-arg]
async def list_payload(orders: list[Order]) -> None: ...
async def with_rest(order: Order, *more: Any, **rest: Any) -> None: ...
async def with_default(order: Order, key: bytes = b"") -> None: ...
async def with_defaults(
    order: Order, key: bytes = b"", *, dry: bool = False, **rest: Any
) -> None: ...
async def all_default(order: Order = Order(0)) -> None: ...  # noqa: B008
async def positional_only(order: Order, /) -> None: ...


@pytest.mark.parametrize(
    ("handler", "shape", "payload_type"),
    [
        (payload, Shape.PAYLOAD, Order),
        (text_payload, Shape.PAYLOAD, Order | None),
        (anything, Shape.PAYLOAD, Any),
        (optional, Shape.PAYLOAD, str | None),
        (literal, Shape.PAYLOAD, Literal["a", "b"]),
        (annotated, Shape.PAYLOAD, Annotated[str, "an id"]),
        (message, Shape.MESSAGE, Order),
        (text_message, Shape.MESSAGE, Order),
        (inner_text, Shape.MESSAGE, Order),
        (bare_message, Shape.MESSAGE, Any),
        (generic_message, Shape.MESSAGE, Any),
        (annotated_message, Shape.MESSAGE, bytes),
        (tombstones, Shape.MESSAGE, Order | None),
        (batch, Shape.BATCH, Order),
        (bare_batch, Shape.BATCH, Any),
        (list_payload, Shape.PAYLOAD, list[Order]),
        (with_rest, Shape.PAYLOAD, Order),
        (all_default, Shape.PAYLOAD, Order),
        (positional_only, Shape.PAYLOAD, Order),
    ],
)
def test_the_annotation_decides_what_a_handler_gets(
    handler: Any, shape: Shape, payload_type: object
) -> None:
    spec = spec_of(handler)
    assert (spec.shape, spec.payload_type) == (shape, payload_type)
    assert spec.function is handler
    assert spec.is_async


def test_a_spec_names_the_handler_and_where_it_stands() -> None:
    spec = spec_of(payload)
    assert spec.name == f"{__name__}.payload"
    assert name_and_place(payload) == f"{spec.name} ({__file__}:{payload.__code__.co_firstlineno})"


async def returns_unknown(order: Order) -> "NoSuchThing": ...  # type: ignore[name-defined]  # noqa: F821


def test_a_return_annotation_that_cannot_be_resolved_is_no_error() -> None:
    assert spec_of(returns_unknown).payload_type is Order
    assert draft_handler(returns_unknown).dropped() is None


class Billing:
    async def handle(self, order: Order) -> None: ...

    def blocking(self, order: Order) -> None: ...

    @staticmethod
    async def static(order: Order) -> None: ...

    @classmethod
    async def of_class(cls, order: Order) -> None: ...

    async def __call__(self, order: "Order") -> None: ...


class Blocking:
    def __call__(self, order: Order) -> None: ...


async def with_database(order: Order, database: str) -> None: ...
async def database_first(database: str, order: "Order") -> None: ...
def blocking(order: Order) -> None: ...


def passing_on(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    return wrapper


def giving_the_database(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(incoming) -> Any:  # type: ignore[no-untyped-def]
        return await function(incoming, "database")

    return wrapper


def plain_wrapper(function: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Awaitable[None]:
        return function(*args)

    return wrapper


class Counted:
    """A decorator that is a class."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function

    async def __call__(self, *args: Any) -> Any:
        return await self.function(*args)


@pytest.mark.parametrize(
    ("handler", "is_async", "name"),
    [
        (Billing().handle, True, "Billing.handle"),
        (Billing().blocking, False, "Billing.blocking"),
        (Billing.static, True, "Billing.static"),
        (Billing.of_class, True, "Billing.of_class"),
        (Billing(), True, "Billing.__call__"),
        (Blocking(), False, "Blocking.__call__"),
        (blocking, False, "blocking"),
        (functools.partial(blocking), False, "blocking"),
        (functools.partial(with_database, database="x"), True, "with_database"),
        (functools.partial(database_first, "x"), True, "database_first"),
        (functools.partial(functools.partial(Billing().handle)), True, "Billing.handle"),
        (passing_on(payload), True, "payload"),
        (passing_on(passing_on(blocking)), True, "blocking"),
        # It may fill what it wraps.
        (passing_on(with_default), True, "with_default"),
        (giving_the_database(with_database), True, "with_database"),
        (Counted(payload), True, "payload"),
        (plain_wrapper(payload), False, "payload"),
    ],
)
def test_anything_that_can_be_called_may_be_a_handler(
    handler: Any, is_async: bool, name: str
) -> None:
    spec = spec_of(handler)
    assert (spec.shape, spec.payload_type, spec.is_async) == (Shape.PAYLOAD, Order, is_async)
    assert spec.name == f"{__name__}.{name}"
    assert name_and_place(handler).startswith(f"{spec.name} ({__file__}:")


def no_parameter() -> None: ...
def two_parameters(order: Order, other: str) -> None: ...
def only_args(*orders: Order) -> None: ...
def only_kwargs(**orders: Order) -> None: ...
def keyword_only(*, order: Order) -> None: ...
def keyword_optional(*, order: Order = Order(0)) -> None: ...  # noqa: B008
def keyword_too(order: Order, *, database: str, cache: str) -> None: ...
def list_of_messages(messages: list[Message[Order]]) -> None: ...
def sequence_of_messages(messages: Sequence[Message]) -> None: ...  # type: ignore[type-arg]
def text_list(messages: "list[Message[Order]]") -> None: ...
def maybe_message(message: Message[Order] | None) -> None: ...
def batch_of_messages(batch: Batch[Message[Order]]) -> None: ...
def message_of_batch(message: Message[Batch[Order]]) -> None: ...
def record(record: Record) -> None: ...


def yields(order: Order) -> Iterator[Order]:
    yield order


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        (no_parameter, "takes no parameter"),
        (two_parameters, "takes 2 parameters (order, other)"),
        (
            Billing.handle,
            "takes 2 parameters (self, order) (a method is decorated on its instance: ",
        ),
        (only_args, "takes only *args"),
        (only_kwargs, "takes no parameter"),
        (keyword_only, "needs the keyword argument order, which nothing fills"),
        (keyword_optional, "takes keyword arguments only"),
        (keyword_too, "needs the keyword arguments database, cache, which nothing fills"),
        (
            with_default,
            "has the parameter key after order, which nothing fills: its default is all that a call",
        ),
        (
            with_defaults,
            "has the parameters key, dry after order, which nothing fills: their defaults are all",
        ),
        (
            functools.partial(with_defaults, key=b"k"),
            "has the parameter dry after order, which nothing fills",
        ),
        (list_of_messages, "asks for list[Message[Order]], which is never given"),
        (sequence_of_messages, "asks for Sequence[Message], which is never given"),
        (text_list, "asks for list[Message[Order]], which is never given"),
        (maybe_message, "asks for Message[Order] | None, which is never given"),
        (batch_of_messages, "asks for Batch[Message[Order]], which is never given"),
        (message_of_batch, "asks for Message[Batch[Order]], which is never given"),
        (record, "asks for Record, but a Record is what is sent"),
        (Billing, "is a class, not a function"),
        (3, "is of type int"),
        (operator.itemgetter, "is a class, not a function"),
        (dict.update, "has no signature that can be read"),
    ],
)
def test_a_wrong_signature_is_refused_while_it_is_decorated(handler: Any, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        draft_handler(handler)
    assert said in str(raised.value)
    assert "`async def f(message: Message[Order])`" in str(raised.value)


def test_a_refusal_names_the_function_its_file_and_line() -> None:
    with pytest.raises(ConfigError) as raised:
        draft_handler(two_parameters)
    line = two_parameters.__code__.co_firstlineno
    assert raised.value.problems[0].startswith(
        f"handler {__name__}.two_parameters ({__file__}:{line}) takes 2"
    )


@pytest.mark.parametrize("handler", [yields, functools.partial(yields)])
def test_a_plain_generator_is_refused(handler: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        draft_handler(handler)
    assert raised.value.problems[0].endswith(
        "is a plain generator: return one value, or yield values one by one with "
        "`async def f(order: Order): ... yield invoice` and an @app.outgoing"
    )


# -- what yields


async def yields_many(order: Order) -> AsyncIterator[Order]:
    yield order


async def yields_for_a_batch(orders: Batch[Order]) -> AsyncIterator[Record]:
    yield Record(len(orders))


async def text_yields(message: "Message[Order]") -> "AsyncIterator[Record]":
    yield Record(message.payload)


class Splitter:
    async def split(self, order: Order) -> AsyncIterator[Order]:
        yield order

    async def __call__(self, order: Order) -> AsyncIterator[Order]:
        yield order


def handing_on(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*arguments: Any) -> Any:
        return function(*arguments)

    return wrapper


def yielding_on(function: Callable[..., AsyncIterator[Any]]) -> Callable[..., AsyncIterator[Any]]:
    @functools.wraps(function)
    async def wrapper(*arguments: Any) -> AsyncIterator[Any]:
        async for value in function(*arguments):
            yield value

    return wrapper


def collecting(function: Callable[..., AsyncIterator[Any]]) -> Callable[..., Awaitable[list[Any]]]:
    @functools.wraps(function)
    async def wrapper(*arguments: Any) -> list[Any]:
        return [value async for value in function(*arguments)]

    return wrapper


YIELDING = [
    (yields_many, Shape.PAYLOAD),
    (yields_for_a_batch, Shape.BATCH),
    (text_yields, Shape.MESSAGE),
    (Splitter().split, Shape.PAYLOAD),
    (Splitter(), Shape.PAYLOAD),
    (functools.partial(functools.partial(yields_many)), Shape.PAYLOAD),
    (functools.partial(Splitter().split), Shape.PAYLOAD),
    (handing_on(yields_many), Shape.PAYLOAD),
    (yielding_on(yields_for_a_batch), Shape.BATCH),
]


@pytest.mark.parametrize(("handler", "shape"), YIELDING)
def test_an_async_generator_that_sends_yields_on_the_loop(handler: Any, shape: Shape) -> None:
    spec = draft_handler(handler).to_function(sends=True)
    assert (spec.shape, spec.yields, spec.is_async) == (shape, True, True)


@pytest.mark.parametrize(
    "handler", [payload, blocking, passing_on(payload), handing_on(payload), Billing()]
)
def test_what_returns_does_not_yield(handler: Any) -> None:
    assert not draft_handler(handler).to_function(sends=True).yields


def test_a_wrapper_that_collects_what_is_yielded_returns() -> None:
    spec = draft_handler(collecting(yields_many)).to_function()
    assert (spec.yields, spec.is_async) == (False, True)


@pytest.mark.parametrize("handler", [handler for handler, _ in YIELDING])
def test_an_async_generator_that_sends_nothing_is_refused(handler: Any) -> None:
    # @app.outgoing may still come: decorators run from the inside out.
    draft = draft_handler(handler)
    with pytest.raises(ConfigError) as raised:
        draft.to_function()
    assert raised.value.problems == (
        f"handler {name_and_place(handler)} yields, and has no @app.outgoing that would send what it yields: "
        "return instead",
    )


# -- sources


async def ticks() -> AsyncIterator[int]:
    yield 1


async def ticks_of(exchange: str, *, every: float = 1.0) -> AsyncIterator[str]:
    yield exchange


async def ticks_with_defaults(
    exchange: str = "x", *more: str, every: float = 1.0, **rest: str
) -> AsyncIterator[str]:
    yield exchange


class Market:
    async def prices(self) -> AsyncIterator[int]:
        yield 1

    async def __call__(self) -> AsyncIterator[int]:
        yield 1


def giving_the_exchange(
    function: Callable[..., AsyncIterator[Any]],
) -> Callable[[], AsyncIterator[Any]]:
    @functools.wraps(function)
    async def wrapper() -> AsyncIterator[Any]:
        async for value in function("exchange"):
            yield value

    return wrapper


@pytest.mark.parametrize(
    "source",
    [
        ticks,
        ticks_with_defaults,
        Market().prices,
        Market(),
        functools.partial(ticks_of, "x"),
        functools.partial(ticks_of, exchange="x"),
        functools.partial(Market().prices),
        handing_on(ticks),
        yielding_on(ticks),
        giving_the_exchange(ticks_of),
    ],
)
def test_an_async_generator_that_is_called_with_nothing_is_a_source(source: Any) -> None:
    assert why_no_source(source) is None


def plain_ticks() -> Iterator[int]:
    yield 1


async def needs_two(exchange: str, *, every: float) -> AsyncIterator[str]:
    yield exchange


async def returns_one() -> int:
    return 1


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (returns_one, "does not yield"),
        (payload, "does not yield"),
        (collecting(ticks), "does not yield"),
        (no_parameter, "does not yield"),
        (plain_ticks, "is a plain generator"),
        (functools.partial(plain_ticks), "is a plain generator"),
        (yields_many, "needs the argument order"),
        (handing_on(ticks_of), "needs the argument exchange"),
        (needs_two, "needs the arguments exchange, every"),
        (functools.partial(needs_two, "x"), "needs the argument every"),
        (
            Market.prices,
            "needs the argument self (a method is decorated on its instance: `app.outgoing('prices')(market.prices)`)",
        ),
        (Market, "is a class, not a function"),
        (3, "is of type int"),
    ],
)
def test_what_is_no_source_is_told_the_right_form(function: Any, said: str) -> None:
    assert why_no_source(function) == (
        f"{name_and_place(function)} has @app.outgoing and {said}: a function without @app.incoming is a source, "
        "which takes nothing and yields, as in `async def prices(): ... yield price`"
    )


# -- what is returned in vain


class Invoice(Record):
    """A Record of the application's own."""


async def sends_record(order: Order) -> Record: ...  # type: ignore[empty-body]
async def text_record(order: "Order") -> "Record": ...  # type: ignore[empty-body]
async def maybe_record(order: Order) -> Record | None: ...
async def text_optional(order: Order) -> "Optional[Record]": ...  # noqa: UP045
async def list_of_text(order: Order) -> list["Record"]: ...  # type: ignore[empty-body]
async def annotated_record(order: Order) -> Annotated[Record, "sent"]: ...  # type: ignore[empty-body]
async def own_record(order: Order) -> Invoice: ...  # type: ignore[empty-body]
def hands_a_generator_on(order: Order) -> "AsyncIterator[Record]": ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("handler", "returns"),
    [
        (sends_record, "Record"),
        (text_record, "Record"),
        (maybe_record, "Record | None"),
        (text_optional, "Record | None"),
        (list_of_text, "list[Record]"),
        (annotated_record, "Record"),
        (own_record, "Invoice"),
        (hands_a_generator_on, "AsyncIterator[Record]"),
        (functools.partial(text_record), "Record"),
        (passing_on(text_record), "Record"),
    ],
)
def test_a_return_annotation_that_names_record_is_told_of(handler: Any, returns: str) -> None:
    assert draft_handler(handler).dropped() == (
        f"handler {name_and_place(handler)} returns {returns} and has no @app.outgoing: what it returns is dropped"
    )


@pytest.mark.parametrize(
    "handler", [payload, text_payload, anything, blocking, Billing().handle, Counted(payload)]
)
def test_any_other_return_annotation_is_passed_over(handler: Any) -> None:
    assert draft_handler(handler).dropped() is None


def test_a_local_name_in_a_return_annotation_is_found() -> None:
    class Local(Record):
        pass

    async def handler(order: Order) -> "list[Local] | None": ...

    dropped = draft_handler(handler, local_names=locals()).dropped()
    assert dropped is not None
    assert "returns list[Local] | None and" in dropped


async def returns_what_comes_later(order: Order) -> "Receipt": ...  # type: ignore[empty-body]


draft_made_before_the_receipt = draft_handler(returns_what_comes_later)


class Receipt(Record):
    """What is defined after the handler that returns it."""


def test_a_return_annotation_is_read_again_at_start_up() -> None:
    assert "returns Receipt and" in (draft_made_before_the_receipt.dropped() or "")


# -- annotations that cannot be resolved, or only late


async def under_type_checking(amount: "Decimal") -> None: ...
async def half_known(message: "Message[Decimal]") -> None: ...
async def nested_text(amounts: list["Decimal"]) -> None: ...
async def no_attribute(amount: "inspect.Decimal") -> None: ...  # type: ignore[name-defined]
async def no_syntax(amount: "a b") -> None: ...  # type: ignore[valid-type]  # noqa: F722
async def too_many(message: "Message[Order, Order]") -> None: ...  # type: ignore[type-arg]


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        (
            under_type_checking,
            ["'Decimal' at 'amount'", "no 'Decimal' in its module", "TYPE_CHECKING"],
        ),
        (half_known, ["'Message[Decimal]' at 'message'", "no 'Decimal' in its module"]),
        (nested_text, ["'list[Decimal]' at 'amounts'", "no 'Decimal' in its module"]),
        (
            no_attribute,
            ["'inspect.Decimal' at 'amount'", "AttributeError: module 'inspect' has no"],
        ),
        (no_syntax, ["'a b' at 'amount'", "SyntaxError"]),
        (too_many, ["'Message[Order, Order]' at 'message'", "TypeError: Too many"]),
    ],
)
def test_an_annotation_that_cannot_be_resolved_is_refused_at_start_up(
    handler: Any, said: list[str]
) -> None:
    draft = draft_handler(handler)
    with pytest.raises(ConfigError) as raised:
        draft.to_function()
    for words in [*said, handler.__name__, __file__, "cannot be resolved"]:
        assert words in str(raised.value)
    assert raised.value.__cause__ is not None


async def ahead_of_its_class(message: "Message[Later]") -> None: ...


draft_made_before_the_class = draft_handler(ahead_of_its_class)


@dataclass
class Later:
    id: int


def test_a_class_defined_after_the_handler_is_found_at_start_up() -> None:
    assert draft_made_before_the_class.to_function().payload_type is Later


def test_a_class_made_inside_of_a_function_is_found_by_the_names_of_that_function() -> None:
    @dataclass
    class Local:
        id: int

    async def handler(message: "Message[Local]") -> "Local": ...  # type: ignore[empty-body]

    draft = draft_handler(handler, local_names=locals())
    assert draft.to_function().payload_type is Local
    with pytest.raises(ConfigError, match="no 'Local' in its module"):
        spec_of(handler)


def test_a_class_made_inside_of_a_function_is_found_where_the_handler_uses_it() -> None:
    @dataclass
    class Local:
        id: int

    async def handler(order: "Local") -> None:
        assert isinstance(order, Local)

    assert spec_of(handler).payload_type is Local


class Service:
    """A client of a web service: every attribute is another part of a path."""

    def __getattr__(self, name: str) -> "Service":
        return Service()

    def __call__(self, order: Order) -> None: ...


def test_an_object_that_answers_any_name_is_refused_and_not_looked_through_for_ever() -> None:
    with pytest.raises(ConfigError, match=r"Service.__call__ .* has no signature that can be read"):
        spec_of(Service())
