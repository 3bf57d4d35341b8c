"""``make bench-peers``: ours and its peers against the same records on a real Kafka, in turns; then
killed, in groups.

It ends in the time that it is given. What was measured is kept after each turn: ``--resume`` goes
on from there.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
import uuid
from collections.abc import Iterator, Sequence

from benchmarks import machine, report, topic
from benchmarks.peers import front_page, homes, page, safety
from benchmarks.peers.plan import SAFETIES, SPEEDS, TOPIC_RECORDS, WAIT_S, Safety, Speed
from benchmarks.peers.processes import FailedError, output
from benchmarks.peers.state import State, figures
from reactive_kafka.broker.local_kafka import local_kafka

RESULTS = homes.ROOT / "benchmarks" / "peers_results.md"
KEPT = homes.ROOT / ".cache" / "peers" / "results.json"
TURN_S = 60.0
"""The longest that one measured run may take."""
SCENE_S = 170.0
"""The longest that one group may take."""
KILLS_S = 6.5 * 60
"""What is kept for the groups, of the time for all."""
AT_ONCE = 4
"""Groups that are killed at the same time: they have little to do, and wait for sessions to end."""


class Budget:
    """The time that is left."""

    def __init__(self, minutes: float) -> None:
        self._until = time.monotonic() + minutes * 60

    def left_s(self) -> float:
        """Seconds until the end."""
        return self._until - time.monotonic()


def main() -> int:
    """Measure what is wanted and not measured yet, write the page; 1 if a contender failed or time
    was over.
    """
    given = _arguments()
    state = State(commit=machine.describe()[-1], day=time.strftime("%Y-%m-%d", time.gmtime()))
    if given.resume and KEPT.exists():
        state = State.load(KEPT)
    speeds = (
        [] if given.what == "safety" else [row for row in SPEEDS if _is_wanted(row, given.only)]
    )
    scenes = (
        [] if given.what == "speed" else [row for row in SAFETIES if _is_wanted(row, given.only)]
    )
    state.failures.clear()
    state.missing = homes.made([*(row.family for row in speeds), *(row.family for row in scenes)])
    budget = Budget(given.minutes)
    turns = list(
        _turns(state, [row for row in speeds if row.family not in state.missing], given.rounds)
    )
    scenes = [
        row for row in scenes if row.family not in state.missing and row.name not in state.verdicts
    ]
    with contextlib.nullcontext(given.bootstrap) if given.bootstrap else local_kafka() as bootstrap:
        if turns:
            _measure(state, turns, bootstrap, budget, KILLS_S if scenes else 0.0)
        asyncio.run(_play(state, scenes, bootstrap, budget))
    text = report.wrapped(page.page(state, machine.describe()[:-1]))
    print("\n" + text)
    if given.write:
        RESULTS.write_text(text)
        front_page.main()
    return 1 if state.failures or state.missing else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("all", "speed", "safety"), default="all")
    parser.add_argument(
        "--rounds", type=int, default=2, help="how often each contender runs (default: %(default)s)"
    )
    parser.add_argument(
        "--only", action="append", help="only contenders whose name or run contains this, or this"
    )
    parser.add_argument(
        "--minutes", type=float, default=15.0, help="what is not measured by then is left out"
    )
    parser.add_argument(
        "--resume", action="store_true", help="keep what the last run has measured, and go on"
    )
    parser.add_argument(
        "--bootstrap", help="host:port of a Kafka that runs already (default: start one)"
    )
    parser.add_argument(
        "--no-write", dest="write", action="store_false", help=f"leave {RESULTS.name} alone"
    )
    return parser.parse_args()


def _is_wanted(row: Speed | Safety, words: Sequence[str] | None) -> bool:
    return words is None or any(word in row.name or word in row.run for word in words)


def _turns(state: State, rows: Sequence[Speed], rounds: int) -> Iterator[tuple[int, Speed]]:
    """Who is to run in which round and has no result of it: every other round backwards, so that
    neighbours stay so.
    """
    for number in range(rounds):
        known = state.rounds[number] if number < len(state.rounds) else {}
        ordered = rows if number % 2 == 0 else list(reversed(rows))
        yield from ((number, row) for row in ordered if row.name not in known)


def _measure(
    state: State, turns: Sequence[tuple[int, Speed]], bootstrap: str, budget: Budget, kept_s: float
) -> None:
    name = f"peers-{uuid.uuid4().hex[:8]}"
    asyncio.run(topic.fill(bootstrap, name, TOPIC_RECORDS))
    # The broker's code is cold at first, and the first reader alone would pay for it.
    _speed(SPEEDS[0], bootstrap, name, TURN_S)
    for number, row in turns:
        while len(state.rounds) <= number:
            state.rounds.append({})
        turn = f"round {number + 1}: {row.name}"
        if budget.left_s() < kept_s + 5:
            state.failures[turn] = page.TIME_OVER
            continue
        state.loads.append(machine.load())
        try:
            found = figures(_speed(row, bootstrap, name, min(TURN_S, budget.left_s() - kept_s)))
            if found is None:
                raise FailedError("it printed no result")
        except FailedError as error:
            state.failures[turn] = str(error)
            print(f"{turn}: {error}", file=sys.stderr, flush=True)
        else:
            state.rounds[number][row.name] = found
            print(f"{turn}: {found.rate:,.0f} records/s, {found.cpu_us:.2f} µs", flush=True)
        state.save(KEPT)


def _speed(row: Speed, bootstrap: str, name: str, timeout_s: float) -> str:
    words = [
        *homes.command(row),
        "--bootstrap",
        bootstrap,
        "--topic",
        name,
        "--group",
        f"peers-{uuid.uuid4().hex[:8]}",
    ]
    words += [
        "--records",
        str(row.records),
        "--wait",
        str(WAIT_S if row.series == "10 ms" else 0.0),
    ]
    if row.warm:
        words += ["--warm", str(row.warm)]
    return output(words, timeout_s)


async def _play(state: State, rows: Sequence[Safety], bootstrap: str, budget: Budget) -> None:
    free = asyncio.Semaphore(AT_ONCE)

    async def play(row: Safety) -> None:
        turn = f"kills: {row.name}"
        async with free:
            if budget.left_s() < 30:
                state.failures[turn] = page.TIME_OVER
                return
            try:
                verdict = await asyncio.wait_for(
                    safety.played(row, bootstrap), min(SCENE_S, budget.left_s())
                )
            except TimeoutError:
                state.failures[turn] = "not done in time"
            except FailedError as error:
                state.failures[turn] = str(error)
            else:
                state.verdicts[row.name] = verdict
                print(f"{turn}: {verdict}", flush=True)
            if turn in state.failures:
                print(f"{turn}: {state.failures[turn]}", file=sys.stderr, flush=True)
            state.save(KEPT)

    await asyncio.gather(*map(play, rows))


if __name__ == "__main__":
    sys.exit(main())
