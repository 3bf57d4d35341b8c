"""Finds values that are allowed one by one, and cannot work together. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from reactive_kafka.config.client_properties import AUTO_COMMIT_INTERVAL
from reactive_kafka.config.collect import BROKEN, View
from reactive_kafka.config.incoming_kinds import STORE, ranges_of
from reactive_kafka.config.keys import CHANNEL_SECTIONS, INCOMING, Section
from reactive_kafka.config.layers import Problems
from reactive_kafka.formats.format_names import EVENTS, REGISTERED_FORMATS

Contradictions = Iterator[tuple[Sequence[str], str]]
"""The keys that contradict each other, and what is wrong.

The contradiction is reported at the first of the keys that was given.
"""

COMMITS = ("commit_strategy", "enable_auto_commit")
# Key -> a value with which positions are stored that lie in a hole between two ranges.
_STORES_BEYOND_HOLES = (
    ("commit_strategy", "latest"),
    ("commit_strategy", "checkpoint"),
    ("keep_out_of_order_acks", True),
    ("spark.mode", "ranges"),
)
_GROUP_MS = {
    "session_timeout_ms": 45_000,
    "rebalance_timeout_ms": 60_000,
}
"""The defaults of the Kafka client in ``broker/``."""
LONGEST_BEAT_S = 2.0
"""The longest time between two heartbeats of a member without a ``heartbeat_interval_ms``.

It is ``ALL_OWNED_BEAT_S`` of ``broker/``.
"""
LAST_COMMIT_S = 5.0
"""How long the last commit of an assignment is tried."""
COPIED_S = 5.0
"""How long the second commit to Kafka may take after that.

``enable_auto_commit`` makes one, and so does a checkpoint store.
"""
SASL = ("sasl_mechanism", "sasl_plain_username", "sasl_plain_password", "sasl_oauth_token_provider")
TLS = (
    "ssl_cafile",
    "ssl_capath",
    "ssl_cadata",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_password",
    "ssl_check_hostname",
)


@dataclass(frozen=True, slots=True)
class GroupTimes:
    """The times that a member agrees on with its group, in seconds."""

    # A member learns of a rebalance with its next heartbeat.
    heartbeat_s: float
    session_s: float
    # How long the group waits for a member to join again before it continues without it.
    rebalance_s: float

    @classmethod
    def of(cls, configured: Callable[[str], object]) -> GroupTimes:
        """Return the times; *configured* returns the value of a property, or None."""

        def seconds(name: str) -> float:
            return float(str(configured(name) or _GROUP_MS[name])) / 1000

        session_s = seconds("session_timeout_ms")
        heartbeat_s = min(LONGEST_BEAT_S, session_s / 3)
        if configured("heartbeat_interval_ms"):
            heartbeat_s = seconds("heartbeat_interval_ms")
        return cls(
            heartbeat_s=heartbeat_s,
            session_s=session_s,
            rebalance_s=seconds("rebalance_timeout_ms"),
        )

    @property
    def join_s(self) -> float:
        """The part of the rebalance timeout that is reserved for the request to join."""
        return min(1.0, self.rebalance_s / 10)


def check(
    view: View,
    checks: Iterable[Callable[[View], Contradictions]],
    problems: Problems,
    among: Container[str] | None = None,
) -> None:
    """Note each contradiction that the *checks* find between values that were given.

    Args:
        view: The values in effect.
        checks: What to look for.
        problems: Where to note what was found.
        among: Note only contradictions of at least one of these keys.
    """
    for names, reason in chain.from_iterable(find_in(view) for find_in in checks):
        given = [setting for setting in map(view.setting, names) if setting is not None]
        # A broken value has been reported already, and its effect is unknown.
        if not given or any(setting.value is BROKEN for setting in given):
            continue
        if among is not None and not any(name in among for name in names):
            continue
        is_own = view.section in CHANNEL_SECTIONS.values() and any(view.own(name) for name in names)
        # Without a channel's name, a mistake in [kafka] is reported once for all channels.
        channel = f" (channel {view.table.title})" if is_own and view.table.title else ""
        problems.add(given[0].origin, given[0].where, reason + channel)


def missing_group(view: View, *, has_retries: bool) -> str | None:
    """Return why a channel needs a group; None if it does not."""
    if "assign" not in view.sources:
        return "give the channel one, or all channels one in [kafka]"
    stores_nothing_in_group = view.commit_strategy in ("ignore", "checkpoint")
    other = view.group_not_inherited
    if other is not None and (not stores_nothing_in_group or has_retries):
        return (
            "write it next to the ranges in assign: they do not inherit "
            f"{other.where} ({other.origin})"
        )
    if not stores_nothing_in_group:
        return 'assign needs none only with commit_strategy = "ignore" or "checkpoint"'
    if view["enable_auto_commit"]:
        return "with enable_auto_commit the client commits for it"
    if has_retries:
        return "delayed retries are read by a group that is named after it"
    return None


def inside(table: str, section: Section = INCOMING) -> tuple[str, ...]:
    """Return the name of a table, and the names of the keys inside it."""
    return (table, *(name for name in section.keys if name.startswith(f"{table}.")))


def _commits(view: View) -> Contradictions:
    strategy = view.commit_strategy
    if _has_unused_auto_commit_interval(view):
        names = (AUTO_COMMIT_INTERVAL.name, "commit_interval", "enable_auto_commit")
        yield names, "needs enable_auto_commit = true; without it use commit_interval"
    if view["ack"] == "none" and strategy != "ignore":
        yield (
            ("ack", *COMMITS),
            'ack = "none" needs commit_strategy = "ignore"; else nothing would ever be committed',
        )
    if view["enable_auto_commit"] and strategy != "ignore":
        yield (
            ("enable_auto_commit", "commit_strategy"),
            "leave one of them out: with enable_auto_commit the client commits, and "
            f'commit_strategy = "{strategy}" would commit, too (with auto commits, commit_strategy '
            'is "ignore")',
        )


def _has_unused_auto_commit_interval(view: View) -> bool:
    """Return whether Kafka's auto.commit.interval.ms is in effect without auto commits."""
    auto_interval = view.setting(AUTO_COMMIT_INTERVAL.name)
    interval = view.setting("commit_interval")
    if auto_interval is None or interval is None or view["enable_auto_commit"]:
        return False
    # Both come from one line unless a commit_interval of a higher layer overrides it.
    return (auto_interval.where, auto_interval.origin) == (interval.where, interval.origin)


def _checkpoints(view: View) -> Contradictions:
    if view.commit_strategy != "checkpoint":
        return
    if view.setting("checkpoint.store") is None:
        yield ("commit_strategy", "checkpoint.store"), f"needs checkpoint.store: {STORE.expects}"
    if view["checkpoint.state"] is not None and view["ordering"] != "partition":
        names = ("checkpoint.state", "ordering", "commit_strategy")
        yield names, f'states need ordering = "partition", and it is "{view["ordering"]}"'
    if view["checkpoint.state"] is not None and view["keep_out_of_order_acks"]:
        why = (
            "a record whose ack is kept is not handled again, so the state that it set would be "
            "lost"
        )
        yield ("keep_out_of_order_acks", "checkpoint.state", "commit_strategy"), why
    age = view["checkpoint.unsynced_max_age"]
    interval = view["commit_interval"]
    if 0 < age <= interval:
        yield (
            ("checkpoint.unsynced_max_age", "commit_interval", "commit_strategy"),
            f"checkpoint.unsynced_max_age ({age:g} s) is not above commit_interval ({interval:g} "
            "s), so the channel would never be ready",
        )


def _what_is_read(view: View) -> Contradictions:
    if len(view.sources) > 1:
        yield (
            ("assign", "pattern", "topics", "topic"),
            f"{' and '.join(view.sources)} exclude each other; keep one",
        )
    if "assign" in view.sources and view["consumers"] > 1:
        yield (
            ("assign", "consumers"),
            "leave consumers at 1: with assign, several would each read the same records",
        )
    if view.has_ranges and view["enable_auto_commit"]:
        yield (
            ("assign", "enable_auto_commit"),
            "leave it out: the client would commit the positions of the ranges, and so move the "
            "group back",
        )
    if "assign" in view.sources:
        yield from _holes(view)
    if view["restart.backoff"] > view["restart.max_backoff"]:
        yield (
            ("restart.backoff", "restart.max_backoff"),
            "restart.backoff is longer than restart.max_backoff",
        )


def _holes(view: View) -> Contradictions:
    """Find settings that would store a position inside a hole between two ranges."""
    ranges = ranges_of(view["assign"] or ())
    with_holes = next((partition for partition, its in ranges.items() if its.has_holes), None)
    if with_holes is None:
        return
    for name, value in _STORES_BEYOND_HOLES:
        if view[name] == value:
            yield (
                ("assign", name),
                f"{with_holes} has holes between its ranges, and {name} = {value!r} would pass "
                "them",
            )


def retries(view: View) -> Contradictions:
    """Find contradictions in a ``retry`` table."""
    if view["retry.backoff"] > view["retry.max_backoff"]:
        yield (
            ("retry.backoff", "retry.max_backoff"),
            "retry.backoff is longer than retry.max_backoff",
        )
    in_both = set(view["retry.never"] or ()) & set(view["retry.only"] or ())
    if in_both:
        yield ("retry.never", "retry.only"), f"retry.never and retry.only both name {min(in_both)}"


def _bytes_in_flight(view: View) -> Contradictions:
    most = view["max_in_flight_bytes"]
    batch = view["batch_max_bytes"]
    if most is not None and batch is not None and most < batch:
        yield (
            ("max_in_flight_bytes", "batch_max_bytes"),
            "max_in_flight_bytes is below batch_max_bytes, so no batch could ever fill",
        )


def _max_in_flight(view: View) -> Contradictions:
    most = view["max_in_flight"]
    if view.setting("max_in_flight") is None:
        # The channel derives a number that fits.
        return
    if view.own("batch_max_records") and most < view["batch_max_records"]:
        yield (
            ("max_in_flight", "batch_max_records"),
            "max_in_flight is below batch_max_records, so no batch could ever fill",
        )
    spark_batch = view["spark.batch_max_records"]
    if view.is_spark and most < spark_batch:
        yield (
            ("max_in_flight", "spark.batch_max_records"),
            f"max_in_flight is below spark.batch_max_records ({spark_batch}), so no batch could "
            "ever fill",
        )
    if view["concurrency"] > most:
        yield (
            ("concurrency", "max_in_flight"),
            f"concurrency is above max_in_flight ({most}), so it could never be reached",
        )
    if most < view["consumers"]:
        yield (
            ("max_in_flight", "consumers"),
            f"max_in_flight ({most}) is divided among the consumers ({view['consumers']}), so at "
            "least one could never read",
        )


def _spark_batches(view: View) -> Contradictions:
    if view["keep_out_of_order_acks"] and view.is_spark:
        yield (
            ("keep_out_of_order_acks", *inside("spark")),
            "a Spark batch is repeated as a whole, so there are no acks to keep",
        )
    if view.is_spark and view["ordering"] == "key":
        yield (
            ("ordering", *inside("spark")),
            'ordering = "key" orders single records, and a spark table cuts them into batches',
        )
    if view["spark.mode"] == "ranges" and view["enable_auto_commit"]:
        yield (
            ("enable_auto_commit", "spark.mode"),
            'with spark.mode = "ranges" executors read the records, so the client has nothing to '
            "commit",
        )


def _events(view: View) -> Contradictions:
    for name in ("value_deserializer", "value_serializer"):
        if name in view.section.keys and view["cloud_events"] is False and view[name] == EVENTS:
            yield (
                (name, "cloud_events"),
                f'"{EVENTS}" means CloudEvents only, and cloud_events = false means none',
            )


def without_registry(view: View) -> Contradictions:
    """Find formats that need a schema registry. For configurations without one."""
    for name in ("value_deserializer", "key_deserializer", "value_serializer", "key_serializer"):
        if name in view.section.keys and view[name] in REGISTERED_FORMATS:
            yield (
                (name,),
                'needs a schema registry: write [schema_registry] url = "http://..."',
            )


def _registry_login(view: View) -> Contradictions:
    has_user = view["username"] is not None
    has_password = view["password"] is not None
    if view["token"] is not None and (has_user or has_password):
        yield (
            ("token", "username", "password"),
            "a registry takes either a token, or a user and a password",
        )
    elif has_password and not has_user:
        yield ("password",), "username is missing"
    elif has_user and ":" in view["username"]:
        yield (
            ("username",),
            "no colon is allowed: in basic authentication, the password begins after the first one",
        )
    if view["ssl_keyfile"] is not None and view["ssl_certfile"] is None:
        yield ("ssl_keyfile",), "its certificate is missing: ssl_certfile"


def _security(view: View) -> Contradictions:
    yield from _login(view)
    if view.setting("security_protocol") is None:
        # An error and not a warning: users who give a password expect that it is used.
        unused = "has no effect while security.protocol is PLAINTEXT; set it to"
        yield (*SASL, "security_protocol"), f"{unused} SASL_SSL"
        yield (*TLS, "security_protocol"), f"{unused} SSL or SASL_SSL"
    given_tls = [name for name in TLS if view.setting(name) is not None]
    if view.setting("ssl_context") is not None and given_tls:
        yield (
            ("ssl_context", *TLS),
            f"ssl_context holds all TLS settings; leave out {', '.join(given_tls)}",
        )
    if "ssl_keyfile" in given_tls and "ssl_certfile" not in given_tls:
        yield (
            ("ssl_keyfile", "ssl_certfile"),
            "a key needs its certificate: set ssl.keystore.location",
        )


def _login(view: View) -> Contradictions:
    mechanism = str(view["sasl_mechanism"] or "PLAIN")
    sends_clear_text = view["security_protocol"] == "SASL_PLAINTEXT" and mechanism == "PLAIN"
    is_allowed = view["allow_insecure_sasl"] or _is_loopback(view["bootstrap_servers"])
    if sends_clear_text and not is_allowed:
        yield (
            ("security_protocol", "sasl_mechanism", "bootstrap_servers", "allow_insecure_sasl"),
            "SASL PLAIN without TLS sends the password in clear text: use SASL_SSL, or a SCRAM "
            "mechanism, or set allow_insecure_sasl = true in [kafka]",
        )
    if not str(view["security_protocol"]).startswith("SASL_"):
        return
    needed: tuple[str, ...] = ()
    hint = ""
    if mechanism == "PLAIN" or mechanism.startswith("SCRAM-"):
        needed = ("sasl_plain_username", "sasl_plain_password")
    elif mechanism == "OAUTHBEARER":
        needed = ("sasl_oauth_token_provider",)
        hint = ", an object given in code"
    missing = [name for name in needed if view[name] is None]
    if missing:
        yield ("security_protocol", *SASL), f"{mechanism} needs {' and '.join(missing)}{hint}"


def _is_loopback(servers: str) -> bool:
    hosts = [re.sub(r":\d+$", "", server) for server in servers.split(",")]
    return all(
        host in ("embedded", "localhost") or _is_loopback_address(host.strip("[]"))
        for host in hosts
    )


def _is_loopback_address(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _group_times(view: View) -> Contradictions:
    times = GroupTimes.of(view.__getitem__)
    if times.heartbeat_s >= times.session_s:
        yield (
            ("heartbeat_interval_ms", "session_timeout_ms"),
            f"a heartbeat every {times.heartbeat_s * 1000:.0f} ms cannot keep a session of "
            f"{times.session_s * 1000:.0f} ms alive; a third of it is usual",
        )
    if view["revoke_grace"] >= times.rebalance_s:
        yield (
            ("revoke_grace", "rebalance_timeout_ms"),
            "raise rebalance.timeout.ms above revoke_grace: the group waits "
            f"{times.rebalance_s * 1000:.0f} ms for a revocation, and revoke_grace alone is "
            f"{view['revoke_grace']:g} s",
        )


def revocations(view: View) -> Contradictions:
    """Find times that do not fit into the group's rebalance timeout.

    These are warnings: the grace may be the default, and a revocation with too little time is cut
    short.
    """
    times = GroupTimes.of(view.__getitem__)
    # Spark jobs are cancelled after the grace, and all of that may take up to drain_timeout.
    waits = "revoke_grace"
    if view.is_spark and view["drain_timeout"] > view["revoke_grace"]:
        waits = "drain_timeout"
    steps = {
        "heartbeat_interval_ms": times.heartbeat_s,
        waits: view[waits],
        "the last commit": LAST_COMMIT_S,
    }
    if view["enable_auto_commit"] or view.commit_strategy == "checkpoint":
        steps["the second commit to Kafka"] = COPIED_S
    steps["the join"] = times.join_s
    needed_s = sum(steps.values())
    # A longer revoke_grace is an error, see _group_times.
    if view["revoke_grace"] < times.rebalance_s < needed_s:
        parts = " + ".join(f"{name} ({takes_s:g} s)" for name, takes_s in steps.items())
        yield (
            (waits, "rebalance_timeout_ms", "heartbeat_interval_ms"),
            f"raise rebalance.timeout.ms, or lower {waits}: a revocation needs {parts} = "
            f"{needed_s:g} s, and the group waits rebalance_timeout_ms ({times.rebalance_s:g} s), "
            "so handlers get less",
        )


def _idempotence(view: View) -> Contradictions:
    if view["enable_idempotence"] and view["acks"] in (0, 1):
        yield ("acks", "enable_idempotence"), 'enable.idempotence needs acks = "all"'


def _transactions(view: View) -> Contradictions:
    if view["transactional_id"] is None:
        return
    if view["acks"] in (0, 1):
        yield ("acks", "transactional_id"), 'transactional.id needs acks = "all"'
    if view["enable_idempotence"] is False:
        yield (
            ("enable_idempotence", "transactional_id"),
            "transactional.id needs enable.idempotence = true",
        )


def _outbox(view: View) -> Contradictions:
    if not view["outbox"]:
        return
    if view["transactional_id"] is not None:
        yield (
            ("outbox", "transactional_id"),
            "an outbox relays what the database has, and transactional_id writes in Kafka's "
            "transactions; keep one",
        )
    if view["acks"] == 0:
        yield (
            ("acks", "outbox"),
            "a row of the outbox is deleted when the broker has confirmed its event, and with acks "
            "= 0 it confirms nothing",
        )


def _confirmed_letters(view: View) -> Contradictions:
    if view["acks"] == 0:
        yield (
            ("acks",),
            "a record is settled when the broker has confirmed its dead letter, and with acks = 0 "
            "it confirms nothing",
        )


def _spark_driver(view: View) -> Contradictions:
    if {"remote", "master"} <= set(view.nearest("remote", "master")):
        yield (
            ("remote", "master"),
            "remote (a Spark Connect server) and master (a session of the application) exclude "
            "each other; keep one",
        )


CONSUMER_CHECKS = (_group_times, _security)
PRODUCER_CHECKS = (_idempotence, _security)
OUTGOING_CHECKS = (_transactions, _outbox, _events, *PRODUCER_CHECKS)
LETTER_CHECKS = (_confirmed_letters, *PRODUCER_CHECKS)
"""For the producer that writes dead letters."""
INCOMING_CHECKS = (
    _commits,
    _checkpoints,
    _what_is_read,
    retries,
    _max_in_flight,
    _bytes_in_flight,
    _spark_batches,
    _events,
    *CONSUMER_CHECKS,
)
SPARK_CHECKS = (_spark_driver,)
REGISTRY_CHECKS = (_registry_login,)
