"""How decorated functions fit the settings: every contradiction in one report, whatever the order
of decorators.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, make_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reactive_kafka import App, Batch, ConfigError, Message, Record, Router
from reactive_kafka.handlers.signature import HandlerFunction, Shape
from reactive_kafka.planning.channel_plans import IncomingPlan, SourcePlan
from tests.config.values import retry_settings


def app_with(**tables: Any) -> App:
    """An application with the incoming channels orders and clicks, and the outgoing one
    invoices.
    """
    incoming = {name: {"group_id": "g", **tables.get(name, {})} for name in ("orders", "clicks")}
    return App({"incoming": incoming, "outgoing": {"invoices": {}}})


def problems_of(app: App) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        app.configure()
    return caught.value.problems


def fitted(app: App, channel: str = "orders") -> IncomingPlan:
    return app.plan.incoming[channel]


def handler_of(app: App, channel: str = "orders") -> HandlerFunction | None:
    """The handler of a channel that has one at most."""
    handlers = [plan.handler for plan in fitted(app, channel).handlers]
    assert len(handlers) < 2
    return handlers[0] if handlers else None


# -- what goes with what


def test_every_contradiction_is_reported_at_once() -> None:
    app = app_with(orders={"value_deserializer": "int"})

    @app.incoming("oders")
    async def misspelt(order: dict[str, int]) -> None: ...

    @app.incoming("orders")
    async def wrong_type(order: str) -> None: ...

    @app.incoming("orders")
    async def second(order: bytes) -> None: ...

    @app.incoming("clicks", ack="none")
    @app.outgoing("invoises")
    async def unacked(click: bytes) -> bytes:
        return click

    problems = problems_of(app)
    assert len(problems) == 6
    text = "\n".join(problems)
    assert (
        "no [incoming.oders] is configured in code (there are 'clicks', 'orders'); did you mean 'orders'?"
        in text
    )
    assert (
        "no [outgoing.invoises] is configured in code (there are 'invoices'); did you mean 'invoices'?"
        in text
    )
    assert "channel 'orders' has two handlers" in text
    assert "wrong_type" in text
    assert "the deserializer 'int' yields int, but the handler asks for str" in text
    assert "ack = 'none' goes with commit_strategy = 'ignore' only" in text


def test_a_channel_has_one_handler() -> None:
    app = app_with()

    @app.incoming("orders")
    async def first(order: bytes) -> None: ...

    @app.incoming("orders")
    async def second(order: bytes) -> None: ...

    (problem,) = problems_of(app)
    assert "channel 'orders' has two handlers" in problem
    assert "first" in problem
    assert "second" in problem


def test_a_handler_decorated_twice_for_one_channel_has_two_handlers_too() -> None:
    app = app_with()

    @app.incoming("orders")
    @app.incoming("orders")
    async def handler(order: bytes) -> None: ...

    (problem,) = problems_of(app)
    assert "channel 'orders' has two handlers" in problem


def test_one_handler_may_serve_two_channels_each_with_its_own_ways() -> None:
    app = app_with(clicks={"value_deserializer": "json"})

    @app.incoming("orders", ack="manual", retry=3)
    @app.incoming("clicks")
    async def handler(value: Message[dict[str, int]]) -> None: ...

    assert handler_of(app) is handler_of(app, "clicks") or handler_of(app, "clicks") is not None
    assert (fitted(app).settings.ack, fitted(app, "clicks").settings.ack) == ("manual", "post")
    assert fitted(app).settings.retry.max_attempts == 3
    assert fitted(app, "clicks").settings.retry == retry_settings()


def test_a_hook_of_a_channel_that_is_not_configured_is_an_error() -> None:
    app = app_with()
    app.on_assigned("oders")(lambda partitions: None)
    (problem,) = problems_of(app)
    assert "@app.on_assigned('oders') of " in problem
    assert f"({__file__}:" in problem
    assert "did you mean 'orders'?" in problem


def test_the_file_the_hooks_and_the_handlers_are_reported_together(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(
        '[incoming.orders]\ngroup_id = "g"\nconcurency = 2\nack = "none"\n[incoming.clicks]\n'
    )
    app = App(file)

    @app.incoming("oders")
    async def misspelt(order: bytes) -> None: ...

    @app.outgoing("invoices")
    @app.incoming("clicks")
    async def sends(order: bytes) -> bytes:
        return order

    @app.on_revoked("click")
    async def revoked(partitions: Any) -> None: ...

    @app.on_start
    async def starts(app: App) -> None: ...

    app.spark("ordrs")(lambda df, batch: None)
    text = "\n".join(problems := problems_of(app))
    assert len(problems) == 8, text
    assert (
        f"{file}, line 3: [incoming.orders] concurency = 2: unknown key; did you mean 'concurrency'?"
        in text
    )
    assert 'ack = "none" needs' in text
    assert "group_id is missing" in text
    line = misspelt.__code__.co_firstlineno
    assert (
        f"misspelt ({__file__}:{line}): no [incoming.oders] is configured in {file} (there are 'clicks'"
        in text
    )
    assert f"no [outgoing.invoices] is configured in {file} (there are none)" in text
    assert "no [incoming.click] is configured" in text
    assert "did you mean 'clicks'?" in text
    assert "no [incoming.ordrs] is configured" in text
    assert "@app.on_start" in text


class Fussy:
    """A failure strategy that cannot be made."""

    def __init__(self, settings: Any) -> None:
        raise RuntimeError("no rules")


async def asynchronous(settings: Any) -> Any: ...


LOADING = """\
[incoming.orders]
group_id = "g"
ordering = "key"
key = "headr:tenant"
commit_strategy = "nowhere.at_all:Strategy"
failure_strategy = "tests.planning.test_handler_plans:missing"
failure_routes.ValueError = "tests.planning.test_handler_plans:asynchronous"
failure_routes.KeyError = "tests.planning.test_handler_plans:Fussy"
"""


@pytest.mark.parametrize("broken", ["", "[http]\nport = 70000\n"])
def test_what_cannot_be_loaded_is_in_the_files_own_report_with_its_place(
    broken: str, tmp_path: Path
) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(LOADING + broken)
    app = App(file)

    @app.incoming("orders")
    async def batched(batch: Batch[bytes]) -> None: ...

    problems = problems_of(app)
    strategies = "fail, ignore, dead-letter-queue, delayed-retry-topic or module:object"
    for line in (
        f"{file}, line 4: [incoming.orders] key = 'headr:tenant': there is no module 'headr'; "
        "allowed: header:NAME or module:function; did you mean 'header:tenant'?",
        f"{file}, line 5: [incoming.orders] commit_strategy = 'nowhere.at_all:Strategy': there is no module 'nowhere'; "
        "allowed: throttled, latest, ignore, checkpoint or module:object",
        f"{file}, line 6: [incoming.orders] failure_strategy = 'tests.planning.test_handler_plans:missing': "
        f"tests.planning.test_handler_plans has no 'missing'; allowed: {strategies}",
        f"{file}, line 7: [incoming.orders] failure_routes.ValueError = 'tests.planning.test_handler_plans:asynchronous': "
        f"it is async, but its result is needed at once: write a plain function; allowed: {strategies}",
    ):
        assert line in problems
    text = "\n".join(problems)
    assert (
        f"{file}, line 3: [incoming.orders] ordering = 'key': it orders single records, but @app.incoming("
        in text
    )
    assert ("[http] port = 70000" in text) is bool(broken)
    made = "failure_routes.KeyError = 'tests.planning.test_handler_plans:Fussy': called with the settings of channel 'orders'"
    assert (made in text) is not bool(broken), "it is made of settings that are whole"
    assert len(problems) == 6


def test_what_all_channels_name_in_vain_is_told_once() -> None:
    app = App(
        {
            "kafka": {"group_id": "g", "commit_strategy": "nowhere:x"},
            "incoming": {"orders": {}, "clicks": {}},
        }
    )
    (problem,) = problems_of(app)
    assert problem.startswith(
        "code: [kafka] commit_strategy = 'nowhere:x': there is no module 'nowhere'; allowed"
    )


def test_the_key_of_a_channel_without_a_handler_is_looked_at_too() -> None:
    (problem,) = problems_of(app_with(orders={"ordering": "key", "key": "shop:tenant"}))
    assert problem == (
        "code: [incoming.orders] key = 'shop:tenant': there is no module 'shop'; "
        "allowed: header:NAME or module:function"
    )


def test_key_order_is_not_for_spark() -> None:
    app = app_with(orders={"ordering": "key"})
    app.spark("orders")(lambda df, batch: None)
    (problem,) = problems_of(app)
    assert problem.startswith(
        "code: [incoming.orders] ordering = 'key': it orders single records, but @app.spark("
    )
    assert problem.endswith(" takes batches")


def test_a_spark_function_has_no_acks_to_keep() -> None:
    app = app_with(orders={"keep_out_of_order_acks": True})
    app.spark("orders")(lambda df, batch: None)
    (problem,) = problems_of(app)
    assert problem.startswith(
        "code: [incoming.orders] keep_out_of_order_acks = true: @app.spark('orders') of "
    )
    assert problem.endswith("planned ranges, which come again whole: they have no acks to keep")


@dataclass
class Click:
    user: int


def test_a_spark_function_gets_the_columns_of_its_payload() -> None:
    app = app_with(orders={}, clicks={})
    app.spark("orders", payload=Click)(lambda df, batch: None)
    app.spark("clicks", payload=Click | None, corrupt="show")(lambda df, batch: None)
    orders, clicks = (fitted(app, name).spark for name in ("orders", "clicks"))
    assert orders is not None and orders.payload is not None
    assert clicks is not None and clicks.payload is not None
    assert [field.name for field in orders.payload.schema.struct.fields] == ["user"]
    assert not orders.payload.schema.accepts_none
    assert clicks.payload.schema.accepts_none
    assert (orders.payload.show_corrupt, clicks.payload.show_corrupt) == (False, True)


def test_a_payload_without_columns_is_reported_with_all_other_problems() -> None:
    app = app_with(orders={"concurrency": 2})
    app.spark("orders", payload=make_dataclass("Bad", [("key", str), ("one", object)]))(
        lambda df, batch: None
    )
    problems = problems_of(app)
    assert len(problems) == 3
    assert any(
        "@app.spark('orders') of " in one and "field 'one' is of type " in one for one in problems
    )


@pytest.mark.parametrize(
    ("corrupt", "payload", "problem"),
    [("keep", Click, "allowed are 'drop', 'show'"), ("show", None, "give payload = Model, too")],
)
def test_a_wrong_corrupt_is_an_error_at_the_decorator(
    corrupt: str, payload: Any, problem: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        app_with().spark("orders", payload=payload, corrupt=corrupt)
    assert str(refused.value).endswith(problem)
    assert f"@app.spark('orders', corrupt={corrupt!r})" in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"concurrency": 4}, "say max_concurrent_jobs in [incoming.orders.spark]"),
        ({"value_deserializer": "string"}, "gets the bytes in the column value"),
        ({"value_deserializer": "json"}, "gets the bytes in the column value"),
        ({"key_deserializer": "string"}, "gets the bytes in the column key"),
        ({"batch_max_records": 500}, "say batch_max_records in [incoming.orders.spark]"),
        ({"batch_max_wait": "1s"}, "say batch_max_wait in [incoming.orders.spark]"),
    ],
)
def test_what_is_for_handlers_only_is_refused_for_spark(
    settings: dict[str, Any], problem: str
) -> None:
    app = app_with(orders=settings)
    app.spark("orders")(lambda df, batch: None)
    (found,) = problems_of(app)
    (key,) = settings
    assert found.startswith(f"code: [incoming.orders] {key} = ")
    assert problem in found


def test_what_kafka_says_for_all_channels_is_no_contradiction_of_a_spark_channel() -> None:
    defaults = {
        "concurrency": 4,
        "value_deserializer": "string",
        "key_deserializer": "string",
        "batch_max_records": 7,
        "batch_max_wait": "7s",
    }
    app = App(
        {"kafka": defaults, "incoming": {"orders": {"group_id": "g"}, "clicks": {"group_id": "g"}}}
    )
    app.spark("orders")(lambda df, batch: None)
    assert fitted(app, "clicks").settings.concurrency == 4


@pytest.mark.parametrize("named", ["avro", "json-schema", "protobuf", "cloudevents"])
@pytest.mark.parametrize("place", ["kafka", "incoming.orders"])
def test_spark_reads_formats_with_schemas_and_events_wherever_they_are_said(
    place: str, named: str
) -> None:
    says = {"value_deserializer": named}
    own = says if place == "incoming.orders" else {}
    app = App(
        {
            "schema_registry": {"url": "memory://"},
            "kafka": {} if own else says,
            "incoming": {"orders": {"group_id": "g", **own}, "clicks": {"group_id": "g", **own}},
        }
    )
    app.spark("orders", payload=Click)(lambda df, batch: None)
    app.spark("clicks")(lambda df, batch: None)
    if own:
        (problem,) = problems_of(app)
        assert problem.startswith(
            f"code: [incoming.clicks] value_deserializer = '{named}': @app.spark('clicks')"
        )
        assert (
            "with payload = Model the columns of a model (json, cloudevents, avro, json-schema, protobuf)"
            in problem
        )
        return
    orders, clicks = fitted(app, "orders"), fitted(app, "clicks")
    assert orders.spark is not None
    assert orders.spark.payload is not None
    assert orders.spark.payload.texts is not None
    assert orders.spark.payload.texts.format == named
    assert (orders.reading.schemas is None) == (named == "cloudevents")
    # It gets the bytes.
    assert clicks.spark is not None
    assert (clicks.spark.payload, clicks.reading.schemas) == (None, None)


def test_a_readers_schema_that_is_none_is_told_of_a_spark_channel_too(tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text("{")
    app = App(
        {
            "schema_registry": {"url": "memory://"},
            "incoming": {
                "orders": {
                    "group_id": "g",
                    "value_deserializer": "avro",
                    "schema": {"file": str(file)},
                }
            },
        }
    )
    app.spark("orders", payload=Click)(lambda df, batch: None)
    (problem,) = problems_of(app)
    assert problem.startswith("@app.spark('orders') of ")
    assert f"{file} is no Avro schema" in problem


def test_several_consumers_are_fine_for_spark() -> None:
    app = app_with(orders={"consumers": 3})
    app.spark("orders")(lambda df, batch: None)
    assert fitted(app).settings.consumers == 3


def test_what_no_handler_looks_at_is_told(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    batch = 'batch_max_records = 5\nbatch_max_wait = "2s"\n'
    file.write_text(
        f'[kafka]\ngroup_id = "g"\nbatch_max_wait = "3s"\n[incoming.orders]\n{batch}[incoming.batches]\n{batch}'
        '[incoming.clicks]\nspark = { mode = "ranges", batch_max_wait = "1s" }\n[incoming.nobody]\n'
        + batch
        + 'attempt_timeout = "2s"\nstale_results = "drop"\n'
        + "[incoming.usual]\nbatch_max_records = 500\n"
    )
    app = App(file)

    @app.incoming("orders")
    @app.incoming("clicks")
    async def handle(order: bytes) -> None: ...

    @app.incoming("batches")
    async def handle_all(orders: Batch[bytes]) -> None: ...

    assert set(app.plan.warnings) == {
        f"{file}, line 5: [incoming.orders] batch_max_records = 5: has no effect: no Batch handler has this channel",
        f"{file}, line 6: [incoming.orders] batch_max_wait = '2s': has no effect: no Batch handler has this channel",
        f"{file}, line 11: [incoming.clicks] spark.mode = 'ranges': has no effect: no @app.spark has this channel",
        f"{file}, line 13: [incoming.nobody] batch_max_records = 5: has no effect: no Batch handler has this channel",
        f"{file}, line 14: [incoming.nobody] batch_max_wait = '2s': has no effect: no Batch handler has this channel",
        f"{file}, line 15: [incoming.nobody] attempt_timeout = '2s': has no effect: no handler has this channel",
        f"{file}, line 16: [incoming.nobody] stale_results = 'drop': has no effect: no handler of the channel sends anything",
    }


def test_what_is_so_anyway_may_be_said_of_a_spark_channel() -> None:
    app = app_with(
        orders={"value_deserializer": "json"},
        clicks={"value_deserializer": "bytes", "key_deserializer": "bytes"},
    )
    app.spark("orders", payload=Click)(lambda df, batch: None)
    app.spark("clicks")(lambda df, batch: None)
    assert fitted(app).spark is not None


def test_what_contradicts_a_broken_value_is_not_reported_with_it() -> None:
    app = app_with(orders={"commit_strategy": "checkpoints"})

    @app.incoming("orders", ack="none")
    async def handler(order: bytes) -> None: ...

    (problem,) = problems_of(app)
    assert "commit_strategy = 'checkpoints': expected one of" in problem


@pytest.mark.parametrize("by_decorator", [True, False])
def test_a_payload_that_nobody_could_ack_is_an_error(by_decorator: bool) -> None:
    app = app_with(orders={} if by_decorator else {"ack": "manual"})

    @app.incoming("orders", ack="manual" if by_decorator else None)
    async def handler(order: dict[str, int]) -> None: ...

    (problem,) = problems_of(app)
    assert f"handler ({__file__}:{handler.__code__.co_firstlineno})" in problem
    assert (
        "ack = 'manual' needs a parameter that can be acked: take Message[...] or Batch[...]"
        in problem
    )


def test_a_batch_may_be_acked_by_its_handler() -> None:
    app = app_with()

    @app.incoming("orders", ack="manual")
    async def handler(batch: Batch[bytes]) -> None: ...

    assert fitted(app).settings.ack == "manual"


# -- hooks


async def yields_async(*arguments: Any) -> AsyncIterator[None]:
    yield


def yields(*arguments: Any) -> Iterator[None]:
    yield


@pytest.mark.parametrize("function", [yields_async, yields, partial(yields)])
@pytest.mark.parametrize(
    "decorator",
    [
        "on_start",
        "before_stop",
        "readiness('x')",
        "on_assigned('orders')",
        "on_revoked('orders')",
        "on_caught_up('orders')",
    ],
)
def test_a_hook_that_yields_would_never_run(decorator: str, function: Any) -> None:
    app = app_with()
    kind, _, name = decorator.partition("(")
    decorate = getattr(app, kind)
    if name:
        decorate = decorate(name.strip("')"))
    decorate(function)
    (problem,) = problems_of(app)
    assert problem.startswith(f"@app.{decorator} of {__name__}.yields")
    assert problem.endswith(" yields, but it is only called: return instead")


@pytest.mark.parametrize("when", [yields_async, yields])
def test_a_predicate_that_yields_would_be_true_for_every_message(when: Any) -> None:
    with pytest.raises(ConfigError, match="it yields: return True or False"):
        app_with().incoming("orders", when=when)


@pytest.mark.parametrize("kind", ["on_start", "before_stop"])
def test_a_hook_of_the_application_takes_nothing(kind: str) -> None:
    app = app_with()

    async def hook(partitions: Any) -> None: ...

    getattr(app, kind)(hook)
    (problem,) = problems_of(app)
    assert f"@app.{kind} of {hook.__module__}.{hook.__qualname__} ({__file__}:" in problem
    assert "is called without an argument" in problem


@pytest.mark.parametrize(
    ("kind", "hook"),
    [
        ("on_assigned", lambda: None),
        ("on_assigned", lambda partitions, more: None),
        ("on_assigned", lambda partitions, *, more: None),
        ("on_revoked", lambda: None),
        ("on_revoked", lambda partitions, *, more: None),
        ("on_caught_up", lambda: None),
        ("on_caught_up", lambda partitions, more: None),
    ],
)
def test_a_hook_of_partitions_takes_them_alone(kind: str, hook: Callable[..., Any]) -> None:
    app = app_with()
    getattr(app, kind)("orders")(hook)
    (problem,) = problems_of(app)
    assert f"@app.{kind}('orders') of " in problem
    assert f"({__file__}:" in problem
    assert "is called with one argument, the partitions" in problem


def test_hooks_may_have_parameters_with_defaults() -> None:
    app = app_with()
    app.on_start(lambda retries=3: None)
    app.on_assigned("orders")(lambda partitions, number=1: None)
    app.on_revoked("orders")([].append)
    app.configure()


# -- decorators written wrongly


@pytest.mark.parametrize(
    "kind", ["incoming", "outgoing", "spark", "on_assigned", "on_revoked", "on_caught_up"]
)
def test_a_decorator_without_its_channel_is_an_error_that_shows_how_to_write_it(kind: str) -> None:
    async def handler(order: bytes) -> None: ...

    with pytest.raises(ConfigError) as caught:
        getattr(app_with(), kind)(handler)
    (problem,) = caught.value.problems
    assert f"handler ({__file__}:" in problem
    assert f'write @app.{kind}("orders") above it, with the name of a channel' in problem


@pytest.mark.parametrize("made", [App, Router])
@pytest.mark.parametrize(
    ("decorator", "channel", "given", "said"),
    [
        (
            "incoming",
            "orders",
            {"group_id": "x"},
            "group_id=...): that is configuration: write it in [incoming.orders]",
        ),
        (
            "incoming",
            "my.orders",
            {"group_id": "x", "poll_size": 3},
            "group_id=..., poll_size=...): group_id is configuration: write it in [incoming.'my.orders']; unknown "
            "argument poll_size",
        ),
        (
            "incoming",
            "orders",
            {"sasl_plain_password": "hunter2"},
            "that is configuration: write it in",
        ),
        ("incoming", "orders", {"poll_size": 3}, "poll_size=...): unknown argument"),
        (
            "outgoing",
            "invoices",
            {"key_serializer": "string"},
            "that is configuration: write it in [outgoing.invoices]",
        ),
        (
            "spark",
            "orders",
            {"topic": "x"},
            "topic=...): that is configuration: write it in [incoming.orders]",
        ),
    ],
)
def test_what_a_decorator_is_given_and_belongs_in_the_configuration(
    made: type[App | Router], decorator: str, channel: str, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        getattr(made(), decorator)(channel, **given)
    (problem,) = refused.value.problems
    assert problem.startswith(f"@app.{decorator}({channel!r}, ")
    assert said in problem
    assert "hunter2" not in problem


@pytest.mark.parametrize("channel", [7, None, ["orders"]])
@pytest.mark.parametrize(
    "decorator", ["incoming", "outgoing", "spark", "on_assigned", "on_revoked", "on_caught_up"]
)
def test_a_channel_that_is_no_name_is_an_error(decorator: str, channel: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        getattr(app_with(), decorator)(channel)
    assert refused.value.problems == (
        f"@app.{decorator}({channel!r}): expected the name of a channel",
    )


@pytest.mark.parametrize("kind", ["on_start", "before_stop"])
def test_a_hook_decorator_with_an_argument_shows_how_to_write_it(kind: str) -> None:
    with pytest.raises(
        ConfigError, match=f"write @app.{kind} above a function, without parentheses"
    ):
        getattr(app_with(), kind)("orders")


@pytest.mark.parametrize("decorators", [("incoming", "outgoing"), ("outgoing", "incoming")])
def test_decorators_stack_in_any_order(decorators: tuple[str, str]) -> None:
    app = app_with()

    async def handler(order: dict[str, int]) -> str:
        return ""

    for kind in decorators:
        decorate: Callable[[Any], Any] = (
            app.incoming("orders") if kind == "incoming" else app.outgoing("invoices")
        )
        handler = decorate(handler)
    assert fitted(app).outgoing == ("invoices",)
    assert handler_of(app) is not None


def test_a_channel_without_a_handler_is_planned_for_iterating() -> None:
    assert handler_of(app_with()) is None


# -- signatures


def test_a_wrong_signature_is_an_error_where_it_is_decorated() -> None:
    app = app_with()
    with pytest.raises(ConfigError, match="takes 2 parameters"):

        @app.incoming("orders")
        async def handler(order: bytes, extra: int) -> None: ...

    assert handler_of(app) is None, "who has caught it goes on without the function"


def test_a_class_made_in_the_function_that_decorates_is_found() -> None:
    app = app_with()

    @dataclass
    class Order:
        id: int

    @app.incoming("orders")
    async def handler(order: Order) -> None: ...

    spec, decode = handler_of(app), fitted(app).reading.decode
    assert spec is not None
    assert spec.payload_type is Order
    assert decode is not None
    assert decode(b'{"id": 7}') == Order(7)


def test_a_local_class_is_found_through_outer_decorators_too() -> None:
    app = app_with()

    @dataclass
    class Order:
        id: int

    @app.outgoing("invoices")
    @app.incoming("orders")
    @app.incoming("clicks")
    async def handler(message: Message[Order]) -> Order:
        return message.payload

    spec = handler_of(app)
    assert spec is not None
    assert (spec.shape, spec.payload_type) == (Shape.MESSAGE, Order)


async def defined_in_the_module(order: Order) -> None: ...


@dataclass
class Order:
    amount: float


def test_names_of_the_caller_do_not_hide_those_that_the_function_was_written_with() -> None:
    app, module_order = app_with(), Order

    def decorate_elsewhere() -> None:
        # What the annotation must not mean.
        Order = bytes  # noqa: F841
        app.incoming("orders")(defined_in_the_module)

    decorate_elsewhere()
    spec = handler_of(app)
    assert spec is not None
    assert spec.payload_type is module_order


class Billing:
    def __init__(self) -> None:
        self.seen: list[bytes] = []

    async def handle(self, order: bytes) -> bytes:
        self.seen.append(order)
        return order


def test_a_bound_method_keeps_its_decorators_together() -> None:
    app, billing = app_with(), Billing()
    app.incoming("orders")(billing.handle)
    app.outgoing("invoices")(billing.handle)
    assert fitted(app).outgoing == ("invoices",)


def test_the_same_method_of_two_objects_is_two_handlers() -> None:
    app, one, other = app_with(), Billing(), Billing()
    app.incoming("orders")(one.handle)
    app.incoming("clicks")(other.handle)
    app.outgoing("invoices")(other.handle)
    assert fitted(app).outgoing == ()
    assert fitted(app, "clicks").outgoing == ("invoices",)


def test_handlers_that_are_gone_after_decoration_are_not_mixed_up() -> None:
    app = app_with()
    for channel in ("orders", "clicks"):
        billing = Billing()
        app.incoming(channel)(billing.handle)
        del billing
    assert handler_of(app) is not handler_of(app, "clicks")


# -- what is yielded, and what is sent for batches


def test_a_handler_that_sends_may_yield() -> None:
    app = app_with()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def many(order: bytes) -> AsyncIterator[bytes]:
        yield order

    spec = handler_of(app)
    assert spec is not None
    assert (spec.yields, fitted(app).outgoing) == (True, ("invoices",))


def test_a_handler_that_yields_for_nobody_is_an_error() -> None:
    app = app_with()

    @app.incoming("orders")
    async def many(order: bytes) -> AsyncIterator[bytes]:
        yield order

    (problem,) = problems_of(app)
    assert f"many ({__file__}:" in problem
    assert (
        "yields, and has no @app.outgoing that would send what it yields: return instead" in problem
    )


def test_a_batch_handler_may_return_what_is_sent_or_yield_it() -> None:
    app = app_with()

    @app.incoming("orders")
    @app.outgoing("invoices")
    async def returns(batch: Batch[bytes]) -> list[Record]:
        return [Record(message.payload) for message in batch]

    @app.incoming("clicks", ack="manual")
    @app.outgoing("invoices")
    async def yields(batch: Batch[bytes]) -> AsyncIterator[bytes]:
        yield b""

    handlers = [handler_of(app, channel) for channel in ("orders", "clicks")]
    assert [one and (one.shape, one.yields) for one in handlers] == [
        (Shape.BATCH, False),
        (Shape.BATCH, True),
    ]
    assert [fitted(app, channel).outgoing for channel in ("orders", "clicks")] == [
        ("invoices",)
    ] * 2


def test_nobody_could_ack_for_a_handler_that_yields_either() -> None:
    app = app_with()

    @app.incoming("orders", ack="manual")
    @app.outgoing("invoices")
    async def many(order: dict[str, int]) -> AsyncIterator[bytes]:
        yield b""

    (problem,) = problems_of(app)
    assert (
        "ack = 'manual' needs a parameter that can be acked: take Message[...] or Batch[...]"
        in problem
    )


# -- sources


async def generates() -> AsyncIterator[bytes]:
    yield b""


class Market:
    async def prices(self) -> AsyncIterator[int]:
        yield 1


def test_a_function_that_only_sends_is_a_source() -> None:
    app = app_with()
    app.outgoing("invoices")(generates)
    (source,) = app.plan.sources
    assert source == SourcePlan(
        generates, f"{__name__}.generates", ("invoices",), AsyncIterator[bytes]
    )
    assert handler_of(app) is None


def test_a_source_may_send_to_several_channels_and_each_once() -> None:
    app = App({"outgoing": {"invoices": {}, "audit": {}}})

    @app.outgoing("invoices")
    @app.outgoing("audit")
    @app.outgoing("invoices")
    async def source() -> AsyncIterator[bytes]:
        yield b""

    (spec,) = app.plan.sources
    assert spec.outgoing == ("invoices", "audit")


def test_the_same_method_of_two_objects_is_two_sources() -> None:
    app, one, other = app_with(), Market(), Market()
    app.outgoing("invoices")(one.prices)
    app.outgoing("invoices")(other.prices)
    app.outgoing("invoices")(one.prices)
    first, second = app.plan.sources
    assert (first.function, second.function) == (one.prices, other.prices)
    assert first.name == second.name == f"{__name__}.Market.prices"


def test_a_partial_may_be_a_source() -> None:
    app = app_with()

    async def pulled(exchange: str) -> AsyncIterator[str]:
        yield exchange

    app.outgoing("invoices")(partial(pulled, "x"))
    (source,) = app.plan.sources
    assert source.name == f"{__name__}.{pulled.__qualname__}"


async def returns_one() -> bytes:
    return b""


async def forgot_its_incoming(order: bytes) -> AsyncIterator[bytes]:
    yield order


@pytest.mark.parametrize(
    ("function", "said"),
    [(returns_one, "does not yield"), (forgot_its_incoming, "needs the argument order")],
)
def test_a_function_that_only_sends_and_is_no_source_is_an_error(
    function: Callable[..., Any], said: str
) -> None:
    app = app_with()
    app.outgoing("invoices")(function)
    (problem,) = problems_of(app)
    line = function.__code__.co_firstlineno
    assert problem == (
        f"{__name__}.{function.__name__} ({__file__}:{line}) has @app.outgoing and {said}: a function without "
        "@app.incoming is a source, which takes nothing and yields, as in `async def prices(): ... yield price`"
    )


def test_what_is_wrong_with_a_source_is_reported_with_all_other_problems() -> None:
    app = app_with(orders={"concurency": 2})
    app.outgoing("invoises")(generates)
    app.outgoing("invoices")(returns_one)
    problems = problems_of(app)
    assert len(problems) == 3
    assert any(
        "@app.outgoing('invoises') of " in one and "did you mean 'invoices'?" in one
        for one in problems
    )
    assert any("does not yield" in one for one in problems)


def test_a_handler_that_takes_nothing_is_no_source_but_an_error() -> None:
    app = app_with()
    app.outgoing("invoices")(generates)
    with pytest.raises(ConfigError, match="takes no parameter"):
        app.incoming("orders")(generates)


# -- what is allowed, and hardly meant


def test_a_handler_whose_records_nobody_sends_is_told_of_once() -> None:
    app = app_with()

    @app.incoming("orders")
    @app.incoming("clicks")
    async def forgetful(order: bytes) -> Record | None: ...

    assert app.plan.warnings == (
        f"handler {__name__}.{forgetful.__qualname__} ({__file__}:{forgetful.__code__.co_firstlineno}) returns "
        "Record | None and has no @app.outgoing: what it returns is dropped",
    )


@pytest.mark.parametrize("inside_out", [True, False])
def test_a_handler_whose_records_are_sent_is_not_told_of(inside_out: bool) -> None:
    app = app_with()

    async def handler(order: bytes) -> list[Record]:
        return []

    decorators: list[Callable[[Any], Any]] = [app.incoming("orders"), app.outgoing("invoices")]
    for decorate in decorators if inside_out else decorators[::-1]:
        decorate(handler)
    assert app.plan.warnings == ()


def test_channels_that_no_function_names_are_unfed() -> None:
    app = App(
        {
            "incoming": {"orders": {"group_id": "g"}},
            "outgoing": {"invoices": {}, "audit": {}, "ticks": {}, "idle": {}},
        }
    )
    assert list(app.plan.unfed) == ["invoices", "audit", "ticks", "idle"]
    app.outgoing("ticks")(generates)

    @app.outgoing("audit")
    @app.incoming("orders")
    async def handler(order: bytes) -> bytes:
        return order

    assert list(app.plan.unfed) == ["invoices", "idle"]
    assert app.plan.outgoing.keys() == {"invoices", "audit", "ticks", "idle"}


# -- room for batches


def batching(**orders: Any) -> App:
    app = app_with(orders=orders)

    @app.incoming("orders")
    async def handler(batch: Batch[bytes]) -> None: ...

    return app


def test_a_channel_has_room_for_the_batches_of_its_handler() -> None:
    assert fitted(batching(batch_max_records=5000, concurrency=3)).settings.max_in_flight == 30_000
    assert fitted(batching(batch_max_records=10)).settings.max_in_flight == 1000


def test_room_that_was_chosen_stays_as_chosen() -> None:
    assert fitted(batching(batch_max_records=500, max_in_flight=600)).settings.max_in_flight == 600


def test_room_for_one_batch_of_each_worker_is_enough() -> None:
    app = batching(batch_max_records=300, concurrency=2, max_in_flight=600)
    assert fitted(app).settings.max_in_flight == 600


def test_room_that_never_lets_the_batches_of_all_workers_fill_is_an_error() -> None:
    (problem,) = problems_of(batching(batch_max_records=500, concurrency=2, max_in_flight=600))
    assert "max_in_flight = 600 never lets a batch fill; set it to 1000 at least" in problem


# -- what a decorator takes


def test_an_unknown_ack_mode_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match='expected one of "post", "manual", "pre", "none"'):
        app_with().incoming("orders", ack="auto")


@pytest.mark.parametrize("retry", [-1, {"max_attempts": -1}])
def test_a_wrong_retry_is_reported_as_the_decorator_has_it(retry: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        app_with().incoming("my orders", retry=retry)
    (problem,) = caught.value.problems
    expected = "retry.max_attempts = -1: expected a whole number of at least 1"
    assert problem == f"@app.incoming('my orders', retry={retry!r}): {expected}"


@pytest.mark.parametrize("retry", ["often", True, 1.5])
def test_a_retry_that_is_no_number_and_no_table_is_an_error(retry: Any) -> None:
    with pytest.raises(ConfigError, match="a number of calls, or a table"):
        app_with().incoming("orders", retry=retry)


def test_a_retry_table_is_read_as_in_the_configuration() -> None:
    app = app_with()

    @app.incoming("orders", retry={"max_attempts": 4, "backoff": "50ms", "max-backoff": "1s"})
    async def handler(order: bytes) -> None: ...

    assert fitted(app).settings.retry == retry_settings(
        max_attempts=4, backoff_s=0.05, max_backoff_s=1.0
    )
    with pytest.raises(ConfigError, match="did you mean"):
        app.incoming("orders", retry={"max_atempts": 4})


# -- tombstones


@pytest.mark.parametrize(
    ("annotation", "refuses"),
    [
        (bytes, True),
        (Message[bytes], True),
        (bytes | None, False),
        (Message[bytes | None], False),
        (Any, False),
    ],
)
def test_whether_bytes_may_be_missing_is_what_the_annotation_says(
    annotation: Any, refuses: bool
) -> None:
    app = app_with(orders={"value_deserializer": "bytes"})

    async def handler(value: Any) -> None: ...

    handler.__annotations__["value"] = annotation
    app.incoming("orders")(handler)
    assert fitted(app).reading.decode is None
    refusal = (
        "no value (a tombstone), but the handler asks for bytes: annotate bytes | None to get None"
    )
    assert fitted(app).reading.refusal == (refusal if refuses else None)
