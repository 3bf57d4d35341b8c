"""What an incoming channel's failures need: routes, dead letters and delayed retries, with their clients. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reactive_kafka.config.client_checks import CONSUMER_RULES, LETTER_RULES
from reactive_kafka.config.client_properties import SIDES, Side
from reactive_kafka.config.collect import BROKEN, Setting, Table
from reactive_kafka.config.incoming_values import RETRY_DELAYS_MS, RETRY_TOPICS, retry_delay_ms
from reactive_kafka.config.layers import Problems
from reactive_kafka.config.rules import Rule, View, check
from reactive_kafka.config.schema import DeadLetterSettings, DelayedRetrySettings, Reads
from reactive_kafka.config.values import TOPIC

DEAD_LETTERS, DELAYED_RETRY = "dead-letter-queue", "delayed-retry-topic"
_LETTERS, _RETRY, _ROUTES = "dead_letter_queue", "delayed_retry", "failure_routes"
_NOT_INHERITED = ("acks", "enable_idempotence")  # of [kafka]: how safe a dead letter is says its own table only


class FailureAssembly:
    """Makes the failure settings of one channel, and notes what is wrong with them.

    Args:
        name: The channel's.
        client: The properties of the channel's consumer.
    """

    def __init__(self, name: str, view: View, client: Mapping[str, Any], reads: Reads, problems: Problems) -> None:
        self._name = name
        self._view = view
        self._client = client
        self._reads = reads
        self._problems = problems

    def fields(self) -> dict[str, Any]:
        """Field -> value of the channel's settings."""
        routes = {name: setting.value for name, setting in self._view.inside(_ROUTES).items()}
        routes = {name: strategy for name, strategy in routes.items() if strategy is not BROKEN}
        named = {self._view["failure_strategy"], *routes.values()}
        is_custom = any(":" in strategy for strategy in named)
        retry = self._delayed_retry() if self._is_used(_RETRY, DELAYED_RETRY in named, is_custom) else None
        writes = DELAYED_RETRY in named or DEAD_LETTERS in {*named, self._view["on_poison"]}
        letters = self._dead_letters(retry) if self._is_used(_LETTERS, writes, is_custom) else None
        return {_ROUTES: routes, _LETTERS: letters, _RETRY: retry}

    def _is_used(self, table: str, is_needed: bool, is_custom: bool) -> bool:
        """True where the table's settings are needed; one that the channel gives in vain is a problem."""
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
        topic = self._view[f"{_LETTERS}.topic"] or self._default_topic()
        client = self._merged(_LETTERS, "producer")
        has_own_brokers = client["bootstrap_servers"] != self._client["bootstrap_servers"]
        if has_own_brokers and retry is not None:
            reason = (
                "one producer writes dead letters and delayed retries, and those must stay on the channel's brokers"
            )
            self._note(f"{_LETTERS}.bootstrap_servers", reason)
        elif not has_own_brokers and (self._reads.has(topic) or (retry is not None and topic in retry.topics)):
            self._note(f"{_LETTERS}.topic", f"the channel reads {topic!r}: its dead letters would come back to it")
        self._check_client(_LETTERS, LETTER_RULES)
        return DeadLetterSettings(topic=topic, client=client)

    def _default_topic(self) -> str:
        topic = f"dead-letter-topic-{self._name}"
        try:
            return str(TOPIC.parse(topic))
        except ValueError as error:
            self._note(f"{_LETTERS}.topic", f"the channel's name cannot be part of its dead-letter topic's: {error}")
            return ""

    def _delayed_retry(self) -> DelayedRetrySettings:
        topics = self._view[f"{_RETRY}.topics"] or self._default_retry_topics()
        timeout_s = self._view[f"{_RETRY}.timeout"]
        for topic in filter(self._reads.has, topics):
            self._note(f"{_RETRY}.topics", f"the channel reads {topic!r}: a retry would come back at once, not later")
        if topics and (delay_ms := retry_delay_ms(topics[0]) or 0) > timeout_s * 1000:
            reason = (
                f"the first retry comes after {delay_ms} ms, so beyond delayed_retry.timeout none could ever happen"
            )
            self._note(f"{_RETRY}.topics", reason)
        self._check_client(_RETRY, CONSUMER_RULES)
        return DelayedRetrySettings(
            topics=topics,
            max_retries=self._view[f"{_RETRY}.max_retries"] or len(topics),
            timeout_s=timeout_s,
            client=self._merged(_RETRY, "consumer"),
        )

    def _default_retry_topics(self) -> tuple[str, ...]:
        try:
            topics: tuple[str, ...] = RETRY_TOPICS.parse([f"{self._name}_retry_{delay}" for delay in RETRY_DELAYS_MS])
        except ValueError as error:
            self._note(f"{_RETRY}.topics", f"the channel's name cannot be part of its retry topics': {error}")
            return ()
        return topics

    def _note(self, key: str, reason: str) -> None:
        """Note a problem at *key*, or where it was not given at what makes the channel need it."""
        needing = [self._view.setting("failure_strategy"), *self._routes(), self._view.setting("on_poison")]
        needed = (setting for setting in needing if setting and setting.value in (DEAD_LETTERS, DELAYED_RETRY))
        place = self._view.setting(key) or next(needed, None)
        if place is None:  # a strategy of the user's own, with a table
            self._problems.add(self._view.table.origin, f"[{self._view.table.title}]", reason)
        elif place.value is not BROKEN:
            self._problems.add(place.origin, place.where, reason)

    def _inherited(self, side: Side) -> dict[str, Any]:
        """What the channel's consumer shares with a client of that side, over what ``[kafka]`` says of such clients."""
        of_kafka = {
            name: setting.value
            for name, setting in self._view.kafka.items()
            if side in SIDES.get(name, ()) and name not in _NOT_INHERITED and setting.value is not BROKEN
        }
        shared = {name: value for name, value in self._client.items() if side in SIDES.get(name, (side,))}
        return of_kafka | shared

    def _merged(self, table: str, side: Side) -> dict[str, Any]:
        own = {
            name: setting.value
            for name, setting in self._view.inside(table).items()
            if (name in SIDES or name == "bootstrap_servers") and setting.value is not BROKEN
        }
        return self._inherited(side) | own

    def _check_client(self, table: str, rules: tuple[Rule, ...]) -> None:
        """Check the client's properties, where the table says something about them itself."""
        own = self._view.inside(table)
        above = self._view.given()
        if table == _LETTERS:
            above = {name: setting for name, setting in above.items() if name not in _NOT_INHERITED}
        view = View(self._view.section, Table(self._view.table.title, self._view.table.origin, own), above)
        check(view, tuple(rule for rule in rules if any(name in own for name in rule.names)), self._problems)
