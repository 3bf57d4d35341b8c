"""``python -m benchmarks.peers.contenders MODULE:FUNCTION``: run one contender; the last line is
its result.

The module lies below ``benchmarks``. With ``--journal`` the contender is a member of a group, and
runs until SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import inspect
import json
import os
import sys
import threading
from dataclasses import asdict

from benchmarks.peers.contenders.work import Task


def main() -> None:
    """Read what to do from the command line, do it, print what it took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("contender", help="module:function in benchmarks")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--records", type=int, default=0)
    parser.add_argument("--wait", type=float, default=0.0)
    parser.add_argument("--journal", default="")
    given = parser.parse_args()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    module, _, function = given.contender.partition(":")
    task = Task(
        bootstrap=given.bootstrap,
        topic=given.topic,
        group=given.group,
        records=given.records,
        wait_s=given.wait,
        journal=given.journal,
    )
    run = getattr(importlib.import_module(f"benchmarks.{module}"), function)
    result = asyncio.run(run(task)) if inspect.iscoroutinefunction(run) else run(task)
    if not task.is_service:
        print(json.dumps(asdict(result)), flush=True)


def _end_with_parent() -> None:
    """The other end of standard input closes when the process that has started this one is gone."""
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()
