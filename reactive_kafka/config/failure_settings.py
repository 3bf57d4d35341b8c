"""The settings for a channel's failures: routes, dead letters and delayed retries, with their
clients. Pure.
"""

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
# From [kafka]: only its own table says how safe a dead letter is.
_NOT_INHERITED = ("acks", "enable_idempotence")


@dataclass(frozen=True, slots=True)
class FailureSettingsBuilder:
    """Makes the failure settings of the channel *name*, and notes what is wrong with them, or
    unused.
    """

    name: str
    view: View
    # The properties of the channel's consumer.
    client: Mapping[str, Any]
    # Whether the channel reads a topic.
    reads: Callable[[str], bool]
    # Of the clients' properties, beside those that are pure.
    checks: Sequence[Callable[[View], Contradictions]]
    problems: Problems
    unused: Problems

    def fields(self) -> dict[str, Any]:
        """Field -> value of the channel's settings."""
        routes = values_of(self.view.inside(_ROUTES))
        named = {self.view["failure_strategy"], *routes.values()}
        is_custom = any(":" in strategy for strategy in named)
        retry = (
            self._delayed_retry()
            if self._is_used(_RETRY, DELAYED_RETRY in named, is_custom)
            else None
        )
        writes = DELAYED_RETRY in named or DEAD_LETTERS in {*named, self.view["on_poison"]}
        letters = self._dead_letters(retry) if self._is_used(_LETTERS, writes, is_custom) else None
        return {
            _ROUTES: routes,
            AFTER_RETRIES: self._after_retries(routes),
            _LETTERS: letters,
            _RETRY: retry,
        }

    def _after_retries(self, routes: Collection[str]) -> frozenset[str]:
        """The exceptions whose routes let retries in place go first."""
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

    def _is_used(self, table: str, is_needed: bool, is_custom: bool) -> bool:
        """True if the table's settings are needed. A table of the channel's own that has no effect
        is told.
        """
        own = self.view.own_inside(table)
        if is_needed or (is_custom and (own or self.view.inside(table))):
            return True
        if own and not any(setting.value is BROKEN for setting in (*own, *self._deciding())):
            who = f'neither failure_strategy nor a route is "{DELAYED_RETRY}"'
            if table == _LETTERS:
                who = f'neither failure_strategy, nor a route, nor on_poison is "{DEAD_LETTERS}"'
            self.unused.add(own[0].origin, own[0].where, f"has no effect: {who}")
        return False

    def _deciding(self) -> list[Setting]:
        """What was given to decide which tables are needed."""
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
        if has_own_brokers and retry is not None:
            why = "one producer writes dead letters and delayed retries, and retries must stay on the channel's brokers"
            self._note(f"{_LETTERS}.bootstrap_servers", why)
        elif not has_own_brokers and (
            self.reads(topic) or (retry is not None and topic in retry.topics)
        ):
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
        if topics and (delay_ms := retry_delay_ms(topics[0]) or 0) > timeout_s * 1000:
            late = (
                f"the first retry comes after {delay_ms} ms, which is beyond delayed_retry.timeout"
            )
            self._note(key, f"{late}: none could ever happen")
        self._check_client(_RETRY, CONSUMER_CHECKS)
        return DelayedRetrySettings(
            topics=topics,
            max_retries=self.view[f"{_RETRY}.max_retries"] or len(topics),
            timeout_s=timeout_s,
            client=self._client_of(_RETRY, "consumer"),
        )

    def _by_name(self, kind: Kind[T], default: object, key: str, whose: str) -> T | None:
        """A default that the channel's name is part of; None, with a problem, if the name cannot
        be.
        """
        try:
            return kind.parse(default)
        except ValueError as error:
            self._note(key, f"the channel's name cannot be part of its {whose}: {error}")
            return None

    def _note(self, key: str, reason: str) -> None:
        """Note a problem at *key*, or, if that was not given, at the setting that makes the channel
        need it.
        """
        needing = (
            setting
            for setting in self._deciding()
            if setting.value in (DEAD_LETTERS, DELAYED_RETRY)
        )
        place = self.view.setting(key) or next(needing, None)
        # A strategy of the user's own, with a table.
        if place is None:
            self.problems.add(self.view.table.origin, f"[{self.view.table.title}]", reason)
        elif place.value is not BROKEN:
            self.problems.add(place.origin, place.where, reason)

    def _client_of(self, table: str, side: Side) -> dict[str, Any]:
        """What the table says, over what the consumer shares with it, over what ``[kafka]`` says
        for such clients.
        """
        above = values_of(self.view.kafka).items()
        of_kafka = {
            name: value
            for name, value in above
            if side in SIDES.get(name, ()) and name not in _NOT_INHERITED
        }
        shared = {
            name: value for name, value in self.client.items() if side in SIDES.get(name, (side,))
        }
        own = values_of(self.view.inside(table)).items()
        return (
            of_kafka
            | shared
            | {name: value for name, value in own if name in SIDES or name == "bootstrap_servers"}
        )

    def _check_client(
        self, table: str, checks: tuple[Callable[[View], Contradictions], ...]
    ) -> None:
        """Check the client's properties that the table gives itself."""
        # What the table inherits is checked where it was given. Only a rule that looks at one of
        # the table's own properties can find something new, and its other side may well be
        # inherited: acks here, idempotence above.
        own = self.view.inside(table)
        above = self.view.given()
        for name in _NOT_INHERITED if table == _LETTERS else ():
            above.pop(name, None)
        given = Table(self.view.table.title, self.view.table.origin, own)
        check(
            View(self.view.section, given, above), (*checks, *self.checks), self.problems, among=own
        )
