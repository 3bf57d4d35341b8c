"""Builds the settings for a channel's failures: routes, dead letters, delayed retries. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from reactive_kafka.config.checks import CONSUMER_CHECKS, LETTER_CHECKS, Contradictions, check
from reactive_kafka.config.client_properties import SIDES, Side
from reactive_kafka.config.collect import BROKEN, Setting, Table, View, values_of
from reactive_kafka.config.incoming_kinds import RETRY_DELAYS_MS, RETRY_TOPICS, retry_delay_ms
from reactive_kafka.config.keys import AFTER_RETRIES
from reactive_kafka.config.kinds import TOPIC, Kind
from reactive_kafka.config.layers import Problems
from reactive_kafka.config.settings import FAILURE
from reactive_kafka.config.tables import DeadLetterSettings, DelayedRetrySettings

T = TypeVar("T")
DEAD_LETTERS = "dead-letter-queue"
DELAYED_RETRY = "delayed-retry-topic"
_LETTERS = "dead_letter_queue"
_RETRY = "delayed_retry"
_ROUTES = "failure_routes"
# Properties that dead letters do not inherit from [kafka]. There they are meant for outgoing
# channels, and acks = 0 would lose dead letters.
_NOT_INHERITED = ("acks", "enable_idempotence")


@dataclass(frozen=True, slots=True)
class FailureSettingsBuilder:
    """Makes the failure settings of the channel *name*.

    Notes what is wrong with them as problems, and what has no effect as unused.
    """

    name: str
    view: View
    # The properties of the channel's consumer.
    client: Mapping[str, Any]
    # Whether the channel reads a topic.
    reads: Callable[[str], bool]
    # Checks of the clients' properties that look at files.
    checks: Sequence[Callable[[View], Contradictions]]
    problems: Problems
    unused: Problems

    def fields(self) -> dict[str, Any]:
        """Return field -> value for the channel's settings."""
        routes = values_of(self.view.inside(_ROUTES))
        strategies = {self.view["failure_strategy"], *routes.values()}
        # A strategy of the user's own, "module:object", may use both tables.
        has_custom = any(":" in strategy for strategy in strategies)
        retries = DELAYED_RETRY in strategies
        # A record whose retries are used up becomes a dead letter.
        writes_letters = retries or DEAD_LETTERS in {*strategies, self.view["on_poison"]}
        retry = None
        if self._is_used(_RETRY, retries, has_custom):
            retry = self._delayed_retry()
        letters = None
        if self._is_used(_LETTERS, writes_letters, has_custom):
            letters = self._dead_letters(retry)
        return {
            _ROUTES: routes,
            AFTER_RETRIES: self._after_retries(routes),
            _LETTERS: letters,
            _RETRY: retry,
        }

    def _after_retries(self, routes: Collection[str]) -> frozenset[str]:
        """Return the exceptions whose routes let in-place retries go first."""
        found = self.view.inside(AFTER_RETRIES)
        for exception, setting in found.items():
            if exception not in self.view.inside(_ROUTES) and setting.value is not BROKEN:
                why = f"the route has no strategy; allowed are {FAILURE.expects}"
                self.problems.add(setting.origin, setting.where, why)
        return frozenset(
            exception
            for exception in routes
            if exception in found and found[exception].value is True
        )

    def _is_used(self, table: str, is_needed: bool, has_custom: bool) -> bool:
        """Return whether the table has an effect; note it if the channel's own table has none."""
        own = self.view.own_inside(table)
        if is_needed or (has_custom and (own or self.view.inside(table))):
            return True
        if own and not any(setting.value is BROKEN for setting in (*own, *self._deciding())):
            why = f'neither failure_strategy nor a route is "{DELAYED_RETRY}"'
            if table == _LETTERS:
                why = f'neither failure_strategy, nor a route, nor on_poison is "{DEAD_LETTERS}"'
            self.unused.add(own[0].origin, own[0].where, f"has no effect: {why}")
        return False

    def _deciding(self) -> list[Setting]:
        """Return the settings that decide which tables are needed."""
        strategy = self.view.setting("failure_strategy")
        poison = self.view.setting("on_poison")
        return [
            setting
            for setting in (strategy, *self.view.inside(_ROUTES).values(), poison)
            if setting is not None
        ]

    def _dead_letters(self, retry: DelayedRetrySettings | None) -> DeadLetterSettings:
        key = f"{_LETTERS}.topic"
        default = f"dead-letter-topic-{self.name}"
        topic = self.view[key] or self._by_name(TOPIC, default, key, "dead-letter topic's") or ""
        client = self._client_of(_LETTERS, "producer")
        has_own_brokers = client["bootstrap_servers"] != self.client["bootstrap_servers"]
        is_read = self.reads(topic) or (retry is not None and topic in retry.topics)
        if has_own_brokers and retry is not None:
            self._note(
                f"{_LETTERS}.bootstrap_servers",
                "leave it out: one producer writes dead letters and delayed retries, and retries "
                "must stay on the channel's brokers",
            )
        elif is_read and not has_own_brokers:
            self._note(key, f"the channel reads {topic!r}: its dead letters would come back to it")
        self._check_client(_LETTERS, LETTER_CHECKS)
        return DeadLetterSettings(topic=topic, client=client)

    def _delayed_retry(self) -> DelayedRetrySettings:
        key = f"{_RETRY}.topics"
        default = [f"{self.name}_retry_{delay}" for delay in RETRY_DELAYS_MS]
        topics = self.view[key] or self._by_name(RETRY_TOPICS, default, key, "retry topics'") or ()
        timeout_s = self.view[f"{_RETRY}.timeout"]
        for topic in filter(self.reads, topics):
            self._note(
                key, f"the channel reads {topic!r}: a retry would come back at once, not later"
            )
        first_delay_ms = (retry_delay_ms(topics[0]) or 0) if topics else 0
        if first_delay_ms > timeout_s * 1000:
            self._note(
                key,
                f"the first retry comes after {first_delay_ms} ms, which is beyond "
                "delayed_retry.timeout: there would be no retry at all",
            )
        self._check_client(_RETRY, CONSUMER_CHECKS)
        return DelayedRetrySettings(
            topics=topics,
            max_retries=self.view[f"{_RETRY}.max_retries"] or len(topics),
            timeout_s=timeout_s,
            client=self._client_of(_RETRY, "consumer"),
        )

    def _by_name(self, kind: Kind[T], default: object, key: str, whose: str) -> T | None:
        """Return a default that contains the channel's name; None, with a problem, if it cannot."""
        try:
            return kind.parse(default)
        except ValueError as error:
            self._note(key, f"the channel's name cannot be part of its {whose}: {error}")
            return None

    def _note(self, key: str, reason: str) -> None:
        """Note a problem at *key*; if that was not given, at the setting that needs it."""
        needing = (
            setting
            for setting in self._deciding()
            if setting.value in (DEAD_LETTERS, DELAYED_RETRY)
        )
        place = self.view.setting(key) or next(needing, None)
        if place is None:
            # A strategy of the user's own, with a table.
            self.problems.add(self.view.table.origin, f"[{self.view.table.title}]", reason)
        elif place.value is not BROKEN:
            self.problems.add(place.origin, place.where, reason)

    def _client_of(self, table: str, side: Side) -> dict[str, Any]:
        """Return the properties of the table's client.

        Those of the table win over those that the channel's consumer shares with it, and these win
        over those of [kafka].
        """
        from_kafka = {
            name: value
            for name, value in values_of(self.view.kafka).items()
            if side in SIDES.get(name, ()) and name not in _NOT_INHERITED
        }
        from_consumer = {
            name: value for name, value in self.client.items() if side in SIDES.get(name, (side,))
        }
        own = {
            name: value
            for name, value in values_of(self.view.inside(table)).items()
            if name in SIDES or name == "bootstrap_servers"
        }
        return from_kafka | from_consumer | own

    def _check_client(
        self, table: str, checks: tuple[Callable[[View], Contradictions], ...]
    ) -> None:
        """Check the client's properties that the table gives itself."""
        # What the table inherits is checked where it was given. So only a contradiction with one of
        # the table's own properties is new. Its other side may be inherited: acks here,
        # enable.idempotence in [kafka].
        own = self.view.inside(table)
        inherited = self.view.given()
        if table == _LETTERS:
            for name in _NOT_INHERITED:
                inherited.pop(name, None)
        view = View(
            section=self.view.section,
            table=Table(self.view.table.title, self.view.table.origin, own),
            kafka=inherited,
        )
        check(view, (*checks, *self.checks), self.problems, among=own)
