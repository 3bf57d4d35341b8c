"""Contradictions: values that are each allowed and together cannot work. Pure."""

from __future__ import annotations

from reactive_kafka.config.client_checks import CONSUMER_RULES
from reactive_kafka.config.incoming_values import STORE
from reactive_kafka.config.keys import INCOMING
from reactive_kafka.config.rules import Rule, View

NEED_COMMITS = ("dead-letter-queue", "pause-partition")
"""What ``on_poison`` cannot do in a channel that commits nothing."""
_COMMITS = ("commit_strategy", "enable_auto_commit")


def missing_group(view: View, *, retries: bool) -> str | None:
    """Why a channel needs a group, or None; *retries* is true if it has delayed ones."""
    if "assign" not in view.sources:
        return "give the channel one, or all channels one in [kafka]"
    if view.commit_strategy not in ("ignore", "checkpoint"):
        return 'assign goes without one only with commit_strategy = "ignore" or "checkpoint"'
    if view["enable_auto_commit"]:
        return "with enable_auto_commit the client commits for it"
    return "delayed retries are read by a group of their own, named after it" if retries else None


def _poison_needs_commits(view: View) -> bool:
    """True for a channel that says both itself: what [kafka] says of all channels contradicts none of them."""
    is_meant = view.own("on_poison") or not (view.own("commit_strategy") or view.own("enable_auto_commit"))
    return is_meant and view["on_poison"] in NEED_COMMITS and view.commit_strategy == "ignore"


def _has_states(view: View) -> bool:
    return view.commit_strategy == "checkpoint" and view["checkpoint.state"] is not None


def _inside(table: str) -> tuple[str, ...]:
    return (table, *(name for name in INCOMING.keys if name.startswith(f"{table}.")))


RETRY_RULE = Rule(
    ("retry.backoff", "retry.max_backoff"),
    lambda view: view["retry.backoff"] > view["retry.max_backoff"],
    "retry.backoff is longer than retry.max_backoff",
)
INCOMING_RULES = (
    Rule(
        ("ack", *_COMMITS),
        lambda view: view["ack"] == "none" and view.commit_strategy != "ignore",
        'ack = "none" needs commit_strategy = "ignore"; else nothing would ever be committed',
    ),
    Rule(
        ("enable_auto_commit", "commit_strategy"),
        lambda view: view["enable_auto_commit"] and view.commit_strategy != "ignore",
        'with enable_auto_commit the client commits, and commit_strategy = "{0.commit_strategy}" would too; leave one '
        'of them out (with auto commits, commit_strategy is "ignore")',
    ),
    Rule(
        ("commit_latest_unsafe", *_COMMITS),
        lambda view: view["commit_latest_unsafe"] and view.commit_strategy != "latest",
        'goes with commit_strategy = "latest" only, and it is "{0.commit_strategy}"',
    ),
    Rule(
        ("keep_out_of_order_acks", *_COMMITS),
        lambda view: view["keep_out_of_order_acks"] and view.commit_strategy == "ignore",
        'kept acks are stored with a committed position, and with commit_strategy = "ignore" there is none',
    ),
    Rule(
        ("keep_out_of_order_acks", *_inside("spark")),
        lambda view: view["keep_out_of_order_acks"] and view.is_spark,
        "Spark's batches are stored as planned ranges, which are repeated whole: they have no acks to keep",
    ),
    Rule(
        (*_inside("checkpoint"), *_COMMITS),
        lambda view: view.own_inside("checkpoint") and view.commit_strategy != "checkpoint",
        'goes with commit_strategy = "checkpoint" only, and it is "{0.commit_strategy}"',
    ),
    Rule(
        ("commit_strategy", "checkpoint.store"),
        lambda view: view.commit_strategy == "checkpoint" and view.setting("checkpoint.store") is None,
        f"needs checkpoint.store: {STORE.expects}",
    ),
    Rule(
        ("checkpoint.state", "ordering", "commit_strategy"),
        lambda view: _has_states(view) and view["ordering"] != "partition",
        'states need ordering = "partition", and it is "{0[ordering]}"',
    ),
    Rule(
        ("keep_out_of_order_acks", "checkpoint.state", "commit_strategy"),
        lambda view: _has_states(view) and view["keep_out_of_order_acks"],
        "a record whose ack is kept is not handled again, so the state that it set would be lost",
    ),
    Rule(
        ("checkpoint.unsynced_max_age", "commit_interval", "commit_strategy"),
        lambda view: (
            view.commit_strategy == "checkpoint" and 0 < view["checkpoint.unsynced_max_age"] <= view["commit_interval"]
        ),
        "checkpoint.unsynced_max_age ({0[checkpoint.unsynced_max_age]:g} s) is not above commit_interval "
        "({0[commit_interval]:g} s), so the channel would never be ready",
    ),
    Rule(
        ("assign", "pattern", "topics", "topic"),
        lambda view: len(view.sources) > 1,
        lambda view: f"{' and '.join(view.sources)} exclude each other; keep one",
    ),
    Rule(
        ("key", "ordering"),
        lambda view: view["key"] is not None and view["ordering"] != "key",
        'key goes with ordering = "key" only, and it is "{0[ordering]}"',
    ),
    Rule(
        ("on_poison", "unprocessed_record_max_age"),
        lambda view: view["on_poison"] == "dead-letter-queue" and not view["unprocessed_record_max_age"],
        'on_poison = "dead-letter-queue" needs the watch that unprocessed_record_max_age = 0 turns off',
    ),
    Rule(
        ("on_poison", *_COMMITS),
        _poison_needs_commits,
        'on_poison = "{0[on_poison]}" needs commits: with commit_strategy = "ignore" no record ever becomes poison',
    ),
    Rule(
        ("assign", "consumers"),
        lambda view: "assign" in view.sources and view["consumers"] > 1,
        "with assign, several consumers would each read the same records; leave consumers at 1",
    ),
    RETRY_RULE,
    Rule(
        ("restart.backoff", "restart.max_backoff"),
        lambda view: view["restart.backoff"] > view["restart.max_backoff"],
        "restart.backoff is longer than restart.max_backoff",
    ),
    Rule(
        ("max_in_flight", "batch_max_records"),
        lambda view: (
            view.own("batch_max_records")
            and view.setting("max_in_flight")
            and view["max_in_flight"] < view["batch_max_records"]
        ),
        "max_in_flight is below batch_max_records, so no batch could ever fill",
    ),
    Rule(
        ("max_in_flight", "spark.batch_max_records"),
        lambda view: (
            view.is_spark and view.setting("max_in_flight") and view["max_in_flight"] < view["spark.batch_max_records"]
        ),
        "max_in_flight is below spark.batch_max_records ({0[spark.batch_max_records]}), so no batch could ever fill",
    ),
    Rule(
        ("ordering", *_inside("spark")),
        lambda view: view.is_spark and view["ordering"] == "key",
        'ordering = "key" orders single records, and a spark table cuts them into batches',
    ),
    Rule(
        ("enable_auto_commit", "spark.mode"),
        lambda view: view["spark.mode"] == "ranges" and view["enable_auto_commit"],
        'with spark.mode = "ranges" executors read the records, so the client has nothing to commit',
    ),
    Rule(
        ("concurrency", "max_in_flight"),
        lambda view: view.setting("max_in_flight") and view["concurrency"] > view["max_in_flight"],
        "concurrency is above max_in_flight ({0[max_in_flight]}), so it could never be reached",
    ),
    Rule(
        ("max_in_flight", "consumers"),
        lambda view: view.setting("max_in_flight") and view["max_in_flight"] < view["consumers"],
        "max_in_flight ({0[max_in_flight]}) is divided among the consumers ({0[consumers]}), so at least one could "
        "never read",
    ),
    *CONSUMER_RULES,
)
SPARK_RULES = (
    Rule(
        ("remote", "master"),
        lambda view: {"remote", "master"} <= set(view.nearest("remote", "master")),
        "remote (a Spark Connect server) and master (a session of its own) exclude each other; keep one",
    ),
)
