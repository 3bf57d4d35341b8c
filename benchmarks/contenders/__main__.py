"""``python -m benchmarks.contenders MODULE:FUNCTION``: run one contender here; the last line is its
result.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib

from benchmarks.contenders.meter import Job


def main() -> None:
    """Read what to do from the command line, do it, print what it took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("contender", help="module:function in benchmarks.contenders")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--records", required=True, type=int)
    parser.add_argument("--wait", type=float, default=0.0)
    parser.add_argument("--target", default="")
    parser.add_argument("--registry", default="")
    given = parser.parse_args()
    module, _, function = given.contender.partition(":")
    job = Job(
        bootstrap=given.bootstrap,
        topic=given.topic,
        group=given.group,
        records=given.records,
        wait_s=given.wait,
        target=given.target,
        registry=given.registry,
    )
    run = getattr(importlib.import_module(f"benchmarks.contenders.{module}"), function)
    asyncio.run(run(job)).write()


if __name__ == "__main__":
    main()
