"""Contradictions: values that are each allowed and together cannot work. Pure."""

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
"""The names that a contradiction looks at, and what is wrong. It is reported at the first of them
that was given.
"""

COMMITS = ("commit_strategy", "enable_auto_commit")
_STORES_BEYOND_HOLES = (
    *(("commit_strategy", "latest"), ("commit_strategy", "checkpoint")),
    *(("keep_out_of_order_acks", True), ("spark.mode", "ranges")),
)
_GROUP_MS = {
    "session_timeout_ms": 45_000,
    "heartbeat_interval_ms": 3_000,
    "rebalance_timeout_ms": 60_000,
}
"""What the seam to Kafka sets unless the configuration says otherwise."""
LAST_COMMIT_S = 5.0
"""How long the last commit of an assignment is tried."""
COPIED_S = 5.0
"""How long what goes to Kafka besides (by ``enable_auto_commit``, of a checkpoint store) may take
after that.
"""
SASL = ("sasl_mechanism", "sasl_plain_username", "sasl_plain_password", "sasl_oauth_token_provider")
TLS = (
    *("ssl_cafile", "ssl_capath", "ssl_cadata", "ssl_certfile", "ssl_keyfile", "ssl_password"),
    "ssl_check_hostname",
)


@dataclass(frozen=True, slots=True)
class GroupTimes:
    """What a member has told its group, in seconds."""

    # A member learns that it has to let go with its next heartbeat.
    heartbeat_s: float
    session_s: float
    # How long the group waits for a member to join again, before it goes on without it.
    rebalance_s: float

    @classmethod
    def of(cls, given: Callable[[str], object]) -> GroupTimes:
        """*given* tells what the configuration says of a property, or None."""
        heartbeat, session, rebalance = (
            float(str(given(name) or _GROUP_MS[name])) / 1000
            for name in ("heartbeat_interval_ms", "session_timeout_ms", "rebalance_timeout_ms")
        )
        return cls(heartbeat, session, rebalance)

    @property
    def join_s(self) -> float:
        """How long before the group goes on the request to join has to be on its way."""
        return min(1.0, self.rebalance_s / 10)


def check(
    view: View,
    checks: Iterable[Callable[[View], Contradictions]],
    problems: Problems,
    among: Container[str] | None = None,
) -> None:
    """Note each contradiction between values that were given; with *among*, only those that look at
    one of these.
    """
    for names, reason in chain.from_iterable(found(view) for found in checks):
        given = [setting for name in names if (setting := view.setting(name)) is not None]
        if not given or any(setting.value is BROKEN for setting in given):
            continue
        if among is not None and not any(name in among for name in names):
            continue
        is_own = view.section in CHANNEL_SECTIONS.values() and any(view.own(name) for name in names)
        # Else once for all channels.
        for_whom = f" (channel {view.table.title})" if is_own and view.table.title else ""
        problems.add(given[0].origin, given[0].where, reason + for_whom)


def missing_group(view: View, *, retries: bool) -> str | None:
    """Why a channel needs a group, or None; *retries* is true if it has delayed ones."""
    if "assign" not in view.sources:
        return "give the channel one, or all channels one in [kafka]"
    if view.group_not_inherited is not None and (
        view.commit_strategy not in ("ignore", "checkpoint") or retries
    ):
        other = view.group_not_inherited
        return f"ranges in assign take only one that stands beside them, and not {other.where} ({other.origin})"
    if view.commit_strategy not in ("ignore", "checkpoint"):
        return 'assign goes without one only with commit_strategy = "ignore" or "checkpoint"'
    if view["enable_auto_commit"]:
        return "with enable_auto_commit the client commits for it"
    return "delayed retries are read by a group of their own, named after it" if retries else None


def inside(table: str, section: Section = INCOMING) -> tuple[str, ...]:
    return (table, *(name for name in section.keys if name.startswith(f"{table}.")))


def _commits(view: View) -> Contradictions:
    strategy = view.commit_strategy
    if _has_idle_auto_interval(view):
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
            f'with enable_auto_commit the client commits, and commit_strategy = "{strategy}" would too; leave one '
            'of them out (with auto commits, commit_strategy is "ignore")',
        )


def _has_idle_auto_interval(view: View) -> bool:
    """Whether Kafka's interval of auto commits is in effect, and there are none."""
    kafkas = view.setting(AUTO_COMMIT_INTERVAL.name)
    interval = view.setting("commit_interval")
    if kafkas is None or interval is None or view["enable_auto_commit"]:
        return False
    # Otherwise the channel sets commit_interval itself, which overrides [kafka] or a lower layer.
    return (kafkas.where, kafkas.origin) == (interval.where, interval.origin)


def _checkpoints(view: View) -> Contradictions:
    if view.commit_strategy != "checkpoint":
        return
    if view.setting("checkpoint.store") is None:
        yield ("commit_strategy", "checkpoint.store"), f"needs checkpoint.store: {STORE.expects}"
    if view["checkpoint.state"] is not None and view["ordering"] != "partition":
        names = ("checkpoint.state", "ordering", "commit_strategy")
        yield names, f'states need ordering = "partition", and it is "{view["ordering"]}"'
    if view["checkpoint.state"] is not None and view["keep_out_of_order_acks"]:
        why = "a record whose ack is kept is not handled again, so the state that it set would be lost"
        yield ("keep_out_of_order_acks", "checkpoint.state", "commit_strategy"), why
    age = view["checkpoint.unsynced_max_age"]
    interval = view["commit_interval"]
    if 0 < age <= interval:
        late = (
            f"checkpoint.unsynced_max_age ({age:g} s) is not above commit_interval ({interval:g} s)"
        )
        names = ("checkpoint.unsynced_max_age", "commit_interval", "commit_strategy")
        yield names, f"{late}, so the channel would never be ready"


def _reading(view: View) -> Contradictions:
    if len(view.sources) > 1:
        yield (
            ("assign", "pattern", "topics", "topic"),
            f"{' and '.join(view.sources)} exclude each other; keep one",
        )
    if "assign" in view.sources and view["consumers"] > 1:
        why = (
            "with assign, several consumers would each read the same records; leave consumers at 1"
        )
        yield ("assign", "consumers"), why
    if view.has_ranges and view["enable_auto_commit"]:
        yield (
            ("assign", "enable_auto_commit"),
            "the client would commit each position of the ranges, and so move the group back; leave it out",
        )
    holed = [one for one, its in ranges_of(view["assign"] or ()).items() if its.has_holes]
    for name, value in _STORES_BEYOND_HOLES if holed and "assign" in view.sources else ():
        if view[name] == value:
            yield (
                ("assign", name),
                f"{holed[0]} has holes between its ranges, and {name} = {value!r} would pass them",
            )
    if view["restart.backoff"] > view["restart.max_backoff"]:
        yield (
            ("restart.backoff", "restart.max_backoff"),
            "restart.backoff is longer than restart.max_backoff",
        )


def retries(view: View) -> Contradictions:
    """Contradictions in a ``retry`` table."""
    if view["retry.backoff"] > view["retry.max_backoff"]:
        yield (
            ("retry.backoff", "retry.max_backoff"),
            "retry.backoff is longer than retry.max_backoff",
        )
    if both := set(view["retry.never"] or ()) & set(view["retry.only"] or ()):
        yield ("retry.never", "retry.only"), f"retry.never and retry.only both name {min(both)}"


def _room(view: View) -> Contradictions:
    room = view["max_in_flight"]
    if view.setting("max_in_flight") is None:
        # The channel derives it.
        return
    if view.own("batch_max_records") and room < view["batch_max_records"]:
        why = "max_in_flight is below batch_max_records, so no batch could ever fill"
        yield ("max_in_flight", "batch_max_records"), why
    if view.is_spark and room < (batch := view["spark.batch_max_records"]):
        why = (
            f"max_in_flight is below spark.batch_max_records ({batch}), so no batch could ever fill"
        )
        yield ("max_in_flight", "spark.batch_max_records"), why
    if view["concurrency"] > room:
        why = f"concurrency is above max_in_flight ({room}), so it could never be reached"
        yield ("concurrency", "max_in_flight"), why
    if room < view["consumers"]:
        divided = f"max_in_flight ({room}) is divided among the consumers ({view['consumers']})"
        yield ("max_in_flight", "consumers"), f"{divided}, so at least one could never read"


def _spark_batches(view: View) -> Contradictions:
    if view["keep_out_of_order_acks"] and view.is_spark:
        why = "Spark's batches are stored as planned ranges, which are repeated whole: they have no acks to keep"
        yield ("keep_out_of_order_acks", *inside("spark")), why
    if view.is_spark and view["ordering"] == "key":
        why = 'ordering = "key" orders single records, and a spark table cuts them into batches'
        yield ("ordering", *inside("spark")), why
    if view["spark.mode"] == "ranges" and view["enable_auto_commit"]:
        why = 'with spark.mode = "ranges" executors read the records, so the client has nothing to commit'
        yield ("enable_auto_commit", "spark.mode"), why


def _events(view: View) -> Contradictions:
    for name in ("value_deserializer", "value_serializer"):
        if name in view.section.keys and view["cloud_events"] is False and view[name] == EVENTS:
            yield (
                (name, "cloud_events"),
                f'"{EVENTS}" means CloudEvents only, and cloud_events = false means none',
            )


def without_registry(view: View) -> Contradictions:
    """The formats that need a schema registry, where none is configured."""
    for name in ("value_deserializer", "key_deserializer", "value_serializer", "key_serializer"):
        if name in view.section.keys and view[name] in REGISTERED_FORMATS:
            yield (
                (name,),
                'its schemas are in a registry: write [schema_registry] url = "http://..."',
            )


def _registry_login(view: View) -> Contradictions:
    if view["token"] is not None and (view["username"] is not None or view["password"] is not None):
        yield (
            ("token", "username", "password"),
            "a registry takes a token, or a user and a password",
        )
    elif view["password"] is not None and view["username"] is None:
        yield ("password",), "whose it is, username has to say"
    if view["ssl_keyfile"] is not None and view["ssl_certfile"] is None:
        yield ("ssl_keyfile",), "its certificate is missing: ssl_certfile"


def _security(view: View) -> Contradictions:
    mechanism = str(view["sasl_mechanism"] or "PLAIN")
    is_plain = view["security_protocol"] == "SASL_PLAINTEXT" and mechanism == "PLAIN"
    if is_plain and not view["allow_insecure_sasl"] and not _is_loopback(view["bootstrap_servers"]):
        yield (
            ("security_protocol", "sasl_mechanism", "bootstrap_servers", "allow_insecure_sasl"),
            "SASL PLAIN without TLS sends the password in clear text: use SASL_SSL, or a SCRAM mechanism, or set "
            "allow_insecure_sasl = true in [kafka]",
        )
    if str(view["security_protocol"]).startswith("SASL_"):
        needed: tuple[str, ...] = ("sasl_plain_username", "sasl_plain_password")
        if not (mechanism == "PLAIN" or mechanism.startswith("SCRAM-")):
            needed = ("sasl_oauth_token_provider",) if mechanism == "OAUTHBEARER" else ()
        if missing := [name for name in needed if view[name] is None]:
            given_in_code = ", an object given in code" if mechanism == "OAUTHBEARER" else ""
            yield (
                ("security_protocol", *SASL),
                f"{mechanism} needs {' and '.join(missing)}{given_in_code}",
            )
    if view.setting("security_protocol") is None:
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
        session = f"a session of {times.session_s * 1000:.0f} ms"
        kept = f"a heartbeat every {times.heartbeat_s * 1000:.0f} ms cannot keep up {session}"
        yield ("heartbeat_interval_ms", "session_timeout_ms"), f"{kept}; a third of it is usual"
    if view["revoke_grace"] >= times.rebalance_s:
        grace = f"revoke_grace alone is {view['revoke_grace']:g} s"
        waits = f"the group waits {times.rebalance_s * 1000:.0f} ms for a revocation, and {grace}"
        yield (
            ("revoke_grace", "rebalance_timeout_ms"),
            f"{waits}; raise rebalance.timeout.ms above revoke_grace",
        )


def revocations(view: View) -> Contradictions:
    """Times that do not fit into the group's patience."""
    # No error: the grace may be the default, and a revocation that has too little time is cut
    # short.
    times = GroupTimes.of(view.__getitem__)
    waits = (
        "drain_timeout"
        if view.is_spark and view["drain_timeout"] > view["revoke_grace"]
        else "revoke_grace"
    )
    steps = {
        "heartbeat_interval_ms": times.heartbeat_s,
        waits: view[waits],
        "the last commit": LAST_COMMIT_S,
    }
    if view["enable_auto_commit"] or view.commit_strategy == "checkpoint":
        steps["what is committed to Kafka besides"] = COPIED_S
    steps["the join"] = times.join_s
    needed_s = sum(steps.values())
    # Else that is an error.
    if view["revoke_grace"] < times.rebalance_s < needed_s:
        parts = " + ".join(f"{name} ({takes_s:g} s)" for name, takes_s in steps.items())
        why = f"too little time for a revocation: {parts} = {needed_s:g} s, and the group waits rebalance_timeout_ms "
        remedy = f"({times.rebalance_s:g} s), so handlers get less; raise rebalance.timeout.ms, or lower {waits}"
        yield (waits, "rebalance_timeout_ms", "heartbeat_interval_ms"), why + remedy


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


def _confirmed_letters(view: View) -> Contradictions:
    if view["acks"] == 0:
        never = "with acks = 0 the broker never says so"
        yield ("acks",), f"a record is settled once the broker has its dead letter, and {never}"


def _driver(view: View) -> Contradictions:
    if {"remote", "master"} <= set(view.nearest("remote", "master")):
        both = "remote (a Spark Connect server) and master (a session of its own)"
        yield ("remote", "master"), f"{both} exclude each other; keep one"


CONSUMER_CHECKS = (_group_times, _security)
PRODUCER_CHECKS = (_idempotence, _security)
OUTGOING_CHECKS = (_transactions, _events, *PRODUCER_CHECKS)
LETTER_CHECKS = (_confirmed_letters, *PRODUCER_CHECKS)
"""Of the producer that writes dead letters."""
INCOMING_CHECKS = (
    _commits,
    _checkpoints,
    _reading,
    retries,
    _room,
    _spark_batches,
    _events,
    *CONSUMER_CHECKS,
)
SPARK_CHECKS = (_driver,)
REGISTRY_CHECKS = (_registry_login,)
