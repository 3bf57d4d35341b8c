"""``reactive-kafka demo``."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reactive_kafka.cli.errors import Failure

if TYPE_CHECKING:
    from reactive_kafka.cli.demo.summary import Check, Outcome

SHORTEST_S = 5.0
SHOP = "shop.py"


@click.command(name="demo", short_help="See everything at work, on a broker inside the process.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=SHORTEST_S),
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
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    envvar="DEMO_PORT",
    show_envvar=True,
    metavar="PORT",
    help="Port of /health and /metrics. Default: a free one.",
)
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
    from reactive_kafka.cli.demo.summary import checks

    _into_environment(bootstrap, port)
    outcome = asyncio.run(_play(seconds))
    if outcome is None:
        raise Failure("ended early: nothing was checked")
    done = checks(outcome)
    click.echo("\n".join(lines(done)))
    if not all(check.ok for check in done):
        sys.exit(1)


def _into_environment(bootstrap: str | None, port: int | None) -> None:
    """The demo's configuration file refers to these variables."""
    import os

    if bootstrap:
        os.environ["DEMO_BOOTSTRAP"] = bootstrap
    if port is not None:
        os.environ["DEMO_PORT"] = str(port)


async def _play(seconds: float) -> Outcome | None:
    from reactive_kafka.cli.demo.play import Play
    from reactive_kafka.cli.demo.screen import make_screen
    from reactive_kafka.cli.target import load_module

    shop = load_module("shop", folder())
    asked = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, _ask, asked)
    screen = make_screen()
    try:
        return await Play(shop, seconds, screen, asked).run()
    finally:
        screen.close()


def _ask(asked: asyncio.Event) -> None:
    from reactive_kafka.runtime.signals import exit_now

    if asked.is_set():
        exit_now(1)
    asked.set()


def folder() -> Path:
    """Where the demo's handlers and configuration are: ``examples/demo`` of a checkout, or what was installed.

    Raises:
        Failure: They are not there.
    """
    checkout = Path(__file__).parents[3] / "examples" / "demo"
    if (checkout / SHOP).exists():
        return checkout
    try:
        installed = [file for file in files("reactive-kafka") or () if file.name == SHOP]
    except PackageNotFoundError:
        installed = []
    for file in installed:
        return Path(str(file.locate())).resolve().parent
    raise Failure("the demo's files are not installed; run it from a checkout of the project: make demo")


def lines(done: Sequence[Check]) -> list[str]:
    """The summary: a line for each check, and a last one."""
    shown = ["", *(f"{'ok' if check.ok else 'FAILED':<7} {check.name:<10} {check.text}" for check in done)]
    failed = [check.name for check in done if not check.ok]
    return [*shown, f"failed: {', '.join(failed)}" if failed else "all of it holds"]
