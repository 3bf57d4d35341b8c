"""Contradictions: values that are each allowed and together cannot work. Pure.

A rule names what it looks at and runs when all of that was read without a problem, and at least one of it was given.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reactive_kafka.config.collect import BROKEN, Setting, Table
from reactive_kafka.config.keys import KAFKA, Section
from reactive_kafka.config.layers import Problems

SESSION_TIMEOUT_MS = 45_000
HEARTBEAT_INTERVAL_MS = 3_000
REBALANCE_TIMEOUT_MS = 60_000
"""What the seam to Kafka sets where the configuration says nothing."""


@dataclass(frozen=True, slots=True)
class View:
    """A channel as it will run: its own settings, else those of ``[kafka]``, else the defaults."""

    section: Section
    table: Table
    kafka: Mapping[str, Setting]

    def setting(self, name: str) -> Setting | None:
        """What was given for *name*, nearest first."""
        return self.table.settings.get(name) or self.kafka.get(name)

    def own(self, name: str) -> bool:
        """True where the channel's own table says it."""
        return name in self.table.settings

    def value(self, name: str) -> Any:
        """The value in effect; None for a raw property that was not given, and for a broken one without a default."""
        setting = self.setting(name)
        if setting is not None and setting.value is not BROKEN:
            return setting.value
        key = self.section.keys.get(name) or KAFKA.keys.get(name)
        return None if key is None or key.default is None else key.kind.parse(key.default)

    @property
    def is_spark(self) -> bool:
        """True where a ``spark`` table stands in the channel's own."""
        return any(name.partition(".")[0] == "spark" for name in self.table.settings)


@dataclass(frozen=True, slots=True)
class Rule:
    """One contradiction.

    Args:
        names: What it looks at; the problem is reported at the first of them that was given.
        broken: The channel -> what is wrong, or None.
    """

    names: tuple[str, ...]
    broken: Callable[[View], str | None]


def check(view: View, rules: tuple[Rule, ...], problems: Problems) -> None:
    """Note each rule that the channel breaks."""
    for rule in rules:
        given = [setting for name in rule.names if (setting := view.setting(name)) is not None]
        if not given or any(setting.value is BROKEN for setting in given):
            continue
        if reason := rule.broken(view):
            inherited = not any(view.own(name) for name in rule.names)
            for_whom = "" if inherited else f" (channel {view.table.title})"  # else once for all channels
            problems.add(given[0].origin, given[0].where, reason + for_whom)


def _only_ignore_goes_without_acks(view: View) -> str | None:
    if view.value("ack") == "none" and view.value("commit_strategy") != "ignore":
        return 'ack = "none" needs commit_strategy = "ignore"; else nothing would ever be committed'
    return None


def _one_way_to_name_topics(view: View) -> str | None:
    topic, topics = view.table.settings.get("topic"), view.table.settings.get("topics")
    if topic and topics and topic.layer == topics.layer:
        return "topic and topics exclude each other; keep one"
    return None


def _backoff_within_its_limit(view: View) -> str | None:
    if view.value("retry.backoff") > view.value("retry.max_backoff"):
        return "retry.backoff is longer than retry.max_backoff"
    return None


def _window_holds_a_batch(view: View) -> str | None:
    is_given = view.own("batch_max_records") and view.setting("max_in_flight")
    if is_given and view.value("max_in_flight") < view.value("batch_max_records"):
        return "max_in_flight is below batch_max_records, so no batch could ever fill"
    return None


def _window_holds_a_spark_batch(view: View) -> str | None:
    is_given = view.is_spark and view.setting("max_in_flight")
    if is_given and view.value("max_in_flight") < view.value("spark.batch_max_records"):
        most = view.value("spark.batch_max_records")
        return f"max_in_flight is below spark.batch_max_records ({most}), so no batch could ever fill"
    return None


def _window_feeds_all_workers(view: View) -> str | None:
    if view.value("concurrency") > view.value("max_in_flight"):
        return f"concurrency is above max_in_flight ({view.value('max_in_flight')}), so it could never be reached"
    return None


def _heartbeats_within_the_session(view: View) -> str | None:
    session = view.value("session_timeout_ms") or SESSION_TIMEOUT_MS
    heartbeat = view.value("heartbeat_interval_ms") or HEARTBEAT_INTERVAL_MS
    if heartbeat >= session:
        return f"heartbeats each {heartbeat} ms cannot hold a session of {session} ms; a third of it is usual"
    return None


def _grace_within_the_rebalance(view: View) -> str | None:
    limit = view.value("rebalance_timeout_ms") or REBALANCE_TIMEOUT_MS
    if view.value("revoke_grace") * 1000 >= limit:
        return f"the group waits {limit} ms for a revocation; raise rebalance.timeout.ms above revoke_grace"
    return None


def _idempotence_needs_all_acks(view: View) -> str | None:
    if view.value("enable_idempotence") and view.value("acks") in (0, 1):
        return 'enable.idempotence needs acks = "all"'
    return None


def _plain_needs_tls(view: View) -> str | None:
    if view.value("security_protocol") != "SASL_PLAINTEXT" or (view.value("sasl_mechanism") or "PLAIN") != "PLAIN":
        return None
    if view.value("allow_insecure_sasl") or _is_loopback(view.value("bootstrap_servers")):
        return None
    return (
        "SASL PLAIN without TLS sends the password as it is: use SASL_SSL, or a SCRAM mechanism, "
        "or set allow_insecure_sasl = true in [kafka]"
    )


def _is_loopback(servers: str) -> bool:
    hosts = [re.sub(r":\d+$", "", server) for server in servers.split(",")]
    return all(host in ("embedded", "localhost") or _is_loopback_address(host.strip("[]")) for host in hosts)


def _is_loopback_address(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _sasl_has_credentials(view: View) -> str | None:
    if not str(view.value("security_protocol")).startswith("SASL_"):
        return None
    mechanism = view.value("sasl_mechanism") or "PLAIN"
    if mechanism == "OAUTHBEARER" and view.value("sasl_oauth_token_provider") is None:
        return "OAUTHBEARER needs sasl_oauth_token_provider, an object given in code"
    is_password = mechanism == "PLAIN" or mechanism.startswith("SCRAM-")
    missing = [name for name in ("sasl_plain_username", "sasl_plain_password") if view.value(name) is None]
    return f"{mechanism} needs {' and '.join(missing)}" if is_password and missing else None


_SASL_NAMES = ("sasl_mechanism", "sasl_plain_username", "sasl_plain_password", "sasl_oauth_token_provider")
_TLS_NAMES = (
    "ssl_cafile",
    "ssl_capath",
    "ssl_cadata",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_password",
    "ssl_check_hostname",
)


def _credentials_are_used(view: View) -> str | None:
    if view.setting("security_protocol") is None:
        return "has no effect while security.protocol is PLAINTEXT; set it to SASL_SSL"
    return None


def _tls_is_used(view: View) -> str | None:
    if view.setting("security_protocol") is None:
        return "has no effect while security.protocol is PLAINTEXT; set it to SSL or SASL_SSL"
    return None


def _one_tls_context(view: View) -> str | None:
    extra = [name for name in _TLS_NAMES if view.setting(name) is not None]
    if view.setting("ssl_context") is not None and extra:
        return f"ssl_context says it all; leave out {', '.join(extra)}"
    return None


def _key_has_a_certificate(view: View) -> str | None:
    if view.setting("ssl_keyfile") is not None and view.setting("ssl_certfile") is None:
        return "a key needs its certificate: set ssl.keystore.location"
    return None


_CLIENT_RULES = (
    Rule(
        ("security_protocol", "sasl_mechanism", "bootstrap_servers", "allow_insecure_sasl"),
        _plain_needs_tls,
    ),
    Rule(("security_protocol", *_SASL_NAMES), _sasl_has_credentials),
    Rule((*_SASL_NAMES, "security_protocol"), _credentials_are_used),
    Rule((*_TLS_NAMES, "security_protocol"), _tls_is_used),
    Rule(("ssl_context", *_TLS_NAMES), _one_tls_context),
    Rule(("ssl_keyfile", "ssl_certfile"), _key_has_a_certificate),
)
INCOMING_RULES = (
    Rule(("ack", "commit_strategy"), _only_ignore_goes_without_acks),
    Rule(("topics", "topic"), _one_way_to_name_topics),
    Rule(("retry.backoff", "retry.max_backoff"), _backoff_within_its_limit),
    Rule(("max_in_flight", "batch_max_records"), _window_holds_a_batch),
    Rule(("max_in_flight", "spark.batch_max_records"), _window_holds_a_spark_batch),
    Rule(("concurrency", "max_in_flight"), _window_feeds_all_workers),
    Rule(("heartbeat_interval_ms", "session_timeout_ms"), _heartbeats_within_the_session),
    Rule(("revoke_grace", "rebalance_timeout_ms"), _grace_within_the_rebalance),
    *_CLIENT_RULES,
)
OUTGOING_RULES = (Rule(("acks", "enable_idempotence"), _idempotence_needs_all_acks), *_CLIENT_RULES)
