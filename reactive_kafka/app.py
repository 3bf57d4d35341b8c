"""``App``: what users declare their handlers on, configure, start and stop."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from reactive_kafka.broker.client import Connector
from reactive_kafka.broker.kafka_connector import EMBEDDED, KafkaConnector
from reactive_kafka.channel.channel import Channel
from reactive_kafka.clock import SYSTEM_CLOCK, Clock
from reactive_kafka.config.load import ConfigSource, LoadedConfiguration, read_settings
from reactive_kafka.config.settings import AckMode, HttpSettings, Settings
from reactive_kafka.config.tables import RetrySettings
from reactive_kafka.errors import BrokerError, ChannelClosedError, ConfigError, MissingExtraError
from reactive_kafka.group_offsets import GroupOffsets
from reactive_kafka.handlers.arguments import incoming_of
from reactive_kafka.handlers.declared import Declared
from reactive_kafka.handlers.dependencies.depends import Factory
from reactive_kafka.handlers.router import Decorators
from reactive_kafka.handlers.unknown_channels import unknown_channel_problem
from reactive_kafka.observe.events import ActionTaken, Observer, Observers, SafeCaller, checked
from reactive_kafka.observe.facts import AppFacts, ApplicationIdentity, SparkFacts
from reactive_kafka.observe.health import Health, health
from reactive_kafka.observe.log_setup import (
    LOGGER,
    NOT_CONFIGURED,
    configure_logging,
    is_logging_configured,
)
from reactive_kafka.observe.logs import LogObserver
from reactive_kafka.observe.recent_events import RecentEvents
from reactive_kafka.observe.record_pasts import RecordPasts
from reactive_kafka.outgoing.target import Target
from reactive_kafka.planning.added_channel import plan_added_channel, read_added_channel
from reactive_kafka.planning.application_plan import plan_application
from reactive_kafka.planning.channel_plans import AppPlan
from reactive_kafka.planning.dependency_graph import graph_of
from reactive_kafka.planning.outbox_rules import emitter_problem, outboxes
from reactive_kafka.runtime.application_identity import identity_of
from reactive_kafka.runtime.failed_start import tell_failed_start
from reactive_kafka.runtime.package_checks import check_extras
from reactive_kafka.runtime.run import Run
from reactive_kafka.runtime.run_plan import OpenStore, RunEnding, RunEnvironment, RunPlan
from reactive_kafka.runtime.signals import run_as_process
from reactive_kafka.tasks import HomeLoop, at_home

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from starlette.applications import Starlette

    from reactive_kafka.channel.lifecycle import ChannelLifecycle
    from reactive_kafka.http.handed_connections import HandedConnections
    from reactive_kafka.http.server import HttpServer


class App(Decorators):
    """An application: named channels from a configuration, and the functions decorated for them.

    Attributes:
        dependency_overrides: A factory -> what is called instead of it, from the next start on.

    Args:
        config: A path (TOML, YAML, JSON, a file of Quarkus) or several, of which later ones win
            key by key; nested tables; or None: ``$REACTIVE_KAFKA_CONFIG``, else
            ``./reactive-kafka.toml``. It is read at start-up, not now.
        observer: ``on(event)`` of it is called with each event (:mod:`reactive_kafka.events`), on
            the event loop.
    """

    def __init__(self, config: ConfigSource = None, *, observer: Observer | None = None) -> None:
        super().__init__(
            Declared(self, self._check_decorating, self._check_emitter, self._outgoing)
        )
        self.dependency_overrides: dict[Factory, Factory] = {}
        self._source = config
        self._overrides: Mapping[str, Any] | None = None
        self._log = LogObserver()
        # The past that the page shows.
        self.recent_events = RecentEvents(self._wall_time)
        self._record_pasts = RecordPasts(self._wall_time)
        observers: list[Observer] = [self._log, self.recent_events, self._record_pasts]
        if observer is not None:
            observers.append(checked(observer))
        self._observer: Observer = Observers(observers)
        self._clock: Clock = SYSTEM_CLOCK
        self._module = sys._getframe(1).f_globals.get("__name__", "")
        # When the last run was started (monotonic).
        self._started_at: float | None = None
        self._connector: Connector | None = None
        self._spark_engine: Any = None
        self._stores: OpenStore | None = None
        # Set in a worker of `run --workers`, whose HTTP requests come from its supervisor.
        self._handed_connections: HandedConnections | None = None
        self._settings: Settings | None = None
        # The configuration as it was read, without channels that were added later.
        self._reading: LoadedConfiguration | None = None
        self._plan: AppPlan | None = None
        # Tests change each plan with it.
        self._fit: Callable[[AppPlan], AppPlan] | None = None
        self._run: Run | None = None
        # Why the last run has failed. None: it has not.
        self._ended: str | None = None
        # Action -> outcome -> actions of operators.
        self._actions: dict[str, Counter[str]] = {}

    def _wall_time(self) -> float:
        # A method, because tests give the application another clock.
        return self._clock.wall()

    def observe(self, observer: Observer) -> None:
        """Call ``on(event)`` of another observer with each event, from the next start on.

        Raises:
            ConfigError: The observer has no ``on(event)``.
        """
        self._observer = Observers([self._observer, checked(observer)])

    @property
    def plan(self) -> AppPlan:
        """The plans of its channels; configures the application if that has not happened."""
        if self._plan is None:
            self.configure()
        # For the type checker: configure() has set it.
        assert self._plan is not None  # noqa: S101
        return self._plan

    @property
    def settings(self) -> Settings:
        """The settings; configures the application if that has not happened."""
        return self._settings or self.configure()

    def configure(
        self, source: ConfigSource = None, overrides: Mapping[str, Any] | None = None
    ) -> Settings:
        """Read the configuration and plan all channels, without connecting.

        Args:
            source: Replaces what the App was given.
            overrides: Nested tables over everything else, as from a command line.

        Raises:
            ConfigError: Every problem, in one report.
            MissingExtraError: A channel or a function needs a package that is not installed.
        """
        if source is not None:
            self._source = source
        if overrides is not None:
            self._overrides = overrides
        declared = self.declared
        reading = read_settings(self._source, environ=os.environ, overrides=self._overrides)
        plan = plan_application(reading, declared)
        settings = reading.settings
        for name in declared.emitters:
            _check_emitter(name, settings)
        check_extras(
            plan,
            settings,
            clients=self._connector is None,
            spark=self._spark_engine is None,
            stores=self._stores is None,
        )
        self._reading = reading
        self._settings = settings
        self._plan = plan if self._fit is None else self._fit(plan)
        return settings

    async def start(self) -> None:
        """Configure, serve HTTP, and start the channels; they connect in the background.

        Raises:
            ConfigError: The configuration or a handler is wrong, or the HTTP port is in use.
            MissingExtraError: A package is missing.
            RuntimeError: It is running already.
        """
        await self._start(self._new_run())

    def _new_run(self, *, exit_on_failure: bool = False, until_end: bool = False) -> Run:
        self._check_not_running()
        if self._run is not None:
            self._forget(self._run)
        settings = self.settings
        channels = self.plan
        declared = self.declared
        plan = RunPlan(
            settings=settings,
            channels=channels,
            dependencies=graph_of(channels, self.dependency_overrides),
            hooks=declared.hooks,
            emitters=declared.emitters.keys(),
            logs_warnings=self._fit is None,
        )
        environment = RunEnvironment(
            clock=self._clock,
            observer=self._observer,
            log=self._log,
            connector=self._connector,
            spark=self._spark_engine,
            open_store=self._stores,
            handed_connections=self._handed_connections,
        )
        ending = RunEnding(on_failure=exit_on_failure, when_caught_up=until_end)
        for emitter in chain.from_iterable(declared.emitters.values()):
            emitter.forget()
        make_asgi = partial(self._endpoints, is_mounted=False)
        self._run = Run(plan, environment, ending, make_asgi)
        self._ended = None
        self._started_at = self._clock.monotonic()
        return self._run

    async def _start(self, run: Run) -> None:
        try:
            await run.start()
        except BaseException:
            if self._run is run:
                self._run = None
            raise

    async def stop(self, drain: bool = True) -> None:
        """Stop fetching, let handlers finish, commit, leave the groups and close.

        A second call waits for the end. It may be awaited on any event loop.

        Args:
            drain: False: handlers get no time to finish.
        """
        run = self._run
        if run is None:
            return
        if run.has_ended or run.home.is_here:
            # If it has ended, its event loop may be closed.
            await self._stop(run, drain=drain)
            return

        async def stop() -> ChannelClosedError | None:
            try:
                await self._stop(run, drain=drain)
            except ChannelClosedError as failure:
                return failure
            return None

        failure = None
        # Raised if the loop of the application is closed first: then it has stopped. A failure of
        # the run may have the same type, and must not be lost.
        with suppress(ChannelClosedError):
            failure = await at_home(run.home, stop)
        if failure is not None:
            raise failure

    async def _stop(self, run: Run, *, drain: bool) -> None:
        if not run.has_ended:
            run.ask_to_stop(drain=drain)
        try:
            await run.wait_stopped()
        finally:
            # Another caller may have started the next run meanwhile.
            if run.has_ended and self._run is run:
                self._forget(run)

    def _forget(self, run: Run) -> None:
        """Keep of a run that has ended only why it has failed."""
        self._run = None
        self._ended = run.failure
        if self._settings is not None and self._reading is not None:
            # Channels that were added end with the run.
            self._settings = self._reading.settings

    def _check_not_running(self) -> None:
        # A run may have ended with its event loop, without a call of stop().
        if self._run is not None and not self._run.has_ended:
            raise RuntimeError("the application is running")

    @asynccontextmanager
    async def lifespan(self, _: object = None) -> AsyncIterator[None]:
        """Run as the lifespan of a web application, as in ``FastAPI(lifespan=app.lifespan)``.

        The application runs in the event loop of the web application. It has started before that
        serves, and stops after its last request. Raises as :meth:`start`. Logging is left alone,
        with a warning if it is not configured.
        """
        if not is_logging_configured():
            SafeCaller().call(LOGGER.warning, NOT_CONFIGURED)
        async with self:
            yield

    async def __aenter__(self) -> App:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def run(self, *, exit_on_failure: bool = False, until_end: bool = False) -> None:
        """Run until SIGINT, SIGTERM or SIGHUP, then drain and return.

        A second signal exits at once, with 1. If logging is not configured, it goes to stderr, one
        line per event.

        Args:
            exit_on_failure: Also exit, with 1, when a channel has failed. The others drain first.
            until_end: End when every channel with a handler has handled and committed what was in
                its partitions when they were assigned, delayed retries included. The exit code is
                1 if that cannot be reached: a channel has failed, a topic is missing, the last
                commit was not stored, or a signal came before.

        Raises:
            RuntimeError: An event loop runs in this thread already.
            SystemExit: 2 if the configuration is wrong (the report is printed); 1 if the
                application has failed, or an ``on_start`` hook or a dependency has raised (this is
                printed with the frames of your code); or the code that a handler has asked for.
        """
        if not is_logging_configured():
            configure_logging("text")
        try:
            # Planning reports all problems before anything starts.
            self.plan  # noqa: B018
            if warning := self.declared.warning:
                SafeCaller().call(LOGGER.warning, warning)
            make = partial(self._new_run, exit_on_failure=exit_on_failure, until_end=until_end)
            run_as_process(self.settings, make, start=self._start, stop=self.stop)
        except (ConfigError, MissingExtraError) as error:
            print(error, file=sys.stderr)
            raise SystemExit(2) from None
        except Exception as error:
            if not tell_failed_start(error):
                raise
            raise SystemExit(1) from None

    def channel(self, name: str) -> Channel:
        """Return an incoming channel while the application runs; the same object each time.

        Raises:
            ChannelClosedError: The application is not running, or still in its ``on_start`` hooks.
            ConfigError: No such channel is configured.
        """
        if self._run is None:
            raise ChannelClosedError("the application is not running")
        if not isinstance(name, str):
            raise ConfigError(f"app.channel({name!r}): expected the name of a channel")
        if name not in self.settings.incoming:
            raise ConfigError(
                unknown_channel_problem(f"app.channel({name!r})", "incoming", name, self.settings)
            )
        if self._run.channels is None:
            raise ChannelClosedError(
                f"channel {name!r} is made when all on_start hooks have returned"
            )
        return self._run.channels.faces[name]

    async def add_channel(
        self,
        name: str,
        settings: Mapping[str, Any],
        handler: Callable[..., Any],
        *,
        outgoing: str | Iterable[str] = (),
        ack: AckMode | None = None,
        retry: int | Mapping[str, Any] | RetrySettings | None = None,
    ) -> Channel:
        """Add an incoming channel to the running application, and start it.

        Returns when it has started. It connects in the background, and ends with the application.
        It may be awaited on any event loop.

        Args:
            name: A name that no channel has.
            settings: A table like ``[incoming.NAME]``. ``[kafka]`` has the defaults.
            handler: As for ``@app.incoming``, which need not have decorated it.
            outgoing: Configured channels that its results are sent to, besides those of its
                ``@app.outgoing`` decorators.
            ack: As for ``@app.incoming``.
            retry: As for ``@app.incoming``.

        Raises:
            ConfigError: The name is taken, the settings are wrong, or the handler does not fit
                them. All problems are in one report.
            ChannelClosedError: The application is not running.
            MissingExtraError: The channel needs a package that is not installed.
        """
        run = self._run
        if run is None:
            raise ChannelClosedError(f"add_channel({name!r}): the application is not running")
        add = partial(self._add_channel, run, name, settings, handler, outgoing, ack, retry)
        return await at_home(run.home, add)

    async def _add_channel(
        self,
        run: Run,
        name: str,
        settings: Mapping[str, Any],
        handler: Callable[..., Any],
        outgoing: str | Iterable[str],
        ack: AckMode | None,
        retry: int | Mapping[str, Any] | RetrySettings | None,
    ) -> Channel:
        """As :meth:`add_channel`, on the loop of the application and without a pause."""
        who = f"add_channel({name!r})"
        reading = self._reading
        # For the type checker: a run has read its configuration.
        assert reading is not None  # noqa: S101
        if not isinstance(name, str):
            raise ConfigError(f"{who}: expected the name of a channel, a string, not {name!r}")
        if not isinstance(settings, Mapping):
            raise ConfigError(f"{who}: expected a mapping like [incoming.NAME], not {settings!r}")
        if name in self.settings.incoming or name in self.settings.memory:
            raise ConfigError(f"{who}: there is a channel with this name")
        added = read_added_channel(
            replace(reading, settings=self.settings), who, name, settings, os.environ
        )
        new_settings = added.checked()
        decoration = incoming_of(name, ack, retry, None, self._layers, "add_channel")
        channel_plan, warnings = plan_added_channel(
            who,
            handler,
            decoration,
            (outgoing,) if isinstance(outgoing, str) else tuple(outgoing),
            self.declared.functions,
            new_settings,
        )
        plan = AppPlan({name: channel_plan}, {})
        check_extras(
            plan,
            replace(new_settings, incoming={name: channel_plan.settings}),
            clients=self._connector is None,
            spark=False,
            stores=self._stores is None,
        )
        if self._fit is not None:
            plan = self._fit(plan)
        channel = run.add_channel(plan.incoming[name], [*new_settings.warnings, *warnings])
        self._settings = replace(new_settings, warnings=self.settings.warnings)
        return channel

    def offsets(self, group_id: str) -> GroupOffsets:
        """Return the committed positions and metadata of any consumer group.

        They are asked for with the connection properties of this application. It need not be
        running, nor have a channel of that group.

        Raises:
            BrokerError: The broker is embedded in the application, which is not running.
        """
        connector = self._run.connector if self._run is not None else self._connector
        if connector is None:
            if self.settings.bootstrap_servers == EMBEDDED:
                raise BrokerError(
                    "the embedded broker runs inside the application, which is not running"
                )
            connector = KafkaConnector(self.settings.bootstrap_servers)
        return GroupOffsets(group_id, self.settings, connector)

    def _check_decorating(self, decoration: str) -> None:
        if self._run is not None and not self._run.has_ended:
            raise RuntimeError(
                f"{decoration} while the application is running: decorate before it starts"
            )
        # The plan was made without this declaration.
        self._plan = None

    def _check_emitter(self, name: str) -> None:
        if self._settings is not None:
            _check_emitter(name, self._settings)

    def _outgoing(self, name: str) -> tuple[Target, HomeLoop]:
        run = self._run
        if run is None:
            raise ChannelClosedError("the application is not running")
        if run.channels is None:
            raise ChannelClosedError(
                f"outgoing channel {name!r} is made when all on_start hooks have returned"
            )
        home = run.channels.home
        found = run.channels.outgoing.get(name)
        return found or home.call(partial(run.channels.sending, name), _has_stopped), home

    @contextmanager
    def _staged(
        self,
        *,
        connector: Connector | None,
        clock: Clock,
        observer: Observer,
        fit: Callable[[AppPlan], AppPlan],
        source: ConfigSource = None,
    ) -> Iterator[Mapping[str, Any] | None]:
        """Run on the connector, clock and observer of a test, until the context ends.

        Then everything is as before, and the configuration is read again.

        Args:
            fit: Called with each plan; returns the one that runs. Meanwhile there are no warnings
                about the configuration, because the test has changed it and uses a part of it.

        Yields:
            The application's own overrides.

        Raises:
            RuntimeError: It is running.
        """
        self._check_not_running()
        names = ("_source", "_overrides", "_connector", "_clock", "_observer", "_fit")
        before = {name: getattr(self, name) for name in names}
        self._connector = connector
        self._clock = clock
        self._fit = fit
        self._observer = Observers([self._observer, observer])
        if source is not None:
            self._source = source
        try:
            yield self._overrides
        finally:
            vars(self).update(before)
            self._settings = None
            self._plan = None

    def facts(self) -> AppFacts:
        """Return what is known about the application now."""
        if self._run is None:
            facts = AppFacts(started=False, stopping=False, loop_lag_s=0.0, ended=self._ended)
        else:
            facts = self._run.facts()
        return replace(facts, actions=self._actions) if self._actions else facts

    def _note_action(self, event: ActionTaken) -> None:
        """Count an action of an operator, and report it."""
        self._actions.setdefault(event.action, Counter())[event.outcome] += 1
        self._observer.on(event)

    def identity(self) -> ApplicationIdentity:
        """Return which application this is, for those who look at its page."""
        uptime_s = None
        if self._run is not None and self._started_at is not None:
            uptime_s = self._clock.monotonic() - self._started_at
        name = self._settings.http.service_name if self._settings is not None else None
        return identity_of(self._module, name, uptime_s)

    def spark_facts(self) -> tuple[SparkFacts, ...]:
        """Return the Spark part of :meth:`facts`, at a fraction of the cost."""
        return self._run.spark_facts() if self._run is not None else ()

    def health(self) -> Health:
        """Return the health probes, made from the same facts as the metrics."""
        return health(self.facts())

    @cached_property
    def registry(self) -> CollectorRegistry:
        """The Prometheus registry. It reads the facts when it is scraped."""
        from reactive_kafka.observe.prometheus import registry

        return registry(self.facts)

    @property
    def asgi(self) -> Starlette:
        """The ASGI application with health, metrics and the status page, to mount in your own.

        If ``[http]`` has a token, the page and ``/api`` ask for it, wherever your server listens,
        and ``POST /api/...`` acts on the channels.
        """
        return self._endpoints(is_mounted=True)

    def _endpoints(self, *, is_mounted: bool) -> Starlette:
        from reactive_kafka.control.operator_actions import OperatorActions
        from reactive_kafka.control.record_looks import RecordLooks
        from reactive_kafka.http.asgi import make_asgi
        from reactive_kafka.http.guard import CurrentGuard

        def http_settings() -> HttpSettings | None:
            return None if self._settings is None else self._settings.http

        # It is called at each request: a mounted page may be asked for before the start.
        guard = CurrentGuard(http_settings, is_mounted=is_mounted)
        actions = OperatorActions(self, self._note_action, lambda: self._run)
        records = RecordLooks(self._lifecycles, self._record_pasts, self._monotonic)
        return make_asgi(self, guard, actions, records, self._peers)

    def _peers(self) -> Sequence[str]:
        return () if self._settings is None else self._settings.http.peers or ()

    def _lifecycles(self) -> Mapping[str, ChannelLifecycle]:
        if self._run is None or self._run.channels is None:
            return {}
        return self._run.channels.incoming

    def _monotonic(self) -> float:
        # A method, because tests give the application another clock.
        return self._clock.monotonic()

    @property
    def http(self) -> HttpServer | None:
        """The HTTP server, with its actual port. None: it is off, or nothing runs."""
        return self._run.http if self._run is not None else None


def _has_stopped() -> Target:
    raise ChannelClosedError("the application has stopped")


def _check_emitter(name: str, settings: Settings) -> None:
    if name not in settings.outgoing and name not in settings.memory:
        raise ConfigError(
            unknown_channel_problem(f"app.emitter({name!r})", "outgoing", name, settings)
        )
    if name in outboxes(settings.outgoing):
        raise ConfigError(f"app.emitter({name!r}): {emitter_problem(name)}")
