"""Which parameters dependencies fill, and which graphs of them are refused."""

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any

import pytest

from reactive_kafka import Batch, Message
from reactive_kafka.errors import ConfigError
from reactive_kafka.handlers.dependencies.depends import Depends, Need
from reactive_kafka.handlers.dependencies.graph import Dependent, FactoryKind, Graph
from reactive_kafka.handlers.signature import (
    Shape,
    draft_handler,
    name_and_place,
    source_needs,
    why_no_source,
)

HERE = __name__
MESSAGE, BATCH, PAYLOAD = Shape.MESSAGE, Shape.BATCH, Shape.PAYLOAD


def settings() -> str:
    return "settings"


async def pool(settings: Annotated[str, Depends(settings, scope="app")]) -> str:
    return f"pool of {settings}"


Pool = Annotated[str, Depends(pool, scope="app")]


async def session(pool: Pool) -> AsyncIterator[str]:
    yield f"session of {pool}"


def blocking_session(pool: Pool) -> Iterator[str]:
    yield f"session of {pool}"


class Repository:
    def __init__(self, session: Annotated[str, Depends(session)], page: int = 20) -> None:
        self.session = session


async def beside(order: dict[str, Any], pool: Pool) -> None: ...
async def by_name(
    order: dict[str, Any], *, repository: Annotated[Repository, Depends(Repository)]
) -> None: ...
async def as_text(order: "dict[str, Any]", pool: "Pool") -> None: ...
async def with_message(message: Message[bytes], pool: Pool) -> None: ...
async def of_batch(batch: Batch[bytes], pool: Pool) -> None: ...
def blocking(order: bytes, pool: Pool) -> None: ...
async def comes_later(order: bytes, it: "Annotated[str, Depends(defined_below)]") -> None: ...


async def defined_below() -> str:
    return "below"


class Billing:
    async def handle(self, order: bytes, pool: Pool) -> None: ...


def passing_on(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    return wrapper


def needs_of(handler: Any) -> dict[str, Depends]:
    return {need.parameter: need.depends for need in draft_handler(handler).to_function().needs}


@pytest.mark.parametrize(
    ("handler", "filled"),
    [
        (beside, {"pool": Depends(pool, scope="app")}),
        (by_name, {"repository": Depends(Repository)}),
        (as_text, {"pool": Depends(pool, scope="app")}),
        (with_message, {"pool": Depends(pool, scope="app")}),
        (of_batch, {"pool": Depends(pool, scope="app")}),
        (blocking, {"pool": Depends(pool, scope="app")}),
        (comes_later, {"it": Depends(defined_below)}),
        (Billing().handle, {"pool": Depends(pool, scope="app")}),
        (passing_on(beside), {"pool": Depends(pool, scope="app")}),
        (functools.partial(beside, pool="given"), {}),
    ],
)
def test_annotations_say_what_a_handler_is_called_with_besides(
    handler: Any, filled: dict[str, Depends]
) -> None:
    assert needs_of(handler) == filled


def positional_only(order: bytes, pool: Pool, /) -> None: ...
def dependency_first(pool: Pool, order: bytes) -> None: ...
def nothing_else(pool: Pool) -> None: ...
def one_unfilled(order: bytes, pool: Pool, dry: bool = False) -> None: ...
def one_more(order: bytes, pool: Pool, other: str) -> None: ...
def as_default(order: bytes, pool: str = Depends(pool)) -> None: ...  # type: ignore[assignment]
def not_called(order: bytes, pool: Annotated[str, Depends]) -> None: ...
def maybe(order: bytes, pool: Annotated[str, Depends(pool)] | None) -> None: ...
def text_unfilled(order: bytes, other: "Later") -> None: ...


class Later: ...


def wrapped_without_names(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(*args: Any) -> Any:
        return await function(*args)

    return wrapper


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        (positional_only, "cannot be called with a record, and pool by name: "),
        (
            dependency_first,
            "has the dependency pool where the record comes: first the record, then what it needs",
        ),
        (nothing_else, "has the dependency pool where the record comes"),
        (one_unfilled, "has the parameter dry after order, which nothing fills"),
        (one_more, "takes 2 parameters (order, other)"),
        (
            as_default,
            "has Depends(...) as the default of pool: annotate it, as in `pool: Annotated[Pool, Depends(",
        ),
        (not_called, "takes 2 parameters (order, pool)"),
        (maybe, "takes 2 parameters (order, pool)"),
        (text_unfilled, "takes 2 parameters (order, other)"),
        (
            wrapped_without_names(beside),
            "cannot be called with a record, and pool by name: got an unexpected keyword",
        ),
    ],
)
def test_what_nothing_fills_is_an_error_that_shows_how_to_have_it_filled(
    handler: Any, said: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        draft_handler(handler).to_function()
    assert said in str(raised.value)
    assert "a dependency, as in `pool: Annotated[Pool, Depends(make_pool)]`" in str(raised.value)


def test_a_parameter_that_turns_out_to_be_no_dependency_is_refused_when_that_is_known() -> None:
    async def handler(order: bytes, other: "NotYet") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    draft = draft_handler(handler)
    with pytest.raises(
        ConfigError, match=r"has the annotation 'NotYet' at 'other', which cannot be resolved"
    ):
        draft.to_function()
    globals()["NotYet"] = str
    try:
        with pytest.raises(ConfigError, match=r"takes 2 parameters \(order, other\)"):
            draft.to_function()
    finally:
        del globals()["NotYet"]


async def prices(feed: Annotated[str, Depends(session)]) -> AsyncIterator[str]:
    yield feed


def test_a_source_may_have_dependencies() -> None:
    assert why_no_source(prices) is None
    assert source_needs(prices) == (Need("feed", Depends(session)),)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Depends("pool"), "Depends('pool'): expected a function or a class"),  # type: ignore[arg-type]
        (
            lambda: Depends(pool, scope="request"),
            "Depends(scope='request'): allowed are 'call', 'app'",
        ),  # type: ignore[arg-type]
        (lambda: Depends(functools.partial(pool, [])), None),
    ],
)
def test_depends_checks_what_it_is_given(make: Callable[[], Depends], said: str | None) -> None:
    if said is None:
        assert make().scope == "call"
        return
    with pytest.raises(ConfigError) as raised:
        make()
    assert said in str(raised.value)


# -- graphs


def graph(*asked: Depends, shape: Shape | None = Shape.PAYLOAD, overrides: Any = None) -> Graph:
    needs = tuple(Need(f"p{number}", one) for number, one in enumerate(asked))
    return Graph([Dependent("handler", needs, shape)], overrides)


def test_each_is_made_after_those_that_it_needs_and_once() -> None:
    found = graph(Depends(Repository), Depends(session), Depends(pool, scope="app"))
    assert found.problems == []
    assert [step.asked for step in found.of_app] == [settings, pool]
    assert [step.asked for step in found.of_call([Need("it", Depends(Repository))])] == [
        session,
        Repository,
    ]
    assert found.of_call([Need("it", Depends(pool, scope="app"))]) == ()


@asynccontextmanager
async def decorated(pool: Pool) -> AsyncIterator[str]:
    yield pool


@contextmanager
def decorated_too(pool: Pool) -> Iterator[str]:
    yield pool


@pytest.mark.parametrize(
    ("factory", "kind"),
    [
        (settings, FactoryKind.IN_THREAD),
        (lambda: 1, FactoryKind.IN_THREAD),
        (pool, FactoryKind.AWAITED),
        (functools.partial(pool), FactoryKind.AWAITED),
        (session, FactoryKind.ENTERED),
        (blocking_session, FactoryKind.ENTERED_IN_THREAD),
        (decorated, FactoryKind.ENTERED),
        (decorated_too, FactoryKind.ENTERED_IN_THREAD),
        (Repository, FactoryKind.CALLED),
        (dict, FactoryKind.CALLED),
    ],
)
def test_how_a_factory_is_called_depends_on_what_it_is(factory: Any, kind: FactoryKind) -> None:
    found = graph(Depends(factory))
    assert found.problems == []
    assert found.of_call([Need("it", Depends(factory))])[-1].kind is kind


def first(it: "Annotated[str, Depends(second)]") -> str:
    return it


def second(it: "Annotated[str, Depends(third)]") -> str:
    return it


def third(it: "Annotated[str, Depends(second)]") -> str:
    return it


def wide(it: Annotated[str, Depends(session)]) -> str:
    return it


def asks_message(message: Message[Any]) -> str:
    return str(message.offset)


def asks_batch(batch: Annotated[Batch[Any], "all"]) -> int:
    return len(batch)


def unfilled(host: str) -> str:
    return host


def by_place(it: Pool, /) -> str:
    return it


def of_the_unknown(it: "Unknown") -> str:  # type: ignore[name-defined]  # noqa: F821
    return str(it)


def of_the_unknown_with_default(it: "Unknown" = 1) -> str:  # type: ignore[name-defined]  # noqa: F821
    return str(it)


def of_a_default(it: Any = Depends(pool)) -> Any:  # noqa: B008
    return it


@pytest.mark.parametrize(
    ("asked", "shape", "said"),
    [
        (
            first,
            PAYLOAD,
            f"so that none can be made first: {HERE}.second -> {HERE}.third -> {HERE}.second",
        ),
        (
            unfilled,
            PAYLOAD,
            "parameter p0 of handler, has the parameter host, which nothing fills: annotate it",
        ),
        (by_place, PAYLOAD, "has the positional-only parameter it: dependencies are given by name"),
        (
            of_the_unknown,
            PAYLOAD,
            "has the annotation 'Unknown' at 'it', which cannot be resolved: NameError",
        ),
        (of_a_default, PAYLOAD, "has Depends(...) as the default of it: annotate it, as in"),
        (
            asks_message,
            BATCH,
            "takes the message of a call, as message, and handler is called with a batch",
        ),
        (
            asks_batch,
            PAYLOAD,
            "takes the batch of a call, as batch, and handler is called with a message",
        ),
        (asks_message, None, "as message, and handler is called with nothing: it is a source"),
    ],
)
def test_what_cannot_be_made_is_refused_and_named(
    asked: Any, shape: Shape | None, said: str
) -> None:
    problem, *others = graph(Depends(asked), shape=shape).problems
    assert said in problem
    assert others == []


@pytest.mark.parametrize(
    ("asked", "shape"),
    [
        (asks_message, MESSAGE),
        (asks_message, PAYLOAD),
        (asks_batch, BATCH),
        (of_the_unknown_with_default, PAYLOAD),
    ],
)
def test_what_can_be_made_is_not(asked: Any, shape: Shape) -> None:
    assert graph(Depends(asked), shape=shape).problems == []


def test_what_lives_longer_cannot_need_what_ends_earlier() -> None:
    (problem,) = graph(Depends(wide, scope="app")).problems
    assert problem == (
        f"dependency {name_and_place(wide)} has scope 'app', and its parameter it is {HERE}.session with scope 'call', "
        'which ends before it: give that scope="app", too'
    )
    (problem,) = graph(Depends(asks_message, scope="app")).problems
    assert problem.endswith("has scope 'app', and its parameter message is the message of a call")


def test_a_factory_has_one_scope() -> None:
    (problem,) = graph(Depends(pool, scope="app"), Depends(pool)).problems
    assert problem == (
        f"dependency {name_and_place(pool)} has scope 'app' at parameter p0 of handler, and 'call' at parameter p1 of "
        "handler: give it the same one"
    )


def test_an_override_is_called_in_place_of_a_factory_and_brings_its_own_needs() -> None:
    async def fake(settings: Annotated[str, Depends(settings, scope="app")]) -> str:
        return settings

    found = graph(Depends(session), overrides={session: fake})
    assert found.problems == []
    assert [step.factory for step in found.of_app] == [settings]
    (step,) = found.of_call([Need("it", Depends(session))])
    assert (step.asked, step.factory) == (session, fake)
    (problem,) = graph(Depends(session), overrides={session: "fake"}).problems
    assert problem == (
        f"dependency {name_and_place(session)}, parameter p0 of handler, is overridden with 'fake': "
        "expected a function or a class"
    )
