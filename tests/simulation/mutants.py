# noqa: RUF100
"""Mutants of the rules: each breaks one, in a copy of the package, and the simulation or the fast
tests must see it.

``python -m tests.simulation.mutants [--seeds N] [--jobs N] [NAME ...]`` prints a table and the
score; 1 if one survives.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
PACKAGE = "reactive_kafka"
LONGEST_S = 1800.0
FAST_TESTS = (
    "tests/commit",
    "tests/partitions",
    "tests/delivery",
    "tests/verdicts",
    "tests/failure",
    "tests/outgoing",
    "tests/app",
    "tests/spark/test_attempts.py",
    "tests/spark/test_bisection.py",
    "tests/spark/test_cuts.py",
)
ONLY = {
    "spark": ("spark/", "commit/plans", "commit/metadata/codec"),
    "states": ("checkpoint/states",),
    "transactions": ("checkpoint/transaction", "checkpoint/open_transactions"),
    "checkpoint": ("checkpoint/",),
    "strings": ("commit/metadata/user", "commit/metadata/pending"),
    "chain": ("outgoing/exactly_once", "outgoing/positions", "outgoing/transaction"),
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


ENDS = "outgoing/positions.py"
CHOOSING, SKIPS = "delivery/runners/choosing.py", "verdicts/skips.py"
OFFSETS, WINDOW, ENGINE, COMMITTER = (
    "commit/tracker.py",
    "commit/window.py",
    "partitions/engine.py",
    "partitions/committer.py",
)
STRATEGY, POISON, LANES = "commit/strategy.py", "commit/poison.py", "delivery/lanes/queue.py"
LANE, KEYED, LIMIT = (
    "delivery/lanes/lane.py",
    "delivery/lanes/keyed.py",
    "delivery/lanes/limits.py",
)
PAUSES, RECORDS, NACKS = (
    "delivery/lanes/pauses.py",
    "delivery/runners/records.py",
    "verdicts/nack.py",
)
PARTITION, TABLE, OWNED = "partitions/partition.py", "partitions/table.py", "partitions/owned.py"
ASSIGNMENT, LOCATE, FETCHER = (
    "partitions/assignment.py",
    "partitions/locate.py",
    "partitions/fetcher.py",
)
SETTLEMENT, RETRIES, HANDLING = (
    "verdicts/acknowledge.py",
    "failure/retries.py",
    "outgoing/letters.py",
)
PLANS, METADATA, CUTS = "commit/plans.py", "commit/metadata/codec.py", "spark/batches/cuts.py"
SPARK_DISPATCH, SPARK_JOB = "spark/channel/dispatcher.py", "spark/channel/job.py"
SPARK_VERDICTS, ATTEMPTS, BISECTION = (
    "spark/channel/settle.py",
    "spark/batches/failures.py",
    "spark/batches/runs.py",
)
STORE, STATES, CLAIM = "checkpoint/store.py", "checkpoint/states.py", "checkpoint/owned_row.py"
CONSUMER, TRANSACTION = "checkpoint/consumer.py", "checkpoint/transaction.py"
KEEPER = "checkpoint/rows.py"
BESIDE, TEXTS, DONE = (
    "commit/metadata/pending.py",
    "commit/metadata/user.py",
    "commit/metadata/done.py",
)
STARTING = "partitions/starting.py"
BUDGET, HEALTH, POSITIONS = "partitions/budget.py", "observe/health.py", "partitions/start.py"
PLACES, STRATEGIES, HEADERS = (
    "delivery/workers/places.py",
    "failure/strategies.py",
    "failure/headers.py",
)
MEMBER, CONNECTION = "channel/clients.py", "channel/connection.py"
MIDDLEWARE = "handlers/middleware.py"

MUTANTS = (
    # what one partition, or one look, does to the others
    Mutant(
        "a topic that was looked for in vain is not looked for again",
        "outgoing/writer.py",
        "            self._asked.discard(topic)",
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
        "partitions/table.py",
        "one.assignment = -1  # what is being looked up for it is void\n            one.sought = None",
        "one.assignment = -1",
    ),
    Mutant(
        "a position that is not told keeps all others waiting",
        "partitions/locate.py",
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
        "partitions/starting.py",
        "        if len(by_topic) == 1:",
        "        if by_topic:",
    ),
    Mutant(
        "records before a poison one wait behind it",
        "commit/poison.py",
        "tracker.unsettled - tracker.unsettled_up_to(index)",
        "tracker.unsettled - 1",
    ),
    Mutant(
        "a stop counts from the revocation before it",
        "partitions/assignment.py",
        "self._waits_since.get(during, now)",
        "min(self._waits_since.values(), default=now)",
    ),
    Mutant(
        "a store that answers reads takes writes, too",
        "checkpoint/rows.py",
        "if not is_write and self._answered_at",
        "if False and self._answered_at",
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
        "checkpoint/transaction.py",
        "                if is_refused_again:",
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
        OFFSETS,
        "return self.offset_of(self.base) if self.flags else self.position",
        "return self.offset_of(self.base + max(self.flags.rfind(SETTLED), 0)) if self.flags else self.position",
    ),
    Mutant(
        "commit the position",
        OFFSETS,
        "return self.offset_of(self.base) if self.flags else self.position",
        "return self.position",
    ),
    Mutant(
        "off by one",
        OFFSETS,
        "return self.offset_of(self.base) if self.flags else self.position",
        "return self.offset_of(self.base) + 1 if self.flags else self.position",
    ),
    Mutant(
        "one too few",
        OFFSETS,
        "return self.offset_of(self.base) if self.flags else self.position",
        "return self.offset_of(self.base) if self.flags else self.position - 1",
    ),
    Mutant(
        "gaps at the end are not passed",
        WINDOW,
        "self.position = max(self.position, next_offset)",
        "pass",
    ),
    Mutant(
        "a run counts as done up to where it stands",
        WINDOW,
        "            self._settle_window(self.run_first, at)\n            self.run_first = at",
        "            self._settle_window(self.run_first, at + 1)\n            self.run_first = at",
    ),
    Mutant(
        "a run that ends takes the failed record along",
        WINDOW,
        "self._settle_window(first, until)",
        "self._settle_window(first, until + 1)",
    ),
    Mutant("a nack settles", WINDOW, "self.flags[at] = NACKED\n", "self.flags[at] = SETTLED\n"),
    Mutant(
        "a second verdict counts",
        WINDOW,
        "        if at < 0 or self.flags[at] != NACKED:",
        "        if at < 0:",
    ),
    Mutant("a closed tracker takes verdicts", OFFSETS, "        self.base = CLOSED_BASE\n", ""),
    Mutant(
        "gaps are forgotten",
        WINDOW,
        "if offset != previous + 1 or index == first:",
        "if index == first:",
    ),
    Mutant(
        "settled records are let go with the run before them",
        WINDOW,
        "        if behind > 0:\n",
        "        if behind >= 0:\n            behind += 1\n",
    ),
    Mutant(
        "records not acked count as acked",
        OFFSETS,
        "acked = self.settled - self.failed",
        "acked = self.settled",
    ),
    # how fast they may start
    Mutant(
        "what has started counts for nothing",
        LIMIT,
        "self._missing = missing + records",
        "self._missing = missing",
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
        "        self._in_flight = None\n        for pending in plan.due if is_unknown",
        "        self._in_flight = None\n        self.confirm(plan, 0.0)\n        for pending in plan.due if is_unknown",
    ),
    Mutant(
        "an unknown outcome is taken for failure", ENGINE, "plan.due if is_unknown else ()", "()"
    ),
    Mutant(
        "the first success ends what is unknown",
        OFFSETS,
        "self._repeats = _Repeats(now, now + REPEAT_AFTER_S)",
        "self.end()",
    ),
    Mutant(
        "less follows a commit of unknown outcome",
        ENGINE,
        "tracker.attempted if one.unknown else 0)",
        "0)",
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
        "self._is_next(one, self.generation) and ",
        "",
    ),
    Mutant(
        "what was stored meanwhile is not looked at",
        TABLE,
        " and _is_as_left(one, tracker, committed)",
        "",
    ),
    Mutant("nothing is retained", TABLE, "if not self.is_retained(one, committed):", "if True:"),
    Mutant(
        "what has gone stays open",
        TABLE,
        "        if one.tracker is not None:\n            one.tracker.close()\n        return one",
        "        return one",
    ),
    Mutant(
        "a reset leaves the old tracker open",
        TABLE,
        "            old.close()\n        one.unknown",
        "        one.unknown",
    ),
    Mutant(
        "a commit is never confirmed",
        ENGINE,
        "pending.tracker.committed = pending.position\n"
        "                pending.tracker.uncommitted_from = pending.position\n"
        "                one.stored = pending.position",
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
        "self.is_owner = not isinstance(error, NotOwnerError)",
        "self.is_owner = True",
    ),
    Mutant(
        "readiness remembers a failed commit for ever",
        COMMITTER,
        "self.failing = self._retry_at = None",
        "self._retry_at = None",
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
        "self._is_unsafe = type(strategy) is Latest and strategy.is_unsafe",
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
        "a retained lane is not offered", OWNED, "            self._queue.offer(one.lane)\n", ""
    ),
    Mutant(
        "who waits for a commit that was stored unheard is not told",
        OWNED,
        "verdicts_of(tracker).confirmed(tracker.committed)",
        "pass",
    ),
    Mutant("a retained lane stays suspended", OWNED, '            one.lane.change("retain")\n', ""),
    Mutant(
        "what has gone is still handed out",
        LANE,
        "        self._drop_current()\n        self._behind.clear()\n",
        "        self.state = OPEN\n",
    ),
    Mutant(
        "a suspended lane loses what waits",
        LANE,
        "            self._behind.appendleft((rest, self.first + self.cursor, "
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
        "        worker.blocked_on += [self._signals.nack(message, error) for message in nacked]\n",
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
        "        is_settled = await self._strategies.write(write, self._parts.hook.writes_letter(delivery))\n"
        "        if not is_settled and not delivery.tracker.settle_nacked(delivery.index):",
        "        settled = delivery.tracker.settle_nacked(delivery.index)\n"
        "        await self._strategies.write(write)\n        if not settled:",
    ),
    Mutant(
        "a dead letter is never written",
        NACKS,
        "        is_settled = await self._strategies.write(write, self._parts.hook.writes_letter(delivery))\n",
        "        is_settled = False\n",
    ),
    Mutant(
        "a dead letter never settles",
        NACKS,
        "        if not is_settled and not delivery.tracker.settle_nacked(delivery.index):\n            return False\n"
        "        self._parts.observer.on("
        "self._written",
        "        self._parts.observer.on(self._written",
    ),
    Mutant(
        "fail skips the record",
        NACKS,
        "        if not self._parts.fail(error):\n",
        "        delivery.tracker.settle_nacked(delivery.index)\n        if not self._parts.fail(error):\n",
    ),
    Mutant(
        "fail does not stop the channel",
        NACKS,
        "        if not self._parts.fail(error):\n",
        "        if True:\n",
    ),
    Mutant(
        "the strategy of a nack is not counted",
        NACKS,
        "nacked[strategy] = nacked.get(strategy, 0) + 1",
        "nacked[strategy] = nacked.get(strategy, 0)",
    ),
    # rebalances
    Mutant(
        "handlers are not waited for",
        ASSIGNMENT,
        "        await self.drain(min(deadlines.grace, deadlines.drain_end), partitions, most=deadlines.drain_end)\n",
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
        '            if one.lane is not None:\n                one.lane.change("suspend")\n',
        "            pass\n",
    ),
    Mutant(
        "what is started while it drains gives out records",
        OWNED,
        "if one.state is PartitionState.DRAINING or self.is_alone:",
        "if self.is_alone:",
    ),
    Mutant(
        "what is started while it is alone gives out records",
        OWNED,
        "if one.state is PartitionState.DRAINING or self.is_alone:",
        "if one.state is PartitionState.DRAINING:",
    ),
    Mutant(
        "a stop retains what comes back",
        ASSIGNMENT,
        "            self._owned.is_ending = True",
        "            pass",
    ),
    Mutant(
        "a drain is of all partitions",
        TABLE,
        "in self._named(partitions):\n            one.assignment",
        "in self._named(None):\n            one.assignment",
    ),
    Mutant(
        "a revocation is of all partitions",
        TABLE,
        "in self._named(partitions):\n            was_committing",
        "in self._named(None):\n            was_committing",
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
        "is_last and (going is None or one.id in going)",
        "is_last",
    ),
    Mutant(
        "the hooks of a revocation run for all partitions",
        ASSIGNMENT,
        "for one in self._owned.named(partitions) if one.has_hooks",
        "for one in self._owned.named(None) if one.has_hooks",
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
        "            one.assignment = -1  # what",
        "            # what",
    ),
    Mutant("assignments have one number", TABLE, "self._assignments += 1", "self._assignments = 1"),
    Mutant(
        "an answer is void for ever",
        ENGINE,
        "        for one in self.table:\n            one.is_void = False\n",
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
        "        self.fetcher.delayed.changed.set()  # records that are not due yet are retained, too\n",
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
        "        self.cut()\n        self._behind",
        "        self._behind",
    ),
    Mutant(
        "an attempt that a pause has held up is kept",
        "delivery/workers/waits.py",
        "            self._paused.pop(worker, None)\n",
        "            pass\n",
    ),
    Mutant(
        "a nack that nobody awaits holds no lane",
        "delivery/workers/pool.py",
        "worker.blocked_on.append(verdict)\n                worker.cut",
        "worker.cut",
    ),
    Mutant(
        "a repeated commit without an answer is not sent again",
        OFFSETS,
        "self._must_repeat = self._must_repeat or (is_repeated and self._repeats is not None)",
        "pass",
    ),
    Mutant(
        "reading starts one too late",
        LOCATE,
        "flows[one.id] = start.read_from",
        "flows[one.id] = start.read_from + 1",
    ),
    Mutant(
        "a position that is out of range is kept",
        LOCATE,
        "(old.position != position and one.ranges is None)",
        "True",
    ),
    # fetcher
    Mutant(
        "delayed records are handed out at once",
        FETCHER,
        "        if delay_ms is None:\n",
        "        if True:\n",
    ),
    Mutant(
        "delayed records that are due stay held",
        "partitions/delayed.py",
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
        "return next((one.start for one in (*self.plans, *self._done) if one.start < position < one.until), position)",
        "return position",
    ),
    Mutant(
        "what is done holds the position no longer in its range",
        PLANS,
        "for one in (*self.plans, *self._done) if one.start < position",
        "for one in self.plans if one.start < position",
    ),
    Mutant(
        "plans that are done are not stored",
        PLANS,
        "sorted(one for one in (*self.plans, *self._done) if one.start >= position)",
        "sorted(one for one in self.plans if one.start >= position)",
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
        "void = self._why_left_void(one.id, found) if choice is None else choice.void",
        "void = choice and choice.void",
    ),
    Mutant(
        "a store is not told the topic",
        "commit/metadata/pending.py",
        "if plans or self._policy.tells_topic else",
        "if plans else",
    ),
    Mutant(
        "the next owner forgets the plans",
        STARTING,
        "            if planned.until <= log_end:\n",
        "            if False:\n",
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
        "        return Waiting(lane, lane.waiting, lane.arrived)\n    at = next_offset(lane)\n",
        "        return Waiting(lane, lane.waiting, lane.arrived)\n    return Waiting(lane, lane.waiting, lane.arrived)\n    at = next_offset(lane)\n",
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
        "if planned.until <= at and not lane.workers:",
        "if planned.until <= at + 2:",
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
        "self._splits and isinstance(error, BadDataError)",
        "False and isinstance(error, BadDataError)",
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
        "self._lost_alone += error.was_alone",
        "self._lost_alone += 1",
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
        "        for index in sorted(reasons):\n            tracker.settle_range(at, index)\n            at = index + 1\n",
        "",
    ),
    Mutant(
        "a range is done before its dead letters are written",
        SPARK_VERDICTS,
        "        if is_over:\n",
        "        if True:\n",
    ),
    Mutant(
        "a rejected offset is one of every partition",
        SPARK_VERDICTS,
        "[one for one in rejected if one.partition == tracker.partition]",
        "rejected",
    ),
    # positions and states in a store
    Mutant(
        "a state is ahead by one record",
        STATES,
        "at = bisect_left(self._offsets, position) - 1\n        return",
        "at = bisect_left(self._offsets, position + 1) - 1\n        return",
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
        "            claim.states.drop(delivery.offset)\n",
        "            pass\n",
    ),
    Mutant(
        "a position is written without its state",
        CLAIM,
        " else self.states.at(position)\n",
        " else self.row.state\n",
    ),
    Mutant(
        "other metadata at the position of before a seek settles the records after it",
        CLAIM,
        "None if self._is_of_before(position) else self.tracker",
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
        "        try:\n            await self._rows.ask(opened.__aexit__(None, None, None))\n",
        "        for part in parts:\n            self._outcomes.settle(part, part.deliveries)\n        try:\n            await self._rows.ask(opened.__aexit__(None, None, None))\n",
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
        "None if goes_back or self.row",
        "None if self.row",
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
        "                self.overtaken(partition, before.owner)",
        "                pass",
    ),
    Mutant(
        "a void answer is believed",
        ENGINE,
        " and not one.is_void and (is_believed",
        " and (is_believed",
    ),
    # strings and kept acks
    Mutant(
        "a string is used up by a commit that failed",
        ENGINE,
        "    def fail(self, plan: CommitRequest, *, is_unknown: bool) -> None:\n",
        "    def fail(self, plan: CommitRequest, *, is_unknown: bool) -> None:\n        [one.metadata.used_up(due) for due in plan.due if (one := self.table.get(due.partition))]\n",
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
        WINDOW,
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
        STARTING,
        "        tracker.kept = acks\n",
        "        pass\n",
        "keep",
    ),
    # what letters hold, and how many there are
    Mutant(
        "a dead letter has neither value nor key",
        STRATEGIES,
        "        return replace(content, headers=pairs)\n",
        "        return replace(content, headers=pairs, value=None, key=None)\n",
    ),
    Mutant(
        "a delayed retry has no key",
        STRATEGIES,
        "        key=content.key,\n        headers=headers.joined(ours, failed.headers, extra, headers.DELAYED_NAMES),\n",
        "        key=None,\n        headers=headers.joined(ours, failed.headers, extra, headers.DELAYED_NAMES),\n",
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
        "for name, value in original if name not in names and",
        "for name, value in original if",
    ),
    Mutant(
        "a letter names the place of the copy",
        STRATEGIES,
        "            *headers.origin(past.partition, past.offset, headers.DEAD_LETTER),\n",
        "            *headers.origin(failed.partition, failed.offset, headers.DEAD_LETTER),\n",
    ),
    Mutant(
        "each letter is written twice",
        NACKS,
        "        is_settled = await self._strategies.write(write, self._",
        "        await self._strategies.write(write)\n        is_settled = await self._strategies.write(write, self._",
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
        "room = self._settings.max_in_flight\n        stopped =",
        "room = 2 * self._settings.max_in_flight\n        stopped =",
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
        "if not one.is_ours and not self._is_next(one, generation):",
        "if False:",
        "strings",
    ),
    Mutant(
        "a string is lost with every rebalance before reading starts",
        TABLE,
        "if not one.is_ours and not self._is_next(one, generation):",
        "if not one.is_ours:",
        "strings",
    ),
    Mutant(
        "each client has the whole window",
        "channel/spec.py",
        "max_in_flight=max(1, settings.max_in_flight // settings.consumers))",
        "max_in_flight=settings.max_in_flight)",
    ),
    Mutant(
        "what is settled and not committed has no bound",
        "partitions/fetcher.py",
        "if self._uncommitted.is_reached:",
        "if False:",
    ),
    Mutant(
        "nothing is committed before the bound is reached",
        "commit/uncommitted.py",
        "if self._is_always and (ahead >= self._urgent or (ahead >= self._half and now >= self._early_at)):",
        "if False:",
    ),
    Mutant(
        "a pause is ignored",
        PAUSES,
        "        return bool(self._channel) or any(\n            partition in paused for paused in self._partitions.values()\n        )\n",
        "        return False\n",
        "pause",
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
        "outgoing/outputs.py",
        "            if not channel.writer.take(waiting, channel.topic):\n",
        "            ack_range(tracker, index, index + 1)\n            if not channel.writer.take(waiting, channel.topic):\n",
    ),
    Mutant(
        "the ack of a written record takes the next one with it",
        "outgoing/waiting.py",
        "        stop = start + 1\n",
        "        stop = start + 2\n",
    ),
    Mutant(
        "a generator is pulled on after a record that failed",
        "outgoing/outputs.py",
        "            return receipt.is_over  # a record has failed already",
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
        "outgoing/writer.py",
        "                    self._tell(topic, error, len(records))\n                    await asyncio.sleep(waits.next_s())",
        "                    self._tell(topic, error, len(records))\n                    line.written(0, len(records))",
    ),
    Mutant(
        "a record's own header stands beside the one passed on",
        "outgoing/channel.py",
        "wanted = self._headers.difference(name for name, _ in own)",
        "wanted = self._headers",
    ),
    Mutant(
        "a receipt is told before it is sealed",
        "outgoing/outbox.py",
        "        super().__init__()  # the seal counts as one",
        "        super().__init__(0)",
    ),
    Mutant(
        "senders do not wait for room",
        "outgoing/writer.py",
        "return self._outbox.room > 0 and not self._waiting",
        "return True",
    ),
    # exactly once
    Mutant(
        "a transaction without an answer counts as aborted",
        ENDS,
        "            if not await self._is_committed(transaction, parts):",
        "            if True:",
    ),
    Mutant(
        "a transaction without an answer counts as committed",
        ENDS,
        "            if not await self._is_committed(transaction, parts):",
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
        "position = part.last.offset + 1",
        "position = part.last.offset",
    ),
    Mutant(
        "a seek does not make the positions of a transaction void",
        ENDS,
        "                raise\n        for part in parts:\n            check_open(part)\n",
        "                raise\n",
    ),
    Mutant(
        "a transaction does not wait for the end of a rebalance",
        ENDS,
        "        while any(one.knows(tracker) and not one.reads_with(tracker) for one in self._clients()):",
        "        while False:",
    ),
    Mutant(
        "a commit goes over the position of an open transaction",
        "outgoing/exactly_once.py",
        "            if self._positions.is_held(partition):",
        "            if False:",
    ),
    Mutant(
        "a position passes the letters of a batch",
        "outgoing/exactly_once.py",
        "            letters = self._letters.before(tracker, last)\n            if tracker",
        "            letters = self._letters.before(tracker, last)\n            return []\n            if tracker",
    ),
    Mutant(
        "poison does not ask what has become of a transaction",
        "outgoing/exactly_once.py",
        "        return (delivery.tracker, delivery.index) in self._ending",
        "        return False",
    ),
    Mutant(
        "a letter passes the records before it",
        "outgoing/transactional_letters.py",
        "            is_gap = tracker.unsettled_up_to(index) != len(run) + 1",
        "            is_gap = False",
    ),
    Mutant(
        "a producer that has failed goes on",
        "outgoing/transactions.py",
        "        self.is_sound = False\n        try:\n",
        "        try:\n",
    ),
    Mutant(
        "a transaction that is given up stays open",
        "outgoing/transactions.py",
        "                if self._producer is not None and self._is_begun and self._producer.is_sound:",
        "                if False:",
    ),
    Mutant(
        "what sends nothing is never settled",
        "outgoing/outputs.py",
        "        verdicts_of(message.tracker).settle(message.index)  # where nothing was sent; a tick commits it",
        "        pass",
        "chain",
    ),
    Mutant(
        "a handler is nacked for the broker's trouble",
        "outgoing/exactly_once.py",
        "CallAgain(if_settled=False, ages=False) if isinstance(error, TransactionAbortedError) else None",
        "None",
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
        "        if call_next.running:\n",
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
        "            and channel.broker_error is None\n",
        "",
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
        "        if not tracker.settle(delivery.index):\n",
        "        if not tracker.is_open(delivery.index):\n",
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
        "        self._untold.clear()\n",
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
        "            progress.position += 1\n            message.attempt = 1\n",
        "            progress.position += 9\n            message.attempt = 1\n",
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
        "            await consumer.commit(plan.offsets, plan.generation)\n",
        "            await consumer.commit(plan.offsets, plan.generation)\n"
        "            plan.is_last and await consumer.commit(plan.offsets, plan.generation)\n",
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
        "channel/spec.py",
        '            auto_offset_reset="earliest",\n',
        "",
        "latest",
    ),
    Mutant(
        "what a reset passes is told as nothing",
        STARTING,
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
        "partitions/lifeline.py",
        "        if self._timer is not None:\n            self._timer.cancel()\n        self._timer = self.over_since = None",
        "        self._timer = self.over_since = None",
        "rounds",
    ),
    Mutant(
        "the place of a sender that was cancelled in its turn is lost",
        "outgoing/writer.py",
        "                self._outbox.leave(1)  # it was our turn already, and is the next one's now\n",
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
        "commit/window.py",
        "            self.started[at] += max(0.0, now - stood_since)\n",
        "",
        "outages",
    ),
    Mutant(
        "the last position before a seek is none of ours",
        TABLE,
        "old.attempted + 1)",
        "old.attempted)",
    ),
    Mutant(
        "what a transaction may have stored is not remembered",
        ENDS,
        "                part.tracker.attempted = max(part.tracker.attempted, position)  # if the next assignment finds it\n",
        "",
    ),
    Mutant(
        "what was looked up in one assignment begins the next",
        "partitions/recreated.py",
        "one.assignment != at[one] or ",
        "",
    ),
    Mutant(
        "the tasks of nacks are kept for ever",
        NACKS,
        "                partition.writing.discard(task)\n",
        "",
        "rounds",
    ),
    Mutant(
        "the delay of a retry is told in milliseconds",
        NACKS,
        "(delay_ms or 0) / 1000",
        "(delay_ms or 0)",
    ),
    Mutant(
        "a producer with an open transaction is given back as sound",
        "outgoing/transactions.py",
        "                producer.is_sound = producer.is_sound and not self._is_begun\n",
        "",
    ),
    Mutant(
        "producers are handed out after the stop",
        "outgoing/transactions.py",
        "            if self._is_closed:\n                raise TransientBrokerError",
        "            if False:\n                raise TransientBrokerError",
    ),
    Mutant(
        "handlers of lanes that were replaced are forgotten at a stop",
        "partitions/assignment.py",
        "not (waits_for_remains and self._owned.has_remains()) and not",
        "not",
    ),
    Mutant(
        "a flush leaves those that wait for more records alone",
        "outgoing/writer.py",
        "        for more in self._lingering.values():\n            more.set()\n        before =",
        "        before =",
    ),
    # their neighbours
    Mutant(
        "the scopes of writes that have ended are kept",
        "outgoing/writer.py",
        "                    self._scopes.discard(scope)\n",
        "                    pass\n",
        "rounds",
    ),
    Mutant(
        "those who have heard of their commit are kept waiting",
        "verdicts/partition.py",
        "        self._waiters = [waiter for waiter in self._waiters if not waiter.future.done()]\n",
        "",
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
        "delivery/workers/interface.py",
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
        "outgoing/transactions.py",
        "        self._open.discard(transaction)\n",
        "        pass\n",
        "rounds",
    ),
    Mutant(
        "records whose transaction has ended are kept",
        "outgoing/exactly_once.py",
        "                    del self._ending[key]\n",
        "                    pass\n",
        "rounds",
    ),
    # ends of reading
    Mutant(
        "the hole between two ranges is passed",
        OFFSETS,
        "return min(self.outside_plans(self.safe), self.limit)",
        "return self.outside_plans(self.safe)",
        "ends",
    ),
    Mutant(
        "what lies between two ranges is handled",
        POSITIONS,
        "_replace(records=_within(chunk.records, ranges), next",
        "_replace(next",
        "ends",
    ),
    Mutant(
        "a run ends when all of it is read",
        "channel/until_end.py",
        "one.tracker is not None and one.tracker.safe >=",
        "one.tracker is not None and one.tracker.position >=",
        "ends",
    ),
    Mutant(
        "a run ends without its retries",
        "channel/until_end.py",
        "if self._is_handled(session) and await self._are_retries_over(session):",
        "if self._is_handled(session):",
        "ends",
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
        by = _simulated(root, seeds, _kind(mutant)) or _tested(root)
    return Verdict(mutant, by, time.monotonic() - started)


@contextmanager
def _copy() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        # Tests compare what pages show.
        for part in (PACKAGE, "tests", "docs"):
            shutil.copytree(
                ROOT / part, Path(folder) / part, ignore=shutil.ignore_patterns("__pycache__")
            )
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


def _tested(root: Path) -> str:
    code, out = _run(
        root,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "--hypothesis-seed=0",
        *FAST_TESTS,
    )
    if code == 0:
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", out, re.MULTILINE)
    return f"{failed.group(1)}" if failed else "tests"


def _run(root: Path, *arguments: str) -> tuple[int | None, str]:
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"},
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
        if red := _simulated(Path(folder), options.seeds) or _tested(Path(folder)):
            print(f"{red} fails without any mutant, so it would see every one")
            return 1
    survivors = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for verdict in pool.map(lambda mutant: judge(mutant, options.seeds), chosen):
            survivors += not verdict.by
            seen = verdict.by or "SURVIVED"
            print(
                f"{verdict.mutant.name:58} {verdict.mutant.file:26} {verdict.took_s:5.0f} s  {seen}",
                flush=True,
            )
    print(f"{len(chosen) - survivors} of {len(chosen)} mutants were seen")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
