"""Where our time goes: one of our contenders in this process, on a real Kafka, and its most
expensive functions.

``python -m benchmarks.profile_ours`` samples the stack as CPU time passes, each 1 to 4 ms as the
kernel ticks, which leaves small functions their true size; ``--calls`` counts every call with
cProfile instead, which makes them look dearer than they are.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import importlib
import pstats
import signal
import sys
import uuid
from collections import Counter
from pathlib import Path
from types import FrameType

from benchmarks import topic
from benchmarks.contenders.meter import Job, Result
from benchmarks.figures import CPU, RATE
from benchmarks.place import kafka
from benchmarks.plan import WAIT_S

SAMPLE_EVERY_S = 0.001


class Sampler:
    """Counts, for each function and each line, the samples in which it was running."""

    def __init__(self) -> None:
        self.functions: Counter[str] = Counter()
        self.lines: Counter[str] = Counter()

    def __enter__(self) -> Sampler:
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, SAMPLE_EVERY_S, SAMPLE_EVERY_S)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _sample(self, _number: int, frame: FrameType | None) -> None:
        if frame is None:
            return
        code = frame.f_code
        where = "/".join(Path(code.co_filename).parts[-2:])
        self.functions[f"{where} {code.co_qualname}"] += 1
        self.lines[f"{where}:{frame.f_lineno} {code.co_name}"] += 1

    def show(self, top: int) -> None:
        """Print the share of each function and line, largest first."""
        for title, counts in (("function", self.functions), ("line", self.lines)):
            total = counts.total() or 1
            print(f"\nshare of {total:,} samples, by {title}")
            for where, count in counts.most_common(top):
                print(f"  {count / total:6.1%}  {where}")


def main() -> None:
    """Fill a topic, run the contender over it under the profiler, print what was found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile_ours", description=__doc__)
    parser.add_argument(
        "contender", nargs="?", default="ours:on_message", help="default: %(default)s"
    )
    parser.add_argument("--records", type=int, default=1_000_000, help="default: %(default)s")
    parser.add_argument(
        "--partitions", type=int, default=topic.PARTITIONS, help="default: %(default)s"
    )
    parser.add_argument(
        "--wait", type=float, help=f"the handler's sleep (default: {WAIT_S} for ours:concurrent)"
    )
    parser.add_argument(
        "--bootstrap", help="host:port of a Kafka that runs already (default: start one)"
    )
    parser.add_argument("--calls", action="store_true", help="count every call with cProfile")
    parser.add_argument("--top", type=int, default=25, help="lines to print (default: %(default)s)")
    given = parser.parse_args()
    wait_s = (
        given.wait
        if given.wait is not None
        else WAIT_S * given.contender.startswith("ours:concurrent")
    )
    with kafka(given.bootstrap) as (bootstrap, _):
        name = f"profile-{uuid.uuid4().hex[:8]}"
        target = f"{name}-out"
        asyncio.run(topic.fill(bootstrap, name, given.records, partitions=given.partitions))
        asyncio.run(topic.create(bootstrap, target, partitions=given.partitions))
        job = Job(
            bootstrap=bootstrap,
            topic=name,
            group=name,
            records=given.records,
            wait_s=wait_s,
            target=target,
        )
        result = _profile(given.contender, job, calls=given.calls, top=given.top)
    measured = result.figures()
    print(
        f"\nunder the profiler: {measured[RATE]:,.0f} records/s, {measured[CPU]:.2f} us of CPU per record"
    )


def _profile(contender: str, job: Job, *, calls: bool, top: int) -> Result:
    module, _, function = contender.partition(":")
    run = getattr(importlib.import_module(f"benchmarks.contenders.{module}"), function)
    if not calls:
        with Sampler() as sampler:
            result: Result = asyncio.run(run(job))
        sampler.show(top)
        return result
    with cProfile.Profile() as profile:
        result = asyncio.run(run(job))
    pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(top)
    return result


if __name__ == "__main__":
    main()
