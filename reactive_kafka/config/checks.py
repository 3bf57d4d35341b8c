"""Contradictions: values that are each allowed and together cannot work. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from reactive_kafka.config.client_checks import CONSUMER_RULES, PRODUCER_RULES
from reactive_kafka.config.collect import Table
from reactive_kafka.config.incoming_values import STORE
from reactive_kafka.config.keys import INCOMING
from reactive_kafka.config.rules import Rule, View

SOURCES = ("topic", "topics", "pattern", "assign")
"""The keys that say what a channel reads."""
NEED_COMMITS = ("dead-letter-queue", "pause-partition")
"""What ``on_poison`` says in vain where nothing is committed."""
_SPARK_KEYS = tuple(name for name in INCOMING.keys if name.startswith("spark."))
_CHECKPOINT_KEYS = tuple(name for name in INCOMING.keys if name.startswith("checkpoint."))


def sources(table: Table) -> tuple[str, ...]:
    """Those of :data:`SOURCES` that count: all that the highest layer says; none where the channel's name decides."""
    return nearest(table, SOURCES)


def nearest(table: Table, names: Sequence[str]) -> tuple[str, ...]:
    """Those of *names*, which stand for one another, that the highest layer with one of them says."""
    given = {name: table.settings[name].layer for name in names if name in table.settings}
    return tuple(name for name, layer in given.items() if layer == max(given.values()))


def commit_strategy(view: View) -> str:
    """The commit strategy in effect: ``ignore`` where the client commits and nothing else was said."""
    if view.setting("commit_strategy") is None and view.value("enable_auto_commit"):
        return "ignore"
    return str(view.value("commit_strategy"))


def missing_group(view: View, *, retries: bool) -> str | None:
    """Why a channel cannot go without a group, or None; *retries* says that it has delayed ones."""
    if "assign" not in sources(view.table):
        return "give the channel one, or all channels one in [kafka]"
    if commit_strategy(view) not in ("ignore", "checkpoint"):
        return 'assign goes without one only with commit_strategy = "ignore" or "checkpoint"'
    if view.value("enable_auto_commit"):
        return "with enable_auto_commit the client commits for it"
    return "delayed retries are read by a group of their own, named after it" if retries else None


def _only_ignore_goes_without_acks(view: View) -> str | None:
    if view.value("ack") == "none" and commit_strategy(view) != "ignore":
        return 'ack = "none" needs commit_strategy = "ignore"; else nothing would ever be committed'
    return None


def _one_way_to_name_topics(view: View) -> str | None:
    names = sources(view.table)
    return f"{' and '.join(names)} exclude each other; keep one" if len(names) > 1 else None


def _one_committer(view: View) -> str | None:
    if view.value("enable_auto_commit") and commit_strategy(view) != "ignore":
        return (
            f'with enable_auto_commit the client commits, and commit_strategy = "{commit_strategy(view)}" would too; '
            'leave one of them out (with auto commits, commit_strategy is "ignore")'
        )
    return None


def _kept_acks_are_committed(view: View) -> str | None:
    if view.value("keep_out_of_order_acks") and commit_strategy(view) == "ignore":
        return 'goes beside committed positions, and with commit_strategy = "ignore" there are none'
    return None


def _plans_need_no_kept_acks(view: View) -> str | None:
    if view.is_spark and view.value("keep_out_of_order_acks"):
        return "Spark's batches are stored as planned ranges, which come again whole: they have no acks to keep"
    return None


def _store_is_for_checkpoints(view: View) -> str | None:
    if view.own_inside("checkpoint") and commit_strategy(view) != "checkpoint":
        return f'goes with commit_strategy = "checkpoint" only, and it is "{commit_strategy(view)}"'
    return None


def _checkpoints_have_a_store(view: View) -> str | None:
    if commit_strategy(view) == "checkpoint" and view.setting("checkpoint.store") is None:
        return f"needs checkpoint.store: {STORE.expects}"
    return None


def _states_come_in_order(view: View) -> str | None:
    is_used = commit_strategy(view) == "checkpoint" and view.value("checkpoint.state") is not None
    if is_used and view.value("ordering") != "partition":
        return f'states need ordering = "partition", and it is "{view.value("ordering")}"'
    return None


def _states_are_not_skipped(view: View) -> str | None:
    is_used = commit_strategy(view) == "checkpoint" and view.value("checkpoint.state") is not None
    if is_used and view.value("keep_out_of_order_acks"):
        return "a record whose ack is kept is not handled again, and the state that it has set would be lost"
    return None


def _writes_come_in_time(view: View) -> str | None:
    limit, interval = view.value("checkpoint.unsynced_max_age"), view.value("commit_interval")
    if commit_strategy(view) == "checkpoint" and 0 < limit <= interval:
        return (
            f"checkpoint.unsynced_max_age ({limit:g} s) is not above commit_interval ({interval:g} s), so the channel "
            "would never be ready"
        )
    return None


def _unsafe_is_of_latest(view: View) -> str | None:
    if view.value("commit_latest_unsafe") and commit_strategy(view) != "latest":
        return f'goes with commit_strategy = "latest" only, and it is "{commit_strategy(view)}"'
    return None


def _key_is_for_ordering(view: View) -> str | None:
    if view.value("key") is not None and view.value("ordering") != "key":
        return f'key goes with ordering = "key" only, and it is "{view.value("ordering")}"'
    return None


def _poison_is_watched_for(view: View) -> str | None:
    if view.value("on_poison") == "dead-letter-queue" and not view.value("unprocessed_record_max_age"):
        return 'on_poison = "dead-letter-queue" needs the watch that unprocessed_record_max_age = 0 turns off'
    return None


def _poison_needs_commits(view: View) -> str | None:
    """What all channels have is no contradiction to one that commits nothing."""
    is_meant = view.own("on_poison") or not (view.own("commit_strategy") or view.own("enable_auto_commit"))
    on_poison = view.value("on_poison")
    if is_meant and on_poison in NEED_COMMITS and commit_strategy(view) == "ignore":
        return f'on_poison = "{on_poison}" needs commits: with commit_strategy = "ignore" no record ever becomes poison'
    return None


def _assigned_once(view: View) -> str | None:
    if "assign" in sources(view.table) and view.value("consumers") > 1:
        return "with assign each of several consumers would read the same records; leave consumers at 1"
    return None


def _window_is_shared_out(view: View) -> str | None:
    if view.setting("max_in_flight") and view.value("max_in_flight") < view.value("consumers"):
        return (
            f"max_in_flight ({view.value('max_in_flight')}) is divided among the consumers "
            f"({view.value('consumers')}), so one could never read"
        )
    return None


def _restart_backoff_within_its_limit(view: View) -> str | None:
    if view.value("restart.backoff") > view.value("restart.max_backoff"):
        return "restart.backoff is longer than restart.max_backoff"
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


def _spark_takes_batches(view: View) -> str | None:
    if view.is_spark and view.value("ordering") == "key":
        return 'ordering = "key" orders single records, and a spark table cuts them into batches'
    return None


def _ranges_are_committed_by_us(view: View) -> str | None:
    if view.value("spark.mode") == "ranges" and view.value("enable_auto_commit"):
        return 'with spark.mode = "ranges" executors read the records, so the client has nothing to commit'
    return None


def _window_feeds_all_workers(view: View) -> str | None:
    if view.setting("max_in_flight") and view.value("concurrency") > view.value("max_in_flight"):
        return f"concurrency is above max_in_flight ({view.value('max_in_flight')}), so it could never be reached"
    return None


INCOMING_RULES = (
    Rule(("ack", "commit_strategy", "enable_auto_commit"), _only_ignore_goes_without_acks),
    Rule(("assign", "pattern", "topics", "topic"), _one_way_to_name_topics),
    Rule(("enable_auto_commit", "commit_strategy"), _one_committer),
    Rule(("commit_latest_unsafe", "commit_strategy", "enable_auto_commit"), _unsafe_is_of_latest),
    Rule(("keep_out_of_order_acks", "commit_strategy", "enable_auto_commit"), _kept_acks_are_committed),
    Rule(("keep_out_of_order_acks", "spark", *_SPARK_KEYS), _plans_need_no_kept_acks),
    Rule((*_CHECKPOINT_KEYS, "checkpoint", "commit_strategy", "enable_auto_commit"), _store_is_for_checkpoints),
    Rule(("commit_strategy", "checkpoint.store"), _checkpoints_have_a_store),
    Rule(("checkpoint.state", "ordering", "commit_strategy"), _states_come_in_order),
    Rule(("keep_out_of_order_acks", "checkpoint.state", "commit_strategy"), _states_are_not_skipped),
    Rule(("checkpoint.unsynced_max_age", "commit_interval", "commit_strategy"), _writes_come_in_time),
    Rule(("key", "ordering"), _key_is_for_ordering),
    Rule(("on_poison", "unprocessed_record_max_age"), _poison_is_watched_for),
    Rule(("on_poison", "commit_strategy", "enable_auto_commit"), _poison_needs_commits),
    Rule(("assign", "consumers"), _assigned_once),
    Rule(("retry.backoff", "retry.max_backoff"), _backoff_within_its_limit),
    Rule(("restart.backoff", "restart.max_backoff"), _restart_backoff_within_its_limit),
    Rule(("max_in_flight", "batch_max_records"), _window_holds_a_batch),
    Rule(("max_in_flight", "spark.batch_max_records"), _window_holds_a_spark_batch),
    Rule(("ordering", "spark", *_SPARK_KEYS), _spark_takes_batches),
    Rule(("enable_auto_commit", "spark.mode"), _ranges_are_committed_by_us),
    Rule(("concurrency", "max_in_flight"), _window_feeds_all_workers),
    Rule(("max_in_flight", "consumers"), _window_is_shared_out),
    *CONSUMER_RULES,
)
OUTGOING_RULES = PRODUCER_RULES


def _one_driver(view: View) -> str | None:
    if {"remote", "master"} <= set(nearest(view.table, ("remote", "master"))):
        return "remote (a Spark Connect server) and master (a session of its own) exclude each other; keep one"
    return None


SPARK_RULES = (Rule(("remote", "master"), _one_driver),)
