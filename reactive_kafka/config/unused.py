"""Settings that have no effect beside the others, or not all of it. Pure.

They are told, and no error: environments switch a strategy by a variable, and its table stays in the file. A default in
``[kafka]`` need not fit all channels: of tables only the channel's own are told.
"""

from __future__ import annotations

from reactive_kafka.config.checks import COMMITS, SASL, TLS, Contradictions, inside, revocations
from reactive_kafka.config.collect import View

NEED_COMMITS = ("dead-letter-queue", "pause-partition")
"""What ``on_poison`` cannot do in a channel that commits nothing."""


def _of_commits(view: View) -> Contradictions:
    strategy = view.commit_strategy
    if view["commit_latest_unsafe"] and strategy != "latest":
        why = f'has no effect: it goes with commit_strategy = "latest", and it is "{strategy}"'
        yield ("commit_latest_unsafe", *COMMITS), why
    if view["keep_out_of_order_acks"] and strategy == "ignore":
        why = 'has no effect: kept acks are stored with a committed position, and with commit_strategy = "ignore" '
        yield ("keep_out_of_order_acks", *COMMITS), why + "there is none"
    if strategy != "checkpoint" and view.own_inside("checkpoint"):
        why = f'has no effect: it goes with commit_strategy = "checkpoint", and it is "{strategy}"'
        yield (*inside("checkpoint"), *COMMITS), why


def _of_poison(view: View) -> Contradictions:
    if view["on_poison"] == "dead-letter-queue" and not view["unprocessed_record_max_age"]:
        why = "has no effect: unprocessed_record_max_age = 0 turns off the watch that finds poison"
        yield ("on_poison", "unprocessed_record_max_age"), why
    # The channel says both itself: what [kafka] says of all channels is meant for those that commit.
    is_meant = view.own("on_poison") or not (view.own("commit_strategy") or view.own("enable_auto_commit"))
    if is_meant and view["on_poison"] in NEED_COMMITS and view.commit_strategy == "ignore":
        why = 'has no effect: with commit_strategy = "ignore" no record ever becomes poison'
        yield ("on_poison", *COMMITS), why


def _of_order(view: View) -> Contradictions:
    if view["key"] is not None and view["ordering"] != "key":
        yield ("key", "ordering"), f'has no effect: it goes with ordering = "key", and it is "{view["ordering"]}"'


def _of_security(view: View) -> Contradictions:
    # Without a security.protocol at all this is an error: whoever writes a password expects it to be asked for.
    protocol = view["security_protocol"]
    if protocol in ("PLAINTEXT", "SSL"):
        yield SASL, f"has no effect: security.protocol is {protocol}, which has no SASL"
    if protocol in ("PLAINTEXT", "SASL_PLAINTEXT"):
        yield TLS, f"has no effect: security.protocol is {protocol}, which has no TLS"


UNUSED_BY_CLIENTS = (_of_security,)
UNUSED_BY_INCOMING = (_of_commits, _of_poison, _of_order, revocations, *UNUSED_BY_CLIENTS)
