"""Warns of settings that have no effect next to the others. Pure.

They are no errors: a variable may switch to another strategy while the table of the first one stays
in the file. A default in ``[kafka]`` need not fit all channels, so of tables and numbers only the
channel's own are reported. A number that repeats the default is not reported.
"""

from __future__ import annotations

from reactive_kafka.config.checks import COMMITS, SASL, TLS, Contradictions, inside, revocations
from reactive_kafka.config.collect import View, values_of
from reactive_kafka.config.keys import OUTGOING
from reactive_kafka.formats.format_names import REGISTERED_FORMATS

NEED_COMMITS = ("dead-letter-queue", "pause-partition")
"""The values of ``on_poison`` that have no effect in a channel that commits nothing."""
RETRIES = "delayed-retry-topic"
OF_MEMBERS = (
    "group_protocol",
    "assignors",
    "assignor",
    "group_instance_id",
    "session_timeout_ms",
    "heartbeat_interval_ms",
    "max_poll_interval_ms",
    "rebalance_timeout_ms",
)
"""What only members of a group have."""


def _of_commits(view: View) -> Contradictions:
    strategy = view.commit_strategy
    if view["commit_latest_unsafe"] and strategy != "latest":
        why = f'has no effect: it goes with commit_strategy = "latest", and it is "{strategy}"'
        yield ("commit_latest_unsafe", *COMMITS), why
    if view["keep_out_of_order_acks"] and strategy == "ignore":
        why = (
            "has no effect: kept acks are stored with a committed position, and with "
            'commit_strategy = "ignore" there is none'
        )
        yield ("keep_out_of_order_acks", *COMMITS), why
    # The client that reads retry topics commits even if the channel does not.
    if strategy == "ignore" and not _may_delay_retries(view):
        why = 'has no effect: with commit_strategy = "ignore" nothing is committed'
        if view.differs("commit_interval") and not view["enable_auto_commit"]:
            yield ("commit_interval", *COMMITS), why
        if view.differs("max_uncommitted"):
            yield ("max_uncommitted", *COMMITS), why
    is_given = view["commit_every"] is not None and view.differs("commit_every")
    if is_given and strategy not in ("throttled", "checkpoint"):
        when = {"latest": "commits at each ack", "ignore": "commits nothing"}.get(
            strategy, "decides itself when to commit"
        )
        yield ("commit_every", *COMMITS), f'has no effect: commit_strategy = "{strategy}" {when}'
    if strategy != "checkpoint" and view.own_inside("checkpoint"):
        why = f'has no effect: it goes with commit_strategy = "checkpoint", and it is "{strategy}"'
        yield (*inside("checkpoint"), *COMMITS), why


def _may_delay_retries(view: View) -> bool:
    """Return whether a strategy of the channel may write to retry topics."""
    strategies = [view["failure_strategy"], *values_of(view.inside("failure_routes")).values()]
    # A strategy of the user's own, "module:object", may do anything.
    return any(strategy == RETRIES or ":" in strategy for strategy in strategies)


def _of_poison(view: View) -> Contradictions:
    age = view["unprocessed_record_max_age"]
    if not age and (view["on_poison"] == "dead-letter-queue" or view.differs("on_poison")):
        why = "has no effect: unprocessed_record_max_age = 0 turns off the watch that finds poison"
        yield ("on_poison", "unprocessed_record_max_age"), why
    if view.commit_strategy != "ignore":
        yield from _poison_before_timeout(view, age)
        return
    why = 'has no effect: with commit_strategy = "ignore" no record ever becomes poison'
    # Restarts use the age, too.
    if view.differs("unprocessed_record_max_age") and age and not view["restart.max_attempts"]:
        yield ("unprocessed_record_max_age", *COMMITS), why
    # If the channel chooses its commit strategy itself, the on_poison in [kafka] is meant for the
    # channels that commit.
    inherits_strategy = not (view.own("commit_strategy") or view.own("enable_auto_commit"))
    inherits_both = inherits_strategy and view["on_poison"] in NEED_COMMITS
    if age and (view.differs("on_poison") or inherits_both):
        yield ("on_poison", *COMMITS), why


def _poison_before_timeout(view: View, age: float) -> Contradictions:
    limit = view["attempt_timeout"]
    if limit is not None and 0 < age <= limit and view["on_poison"] != "warn":
        yield (
            ("attempt_timeout", "unprocessed_record_max_age"),
            "has no effect: a record is poison before its attempt has taken so long; raise "
            "unprocessed_record_max_age above the attempt_timeout of all attempts together",
        )


def _of_attempts(view: View) -> Contradictions:
    if view["retry.max_attempts"] < 2:
        keys = ("backoff", "max_backoff", "jitter", "never", "only")
        names = [f"retry.{key}" for key in keys if view.differs(f"retry.{key}")]
        if names:
            # Decorators are read later, and may ask for more calls. Then these settings count.
            yield (
                (*names, "retry.max_attempts"),
                "has no effect without retry= of a decorator: retry.max_attempts = 1 is one call, "
                "and no wait",
            )
    if view["restart.max_attempts"] < 1:
        names = [name for name in ("restart.backoff", "restart.max_backoff") if view.differs(name)]
        if names:
            yield (
                (*names, "restart.max_attempts"),
                "has no effect: with restart.max_attempts = 0 a failed channel stays stopped",
            )


def _of_spark(view: View) -> Contradictions:
    if view.is_spark and view.differs("concurrency_per_partition"):
        yield (
            ("concurrency_per_partition", *inside("spark")),
            "has no effect: it limits handlers, and Spark jobs are limited by "
            "spark.max_concurrent_jobs",
        )
    if view.is_spark and view.differs("attempt_timeout"):
        yield (
            ("attempt_timeout", *inside("spark")),
            "has no effect: it limits handlers, and a Spark job is limited by spark.timeout",
        )
    if view.differs("spark.batch_max_bytes") and view["spark.mode"] == "ranges":
        why = 'has no effect: with spark.mode = "ranges" no bytes are counted'
        yield ("spark.batch_max_bytes", "spark.mode"), why


def _of_ranges(view: View) -> Contradictions:
    if view["spark.mode"] == "ranges" and view.own("max_in_flight_bytes"):
        why = 'has no effect: with spark.mode = "ranges" executors read the records'
        yield ("max_in_flight_bytes", "spark.mode"), why


def _of_http(view: View) -> Contradictions:
    # app.asgi, mounted in another application, still uses the token and the hosts.
    if not view["enabled"]:
        yield ("host", "port"), "has no effect: enabled = false"


def _of_order(view: View) -> Contradictions:
    if view["key"] is not None and view["ordering"] != "key":
        yield (
            ("key", "ordering"),
            f'has no effect: it goes with ordering = "key", and it is "{view["ordering"]}"',
        )
    if view.differs("keyless") and view["ordering"] != "key":
        yield (
            ("keyless", "ordering"),
            f'has no effect: it goes with ordering = "key", and it is "{view["ordering"]}"',
        )
    if (
        view.differs("concurrency_per_partition")
        and view["ordering"] == "partition"
        and not view.is_spark
    ):
        why = 'has no effect: with ordering = "partition" one handler of a partition runs at once'
        yield ("concurrency_per_partition", "ordering"), why


def _of_rates(view: View) -> Contradictions:
    by = view["rate_limit.by"]
    if by not in (None, "partition") and view["ordering"] == "partition":
        yield (
            ("rate_limit.by", "ordering"),
            'slows down other values, too: with ordering = "partition" all later records of the '
            'partition wait behind one that may not start; use ordering = "key" or "unordered"',
        )


def _of_security(view: View) -> Contradictions:
    # Without any security.protocol this is an error, see checks._security.
    protocol = view["security_protocol"]
    if protocol in ("PLAINTEXT", "SSL"):
        yield SASL, f"has no effect: security.protocol is {protocol}, which has no SASL"
    if protocol in ("PLAINTEXT", "SASL_PLAINTEXT"):
        yield TLS, f"has no effect: security.protocol is {protocol}, which has no TLS"


def _is_no_member(view: View) -> bool:
    """Whether no client of the channel joins a group. That of retry topics would."""
    return "assign" in view.sources and not _may_delay_retries(view)


def _of_revocations(view: View) -> Contradictions:
    if not _is_no_member(view):
        yield from revocations(view)


def _of_groups(view: View) -> Contradictions:
    if _is_no_member(view):
        for name in OF_MEMBERS:
            if view.own(name):
                yield (name, "assign"), "has no effect: with assign the channel joins no group"
        return
    protocol = view["group_protocol"]
    if protocol == "consumer":
        why = 'has no effect: with group_protocol = "consumer" the broker decides'
        for name in (
            "session_timeout_ms",
            "heartbeat_interval_ms",
            "assignors",
        ):
            if view.own(name):
                yield (name, "group_protocol"), why
    elif protocol != "auto" and view.own("assignor"):
        why = 'has no effect: it goes with group_protocol = "consumer"'
        yield ("assignor", "group_protocol"), why


def _of_events(view: View) -> Contradictions:
    names = [name for name in inside("cloud_events", OUTGOING)[1:] if view.differs(name)]
    if view["cloud_events"] is False and names:
        yield names, "has no effect: cloud_events = false writes no CloudEvents"


def _of_schemas(view: View) -> Contradictions:
    formats = [
        view[f"{part}_{side}"]
        for part in ("value", "key")
        for side in ("serializer", "deserializer")
    ]
    if view.own_inside("schema") and not any(name in REGISTERED_FORMATS for name in formats):
        yield (
            inside("schema"),
            f"has no effect: it goes with the formats {', '.join(REGISTERED_FORMATS)}",
        )


UNUSED_BY_CLIENTS = (_of_security, _of_schemas)
UNUSED_BY_INCOMING = (
    _of_commits,
    _of_poison,
    _of_order,
    _of_rates,
    _of_attempts,
    _of_spark,
    _of_ranges,
    _of_revocations,
    _of_groups,
    *UNUSED_BY_CLIENTS,
)
UNUSED_BY_HTTP = (_of_http,)
UNUSED_BY_OUTGOING = (_of_events, *UNUSED_BY_CLIENTS)
