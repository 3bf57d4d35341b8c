"""The decorators of applications and routers, and routers themselves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Never, NoReturn, TypeVar

from reactive_kafka.config.keys import INCOMING, OUTGOING, Section
from reactive_kafka.config.schema import AckMode
from reactive_kafka.config.tables import RetrySettings
from reactive_kafka.config.values import did_you_mean
from reactive_kafka.errors import ChannelClosedError, ConfigError
from reactive_kafka.handlers.arguments import (
    channel_name,
    check_given,
    check_is_function,
    incoming_of,
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
    "publisher": 'write @app.outgoing("invoices"), or app.emitter("invoices") to send from anywhere',
    "producer": 'write app.emitter("invoices"), or @app.outgoing("invoices") on a handler',
    "publish": 'write await app.emitter("invoices").send(value)',
    "send": 'write await app.emitter("invoices").send(value)',
    "timer": 'write @app.every("1m")',
    "crontab": 'write @app.cron("0 3 * * *")',
    "on_startup": "write @app.on_start",
    "on_shutdown": "write @app.before_stop",
    "after_startup": "write @app.on_start",
    "include_router": "write app.include(router)",
}
"""What other libraries call it -> what to write here."""


class Decorators:
    """The decorators of applications and routers."""

    def __init__(self, declared: Declared) -> None:
        self._declared = declared
        self._layers = Layers()

    @property
    def declared(self) -> Declared:
        """Where everything stands that it declares: with the application, once that has it."""
        return self._declared.whole

    # For a type checker every name would exist.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            # Only what does not exist comes here, so the usual attributes cost nothing.
            kind = type(self).__name__
            hint = _ELSEWHERE.get(name)
            if hint is None and not name.startswith("_"):
                near = did_you_mean(
                    name, [each for each in dir(type(self)) if not each.startswith("_")]
                )
                hint = None if near is None else f"did you mean app.{near}?"
            raise AttributeError(
                f"{kind!r} object has no attribute {name!r}{'' if hint is None else f': {hint}'}",
                name=name,
                obj=self,
            )

    def _decorating(
        self,
        decorator: str,
        channel: str | None = None,
        section: Section = INCOMING,
        given: Collection[str] = (),
    ) -> Declared:
        """Check that *decorator* can be used, with this channel, and now; where it declares
        something.

        *given* are arguments that it does not have; they may be keys of the channel's *section*.
        """
        of = "" if channel is None else f"({channel_name(decorator, channel)!r})"
        check_given(decorator, channel or "", section, given)
        self.declared.check(f"@app.{decorator}{of}")
        return self.declared

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
            when: Which records the function takes, where the channel has several handlers: a plain
                function of the decoded Message, true for those. The first handler that takes a
                record gets it; one without ``when`` comes last. It is not asked about a record that
                cannot be decoded.
            configured: Nothing: what else there is to say stands in ``[incoming.NAME]``.

        Raises:
            ConfigError: An argument is wrong, or the function's signature is not one of a handler.
            RuntimeError: The application is running.
        """
        declared = self._decorating("incoming", channel, given=configured)
        decoration = incoming_of(channel, ack, retry, when, self._layers)

        def decorate(function: F) -> F:
            entry = declared.functions.entry_of(function)
            entry.read_signature(sys._getframe(1))
            entry.incoming.append(decoration)
            return function

        return decorate

    def outgoing(self, channel: str, **configured: Never) -> Callable[[F], F]:
        """Send what the decorated function returns to an ``[outgoing.NAME]`` channel; None sends
        nothing.
        """
        declared = self._decorating("outgoing", channel, OUTGOING, configured)

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
        from reactive_kafka.spark.batches.function import SparkDecoration, check_spark_function

        declared = self._decorating("spark", channel, given=configured)
        show_corrupt = shows_corrupt(channel, payload, corrupt)

        def decorate(function: F) -> F:
            check_spark_function(function, channel)
            declared.functions.add_spark(channel, SparkDecoration(function, payload, show_corrupt))
            return function

        return decorate

    def middleware(self, function: M) -> M:
        """Put ``async def function(message, call_next)`` around each call of the handlers of this,
        the first outermost.

        It gets the :class:`Message`, also of a handler that takes the payload; of a batch handler
        the :class:`Batch`. ``await call_next(message)`` calls what is inside and returns what the
        handler has returned. What the middleware returns is what the handler is taken to have
        returned, and what it raises is the handler's failure. Attempts in place are calls of their
        own. A router's is inside of those of what includes it, and covers the handlers of the
        router and of the routers that this includes. Functions on Spark have none.

        Raises:
            ConfigError: It is not async, or takes other arguments.
            RuntimeError: The application is running.
        """
        check_middleware("middleware", function, "message")
        self._decorating("middleware")
        self._layers.calls.append(function)
        return function

    def send_middleware(self, function: M) -> M:
        """Put ``async def function(record, call_next)`` around each record that is sent, the first
        outermost.

        It sees what handlers return and yield, and what sources and emitters send, each as a
        :class:`Record` whose ``channel`` is set; no dead letters and no retries. ``await
        call_next(record)`` sends that record, or another one, and returns when whoever sends goes
        on: for ``emitter.send()`` the broker has it then, for what handlers make the channel has
        accepted it. What the middleware raises is the failure of the send. A router's is inside of
        those of what includes it, and covers what handlers and sources of its make: emitters are
        the application's.

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
        """Call the function (no arguments, async or not) when handlers have ended and partitions
        are still ours.

        It may also be decorated while the application runs.
        """
        check_is_function("before_stop", function)
        self.declared.hooks.before_stop.append(function)
        return function

    def on_assigned(self, channel: str) -> Callable[[AssignedHook], AssignedHook]:
        """Call the function with a frozenset of TopicPartition before reading starts in them."""
        return hook_into(self._decorating("on_assigned", channel).hooks.assigned, channel)

    def on_revoked(self, channel: str) -> Callable[[RevokedHook], RevokedHook]:
        """Call the function with a frozenset of TopicPartition while they are still ours, before
        the last commit.

        A function with two parameters is also told whether the partitions are *lost*: the group has
        reassigned them already, or the client is broken, so that nothing can be committed for them.
        """
        return hook_into(self._decorating("on_revoked", channel).hooks.revoked, channel)

    def on_caught_up(self, channel: str) -> Callable[[AssignedHook], AssignedHook]:
        """Call the function with a frozenset of TopicPartition, once an assignment: when all of it
        is caught up.

        Each partition is settled then up to where its log ended at the assignment. No record waits
        for the function.
        """
        return hook_into(self._decorating("on_caught_up", channel).hooks.caught_up, channel)

    def every(self, interval: str | float, *, on: str | None = None) -> Callable[[Hook], Hook]:
        """Call the function (no arguments, async or not) again and again while the application
        runs.

        It never runs twice at once: what is due while it runs is left out. What it raises is told,
        and it goes on.

        Args:
            interval: Between two calls: ``"500ms"``, ``"1m"``, ``"1h"``, or seconds. The first call
                is one interval after the start.
            on: A partition of a channel, ``"orders:0"``, or ``"orders:topic:0"`` where it reads
                several topics: only the member of the group that has it calls, at multiples of the
                    interval since 1970. None: each process.

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
        """Call the function at the times of a cron expression: ``"0 3 * * *"``; everything else as
        with ``every``.

        Args:
            expression: Minute, hour, day of the month, month, day of the week; a sixth field before
                them: second.
            on: As with ``every``.
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
        """What sends values to an outgoing channel from anywhere; the same object each time.

        It may be asked for before the application runs, and used while it does. Readiness watches
        its channel from the start, or from when it is asked for.

        Raises:
            ConfigError: No such channel is configured, if that is known by now; else start-up says
                so.
        """
        name = channel_name("emitter", channel)
        declared = self.declared
        declared.check_emitter(name)
        made = declared.emitters.setdefault(name, [])
        if not made:
            around = lambda: around_send(self._layers.around_emitters())  # noqa: E731
            made.append(Emitter(name, lambda: self.declared.outgoing(name), around))
            with suppress(ChannelClosedError):
                # While the application runs its channel is made now, so readiness tells of it
                # before the first send.
                declared.outgoing(name)
        return made[0]

    def include(self, router: Router) -> None:
        """Take in what a router declares, now and later.

        Raises:
            ConfigError: It is no router, or another application or router has it, or this one.
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
    """Handlers, sources, hooks and emitters in a module of their own, which an application
    includes.

    It has the decorators of an application and needs none yet, so modules of handlers import no
    application.
    """

    def __init__(self) -> None:
        super().__init__(Declared(self, lambda _: None, lambda _: None, _is_alone))


def _is_alone(channel: str) -> NoReturn:
    raise ChannelClosedError(
        f"outgoing channel {channel!r}: no application includes the router of this emitter"
    )
