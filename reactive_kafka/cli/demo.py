"""``reactive-kafka demo``: runs ``examples/demo`` of a checkout, or the copy that is installed with the package."""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import click

from reactive_kafka.cli import options
from reactive_kafka.cli.errors import Failure
from reactive_kafka.cli.target import load_module


@click.command(name="demo", short_help="See everything at work, on a broker inside the process.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=5.0),
    default=30.0,
    show_default=True,
    envvar="DEMO_SECONDS",
    show_envvar=True,
    metavar="SECONDS",
    help="Duration, counted from when Spark is ready.",
)
@click.option(
    "--bootstrap",
    envvar="DEMO_BOOTSTRAP",
    show_envvar=True,
    metavar="HOST:PORT",
    help="Run against this Kafka, in topics and groups of its own. Default: a broker inside the process.",
)
@options.port("DEMO_PORT", "Port of /health and /metrics. Default: a free one.")
def command(seconds: float, bootstrap: str | None, port: int | None) -> None:
    """See everything at work: out-of-order acks, a poison record, Spark batches, a live table, and a final check.

    Starts a broker inside the process, produces orders, payments and clicks, handles them with three channels,
    and ends by itself. Exits with 0 only if every record was handled, every position committed, the poison
    record found, and every click counted. Requires the extras [embedded,spark], and [rich] for the table.

    \b
    Examples:
      reactive-kafka demo
      DEMO_SECONDS=60 reactive-kafka demo
      reactive-kafka demo --bootstrap localhost:9092
    """
    # The demo's configuration file refers to these variables.
    if bootstrap:
        os.environ["DEMO_BOOTSTRAP"] = bootstrap
    if port is not None:
        os.environ["DEMO_PORT"] = str(port)
    load_module("demo.main", _folder().parent).main(seconds)


def _folder() -> Path:
    checkout = Path(__file__).parents[2] / "examples" / "demo"
    if checkout.is_dir():
        return checkout
    with suppress(PackageNotFoundError):
        for file in files("reactive-kafka") or ():
            if file.parts[-2:] == ("demo", "shop.py"):
                return Path(str(file.locate())).resolve().parent
    raise Failure("the demo's files are not installed; run it from a checkout of the project: make demo")
