"""The decorators of applications and routers, and routers themselves."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Never, NoReturn, TypeVar

from reactive_kafka.config.keys import INCOMING, OUTGOING, Section
from reactive_kafka.config.kinds import did_you_mean
from reactive_kafka.config.settings import AckMode
from reactive_kafka.config.tables import RetrySettings
from reactive_kafka.errors import ChannelClosedError, ConfigError
from reactive_kafka.handlers.arguments import (
    channel_name,
    check_given,
    check_is_function,
    incoming_of,
    readiness_name,
    shows_corrupt,
)
from reactive_kafka.handlers.declared import Declared
from reactive_kafka.handlers.declared_hooks import hook_into
from reactive_kafka.handlers.declared_jobs import JobOwner, declared_job, job_owner
from reactive_kafka.handlers.middleware import Layers, Middleware, around_send, check_middleware
from reactive_kafka.handlers.schedules import Schedule, cron, every
from reactive_kafka.outgoing.emitter import Emitter
from reactive_kafka.records import TopicPartition
from reactive_kafka.verdicts.message import Message

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound=Middleware)
Hook = TypeVar("Hook", bound=Callable[[], object])
Check = TypeVar("Check", bound=Callable[[], str | Awaitable[str | None] | None])
AssignedHook = TypeVar("AssignedHook", bound=Callable[[frozenset[TopicPartition]], object])
RevokedHook = TypeVar(
    "RevokedHook",
    bound=Callable[[frozenset[TopicPartition]], object]
    | Callable[[frozenset[TopicPartition], bool], object],
)

_HANDLER = 'write @app.incoming("orders"), and name the topic in [incoming.orders]'
_ELSEWHERE = {
    "subscriber": _HANDLER,
    "subscribe": _HANDLER,
    "agent": _HANDLER,
    "task": f'{_HANDLER}; or @app.every("1m") for a job',
    "consumer": _HANDLER,
    "listener": _HANDLER,
    "topic": _HANDLER,
    "stream": _HANDLER,
    "publisher": (
        'write @app.outgoing("invoices"), or app.emitter("invoices") to send from anywhere'
    ),
    "producer": 'write app.emitter("invoices"), or @app.outgoing("invoices") on a handler',
    "publish": 'write await app.emitter("invoices").send(value)',
    "send": 'write await app.emitter("invoices").send(value)',
    "timer": 'write @app.every("1m")',
    "crontab": 'write @app.cron("0 3 * * *")',
    "health_check": 'write @app.readiness("schemas")',
    "on_startup": "write @app.on_start",
    "on_shutdown": "write @app.before_stop",
    "on_stop": "write @app.before_stop",
    "after_startup": "write @app.on_start",
    "include_router": "write app.include(router)",
}
"""A name that other libraries have -> what to write here."""


class Decorators:
    """The decorators of applications and routers."""

    def __init__(self, declared: Declared) -> None:
        self._declared = declared
        self._layers = Layers()

    @property
    def declared(self) -> Declared:
        """What was declared: the application's, if one includes this router."""
        return self._declared.whole

    # A type checker must not see it: it would take every name for an attribute.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            # Python calls this only for attributes that do not exist.
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            hint = _ELSEWHERE.get(name)
            if hint is None and not name.startswith("_"):
                public = [each for each in dir(type(self)) if not each.startswith("_")]
                near = did_you_mean(name, public)
                hint = None if near is None else f"did you mean app.{near}?"
            if hint is not None:
                text = f"{text}: {hint}"
            raise AttributeError(text, name=name, obj=self)

    def _decorating(self, decorator: str) -> Declared:
        """Check that a decorator can be used now, and return where it notes what it declares.

        Raises:
            RuntimeError: The application is running.
        """
        self.declared.check(f"@app.{decorator}")
        return self.declared

    def _decorating_for(
        self,
        decorator: str,
        channel: str,
        section: Section = INCOMING,
        given: Collection[str] = (),
    ) -> Declared:
        """The same for a decorator that takes the name of a channel.

        Args:
            given: Arguments that the decorator does not have. They may be keys of *section*.

        Raises:
            ConfigError: The channel is no name, or there are such arguments.
            RuntimeError: The application is running.
        """
        name = channel_name(decorator, channel)
        check_given(decorator, name, section, given)
        return self._decorating(f"{decorator}({name!r})")

    def incoming(
        self,
        channel: str,
        *,
        ack: AckMode | None = None,
        retry: int | Mapping[str, Any] | RetrySettings | None = None,
        when: Callable[[Message[Any]], object] | None = None,
        **configured: Never,
    ) -> Callable[[F], F]:
        """Hand the records of a channel to the decorated function.

        Args:
            channel: The name of an ``[incoming.NAME]`` table.
            ack: ``"post"`` (acked when it returns, nacked when it raises), ``"manual"``, ``"pre"``
                or ``"none"``; None: what the channel is configured with, ``"post"`` by default.
            retry: Calls in all, the rest as configured; or a table instead of
                ``[incoming.NAME.retry]``; None: as configured.
            when: Which records the function takes, if the channel has several handlers: a plain
                function of the decoded Message that returns true for them. The first handler that
                takes a record gets it; handlers without ``when`` come last. It is not called for a
                record that cannot be decoded. If its parameter is annotated ``Message[bytes]``, it
                is called before the record is decoded, and the payload is the value's bytes.
            configured: Not allowed. Everything else is configured in ``[incoming.NAME]``.

        Raises:
            ConfigError: An argument is wrong, or the function's signature is not one of a handler.
            RuntimeError: The application is running.
        """
        declared = self._decorating_for("incoming", channel, given=configured)
        decoration = incoming_of(channel, ack, retry, when, self._layers)

        def decorate(function: F) -> F:
            entry = declared.functions.entry_of(function)
            entry.read_signature(sys._getframe(1))
            entry.incoming.append(decoration)
            return function

        return decorate

    def outgoing(self, channel: str, **configured: Never) -> Callable[[F], F]:
        """Send what the decorated function returns to an ``[outgoing.NAME]`` channel.

        None sends nothing.
        """
        declared = self._decorating_for("outgoing", channel, OUTGOING, configured)

        def decorate(function: F) -> F:
            entry = declared.functions.entry_of(function)
            entry.outgoing.append(channel)
            entry.layers = entry.layers or self._layers
            return function

        return decorate

    def spark(
        self,
        channel: str,
        *,
        payload: Any = None,
        corrupt: Literal["drop", "show"] = "drop",
        **configured: Never,
    ) -> Callable[[F], F]:
        """Run the decorated function, ``(df, batch)``, as Spark jobs over batches of a channel.

        Args:
            channel: The name of an ``[incoming.NAME]`` table.
            payload: A dataclass, pydantic model or msgspec Struct: ``df`` gets a column for each of
                its fields, read from JSON by the executors. ``Model | None`` takes records without
                a value, too: their columns are null.
            corrupt: Records that do not fit *payload* are rejected before the function runs and
                meet the channel's failure strategy (``"drop"``), or are passed to the function with
                their text in a column ``_corrupt``, which is null for all others (``"show"``).

        Raises:
            ConfigError: An argument or the function's signature is wrong, or the channel has a
                Spark function already.
        """
        from reactive_kafka.spark.batches.spark_function import (
            SparkDecoration,
            check_spark_function,
        )

        declared = self._decorating_for("spark", channel, given=configured)
        show_corrupt = shows_corrupt(channel, payload, corrupt)

        def decorate(function: F) -> F:
            check_spark_function(function, channel)
            declared.functions.add_spark(channel, SparkDecoration(function, payload, show_corrupt))
            return function

        return decorate

    def middleware(self, function: M) -> M:
        """Put ``async def function(message, call_next)`` around each call of a handler.

        The first middleware is the outermost. It gets the :class:`Message`, even if the handler
        takes the payload, or the :class:`Batch` of a batch handler. ``await call_next(message)``
        calls what is inside and returns what the handler has returned. What the middleware returns
        replaces the handler's result, and what it raises is the handler's failure. It is called for
        each attempt in place. The middleware of a router is inside that of the application, and
        covers the handlers of the router and of the routers that it includes. Functions on Spark
        have no middleware.

        Raises:
            ConfigError: It is not async, or takes other arguments.
            RuntimeError: The application is running.
        """
        check_middleware("middleware", function, "message")
        self._decorating("middleware")
        self._layers.calls.append(function)
        return function

    def send_middleware(self, function: M) -> M:
        """Put ``async def function(record, call_next)`` around each record that is sent.

        The first middleware is the outermost. It gets what handlers return and yield, and what
        sources and emitters send, each as a :class:`Record` with ``channel`` set. Dead letters and
        retries do not pass it. ``await call_next(record)`` sends that record, or another one. For
        ``emitter.send()`` it returns when the broker has the record, for a record of a handler
        when the channel has accepted it. What the middleware raises is the failure of the send. The
        middleware of a router is inside that of the application, and covers what the router's
        handlers and sources send. Emitters belong to the application.

        Raises:
            ConfigError: It is not async, or takes other arguments.
            RuntimeError: The application is running.
        """
        check_middleware("send_middleware", function, "record")
        self._decorating("send_middleware")
        self._layers.sends.append(function)
        return function

    def on_start(self, function: Hook) -> Hook:
        """Call the function (no arguments, async or not) before the channels start."""
        check_is_function("on_start", function)
        self._decorating("on_start").hooks.start.append(function)
        return function

    def before_stop(self, function: Hook) -> Hook:
        """Call the function (no arguments, async or not) before the partitions are released.

        The handlers have ended then. A function may also be decorated while the application runs.
        """
        check_is_function("before_stop", function)
        self.declared.hooks.before_stop.append(function)
        return function

    def on_assigned(self, channel: str) -> Callable[[AssignedHook], AssignedHook]:
        """Call the function with a frozenset of TopicPartition before reading starts in them."""
        return hook_into(self._decorating_for("on_assigned", channel).hooks.assigned, channel)

    def on_revoked(self, channel: str) -> Callable[[RevokedHook], RevokedHook]:
        """Call the function with a frozenset of TopicPartition before they are released.

        They are still ours then, and the last commit comes afterwards. A function with two
        parameters also gets whether the partitions are *lost*: the group has reassigned them
        already, or the client is broken, so nothing can be committed for them.
        """
        return hook_into(self._decorating_for("on_revoked", channel).hooks.revoked, channel)

    def on_caught_up(self, channel: str) -> Callable[[AssignedHook], AssignedHook]:
        """Call the function with a frozenset of TopicPartition when an assignment is caught up.

        Each partition is settled then up to where its log ended at the assignment. The function is
        called once for each assignment, and no record waits for it.
        """
        return hook_into(self._decorating_for("on_caught_up", channel).hooks.caught_up, channel)

    def readiness(self, name: str) -> Callable[[Check], Check]:
        """Add a check to readiness: the function (no arguments, async or not) says if it is ready.

        It returns None, or a reason in one line, which health shows under *name*. What it raises
        is a reason, too. It is called once a second from the start to the stop, also while nobody
        asks, and probes show its last answer: so no probe waits for it. If it takes longer than
        5 s, the reason is "no answer in 5 s"; an async function is cancelled then.

        Args:
            name: The name of the check.

        Raises:
            ConfigError: It is no name, or another check has it.
            RuntimeError: The application is running.
        """
        hooks = self._decorating("readiness").hooks
        checked = readiness_name(name)

        def decorate(function: Check) -> Check:
            hooks.add_readiness(checked, function)
            return function

        return decorate

    def every(self, interval: str | float, *, on: str | None = None) -> Callable[[Hook], Hook]:
        """Call the function (no arguments, async or not) at intervals while the application runs.

        It never runs twice at once: a call that is due while it runs is left out. An exception is
        reported as an event, and the next call follows.

        Args:
            interval: Between two calls: ``"500ms"``, ``"1m"``, ``"1h"``, or seconds. The first call
                is one interval after the start.
            on: A partition of a channel, ``"orders:0"``, or ``"orders:topic:0"`` if the channel
                reads several topics. Only the member of the group that has the partition calls the
                function, at multiples of the interval since 1970. None: each process calls it.

        Raises:
            ConfigError: An argument is wrong, or the function cannot be called without one.
            RuntimeError: The application is running.
        """
        who = f"@app.every({interval!r})"
        owner = job_owner(who, on)
        make = partial(every, who, interval, is_shared=owner is not None)
        return self._clocked("every", who, make, owner)

    def cron(
        self, expression: str, *, on: str | None = None, tz: str = "UTC"
    ) -> Callable[[Hook], Hook]:
        """Call the function at the times of a cron expression, as in ``"0 3 * * *"``.

        Everything else is as for :meth:`every`.

        Args:
            expression: Minute, hour, day of the month, month, day of the week. With six fields the
                first one is the second.
            on: As for :meth:`every`.
            tz: The time zone of the expression: ``"UTC"``, ``"Europe/Berlin"``.

        Raises:
            ConfigError: An argument is wrong, or the function cannot be called without one.
            RuntimeError: The application is running.
            MissingExtraError: cronsim is not installed.
        """
        who = f"@app.cron({expression!r})"
        owner = job_owner(who, on)
        return self._clocked("cron", who, partial(cron, who, expression, tz), owner)

    def _clocked(
        self,
        decorator: str,
        who: str,
        make_schedule: Callable[[], Schedule],
        owner: JobOwner | None,
    ) -> Callable[[Hook], Hook]:
        jobs = self._decorating(decorator).hooks.jobs
        # Called now for its errors: an argument is refused where it is written, not at the start.
        make_schedule()

        def decorate(function: Hook) -> Hook:
            jobs.append(declared_job(who, function, make_schedule, owner))
            return function

        return decorate

    def emitter(self, channel: str) -> Emitter:
        """Return what sends values to an outgoing channel from anywhere; the same object each time.

        You may ask for it before the application runs, and send while it does. Its channel counts
        for readiness from the start, or from the first call of this method.

        Raises:
            ConfigError: No such channel is configured. Before the configuration is read, start-up
                raises it.
        """
        name = channel_name("emitter", channel)
        declared = self.declared
        declared.check_emitter(name)
        made = declared.emitters.setdefault(name, [])
        if not made:
            around = lambda: around_send(self._layers.around_emitters())  # noqa: E731
            made.append(Emitter(name, lambda: self.declared.outgoing(name), around))
            # While the application runs this builds the channel, so that readiness knows of it
            # before the first send.
            with suppress(ChannelClosedError):
                declared.outgoing(name)
        return made[0]

    def include(self, router: Router) -> None:
        """Take over what a router declares, before and after this call.

        Raises:
            ConfigError: It is no router, or it is included already.
            RuntimeError: The application is running.
        """
        declared = self._decorating("include")
        if not isinstance(router, Router):
            raise ConfigError(f"app.include({router!r}): expected a Router")
        theirs = router.declared
        if theirs.owner is not router or theirs is declared:
            raise ConfigError("app.include(router): the router is included already")
        theirs.join(declared)
        router._layers.outer = self._layers


class Router(Decorators):
    """Handlers, sources, hooks and emitters of one module, which an application includes.

    It has the decorators of an application, so a module of handlers need not import the
    application.
    """

    def __init__(self) -> None:
        super().__init__(Declared(self, lambda _: None, lambda _: None, _is_alone))


def _is_alone(channel: str) -> NoReturn:
    raise ChannelClosedError(
        f"outgoing channel {channel!r}: no application includes the router of this emitter"
    )
