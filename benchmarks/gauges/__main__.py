"""``python -m benchmarks.gauges MODULE:FUNCTION``: one run; the last line is what it measured."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json

from benchmarks.gauges.job import Job


def main() -> None:
    """Read what to measure from the command line, measure it, print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("gauge", help="module:function in benchmarks.gauges")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", dest="topics", action="append", default=[])
    parser.add_argument("--given", type=int, default=0)
    parser.add_argument("--filled", type=int, default=0)
    parser.add_argument("--began", type=int, default=0)
    given = vars(parser.parse_args())
    module, _, function = given.pop("gauge").partition(":")
    run = getattr(importlib.import_module(f"benchmarks.gauges.{module}"), function)
    print(json.dumps(asyncio.run(run(Job(**given)))), flush=True)


if __name__ == "__main__":
    main()
