"""The settings for a channel's failures: routes, dead letters and delayed retries, with their clients. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from reactive_kafka.config.checks import CONSUMER_CHECKS, LETTER_CHECKS
from reactive_kafka.config.client_properties import SIDES, Side
from reactive_kafka.config.collect import BROKEN, Setting, Table, values_of
from reactive_kafka.config.incoming_values import RETRY_DELAYS_MS, RETRY_TOPICS, retry_delay_ms
from reactive_kafka.config.layers import Problems
from reactive_kafka.config.rules import Contradictions, View, check
from reactive_kafka.config.tables import DeadLetterSettings, DelayedRetrySettings
from reactive_kafka.config.values import TOPIC, Kind

T = TypeVar("T")
DEAD_LETTERS, DELAYED_RETRY = "dead-letter-queue", "delayed-retry-topic"
_LETTERS, _RETRY, _ROUTES = "dead_letter_queue", "delayed_retry", "failure_routes"
_NOT_INHERITED = ("acks", "enable_idempotence")  # from [kafka]: only its own table says how safe a dead letter is


class FailureAssembly:
    """Makes the failure settings of one channel, and notes what is wrong with them.

    Args:
        name: The channel's.
        client: The properties of the channel's consumer.
        reads: Whether the channel reads a topic.
    """

    def __init__(
        self, name: str, view: View, client: Mapping[str, Any], reads: Callable[[str], bool], problems: Problems
    ) -> None:
        self._name = name
        self._view = view
        self._client = client
        self._reads = reads
        self._problems = problems

    def fields(self) -> dict[str, Any]:
        """Field -> value of the channel's settings."""
        routes = values_of(self._view.inside(_ROUTES))
        named = {self._view["failure_strategy"], *routes.values()}
        is_custom = any(":" in strategy for strategy in named)
        retry = self._delayed_retry() if self._is_used(_RETRY, DELAYED_RETRY in named, is_custom) else None
        writes = DELAYED_RETRY in named or DEAD_LETTERS in {*named, self._view["on_poison"]}
        letters = self._dead_letters(retry) if self._is_used(_LETTERS, writes, is_custom) else None
        return {_ROUTES: routes, _LETTERS: letters, _RETRY: retry}

    def _is_used(self, table: str, is_needed: bool, is_custom: bool) -> bool:
        """True if the table's settings are needed. A table of the channel's own that has no effect is a problem."""
        own = self._view.own_inside(table)
        if is_needed or (is_custom and (own or self._view.inside(table))):
            return True
        deciding = [self._view.setting("failure_strategy"), self._view.setting("on_poison"), *self._routes()]
        broken = any(setting.value is BROKEN for setting in (*own, *deciding) if setting is not None)
        if own and not broken:
            who = f'neither failure_strategy nor a route is "{DELAYED_RETRY}"'
            if table == _LETTERS:
                who = f'neither failure_strategy, nor a route, nor on_poison is "{DEAD_LETTERS}"'
            self._problems.add(own[0].origin, own[0].where, f"has no effect: {who}")
        return False

    def _routes(self) -> list[Setting]:
        return list(self._view.inside(_ROUTES).values())

    def _dead_letters(self, retry: DelayedRetrySettings | None) -> DeadLetterSettings:
        key, default = f"{_LETTERS}.topic", f"dead-letter-topic-{self._name}"
        topic = self._view[key] or self._by_name(TOPIC, default, key, "dead-letter topic's") or ""
        client = self._merged(_LETTERS, "producer")
        has_own_brokers = client["bootstrap_servers"] != self._client["bootstrap_servers"]
        if has_own_brokers and retry is not None:
            self._note(
                f"{_LETTERS}.bootstrap_servers",
                "one producer writes dead letters and delayed retries, and retries must stay on the channel's brokers",
            )
        elif not has_own_brokers and (self._reads(topic) or (retry is not None and topic in retry.topics)):
            self._note(key, f"the channel reads {topic!r}: its dead letters would come back to it")
        self._check_client(_LETTERS, LETTER_CHECKS)
        return DeadLetterSettings(topic=topic, client=client)

    def _delayed_retry(self) -> DelayedRetrySettings:
        key, default = f"{_RETRY}.topics", [f"{self._name}_retry_{delay}" for delay in RETRY_DELAYS_MS]
        topics = self._view[key] or self._by_name(RETRY_TOPICS, default, key, "retry topics'") or ()
        timeout_s = self._view[f"{_RETRY}.timeout"]
        for topic in filter(self._reads, topics):
            self._note(key, f"the channel reads {topic!r}: a retry would come back at once, not later")
        if topics and (delay_ms := retry_delay_ms(topics[0]) or 0) > timeout_s * 1000:
            late = f"the first retry comes after {delay_ms} ms, which is beyond delayed_retry.timeout"
            self._note(key, f"{late}: none could ever happen")
        self._check_client(_RETRY, CONSUMER_CHECKS)
        return DelayedRetrySettings(
            topics=topics,
            max_retries=self._view[f"{_RETRY}.max_retries"] or len(topics),
            timeout_s=timeout_s,
            client=self._merged(_RETRY, "consumer"),
        )

    def _by_name(self, kind: Kind[T], default: object, key: str, whose: str) -> T | None:
        """A default that the channel's name is part of; None, with a problem, if the name cannot be."""
        try:
            return kind.parse(default)
        except ValueError as error:
            self._note(key, f"the channel's name cannot be part of its {whose}: {error}")
            return None

    def _note(self, key: str, reason: str) -> None:
        """Note a problem at *key*, or, if that was not given, at the setting that makes the channel need it."""
        needing = [self._view.setting("failure_strategy"), *self._routes(), self._view.setting("on_poison")]
        needed = (setting for setting in needing if setting and setting.value in (DEAD_LETTERS, DELAYED_RETRY))
        place = self._view.setting(key) or next(needed, None)
        if place is None:  # a strategy of the user's own, with a table
            self._problems.add(self._view.table.origin, f"[{self._view.table.title}]", reason)
        elif place.value is not BROKEN:
            self._problems.add(place.origin, place.where, reason)

    def _inherited(self, side: Side) -> dict[str, Any]:
        """What the consumer shares with a client of that side, over what ``[kafka]`` says for such clients."""
        of_kafka = {
            name: value
            for name, value in values_of(self._view.kafka).items()
            if side in SIDES.get(name, ()) and name not in _NOT_INHERITED
        }
        shared = {name: value for name, value in self._client.items() if side in SIDES.get(name, (side,))}
        return of_kafka | shared

    def _merged(self, table: str, side: Side) -> dict[str, Any]:
        own = values_of(self._view.inside(table)).items()
        return self._inherited(side) | {
            name: value for name, value in own if name in SIDES or name == "bootstrap_servers"
        }

    def _check_client(self, table: str, checks: tuple[Callable[[View], Contradictions], ...]) -> None:
        """Check the client's properties that the table gives itself."""
        # What the table inherits is checked where it was given. Only a rule that looks at one of the table's own
        # properties can find something new, and its other side may well be inherited: acks here, idempotence above.
        own = self._view.inside(table)
        above = self._view.given()
        if table == _LETTERS:
            above = {name: setting for name, setting in above.items() if name not in _NOT_INHERITED}
        view = View(self._view.section, Table(self._view.table.title, self._view.table.origin, own), above)
        check(view, checks, self._problems, among=own)
