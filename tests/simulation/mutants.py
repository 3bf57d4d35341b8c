# noqa: RUF100
"""Mutants of the rules: each breaks one, in a copy of the package, and the simulation or the fast
tests must see it.

``python -m tests.simulation.mutants [--seeds N] [--jobs N] [NAME ...]`` prints a table and the
score; 1 if one survives. What has seen a mutant is kept in ``mutants_seen.json``, and is asked first
the next time: most mutants then take seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
PACKAGE = "reactive_kafka"
LONGEST_S = 1800.0
TEST_LIMIT_S = "120"
"""A test that runs longer, in an event loop that turns for ever, has seen the mutant."""
SEEN = Path(__file__).with_name("mutants_seen.json")
FAST_TESTS = (
    "tests/broker/consumer",
    "tests/broker/test_memory_consumer_protocol.py",
    "tests/tracking",
    "tests/commit",
    "tests/partitions",
    "tests/assignment",
    "tests/fetching",
    "tests/delivery",
    "tests/verdicts",
    "tests/failure",
    "tests/nacks",
    "tests/outgoing",
    "tests/channel",
    "tests/runtime",
    "tests/app",
    "tests/spark/test_attempts.py",
    "tests/spark/test_bisection.py",
    "tests/spark/test_cuts.py",
)
SEEN_BY_TESTS = (1, 2, 3)
"""Exit codes of pytest: a test has failed, a file of tests cannot be imported, or pytest has broken
down. With the others there was no test, or pytest did not take the arguments.
"""
NO_SERVER = "not kafka and not prometheus and not postgres and not redis and not spark"
ONLY = {
    "consumer": ("broker/consumer/membership/consumer_group",),
    "spark": ("spark/", "tracking/plans", "tracking/metadata/codec"),
    "states": ("checkpoint/state_history",),
    "transactions": (
        "checkpoint/store_transactions",
        "checkpoint/transaction_outcomes",
        "checkpoint/open_transactions",
    ),
    "checkpoint": ("checkpoint/",),
    "strings": ("tracking/metadata/user", "tracking/metadata/pending"),
    "outbox": ("outgoing/outbox_outputs", "channel/outbox_", "checkpoint/outbox"),
    "chain": ("outgoing/transactions/",),
    "middleware": ("handlers/middleware",),
    "ends": ("subscription", "channel/until_end"),
}
"""Files of rules that only some kinds of seeds have: the simulation need not play others."""


class Mutant(NamedTuple):
    """A wrong rule: *old* stands exactly once in *file*, and becomes *new*; *kind*: of seeds, if
    not by the file.
    """

    name: str
    file: str
    old: str
    new: str
    kind: str = ""


class Verdict(NamedTuple):
    """What saw the mutant; *by* is empty if nothing did."""

    mutant: Mutant
    by: str
    took_s: float


ASSIGNMENT = "assignment/assignment.py"
ATTEMPTS = "spark/batches/attempts.py"
ATTEMPT_TIME = "verdicts/attempt_time.py"
BACKLOG = "channel/outbox_backlog.py"
BESIDE = "tracking/metadata/pending.py"
BISECTION = "spark/batches/bisection.py"
BUDGET = "fetching/budget.py"
CHOOSING = "delivery/runners/choosing.py"
CLAIM = "checkpoint/owned_row.py"
COMMITTER = "commit/committer.py"
CONNECTION = "channel/client_connection.py"
CONSUMER = "checkpoint/consumer.py"
CLASSIC_MEMBER = "broker/consumer/membership/classic_group/member_rules.py"
CONSUMER_MEMBER = "broker/consumer/membership/consumer_group/member.py"
CONSUMER_MEMBERSHIP = "broker/consumer/membership/consumer_group/membership.py"
CUTS = "spark/batches/cuts.py"
DONE = "tracking/metadata/done.py"
DRAIN = "assignment/drain.py"
ENDS = "outgoing/transactions/positions.py"
OUTBOX = "outgoing/outbox_outputs.py"
ENGINE = "commit/commit_engine.py"
FETCHER = "fetching/fetcher.py"
HANDOVER = "assignment/handover.py"
HEADERS = "failure/headers.py"
HEALTH = "observe/health.py"
INTAKE = "fetching/intake.py"
KEEPER = "checkpoint/channel_rows.py"
KEYED = "delivery/lanes/keyed.py"
LANE = "delivery/lanes/lane.py"
LANES = "delivery/lanes/queue.py"
LIMIT = "delivery/lanes/limits.py"
LISTENER_CALLS = "broker/consumer/membership/listener_calls.py"
AFTER = "channel/after.py"
SLOTS = "delivery/workers/slots.py"
LOCATE = "assignment/position_lookup.py"
MEMBER = "channel/clients.py"
METADATA = "tracking/metadata/codec.py"
MIDDLEWARE = "handlers/middleware.py"
NACKS = "nacks/handling.py"
OWNED = "partitions/client_partitions.py"
OWNED_SINCE = "broker/consumer/membership/owned_since.py"
PARTITION = "partitions/partition.py"
PAUSES = "delivery/lanes/pauses.py"
PLACES = "delivery/workers/places.py"
PLANS = "tracking/plans.py"
POISON = "tracking/poison_watch.py"
POSITIONS = "assignment/start_policy.py"
PROTOCOL = "broker/consumer/membership/protocol_choice.py"
RECORDS = "delivery/runners/record_runner.py"
RELAY = "channel/outbox_relay.py"
RETRIES = "failure/routes.py"
RUNS = "tracking/record_offsets.py"
SHARED_LIMIT = "delivery/workers/shared_limit.py"
SKIPS = "verdicts/skips.py"
SPARK_DISPATCH = "spark/channel/dispatcher.py"
SPARK_JOB = "spark/channel/batch_job.py"
SPARK_VERDICTS = "spark/channel/settle.py"
STARTING = "assignment/partition_starter.py"
STATES = "checkpoint/state_history.py"
STORE = "checkpoint/store.py"
STRATEGIES = "failure/strategies.py"
STRATEGY = "commit/strategy.py"
TABLE = "partitions/table.py"
TEXTS = "tracking/metadata/user.py"
TRACKER = "tracking/tracker.py"
TRANSACTION = "checkpoint/store_transactions.py"
TRIM = "fetching/trim.py"
UNKNOWN = "tracking/unknown_commits.py"

MUTANTS = (
    Mutant(
        "what the group refused before an assignment makes its first commit wait",
        COMMITTER,
        "        self._spared_until = -math.inf\n        if self._retry_at is not None",
        "        if self._retry_at is not None",
    ),
    # what one partition, or one look, does to the others
    Mutant(
        "a topic that was looked for in vain is not looked for again",
        "outgoing/queue/writer.py",
        "            self._looked_up.discard(topic)",
        "            pass",
    ),
    Mutant(
        "an idle worker leaves its timer behind",
        "delivery/workers/places.py",
        "                timer.cancel()",
        "                pass",
    ),
    Mutant(
        "what was sought outlives its assignment",
        TABLE,
        "            partition.start.end_assignment()\n",
        "",
    ),
    Mutant(
        "a position that is not told keeps all others waiting",
        "assignment/position_lookup.py",
        "            return error.found, error.unknown",
        "            raise",
    ),
    Mutant(
        "Kafka's positions pass for those of the store",
        "checkpoint/consumer.py",
        "            raise TransientBrokerError(str(error)) from error",
        "            raise",
        "checkpoint",
    ),
    Mutant(
        "a topic whose log is not told keeps all others waiting",
        "assignment/log_ends.py",
        "        if len(by_topic) == 1:",
        "        if by_topic:",
    ),
    Mutant(
        "records before a poison one wait behind it",
        "tracking/poison_watch.py",
        "tracker.unsettled - tracker.unsettled_up_to(index)",
        "tracker.unsettled - 1",
    ),
    Mutant(
        "a stop counts from the revocation before it",
        DRAIN,
        "self._waits_since.get(during, now)",
        "min(self._waits_since.values(), default=now)",
    ),
    Mutant(
        "a store that answers reads takes writes, too",
        "checkpoint/channel_rows.py",
        "if not is_write and self._answered_at",
        "if False and self._answered_at",
        "checkpoint",
    ),
    Mutant(
        "a channel that starts again continues without the states of before",
        "channel/channel_session.py",
        "        if self.hook.keeps_positions:",
        "        if False:",
        "checkpoint",
    ),
    Mutant(
        "nobody looks at the store of an idle channel",
        "checkpoint/consumer.py",
        "        await self._rows.look()",
        "        pass",
        "checkpoint",
    ),
    Mutant(
        "a refused transaction is tried again at once, for ever",
        "checkpoint/store_transactions.py",
        "                if was_refused:",
        "                if False:",
        "checkpoint",
    ),
    # channels at run time, and what counts records and handlers
    Mutant(
        "one handler more than the cap",
        LANES,
        "if lane.workers < self._most_per_lane:",
        "if lane.workers <= self._most_per_lane:",
    ),
    Mutant(
        "a commit is due at twice the number",
        "commit/every.py",
        "if ahead >= self._most:",
        "if ahead >= 2 * self._most:",
    ),
    Mutant(
        "caught up at the last record",
        "channel/caught_up.py",
        "positions.get(log.partition, -1) < log.end",
        "positions.get(log.partition, -1) < log.end - 1",
    ),
    Mutant(
        "a stop does not wait for its turn",
        "channel/switch.py",
        "            async with self._turn:\n                await change()",
        "            await change()",
    ),
    # which position is safe
    Mutant(
        "commit the maximum",
        TRACKER,
        "return self.offset_of(self.base) if self.flags else self.position",
        "return self.offset_of(self.base + max(self.flags.rfind(SETTLED), 0)) if self.flags else self.position",
    ),
    Mutant(
        "commit the position",
        TRACKER,
        "return self.offset_of(self.base) if self.flags else self.position",
        "return self.position",
    ),
    Mutant(
        "off by one",
        TRACKER,
        "return self.offset_of(self.base) if self.flags else self.position",
        "return self.offset_of(self.base) + 1 if self.flags else self.position",
    ),
    Mutant(
        "one too few",
        TRACKER,
        "return self.offset_of(self.base) if self.flags else self.position",
        "return self.offset_of(self.base) if self.flags else self.position - 1",
    ),
    Mutant(
        "gaps at the end are not passed",
        TRACKER,
        "self.position = max(self.position, next_offset)",
        "pass",
    ),
    Mutant(
        "a run counts as done up to where it stands",
        TRACKER,
        "            self._settle_window(first, run_at)\n        if run_at",
        "            self._settle_window(first, run_at + 1)\n        if run_at",
    ),
    Mutant(
        "a run that ends takes the failed record along",
        TRACKER,
        "self._settle_window(first, until)",
        "self._settle_window(first, until + 1)",
    ),
    Mutant(
        "a nack settles", TRACKER, "self.flags[place] = NACKED\n", "self.flags[place] = SETTLED\n"
    ),
    Mutant(
        "a second verdict counts",
        TRACKER,
        "        if place < 0 or self.flags[place] != NACKED:",
        "        if place < 0:",
    ),
    Mutant("a closed tracker takes verdicts", TRACKER, "        self.base = CLOSED_BASE\n", ""),
    Mutant(
        "gaps are forgotten",
        RUNS,
        "if offset != previous + 1 or index == first:",
        "if index == first:",
    ),
    Mutant(
        "settled records are let go with the run before them",
        RUNS,
        "        if behind > 0:\n",
        "        if behind >= 0:\n            behind += 1\n",
    ),
    Mutant(
        "records not acked count as acked",
        TRACKER,
        "acked = self.settled - self.failed",
        "acked = self.settled",
    ),
    # how fast they may start
    Mutant(
        "what has started counts for nothing",
        LIMIT,
        "self._missing = self._missing_at(now) + records",
        "self._missing = self._missing_at(now)",
    ),
    Mutant(
        "a batch does not wait for those before it",
        LIMIT,
        "return self._since + self._missing / self._per_second",
        "return self.ready_at",
    ),
    Mutant(
        "nobody is woken when records may start",
        LIMIT,
        "        self._timer = None\n        self._wake()",
        "        self._timer = None",
    ),
    Mutant(
        "values that were held back are called no more",
        "delivery/lanes/limited.py",
        "            self._call_at(now + 1 / self._buckets.per_second, value)\n        else:\n",
        "            pass\n        else:\n",
    ),
    Mutant(
        "a record that was held back starts whatever its rate",
        "delivery/lanes/limited.py",
        "        return self._buckets.ready_at(value) <= self._clock.monotonic()",
        "        return is_called or self._buckets.ready_at(value) <= self._clock.monotonic()",
    ),
    Mutant(
        "those that came later overtake what was held back",
        "delivery/lanes/limited.py",
        "if value in self._held and not is_called:",
        "if False:",
    ),
    # which channel comes first
    Mutant(
        "nobody looks again whether the first channel has records",
        AFTER,
        "        if not self._must_wait():\n            self._wake()",
        "        self._must_wait()",
    ),
    Mutant(
        "a run never ends where the first channel gets more and more",
        AFTER,
        "    if run_end is not None:",
        "    if False:",
    ),
    Mutant(
        "retries that are not due hold up the next channel",
        AFTER,
        "    return partition.tracker.unsettled - len(partition.lane.delayed)",
        "    return partition.tracker.unsettled",
    ),
    Mutant(
        "a channel that has stopped is waited for",
        "channel/lifecycle.py",
        "return self.status.is_taking and has_waiting",
        "return has_waiting",
    ),
    Mutant(
        "what is not fetched does not count",
        AFTER,
        "    return partition.log.end is None or tracker.position < partition.log.end",
        "    return False",
    ),
    # what channels share
    Mutant(
        "a slot is not given back",
        SLOTS,
        "            worker.has_slot = False\n            self._limit.give_back()",
        "            worker.has_slot = False",
    ),
    Mutant(
        "an attempt needs no slot",
        "delivery/workers/waits.py",
        "        if is_due and slots is not None:",
        "        if is_due and slots is not None and worker.has_slot:",
    ),
    Mutant(
        "a record that waits to be tried again keeps waiting after its verdict",
        "delivery/lanes/lane.py",
        "        self.tracker.put_back(index, self._has_verdict)\n",
        "        self.tracker.put_back(index, lambda _: None)\n",
    ),
    Mutant(
        "a worker waits for the next attempt of a record that has its verdict",
        "delivery/workers/waits.py",
        "        message.tracker.call_at_verdict(message.index, told)\n",
        "        pass\n",
    ),
    Mutant(
        "the first verdict ends the wait of a whole batch",
        "delivery/workers/waits.py",
        "        if not without_verdict:\n",
        "        if without_verdict >= 0:\n",
    ),
    Mutant(
        "a record that was put back is not settled with those before a message",
        TRACKER,
        "            self._had[index] = None\n",
        "            pass\n",
    ),
    Mutant(
        "a record that waits for its schema is settled with those before a message",
        "delivery/retry.py",
        "            message.tracker.unstart(message.index)\n",
        "            pass\n",
    ),
    Mutant(
        "records start in order though one of them waits for its schema",
        "delivery/retry.py",
        "            message.tracker.unstart(message.index)\n",
        "            message.tracker.start_range(message.index, 1, -1.0)\n",
    ),
    Mutant(
        "a batch gives its place up for a partition of which it has no record",
        "delivery/workers/pool.py",
        "            if worker.is_at(lane):",
        "            if lane in worker.lanes:",
    ),
    # when it is sent, and what an answer means
    Mutant(
        "two requests in flight",
        ENGINE,
        "        if self._in_flight is not None:\n            return None\n",
        "",
    ),
    Mutant(
        "done before the commit succeeded",
        ENGINE,
        "self._in_flight = CommitRequest(self.table.generation,",
        "[setattr(one.tracker, 'uncommitted_from', one.position) for one in due]\n        "
        "self._in_flight = CommitRequest(self.table.generation,",
    ),
    Mutant(
        "a failed commit counts",
        ENGINE,
        "        self._in_flight = None\n        if is_unknown:",
        "        self._in_flight = None\n        self.confirm(request, 0.0)\n        if is_unknown:",
    ),
    Mutant(
        "an unknown outcome is taken for failure",
        ENGINE,
        "        if is_unknown:\n            self._note_unknown(request.due)\n",
        "",
    ),
    Mutant(
        "without a group what is unknown ends with the last commit",
        UNKNOWN,
        "if now >= end or (is_last and self._is_fenced):",
        "if now >= end or is_last:",
    ),
    Mutant(
        "without a group what is unknown ends with its client",
        TABLE,
        "return self._unanswered.setdefault(name, UnknownCommits(is_fenced=False))",
        "return UnknownCommits(is_fenced=False)",
    ),
    Mutant(
        "without a group a request on its way is forgotten at the end",
        ENGINE,
        "            self._note_unknown(request.due)\n        elif",
        "            self._note_unknown(staying)\n        elif",
    ),
    Mutant(
        "a request on its way is forgotten when an incremental assignment comes",
        ENGINE,
        "        elif len(staying) == len(request.due):\n            return\n",
        "",
    ),
    Mutant(
        "a request on its way is forgotten for what stays when other partitions go",
        ENGINE,
        "            self._note_unknown(staying)\n        self._in_flight = None\n",
        "            pass\n        self._in_flight = None\n",
    ),
    Mutant(
        "a generation ends the fear of a late commit of what stays",
        TABLE,
        "            if not (self.is_static or partition.is_ours):\n",
        "            if not self.is_static:\n",
    ),
    Mutant(
        "what a stop could not store waits for the next record",
        STARTING,
        "        if not choice.is_resumed:\n",
        "        if True:\n",
    ),
    Mutant(
        "the first success ends what is unknown",
        UNKNOWN,
        "self._repeats = _Repeats(now, now + REPEAT_AFTER_S)",
        "self.end()",
    ),
    Mutant(
        "less follows a commit of unknown outcome",
        ENGINE,
        "            least = max(least, tracker.attempted)\n",
        "            pass\n",
    ),
    Mutant(
        "the strategy may pass unsettled records",
        ENGINE,
        "position = min(position, reached)",
        "pass",
    ),
    Mutant(
        "what is retained may be of any generation",
        TABLE,
        "        if not self._may_be_retained(partition, self.generation):\n            return False\n",
        "",
    ),
    Mutant(
        "what was stored meanwhile is not looked at",
        TABLE,
        "return partition.commits.is_as_left(tracker, committed)",
        "return True",
    ),
    Mutant(
        "nothing is retained",
        TABLE,
        "if not self.is_retained(partition, committed):",
        "if True:",
    ),
    Mutant(
        "what has gone stays open",
        TABLE,
        "        if partition.tracker is not None:\n            partition.tracker.close()\n        return partition",
        "        return partition",
    ),
    Mutant(
        "a reset leaves the old tracker open",
        TABLE,
        "        if old is not None:\n            old.close()\n",
        "",
    ),
    Mutant(
        "a commit is never confirmed",
        ENGINE,
        "pending.tracker.confirmed(pending.position)\n                commits.confirm_position(pending.position)",
        "pass",
    ),
    Mutant(
        "a flush gives up after one failure",
        COMMITTER,
        "if not self.is_owner or self._clock.monotonic() + FLUSH_RETRY_S >= deadline:",
        "if True:",
    ),
    Mutant(
        "an unknown outcome is taken for success",
        COMMITTER,
        "        except BrokerError as error:\n            return error\n",
        "        except OutcomeUnknownError:\n            pass\n        except BrokerError as error:\n"
        "            return error\n",
    ),
    Mutant(
        "a refusal does not end the ownership",
        COMMITTER,
        "self.is_owner = not is_refused",
        "self.is_owner = True",
    ),
    Mutant(
        "a standby claims the rows of the store to see what its group has handled",
        "channel/until_end.py",
        "        if stored is None:\n",
        "        if True:\n",
    ),
    Mutant(
        "a tick does not spare a broker that has failed",
        COMMITTER,
        "            return max(self._spared_until, min(tick, self._retry_at))\n",
        "            return min(tick, self._retry_at)\n",
    ),
    Mutant(
        "readiness remembers a failed commit for ever",
        COMMITTER,
        "        self.failing = None\n        self._retry_at = None\n        self._waits",
        "        self._retry_at = None\n        self._waits",
    ),
    Mutant(
        "latest leaves the last record out",
        STRATEGY,
        "progress.highest if self.is_unsafe else progress.safe",
        "progress.highest if self.is_unsafe else progress.safe - 1",
    ),
    Mutant(
        "unsafe for every strategy",
        ENGINE,
        "self._is_unsafe = type(strategy) is LatestCommits and strategy.is_unsafe",
        "self._is_unsafe = True",
    ),
    # poison
    Mutant(
        "poison is never found",
        POISON,
        "before = self._time.before(self._max_age_s, now)",
        "before = self._time.before(1e9, now)",
    ),
    Mutant(
        "poison is told at each look",
        POISON,
        "new = [poison for poison in found if poison not in self._reported]",
        "new = found",
    ),
    Mutant(
        "poison never ends",
        POISON,
        "self.current = tuple(found)",
        "self.current = (*self.current, *found)",
    ),
    Mutant(
        "a stopped process ages its records", POISON, "self._time.lose(self._expected, now)", "pass"
    ),
    # lanes
    Mutant(
        "a lane has two workers",
        LANES,
        "        if lane.workers and not self.shared:\n            return\n",
        "",
    ),
    Mutant(
        "a suspended lane gives out records",
        LANE,
        "if self.state is not OPEN or not self._behind:",
        "if not self._behind:",
    ),
    Mutant(
        "a retained lane is not offered",
        OWNED,
        "            self._lanes.offer(partition.lane)\n",
        "",
    ),
    Mutant(
        "who waits for a commit that was stored unheard is not told",
        OWNED,
        "verdicts_of(tracker).confirmed(tracker.committed)",
        "pass",
    ),
    Mutant(
        "a retained lane stays suspended",
        OWNED,
        '            partition.lane.change("retain")\n',
        "",
    ),
    Mutant(
        "what has gone is still handed out",
        LANE,
        "        self._drop_current()\n        self._behind = ()\n",
        "        self.state = OPEN\n",
    ),
    Mutant(
        "a suspended lane loses what waits",
        LANE,
        "            self._queue_behind().appendleft((rest, self.first + self.cursor, "
        "self.arrived))\n            self._waiting_behind += len(rest)\n",
        "            pass\n",
    ),
    Mutant(
        "a record put back goes to the end",
        KEYED,
        "self._queue_of(key).appendleft((index, record))",
        "self._queue_of(key).append((index, record))",
    ),
    Mutant("each record is its own key", KEYED, "key = key_of(record)\n", "key = record.offset\n"),
    Mutant(
        "a key goes with what waits with it",
        KEYED,
        "            self.freed.append(key)\n",
        "            pass\n",
    ),
    Mutant("a key that is busy is no matter", KEYED, "if key in busy:", "if False:"),
    Mutant(
        "who was alone in a lane holds no key",
        KEYED,
        "            self.busy[sole.key] = None\n",
        "",
    ),
    Mutant("two are alone in a lane", KEYED, "or self.workers > 1 or self.busy:", "or self.busy:"),
    Mutant(
        "what waits with keys is forgotten by who is alone",
        KEYED,
        "or self.workers > 1 or self.busy:",
        "or self.workers > 1:",
    ),
    Mutant(
        "who was alone goes on to the next piece",
        RECORDS,
        "if is_alone and isinstance(lane, KeyedLane) and lane.sole is not worker:",
        "if False:",
    ),
    Mutant(
        "a released worker keeps its key",
        "delivery/workers/pool.py",
        "                lane.free(key)\n",
        "                pass\n",
    ),
    Mutant(
        "a released lane is not queued again",
        LANES,
        "        lane.leave()\n        self.offer(lane)\n",
        "        lane.leave()\n",
    ),
    Mutant(
        "records of a batch are taken twice", LANE, "            self.cursor += len(part)\n", ""
    ),
    # handlers
    Mutant(
        "a record counts as handled before its handler ends",
        RECORDS,
        "                    tracker.started[index - tracker.base] = now\n",
        "                    tracker.started[index - tracker.base] = now\n                    tracker.settle(index)\n",
    ),
    Mutant(
        "a run counts the running record",
        RECORDS,
        "tracker.run_at = index\n",
        "tracker.run_at = index + 1\n",
    ),
    Mutant(
        "a failure is taken for success",
        "delivery/retry.py",
        "        worker.blocked_on += [nacks.failed(message, error) for message in nacked]\n",
        "        for message in nacked:\n            message.tracker.settle(message.index)\n",
    ),
    Mutant(
        "the key goes on while its record is tried again",
        RECORDS,
        "await self._failed(worker, message, failed, is_alone=is_alone)",
        "task.get_loop().create_task(self._failed(worker, message, failed, is_alone=is_alone))",
    ),
    Mutant(
        "one attempt less",
        RETRIES,
        "if attempt >= retry.max_attempts or",
        "if attempt >= retry.max_attempts - 1 or",
    ),
    Mutant("attempts without end", RETRIES, "if attempt >= retry.max_attempts or", "if"),
    # failure strategies
    Mutant(
        "settled before the dead letter is written",
        NACKS,
        "        is_settled = await self._letters.write(letter, settle_in_transaction)\n"
        "        if not is_settled and not delivery.tracker.settle_nacked(delivery.index):",
        "        settled = delivery.tracker.settle_nacked(delivery.index)\n"
        "        await self._letters.write(letter)\n        if not settled:",
    ),
    Mutant(
        "a dead letter is never written",
        NACKS,
        "        is_settled = await self._letters.write(letter, settle_in_transaction)\n",
        "        is_settled = False\n",
    ),
    Mutant(
        "a dead letter never settles",
        NACKS,
        "        if not is_settled and not delivery.tracker.settle_nacked(delivery.index):\n            return\n"
        '        nack.change("written")\n',
        '        nack.change("written")\n',
    ),
    Mutant(
        "fail skips the record",
        NACKS,
        "        if not self._channel.fail(error):\n",
        "        delivery.tracker.settle_nacked(delivery.index)\n        if not self._channel.fail(error):\n",
    ),
    Mutant(
        "fail does not stop the channel",
        NACKS,
        "        if not self._channel.fail(error):\n",
        "        if True:\n",
    ),
    Mutant(
        "the strategy of a nack is not counted",
        NACKS,
        "totals.nacked.get(nack.strategy, 0) + 1",
        "totals.nacked.get(nack.strategy, 0)",
    ),
    # rebalances
    Mutant(
        "handlers are not waited for",
        ASSIGNMENT,
        "        await self.drain.drain(min(deadlines.grace, deadlines.drain_end), partitions, most=deadlines.drain_end)\n",
        "",
    ),
    Mutant(
        "a revocation commits nothing",
        ASSIGNMENT,
        "if not await self._flush(slot, partitions):",
        "if False:",
    ),
    Mutant(
        "a revocation keeps its trackers",
        ASSIGNMENT,
        "            self._owned.revoke(partitions)\n",
        "",
    ),
    Mutant(
        "what drains still gives out records",
        OWNED,
        '            if partition.lane is not None:\n                partition.lane.change("suspend")\n',
        "            pass\n",
    ),
    Mutant(
        "what is started while it drains gives out records",
        OWNED,
        "if partition.state is PartitionState.DRAINING or self.is_alone:",
        "if self.is_alone:",
    ),
    Mutant(
        "what is started while it is alone gives out records",
        OWNED,
        "if partition.state is PartitionState.DRAINING or self.is_alone:",
        "if partition.state is PartitionState.DRAINING:",
    ),
    Mutant(
        "a stop retains what comes back",
        DRAIN,
        "            self._owned.is_ending = True",
        "            pass",
    ),
    Mutant(
        "a drain is of all partitions",
        TABLE,
        "in self._ours_among(names):\n            partition.assignment",
        "in self._ours_among(None):\n            partition.assignment",
    ),
    Mutant(
        "a revocation is of all partitions",
        TABLE,
        "in self._ours_among(names):\n            was_committing",
        "in self._ours_among(None):\n            was_committing",
    ),
    Mutant(
        "an assignment revokes what it does not name",
        TABLE,
        "        self.revoke(added)",
        "        self.revoke()",
    ),
    Mutant(
        "what is brought without a revocation is not revoked first",
        TABLE,
        "        self.revoke(added)",
        "        pass",
    ),
    Mutant(
        "a last commit is the last of all partitions",
        ENGINE,
        "is_last and (going is None or partition.id in going)",
        "is_last",
    ),
    Mutant(
        "the hooks of a revocation run for all partitions",
        ASSIGNMENT,
        "for partition in self._owned.among(partitions) if partition in self._await_revoked_hooks",
        "for partition in self._owned.among(None) if partition in self._await_revoked_hooks",
    ),
    Mutant(
        "a revoked partition is committed",
        PARTITION,
        "COMMITTING = frozenset({",
        "COMMITTING = frozenset({S.SUSPENDED, ",
    ),
    Mutant(
        "what drains is still fetched",
        PARTITION,
        "return self.state is S.READING",
        "return self.state in COMMITTING",
    ),
    Mutant(
        "what was looked up before a revocation is used",
        TABLE,
        "            partition.assignment = -1\n",
        "",
    ),
    Mutant("assignments have one number", TABLE, "self._assignments += 1", "self._assignments = 1"),
    Mutant(
        "an answer is void for ever",
        ENGINE,
        "        for partition in self.table:\n            partition.commits.send()\n",
        "",
    ),
    Mutant(
        "reading starts before its start is committed",
        LOCATE,
        "            await self._committer.commit()\n        flows = {}\n",
        "            pass\n        flows = {}\n",
    ),
    Mutant(
        "delayed records that are retained are forgotten",
        MEMBER,
        "        self.fetcher.intake.delayed.changed.set()\n",
        "",
    ),
    Mutant(
        "the dead letter of another record is written",
        "delivery/workers/worker.py",
        "if self.index != index or self.record is None:",
        "if self.record is None:",
    ),
    Mutant(
        "a worker that was replaced is taken for the one at the record",
        "delivery/workers/pool.py",
        "        lanes = worker.lanes\n        worker.lanes = ()\n",
        "        lanes = worker.lanes\n",
    ),
    Mutant(
        "a record that is given back comes behind newer ones",
        LANE,
        "        self.cut()\n        self._queue_behind()",
        "        self._queue_behind()",
    ),
    Mutant(
        "an attempt that a pause has held up is kept",
        "delivery/workers/waits.py",
        "                self._paused.pop(worker, None)\n",
        "                pass\n",
    ),
    Mutant(
        "a nack that nobody awaits holds no lane",
        "delivery/workers/pool.py",
        "worker.blocked_on.append(verdict)\n                worker.cut",
        "worker.cut",
    ),
    Mutant(
        "a repeated commit without an answer is not sent again",
        UNKNOWN,
        "            self._must_repeat = True\n        self._is_unknown = True",
        "            pass\n        self._is_unknown = True",
    ),
    Mutant(
        "reading starts one too late",
        LOCATE,
        "flows[partition.id] = start.read_from",
        "flows[partition.id] = start.read_from + 1",
    ),
    Mutant(
        "a position that is out of range is kept",
        LOCATE,
        "        if old.position != position and partition.ranges is None:\n            return\n",
        "        return\n",
    ),
    # fetcher
    Mutant(
        "delayed records are handed out at once",
        INTAKE,
        "        if delay_ms is None:\n",
        "        if True:\n",
    ),
    Mutant(
        "delayed records that are due stay held",
        "fetching/delayed_records.py",
        "        self.release_due(now)\n        self.changed.set()\n",
        "",
    ),
    Mutant(
        "no bound on what is in flight", BUDGET, "MAX_WINDOW_RECORDS =", "MAX_WINDOW_RECORDS = 0 *"
    ),
    # Spark: planned ranges
    Mutant(
        "a position inside of a plan is committed",
        PLANS,
        "            if planned.start < position < planned.until:\n                return planned.start\n",
        "            pass\n",
    ),
    Mutant(
        "what is done holds the position no longer in its range",
        PLANS,
        "        for planned in (*self.plans, *self._done):\n",
        "        for planned in self.plans:\n",
    ),
    Mutant(
        "plans that are done are not stored",
        PLANS,
        "        both = (*self.plans, *self._done)\n",
        "        both = self.plans\n",
    ),
    Mutant(
        "plans are not stored",
        METADATA,
        "    if not plans and not tail and not _OURS.match(user):\n",
        "    if True:\n",
    ),
    Mutant(
        "stored plans are not read",
        METADATA,
        "return Metadata(users, plans or (), lost, acks, topic)",
        "return Metadata(users, (), lost, acks, topic)",
    ),
    Mutant(
        "what the last owner has left counts for any topic of the name",
        STARTING,
        "void = self._why_void(partition.id, found) if choice is None else choice.void",
        "void = choice and choice.void",
    ),
    Mutant(
        "a store is not told the topic",
        BESIDE,
        "        if plans or self._policy.tells_topic:\n",
        "        if plans:\n",
    ),
    Mutant(
        "the next owner forgets the plans",
        HANDOVER,
        "            elif planned.until <= log_end:\n                tracker.plan(planned)",
        "            elif planned.until <= log_end:\n                pass",
        "spark",
    ),
    Mutant(
        "a function runs before its plan is stored",
        SPARK_JOB,
        "            if not await self._may_begin(self.runs):\n",
        "            if False:\n",
    ),
    Mutant(
        "a part runs before its plan is stored",
        SPARK_JOB,
        "            if not await self._may_begin([run]):\n",
        "            if False:\n",
    ),
    Mutant(
        "a plan counts as stored when it was sent",
        COMMITTER,
        "                if await self.commit():\n                    continue\n",
        "                await self.commit()\n                return True\n",
    ),
    Mutant(
        "what was planned is cut anew",
        CUTS,
        "        return Candidates(lane, lane.waiting, lane.arrived)\n    if next_offset(lane) < planned.start:\n",
        "        return Candidates(lane, lane.waiting, lane.arrived)\n    return Candidates(lane, lane.waiting, lane.arrived)\n    if next_offset(lane) < planned.start:\n",
    ),
    Mutant(
        "a planned range is run before all of it is there",
        CUTS,
        "is_whole = lane.tracker.position >= planned.until",
        "is_whole = True",
    ),
    Mutant(
        "a plan of a waiting range is forgotten",
        CUTS,
        "if planned.until <= offset and not lane.workers:",
        "if planned.until <= offset + 2:",
    ),
    # Spark: what follows a run
    Mutant(
        "what was cancelled counts as done",
        SPARK_DISPATCH,
        "        for run in reversed(job.left):\n            if not run.tracker.is_closed:\n",
        "        for run in reversed(job.left):\n            if not run.tracker.is_closed and not run.tracker.settle_range(run.first, run.end):\n",
    ),
    Mutant(
        "what was cancelled is forgotten",
        SPARK_DISPATCH,
        "                give_back(run.slices)\n",
        "",
    ),
    Mutant(
        "jobs are not cancelled when a partition goes",
        SPARK_DISPATCH,
        "        for job in jobs:\n            job.cut_off()\n        await",
        "        await",
    ),
    Mutant(
        "nobody waits until a cancelled job has ended",
        SPARK_DISPATCH,
        "        await asyncio.gather(*(job.over.wait() for job in jobs))\n",
        "",
    ),
    Mutant(
        "one job more than there may be",
        SPARK_DISPATCH,
        "if len(self._jobs) < self._setup.settings.spark.max_concurrent_jobs:",
        "if len(self._jobs) <= self._setup.settings.spark.max_concurrent_jobs:",
    ),
    Mutant(
        "a part supersedes nothing",
        SPARK_JOB,
        "for start, until in run.planned.failed\n",
        "for start, until in run.planned.failed[:0]\n",
    ),
    Mutant(
        "a part supersedes the innermost failed range only",
        BISECTION,
        "(*failed, (start, until))",
        "((start, until),)",
    ),
    Mutant(
        "a half is lost",
        BISECTION,
        "self._stack[at:at] = [(part, reason) for part in reversed(parts)]",
        "self._stack += [(part, reason) for part in parts[:1]]",
    ),
    Mutant(
        "the halves share a record",
        BISECTION,
        "yield piece.between(middle, piece.end, PlannedRange(cut, until, failed))",
        "yield piece.between(middle + 1, piece.end, PlannedRange(cut, until, failed))",
    ),
    Mutant(
        "bad data is nacked whole",
        ATTEMPTS,
        "if self._splits and is_data_error:",
        "if False:",
    ),
    Mutant("one lost driver is enough", ATTEMPTS, "MOST_LOST_ALONE = 2", "MOST_LOST_ALONE = 1"),
    Mutant(
        "a batch may end drivers for ever",
        ATTEMPTS,
        "MOST_LOST_ALONE = 2",
        "MOST_LOST_ALONE = 10**9",
    ),
    Mutant(
        "who was beside is to blame for a driver",
        ATTEMPTS,
        "if error.was_alone:",
        "if True:",
    ),
    Mutant(
        "who may have ended a driver does not run alone",
        ATTEMPTS,
        "return Failed(error) if self._lost_alone >= MOST_LOST_ALONE else Again(0.0, alone=True)",
        "return Failed(error) if self._lost_alone >= MOST_LOST_ALONE else Again(0.0, alone=False)",
    ),
    Mutant("one lost worker is enough", ATTEMPTS, "MOST_WORKERS_LOST = 2", "MOST_WORKERS_LOST = 1"),
    Mutant(
        "the cluster's fault is the batch's",
        ATTEMPTS,
        "            return Again(AFTER_CLUSTER_FAULT_S, self.alone)\n",
        "            return Failed(error)\n",
    ),
    Mutant(
        "a stuck job's records are nacked",
        ATTEMPTS,
        "            return Leave(error)\n",
        "            return Failed(error)\n",
    ),
    Mutant(
        "what a job rejected is settled",
        SPARK_VERDICTS,
        "        for index in sorted(reasons):\n            tracker.settle_range(start, index)\n            start = index + 1\n",
        "",
    ),
    Mutant(
        "a range is done before its dead letters are written",
        SPARK_VERDICTS,
        "        if is_settled:\n",
        "        if True:\n",
    ),
    Mutant(
        "a rejected offset is one of every partition",
        SPARK_VERDICTS,
        "if rejection.partition == tracker.partition:",
        "if True:",
    ),
    Mutant(
        "the lost end of a range leaves no letter",
        SPARK_VERDICTS,
        "return first if first < run.end else None",
        "return None",
    ),
    # positions and states in a store
    Mutant(
        "a state is ahead by one record",
        STATES,
        "place = bisect_left(self._offsets, position) - 1\n        if place",
        "place = bisect_left(self._offsets, position + 1) - 1\n        if place",
    ),
    Mutant(
        "a failed attempt counts in the state",
        STATES,
        "        for offset in offsets:\n            self.drop(offset)\n",
        "        pass\n",
    ),
    Mutant(
        "what a nacked record has set counts",
        "checkpoint/hook.py",
        "            owned.states.drop(delivery.offset)\n",
        "            pass\n",
    ),
    Mutant(
        "a position is written without its state",
        CLAIM,
        "return self.states.at_position(position)\n",
        "return self.checkpoint.state\n",
    ),
    Mutant(
        "other metadata at the position of before a seek settles the records after it",
        CLAIM,
        "None if self._is_from_before_seek(position) else self.tracker",
        "self.tracker",
    ),
    Mutant(
        "the token is not compared",
        STORE,
        "if token != write.expected or position != write.position:",
        "if position != write.position:",
    ),
    Mutant(
        "the position is not compared",
        STORE,
        "if token != write.expected or position != write.position:",
        "if token != write.expected:",
    ),
    Mutant(
        "a claim forgets the state",
        CONSUMER,
        "return Write(row.token, row._replace(token=",
        "return Write(row.token, row._replace(state=None, token=",
    ),
    Mutant(
        "Kafka is ahead of the store",
        CONSUMER,
        "            await self._rows.write(wanted)\n",
        "            await self._inner.commit(offsets, generation)\n            await self._rows.write(wanted)\n",
    ),
    Mutant(
        "duplicates are not dropped",
        CLAIM,
        "        return offset < self._stored\n",
        "        return False\n",
    ),
    Mutant(
        "a transaction settles before it is stored",
        TRANSACTION,
        "        try:\n            await self._rows.ask(transaction.__aexit__(None, None, None))\n",
        "        for part in parts:\n            self._outcomes.settle(part, part.deliveries)\n        try:\n            await self._rows.ask(transaction.__aexit__(None, None, None))\n",
    ),
    Mutant(
        "a transaction passes unsettled records",
        TRANSACTION,
        "!= len(part.deliveries):",
        "< len(part.deliveries):",
    ),
    Mutant(
        "a state stays when a seek goes back",
        CLAIM,
        "stored is not None and not goes_back",
        "stored is not None",
    ),
    Mutant(
        "a seek forgets what is on its way to the store",
        CLAIM,
        "self._sent_before += self._sent",
        "self._sent_before.clear()",
    ),
    Mutant(
        "a handler that has seen an old state stores the next one",
        STATES,
        "self.is_outdated = True",
        "self.is_outdated = False",
    ),
    Mutant(
        "a restarted channel of static partitions moves the group back",
        STARTING,
        "(commits_start or not choice.is_resumed)",
        "True",
    ),
    Mutant(
        "a seek loses what the last settled record has set",
        CLAIM,
        "self.states.restart(min(tracker.start, old.committable))",
        "self.states.restart(min(tracker.start, old.committable) - 1)",
    ),
    Mutant(
        "another client that takes a row over does not tell who had it",
        KEEPER,
        "                self.overtaken(partition, earlier.owner)",
        "                pass",
    ),
    Mutant(
        "a void answer is believed",
        ENGINE,
        " and not commits.is_void:",
        ":",
    ),
    # strings and kept acks
    Mutant(
        "a string is used up by a commit that failed",
        ENGINE,
        "    def fail(self, request: CommitRequest, *, is_unknown: bool) -> None:\n",
        "    def fail(self, request: CommitRequest, *, is_unknown: bool) -> None:\n        [one.commits.metadata.used_up(due) for due in request.due if (one := self.table.get(due.partition))]\n",
    ),
    Mutant(
        "a string is never used up", TEXTS, "        self._used = max(self._used, number)\n", ""
    ),
    Mutant(
        "the newest string always goes",
        TEXTS,
        "own = self._by_offset.get(last)",
        "own = None",
    ),
    Mutant(
        "a string that moves no position waits for the next",
        BESIDE,
        "        if not has_moved and not tracker.texts.has_acked:",
        "        if not has_moved:",
    ),
    Mutant(
        "an open record is kept as done",
        TRACKER,
        "NOT_SETTLED = bytes(flag != SETTLED for flag",
        "NOT_SETTLED = bytes(flag == 0 for flag",
        "keep",
    ),
    Mutant(
        "the first open record is kept as done",
        DONE,
        "found[bisect_left(found, position) :",
        "found[bisect_left(found, position) + 1 :",
        "keep",
    ),
    Mutant(
        "what was kept before is not kept on",
        DONE,
        "        return until if tracker.kept is None else max(until, tracker.kept.until)\n",
        "        return until\n",
        "keep",
    ),
    Mutant(
        "the next owner does not look at what was kept",
        HANDOVER,
        "            tracker.kept = acks\n",
        "            pass\n",
        "keep",
    ),
    # what letters hold, and how many there are
    Mutant(
        "a dead letter has neither value nor key",
        STRATEGIES,
        "        return replace(content, headers=merged)\n",
        "        return replace(content, headers=merged, value=None, key=None)\n",
    ),
    Mutant(
        "a delayed retry has no key",
        STRATEGIES,
        "        key=content.key,\n        headers=headers.merge_headers(ours, failed.headers, overrides, headers.DELAYED_NAMES),\n",
        "        key=None,\n        headers=headers.merge_headers(ours, failed.headers, overrides, headers.DELAYED_NAMES),\n",
    ),
    Mutant(
        "a letter leaves the record's own headers out",
        HEADERS,
        "    return (*mine, *theirs, *overrides)\n",
        "    return (*mine, *overrides)\n",
    ),
    Mutant(
        "a record's own headers pass for ours",
        HEADERS,
        "for name, value in original if name not in reserved and",
        "for name, value in original if",
    ),
    Mutant(
        "a letter names the place of the copy",
        STRATEGIES,
        "            *headers.place_headers(history.partition, history.offset, headers.DEAD_LETTER),\n",
        "            *headers.place_headers(failed.partition, failed.offset, headers.DEAD_LETTER),\n",
    ),
    Mutant(
        "each letter is written twice",
        NACKS,
        "        is_settled = await self._letters.write(letter, ",
        "        await self._letters.write(letter)\n        is_settled = await self._letters.write(letter, ",
    ),
    # records on their way to handlers
    Mutant(
        "one handler more than there may be",
        PLACES,
        "        if self._taken < self._most:\n            self.start()\n            return True\n",
        "        if self._taken <= self._most:\n            self.start()\n            return True\n",
    ),
    Mutant(
        "the window is twice as large",
        FETCHER,
        "room = settings.max_in_flight\n        batch",
        "room = 2 * settings.max_in_flight\n        batch",
    ),
    Mutant(
        "what is about to go takes no room",
        FETCHER,
        "partitions = len(self._table)\n",
        "partitions = len(self._table.reading)\n",
    ),
    Mutant(
        "what comes into a paused lane is current",
        LANE,
        "if self.state is OPEN and self.cursor >= len(self.records) and not self._behind:",
        "if self.cursor >= len(self.records) and not self._behind:",
        "pause",
    ),
    Mutant(
        "a string outlives another owner",
        TABLE,
        "if not partition.is_ours and not self._may_be_retained(partition, generation):",
        "if False:",
        "strings",
    ),
    Mutant(
        "a string is lost with every rebalance before reading starts",
        TABLE,
        "if not partition.is_ours and not self._may_be_retained(partition, generation):",
        "if not partition.is_ours:",
        "strings",
    ),
    Mutant(
        "each client has the whole window",
        "channel/client_roles.py",
        "max_in_flight=max(1, settings.max_in_flight // settings.consumers))",
        "max_in_flight=settings.max_in_flight)",
    ),
    Mutant(
        "what is settled and not committed has no bound",
        "fetching/stops.py",
        "if self.uncommitted.is_reached:",
        "if False:",
    ),
    Mutant(
        "nothing is committed before the bound is reached",
        "commit/uncommitted.py",
        "if self._commits_by_itself and (ahead >= self._urgent or is_early):",
        "if False:",
    ),
    Mutant(
        "a pause is ignored",
        PAUSES,
        "        if self._channel or any(partition in paused for paused in self._partitions.values()):\n            return True\n",
        "",
        "pause",
    ),
    Mutant(
        "what a handler has asked to wait with its record does not wait",
        PAUSES,
        "        return any(held is None or partition in held for held in self._holds.values())\n",
        "        return False\n",
        "later",
    ),
    Mutant(
        "a delay that a handler has asked for is not waited for",
        "delivery/retry.py",
        "is_due = await self._waits.until_due(worker, messages, later.delay_s)",
        "is_due = await self._waits.until_due(worker, messages, later.delay_s / 2)",
        "later",
    ),
    Mutant(
        "an attempt that is due does not wait for the end of a pause",
        "delivery/workers/waits.py",
        "        while _is_paused(worker) and any(map(is_open, messages)):\n",
        "        while False:\n",
        "pause",
    ),
    Mutant(
        "a handler that ignores the timeout of its attempt has handled its record",
        "verdicts/attempt_time.py",
        "        if not attempt.is_over:\n",
        "        if failed is None or not attempt.is_over:\n",
    ),
    Mutant(
        "a result is sent though nobody knows yet whose the partition is",
        "outgoing/fresh_outputs.py",
        "    while verdicts.is_held and not tracker.is_closed:\n",
        "    while False:\n",
    ),
    Mutant(
        "a pause stops the client alone",
        LANES,
        '            if self._pauses.has(lane.tracker.partition):\n                lane.change("pause")\n',
        "            if self._pauses.has(lane.tracker.partition):\n                pass\n",
        "pause",
    ),
    # sending: the simulation sends dead letters only, so the fast tests have to see these
    Mutant(
        "a message is acked before what was made of it is written",
        "outgoing/handler_outputs.py",
        "            if not channel.writer.accept(queued, channel.topic):\n",
        "            ack_range(tracker, index, index + 1)\n            if not channel.writer.accept(queued, channel.topic):\n",
    ),
    Mutant(
        "the ack of a written record takes the next one with it",
        "outgoing/handler_records.py",
        "        stop = start + 1\n",
        "        stop = start + 2\n",
    ),
    Mutant(
        "a generator is pulled on after a record that failed",
        "outgoing/handler_outputs.py",
        "                await self._routing.send(value, source, partial(_put, receipt))\n"
        "                return receipt.is_over",
        "                await self._routing.send(value, source, partial(_put, receipt))\n"
        "                return False",
    ),
    Mutant(
        "a generator with origins is pulled on after an output of the whole batch that failed",
        "outgoing/handler_outputs.py",
        "            # True: a record has failed already.\n            return receipt.is_over",
        "            return False",
    ),
    Mutant(
        "a generator is left open",
        MIDDLEWARE,
        "                await values.aclose()",
        "                pass",
    ),
    Mutant(
        "a batch that failed counts as written",
        "outgoing/queue/writer.py",
        "                    self._send_failed(partition.topic, error, len(records))\n                    await asyncio.sleep(waits.next_s())",
        "                    self._send_failed(partition.topic, error, len(records))\n                    queue.written(0, len(records))",
    ),
    Mutant(
        "records stay in a partition that does not exist any more",
        "outgoing/queue/writer.py",
        "        return self._queue.place_again(queue)\n",
        "        return False\n",
    ),
    Mutant(
        "a record leaves the partition that its sender has named",
        "outgoing/queue/send_queue.py",
        "        pinned = self._pinned or ()\n",
        "        pinned = ()\n",
    ),
    Mutant(
        "a record's own header stands beside the one passed on",
        "outgoing/outgoing_channel.py",
        "wanted = self._headers.difference(name for name, _ in own)",
        "wanted = self._headers",
    ),
    Mutant(
        "a receipt is told before it is sealed",
        "outgoing/queue/receipt.py",
        "super().__init__(records=1)",
        "super().__init__(records=0)",
    ),
    Mutant(
        "senders do not wait for room",
        "outgoing/queue/writer.py",
        "return self._queue.room > 0 and not self._callers",
        "return True",
    ),
    # exactly once
    Mutant(
        "a transaction without an answer counts as aborted",
        ENDS,
        "            if not await self._is_committed(transaction, partitions):",
        "            if True:",
    ),
    Mutant(
        "a transaction without an answer counts as committed",
        ENDS,
        "            if not await self._is_committed(transaction, partitions):",
        "            if False:",
    ),
    Mutant(
        "a transaction in doubt is not ended before it is asked about",
        ENDS,
        "                await transaction.settle_doubt()\n",
        "",
    ),
    Mutant(
        "a transaction commits the position of its last record",
        ENDS,
        "position = records.last.offset + 1",
        "position = records.last.offset",
    ),
    Mutant(
        "a seek does not make the positions of a transaction void",
        ENDS,
        "        for records in partitions:\n            # A seek or a rebalance in the meantime makes the positions void.\n            check_open(records)\n\n    async",
        "    async",
    ),
    Mutant(
        "a transaction does not wait for the end of a rebalance",
        ENDS,
        "        while any(  # noqa: ASYNC110\n            client.knows(tracker) and not client.reads_with(tracker) for client in self._clients()\n        ):",
        "        while False:",
    ),
    Mutant(
        "a commit goes over the position of an open transaction",
        "outgoing/transactions/exactly_once.py",
        "            if self._positions.is_held(partition):",
        "            if False:",
    ),
    Mutant(
        "a position passes the letters of a batch",
        "outgoing/transactions/exactly_once.py",
        "            letters = self._letters.before(tracker, last.index)\n            if tracker",
        "            letters = self._letters.before(tracker, last.index)\n            return []\n            if tracker",
    ),
    Mutant(
        "poison does not ask what has become of a transaction",
        "outgoing/transactions/exactly_once.py",
        "        return (delivery.tracker, delivery.index) in self._ending",
        "        return False",
    ),
    Mutant(
        "a letter passes the records before it",
        "outgoing/transactions/transactional_letters.py",
        "            is_another_unsettled = tracker.unsettled_up_to(index) != len(due) + 1",
        "            is_another_unsettled = False",
    ),
    Mutant(
        "a producer that has failed goes on",
        "outgoing/transactions/producers.py",
        "        self.is_sound = False\n        try:\n",
        "        try:\n",
    ),
    Mutant(
        "a transaction that is given up stays open",
        "outgoing/transactions/transaction.py",
        "                if self._producer is not None and self._is_begun and self._producer.is_sound:",
        "                if False:",
    ),
    Mutant(
        "what sends nothing is never settled",
        "outgoing/handler_outputs.py",
        "        verdicts_of(message.tracker).settle(message.index)  # where nothing was sent; a tick commits it",
        "        pass",
        "chain",
    ),
    Mutant(
        "a handler is nacked for the broker's trouble",
        "outgoing/transactions/exactly_once.py",
        "return CallAgain(if_settled=False, ages=False)",
        "return None",
    ),
    # around handlers
    Mutant(
        "what middleware raises is nobody's failure",
        MIDDLEWARE,
        "            result = await function(given, call_next)\n        finally:\n",
        "            result = await function(given, call_next)\n        except Exception:\n            result = None\n        finally:\n",
    ),
    Mutant(
        "a record is passed on in the place of another",
        MIDDLEWARE,
        "        if passed is not self._given and not _is_part(passed, self._given):\n",
        "        if False:\n",
    ),
    Mutant(
        "a record counts as handled while its handler runs",
        MIDDLEWARE,
        "        if is_running:\n",
        "        if False:\n",
    ),
    Mutant(
        "a send middleware may lose its record",
        MIDDLEWARE,
        "        if not sent:\n",
        "        if not sent:\n            return None\n        if False:\n",
    ),
    # outages
    Mutant(
        "readiness does not see that the broker is away",
        HEALTH,
        "        is_in_service\n        and channel.broker_error is None\n",
        "        is_in_service\n",
        "outage",
    ),
    Mutant(
        "an outage is no reason",
        HEALTH,
        '    if channel.broker_error is not None:\n        yield f"broker: {channel.broker_error}"\n',
        "",
        "outage",
    ),
    Mutant(
        "an outage is the end of the application",
        HEALTH,
        '        live=channel.state != "failed" and not',
        '        live=channel.state != "failed" and channel.broker_error is None and not',
    ),
    Mutant(
        "the broker is asked every minute",
        CONNECTION,
        "CHECK_S = 2.0\n",
        "CHECK_S = 60.0\n",
        "outage",
    ),
    # several handlers, filters
    Mutant(
        "what is filtered is not settled",
        SKIPS,
        "        if not tracker.settle(index):\n",
        "        if not tracker.is_open(index):\n",
        "filter",
    ),
    Mutant(
        "what is filtered is handled, too",
        CHOOSING,
        "            if self._choice.skips(message):\n                return\n            for branch",
        "            self._choice.skips(message)\n            for branch",
        "filter",
    ),
    Mutant(
        "what is filtered undecoded is handled, too",
        CHOOSING,
        "            if self._choice.skips_late(record):\n                return\n            for branch",
        "            self._choice.skips_late(record)\n            for branch",
        "filter",
    ),
    Mutant(
        "headers select nothing",
        INTAKE,
        "        if records and header_filter is not None:",
        "        if not records and header_filter is not None:",
        "filter",
    ),
    Mutant(
        "a stop leaves the timer of what is filtered",
        SKIPS,
        "            self._timer.cancel()\n",
        "            pass\n",
        "filter",
    ),
    Mutant(
        "what is filtered is told once",
        SKIPS,
        "            self._timer = None\n        for",
        "            pass\n        for",
        "filter",
    ),
    Mutant(
        "what is filtered is told again and again",
        SKIPS,
        "        self._unreported.clear()\n",
        "        pass\n",
        "filter",
    ),
    Mutant(
        "what is filtered counts as acked",
        SKIPS,
        "        tracker.counted += 1",
        "        pass",
        "filter",
    ),
    Mutant(
        "predicates are not asked",
        CHOOSING,
        "        return self.when is None or bool(self.when(message))",
        "        return True",
        "several",
    ),
    Mutant(
        "a broadcast ends with the first handler",
        CHOOSING,
        "            progress.position += 1\n            if is_taking",
        "            progress.position += 9\n            if is_taking",
        "broadcast",
    ),
    Mutant(
        "a broadcast begins anew with each attempt",
        CHOOSING,
        "        progress = self._progress.get(place)\n",
        "        progress = None\n",
        "broadcast",
    ),
    Mutant(
        "a broadcast that has failed is acked",
        CHOOSING,
        "            raise progress.error\n",
        "            pass\n",
        "broadcast",
    ),
    # starts and ends
    Mutant(
        "a last commit is of one partition only",
        ENGINE,
        "return self._send(due, frozenset(repeated), is_last=is_last)",
        "return self._send(due[:1] if is_last else due, frozenset(repeated), is_last=is_last)",
        "graceful",
    ),
    Mutant(
        "a last commit is sent twice",
        COMMITTER,
        "            await consumer.commit(request.offsets, request.generation)\n",
        "            await consumer.commit(request.offsets, request.generation)\n            request.is_last and await consumer.commit(request.offsets, request.generation)\n",
        "graceful",
    ),
    Mutant(
        "a start at the latest is not committed",
        POSITIONS,
        'return Start(log_end, "latest", lost, commit=True)',
        'return Start(log_end, "latest", lost, commit=False)',
        "latest",
    ),
    Mutant(
        "a start behind what was lost is not committed",
        POSITIONS,
        "commit=committed is not None or is_new)",
        "commit=is_new)",
        "retention",
    ),
    Mutant(
        "a new partition begins at the latest",
        POSITIONS,
        'if policy == "earliest" or is_new:',
        'if policy == "earliest":',
        "latest",
    ),
    Mutant(
        "retry topics begin at the latest",
        "channel/client_roles.py",
        '            auto_offset_reset="earliest",\n',
        "",
        "latest",
    ),
    Mutant(
        "what a reset passes is told as nothing",
        "assignment/history.py",
        "skipped=start.lost if wanted is not None else None",
        "skipped=0 if wanted is not None else None",
        "retention",
    ),
    Mutant(
        "a reset to the earliest goes to the latest",
        POSITIONS,
        'return Start(log_start, "earliest", lost, commit',
        'return Start(log_end, "earliest", lost, commit',
    ),
    # what was planted at an acceptance, and nothing saw: state that grows or is not reset, what is
    # told, what happens after a stop or a cancellation, boundaries after a seek, answers that are
    # lost
    Mutant(
        "the timer of a client that was replaced goes on",
        "assignment/lifeline.py",
        "            self._timer.cancel()\n            self._timer = None\n",
        "            self._timer = None\n",
        "rounds",
    ),
    Mutant(
        "the place of a sender that was cancelled in its turn is lost",
        "outgoing/queue/writer.py",
        "                self._queue.leave(1)\n",
        "                pass\n",
        "rounds",
    ),
    Mutant(
        "a record ages while its transaction waits for the store",
        TRANSACTION,
        "            part.tracker.stop_clock([delivery.index for delivery in part.deliveries], since)",
        "            pass",
        "outages",
    ),
    Mutant(
        "a record ages while it waits for what is not its handler",
        "tracking/tracker.py",
        "            self.started[place] += moved_s\n",
        "",
        "outages",
    ),
    Mutant(
        "the last position before a seek is none of ours",
        "partitions/commit_state.py",
        "range(lowest, highest + 1)",
        "range(lowest, highest)",
    ),
    Mutant(
        "a second seek forgets what may be stored of before the first one",
        "partitions/commit_state.py",
        "            if self.behind and old.uncommitted_from <= old.start:",
        "            if False:",
    ),
    Mutant(
        "what a transaction may have stored is not remembered",
        ENDS,
        "            records.tracker.attempted = max(records.tracker.attempted, position)\n",
        "",
    ),
    Mutant(
        "what was looked up in one assignment begins the next",
        "assignment/recreated_topics.py",
        "partition.assignment != assignments[partition] or partition.live is None",
        "partition.live is None",
    ),
    Mutant(
        "the tasks of nacks are kept for ever",
        NACKS,
        "                partition.writing.pop(index, None)\n",
        "",
        "rounds",
    ),
    Mutant(
        "the delay of a retry is told in milliseconds",
        NACKS,
        "(delay_of(letter.topic) or 0) / 1000",
        "(delay_of(letter.topic) or 0)",
    ),
    Mutant(
        "a producer with an open transaction is given back as sound",
        "outgoing/transactions/transaction.py",
        "            producer.is_sound = producer.is_sound and not self._is_begun\n",
        "",
    ),
    Mutant(
        "producers are handed out after the stop",
        "outgoing/transactions/producers.py",
        "            if self._is_closed:\n                raise TransientBrokerError",
        "            if False:\n                raise TransientBrokerError",
    ),
    Mutant(
        "handlers of lanes that were replaced are forgotten at a stop",
        DRAIN,
        "            if waits_for_replaced and self._owned.has_replaced_lanes():\n                return False\n",
        "",
    ),
    Mutant(
        "a flush leaves those that wait for more records alone",
        "outgoing/queue/writer.py",
        "        for more in self._lingering.values():\n            more.set()\n        before =",
        "        before =",
    ),
    # their neighbours
    Mutant(
        "the scopes of writes that have ended are kept",
        "outgoing/queue/writer.py",
        "                    self._scopes.discard(scope)\n",
        "                    pass\n",
        "rounds",
    ),
    Mutant(
        "those who have heard of their commit are kept waiting",
        "verdicts/acknowledger.py",
        "None)\n        self._drop_answered()\n",
        "None)\n",
        "rounds",
    ),
    Mutant(
        "lanes that were looked at are kept",
        "delivery/workers/pool.py",
        "        worker.left.clear()\n",
        "        pass\n",
        "rounds",
    ),
    Mutant(
        "a reason for a pause is never withdrawn",
        PAUSES,
        "            self._channel.pop(reason, None)\n",
        "            pass\n",
        "rounds",
    ),
    Mutant(
        "an attempt is told by the number of the next one",
        "delivery/retry.py",
        "HandlerRetried(**about, attempt=attempt, wait_s=wait_s)",
        "HandlerRetried(**about, attempt=attempt + 1, wait_s=wait_s)",
    ),
    Mutant(
        "a channel that waits once is never ready again",
        "delivery/retry.py",
        "            del self._troubles[worker]\n",
        "            pass\n",
        "rounds",
    ),
    Mutant(
        "transactions that have ended are kept",
        "outgoing/transactions/producers.py",
        "        self._open.discard(transaction)\n",
        "        pass\n",
        "rounds",
    ),
    Mutant(
        "records whose transaction has ended are kept",
        "outgoing/transactions/exactly_once.py",
        "                        del self._ending[key]\n",
        "                        pass\n",
        "rounds",
    ),
    Mutant(
        "the end of a transaction removes the note of the next one",
        "outgoing/transactions/exactly_once.py",
        "                    if self._ending.get(key) is done:\n",
        "                    if True:\n",
    ),
    Mutant(
        "no producer is kept for those that have partitions",
        "outgoing/transactions/producer_places.py",
        "if has_partitions and self._free",
        "if self._free",
    ),
    Mutant(
        "a record that was skipped is handled if it comes again",
        "fetching/record_skips.py",
        "            if committed is None or offset >= committed:\n",
        "            if False:\n",
    ),
    # ends of reading
    Mutant(
        "the hole between two ranges is passed",
        TRACKER,
        "return min(self.outside_plans(self.safe), self.limit)",
        "return self.outside_plans(self.safe)",
        "ends",
    ),
    Mutant(
        "what lies between two ranges is handled",
        TRIM,
        "_replace(records=_within(chunk.records, ranges), next",
        "_replace(next",
        "ends",
    ),
    Mutant(
        "a run ends when all of it is read",
        "channel/until_end.py",
        "partition.tracker is not None and partition.tracker.safe >=",
        "partition.tracker is not None and partition.tracker.position >=",
        "ends",
    ),
    Mutant(
        "a member without partitions ends although the group has records left",
        "channel/until_end.py",
        "if stored.offset < end:",
        "if False:",
        "ends",
    ),
    Mutant(
        "a run ends without its retries",
        "channel/until_end.py",
        "                        and await self._are_retries_over(session)\n",
        "",
        "ends",
    ),
    # outbox
    Mutant(
        "a transaction of an outbox is committed without what is returned",
        OUTBOX,
        "        if error is None and self._is_of_call:",
        "        if False:",
    ),
    Mutant(
        "an error behind the block of an outbox commits it",
        OUTBOX,
        "            await block.transaction.__aexit__(type(error), error, error.__traceback__)",
        "            await block.transaction.__aexit__(None, None, None)",
    ),
    Mutant(
        "what a generator yields before its block is not stored",
        OUTBOX,
        "            await block.transaction.add(pending)",
        "            pass",
    ),
    Mutant(
        "events are sent although their partition is gone",
        "channel/outbox_relay.py",
        "            if receipt.event.source not in ours:",
        "            if not ours:",
    ),
    Mutant(
        "rows whose events were confirmed are never deleted",
        RELAY,
        "        if numbers:",
        "        if False:",
    ),
    Mutant(
        "the row of an event that the broker refuses is deleted",
        RELAY,
        "            self.refused.append((event, text_of(error)))",
        "            self.confirmed.append(event)",
    ),
    Mutant(
        "an event that is confirmed is sent again until its row is gone",
        BACKLOG,
        "            if event.number not in confirmed\n            and (",
        "            if (",
    ),
    Mutant(
        "refused events keep those behind them from being read",
        RELAY,
        "        most = self._most + backlog.refused\n",
        "        most = self._most\n",
    ),
    Mutant(
        "a full outbox takes more rows",
        BACKLOG,
        "        return self.rows is None or self.rows >= self.most_rows",
        "        return self.rows is None",
    ),
    Mutant(
        "a run ends without its outbox",
        "channel/until_end.py",
        "                        and session.hook.is_relayed()\n",
        "",
        "ends",
    ),
    # Later, and the time of an attempt
    Mutant(
        "a delay of a partition holds up the whole channel",
        PAUSES,
        "        self._holds[number] = None if partitions is None else frozenset(partitions)",
        "        self._holds[number] = None",
        "later",
    ),
    Mutant(
        "a delay is never over for what waits with its record",
        PAUSES,
        "            self._holds.pop(number, None)",
        "            pass",
        "later",
    ),
    Mutant(
        "the rest of a batch, one of whose partitions was sought, waits for nothing any more",
        "delivery/workers/worker.py",
        "        kept = [lane for lane in self.lanes if not lane.is_dropped]\n",
        "        kept = list(self.lanes)\n",
        "later",
    ),
    Mutant(
        "a seek past a record leaves what waits with it",
        "delivery/workers/pool.py",
        "                self._waits.dropped(worker)\n",
        "                pass\n",
        "later",
    ),
    Mutant(
        "a worker whose partition was sought takes one more place for what remains of its batch",
        "delivery/workers/waits.py",
        "is_due = due.result() and not (worker.is_abandoned or worker.is_revoked)",
        "is_due = due.result() and not worker.is_revoked",
        "batch",
    ),
    Mutant(
        "an attempt whose wait is over begins in a revocation",
        "delivery/workers/waits.py",
        "is_due = due.result() and not (worker.is_abandoned or worker.is_revoked)",
        "is_due = due.result() and not worker.is_abandoned",
    ),
    Mutant(
        "the wait for a broker counts as time of the attempt",
        ATTEMPT_TIME,
        "        self._due += max(0.0, now - self._waits_since)",
        "        self._due += 0.0",
    ),
    Mutant(
        "a wait that outlives its attempt cancels what follows",
        ATTEMPT_TIME,
        "        self._timer = None\n        self._waits += 1",
        "        self._timer = None",
    ),
    Mutant(
        "a cancellation by the application is taken for the timeout of the attempt",
        ATTEMPT_TIME,
        "        if isinstance(failed, asyncio.CancelledError) and is_cancelled_by_others:",
        "        if False:",
    ),
    # bytes in flight
    Mutant(
        "what is in flight takes no room for bytes",
        "fetching/byte_budget.py",
        "    taken_of_shared = sum(max(0, size - own) for size in held.values())",
        "    taken_of_shared = 0",
    ),
    Mutant(
        "a poll brings all bytes that are there",
        "broker/client.py",
        "            if left <= 0:\n                break\n",
        "",
    ),
    Mutant(
        "what a poll brings takes no room from the next partition",
        "broker/client.py",
        "        self._shared = max(0, self._shared - (size - own))",
        "        pass",
    ),
    Mutant(
        "each of several clients may have all bytes of the channel",
        "channel/client_roles.py",
        "    most_bytes = max(1, settings.max_in_flight_bytes // settings.consumers)",
        "    most_bytes = settings.max_in_flight_bytes",
    ),
    Mutant(
        "a planned range that has no room for bytes never comes whole",
        "fetching/byte_budget.py",
        "    is_begun = planned.start < position and lane.waiting > 0",
        "    is_begun = False",
    ),
    Mutant(
        "the next planned range has no bound in bytes while a job runs",
        "fetching/byte_budget.py",
        "    is_begun = planned.start < position and lane.waiting > 0",
        "    is_begun = True",
    ),
    # after and limit
    Mutant(
        "a record does not wait for the channels before its own",
        AFTER,
        "        if self._must_wait():\n            return False",
        "        if False:\n            return False",
    ),
    Mutant(
        "a batch does not wait for the channels before its own",
        AFTER,
        "        if self._must_wait():\n            return inf",
        "        if False:\n            return inf",
    ),
    Mutant(
        "one handler more than the limit runs",
        SHARED_LIMIT,
        "        if self._taken < self.slots:",
        "        if self._taken <= self.slots:",
    ),
    Mutant(
        "the place of an abandoned worker goes to nobody who waits for one",
        PLACES,
        "        if had_place:\n            self._freed()",
        "        if had_place:\n            self._place_is_free()",
    ),
    Mutant(
        "a slot goes to the channel that came last",
        SHARED_LIMIT,
        "            if self._queue.popleft().offer():",
        "            if self._queue.pop().offer():",
    ),
    # members of the consumer protocol
    Mutant(
        "what the group has given to another is kept",
        CONSUMER_MEMBER,
        "        if gone:\n            return RevokeStep(gone)\n",
        "",
    ),
    Mutant(
        "a member that the group has removed keeps its partitions",
        CONSUMER_MEMBER,
        "            return LoseStep(owned) if owned or self.state is _S.REMOVED else None",
        "            return None",
    ),
    Mutant(
        "a member does not say that it has given up partitions",
        CONSUMER_MEMBER,
        "        if tells_all or owned != self._told_owned:",
        "        if tells_all:",
    ),
    Mutant(
        "what a heartbeat has said that was not answered is not said again",
        CONSUMER_MEMBER,
        "        self._tell_all_again()\n        self._is_due = False",
        "        self._is_due = False",
    ),
    Mutant(
        "a listener does not hear of an epoch that brings nothing",
        CONSUMER_MEMBER,
        "        if come or self.epoch != self._announced_epoch:",
        "        if come:",
    ),
    Mutant(
        "a partition is given up to the next owner before its handlers have ended",
        LISTENER_CALLS,
        "        self._reader.stop_reading(step.partitions)\n",
        "        self._reader.stop_reading(step.partitions)\n"
        "        isinstance(step, LoseStep) or self._member.done(step)\n",
    ),
    Mutant(
        "records of partitions that are being given up are read on",
        LISTENER_CALLS,
        "        self._reader.stop_reading(step.partitions)\n",
        "",
    ),
    Mutant(
        "a member that heard from a commit that it is out goes on",
        CONSUMER_MEMBERSHIP,
        "        if not is_member:\n            self.member.removed(self._now(), 0.0)\n",
        "",
    ),
    Mutant(
        "a session lasts from the answer to a heartbeat and not from its sending",
        CONSUMER_MEMBERSHIP,
        "            self._accepted_at = sent_at",
        "            self._accepted_at = self._now()",
    ),
    Mutant(
        "no heartbeat is sent when nobody polls, and none says that it leaves",
        CONSUMER_MEMBERSHIP,
        "        last = self.member.overdue()\n",
        "        last = self.member.overdue() and None\n",
    ),
    Mutant(
        "a member whose group became classic without it tries again",
        "broker/consumer/membership/consumer_group/heartbeat_answers.py",
        "    if code == GROUP_ID_NOT_FOUND and not is_join:",
        "    if False:",
    ),
    Mutant(
        "a member whose epoch is fenced tries again",
        "broker/consumer/membership/consumer_group/heartbeat_answers.py",
        "    110: HeartbeatAnswer.REMOVED,",
        "    110: HeartbeatAnswer.RETRY,",
    ),
    Mutant(
        "a commit of before a partition went and came back is sent",
        OWNED_SINCE,
        "        if newer:",
        "        if False:",
    ),
    Mutant(
        "a static member takes the assignment of its last run for one of now",
        CLASSIC_MEMBER,
        "            if {it.topic for it in assigned} != self._joined_topics:\n",
        "            if not assigned:\n",
    ),
    Mutant(
        "generations begin again when a group was deleted",
        OWNED_SINCE,
        "            self._added = max(0, self.generation + 1 - kafka_generation)",
        "            self._added = 0",
    ),
    Mutant(
        "auto ignores that assignors are named",
        PROTOCOL,
        "    return None if assignors is None else CLASSIC",
        "    return None",
    ),
    Mutant(
        "auto takes the consumer protocol where an operator has switched it off",
        PROTOCOL,
        'one["max_version_level"] > 0',
        "True",
    ),
)


def mutated(mutant: Mutant, source: str) -> str:
    """The text of a module with the mutant in it.

    The text is looked for as the formatter may have laid it out: with other spaces and line ends,
    with comments in between, and with or without a comma before a closing bracket.

    Raises:
        ValueError: Its text does not stand there exactly once.
    """
    found = list(_pattern(mutant.old).finditer(source))
    if len(found) != 1:
        raise ValueError(f"{mutant.name}: its text stands {len(found)} times in {mutant.file}")
    start, end = found[0].span()
    return source[:start] + mutant.new + source[end:]


WORDS = re.compile(r"\w+|[^\w\s]|\s+")
BETWEEN = r"(?:\s|#[^\n]*\n)*"


def _pattern(text: str) -> re.Pattern[str]:
    """What finds *text* whatever the formatter has made of it."""
    body = re.sub(r"\s*# .*", "", text.strip())
    before = text[: len(text) - len(text.lstrip())]
    after = text[len(text.rstrip()) :]
    parts = []
    for word in WORDS.findall(body):
        if word.isspace():
            parts.append(r"\s" + BETWEEN)
        elif word in ")]}":
            parts.append(f"{BETWEEN},?{BETWEEN}{re.escape(word)}")
        elif word in "([{":
            parts.append(f"{re.escape(word)}{BETWEEN}")
        else:
            parts.append(re.escape(word))
    start = r"(?m:^)" if before.startswith("    ") else ""
    return re.compile(start + re.escape(before) + "".join(parts) + re.escape(after))


def apply(mutant: Mutant, root: Path) -> None:
    """Put the mutant into a copy of the package. Raises as :func:`mutated`."""
    path = root / PACKAGE / mutant.file
    path.write_text(mutated(mutant, path.read_text()))


def judge(mutant: Mutant, seeds: int) -> Verdict:
    """Let the simulation look at a mutant, and the fast tests if it sees nothing."""
    started = time.monotonic()
    with _copy() as folder:
        root = Path(folder)
        try:
            apply(mutant, root)
        except ValueError as error:
            print(error)
            return Verdict(mutant, "", 0.0)
        near, others = _tests_of(mutant)
        by = (
            _seen_again(root, seen_before().get(mutant.name, ""), _kind(mutant))
            # The tests of its own folder take seconds, and see most mutants.
            or first_failing(root, near)
            or _simulated(root, seeds, _kind(mutant))
            or first_failing(root, others)
        )
    return Verdict(mutant, by, time.monotonic() - started)


def seen_before() -> dict[str, str]:
    """Name of a mutant -> what has seen it: a test, or a seed of the simulation."""
    seen: dict[str, str] = json.loads(SEEN.read_text())
    return seen


def note(verdict: Verdict) -> None:
    """Keep what has seen a mutant, for the next time."""
    seen = seen_before()
    seen[verdict.mutant.name] = verdict.by
    known = {mutant.name for mutant in MUTANTS}
    kept = {name: by for name, by in sorted(seen.items()) if name in known and by}
    SEEN.write_text(json.dumps(kept, indent=1) + "\n")


def _seen_again(root: Path, by: str, kind: str) -> str:
    """Return *by* if that sees the mutant once more, else nothing."""
    if seed := re.match(r"simulation, seed (\d+)", by):
        mode = ("--mode", kind) if kind else ()
        code, _ = _run(root, "-m", "tests.simulation", "--seed", seed[1], *mode)
        return by if code else ""
    if "::" in by and first_failing(root, [by]):
        return by
    return ""


def _tests_of(mutant: Mutant) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fast tests of the folder of a mutant, and all others."""
    folder = mutant.file.partition("/")[0]
    near = tuple(tests for tests in FAST_TESTS if tests.split("/")[1] == folder)
    return near, tuple(tests for tests in FAST_TESTS if tests not in near)


@contextmanager
def _copy() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        # Tests compare what pages show.
        for part in (PACKAGE, "tests", "docs"):
            # With the compiled modules, which are valid for all files but the one that is changed.
            shutil.copytree(ROOT / part, Path(folder) / part)
        shutil.copy(ROOT / "pyproject.toml", folder)
        yield folder


def _kind(mutant: Mutant) -> str:
    return mutant.kind or next(
        (kind for kind, files in ONLY.items() if mutant.file.startswith(files)), ""
    )


def _simulated(root: Path, seeds: int, kind: str = "") -> str:
    mode = () if not kind else ("--mode", kind)
    code, out = _run(
        root, "-m", "tests.simulation", "--hunt", "--seeds", str(seeds * (4 if mode else 1)), *mode
    )
    if code == 0:
        return ""
    if code is None:
        # A busy machine proves nothing; a seed without an end is red by a limit of its own.
        return ""
    seed = re.search(r"^red: (.*)$", out, re.MULTILINE)
    return f"simulation, {seed.group(1)}" if seed else "simulation, crash"


def first_failing(root: Path, tests: Sequence[str]) -> str:
    """Return the first of *tests* that fails, and fails alone, too; nothing if there is none."""
    # On a busy machine a test of times may fail for itself. That proves nothing.
    passing: list[str] = []
    while tests:
        code, out = _pytest(root, *tests, *(f"--deselect={test}" for test in passing))
        if code not in SEEN_BY_TESTS:
            return ""
        failed = failed_test(out)
        if failed is None or _pytest(root, failed)[0] != 0:
            return failed or "tests"
        passing.append(failed)
    return ""


def _pytest(root: Path, *arguments: str) -> tuple[int | None, str]:
    quietly = ("-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "-m", NO_SERVER)
    return _run(root, "-m", "pytest", *quietly, *arguments)


def failed_test(printed: str) -> str | None:
    """The first test, or file of tests, that pytest's summary names as failed."""
    # Captured lines of the log begin with ERROR and several spaces.
    found = re.search(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", printed, re.MULTILINE)
    return None if found is None else found[1]


def _run(root: Path, *arguments: str) -> tuple[int | None, str]:
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=root,
            env={
                **os.environ,
                "PYTHONPATH": str(root),
                "PYTHONDONTWRITEBYTECODE": "1",
                "HYPOTHESIS_PROFILE": "without shrinking",
                "TEST_LIMIT_S": TEST_LIMIT_S,
            },
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants")
    parser.add_argument(
        "--seeds", type=int, default=400, help="how many the simulation plays before it gives up"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("names", nargs="*", help="only those whose name holds one of these")
    options = parser.parse_args(arguments)
    chosen = [
        one
        for one in MUTANTS
        if not options.names or any(part in one.name for part in options.names)
    ]
    with _copy() as folder:
        if red := _simulated(Path(folder), options.seeds) or first_failing(
            Path(folder), FAST_TESTS
        ):
            print(f"{red} fails without any mutant, so it would see every one")
            return 1
    survivors = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        judged = [pool.submit(judge, mutant, options.seeds) for mutant in chosen]
        for done in as_completed(judged):
            verdict = done.result()
            survivors += not verdict.by
            note(verdict)
            seen = verdict.by or "SURVIVED"
            print(
                f"{verdict.mutant.name:58} {verdict.mutant.file:26} {verdict.took_s:5.0f} s  {seen}",
                flush=True,
            )
    print(f"{len(chosen) - survivors} of {len(chosen)} mutants were seen")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
