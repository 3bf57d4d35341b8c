"""``reactive-kafka broker``, ``demo`` and ``spark jars``: commands for a developer's machine."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack, suppress
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import click

from reactive_kafka.broker.embedded import EmbeddedBroker
from reactive_kafka.broker.jars import KafkaUnavailableError
from reactive_kafka.broker.local_kafka import local_kafka
from reactive_kafka.cli import options
from reactive_kafka.cli.app_loading import load_module
from reactive_kafka.cli.errors import CommandFailed
from reactive_kafka.spark.session.kafka_source import PINNED, connector_folder, fetch_connector

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@click.command(name="broker")
@options.port(
    "REACTIVE_KAFKA_BROKER_PORT",
    "Port for clients. Default: a free one. Only for Apache Kafka: the embedded broker chooses its "
    "own.",
    lowest=1,
)
@click.option(
    "--kind",
    type=click.Choice(["auto", "kafka", "embedded"]),
    default="auto",
    show_default=True,
    envvar="REACTIVE_KAFKA_BROKER_KIND",
    show_envvar=True,
    help="kafka: Apache Kafka (needs Java, and Maven the first time). embedded: librdkafka's mock "
    "broker (needs the extra [embedded]; one consumer per group, nothing on disk). auto: kafka if "
    "available, otherwise embedded.",
)
def broker(port: int | None, kind: str) -> None:
    """Run a broker for development until Ctrl-C.

    It listens on 127.0.0.1, and its data is deleted when it ends.

    The first line on stdout is the address to use for bootstrap_servers.

    \b
    Examples:
      reactive-kafka broker
      reactive-kafka broker --port 9092
      reactive-kafka broker --kind embedded
    """
    for number in SIGNALS:
        signal.signal(number, _end)
    with ExitStack() as stack:
        address, what = _start(kind, port, stack)
        click.echo(address)
        click.echo(f"{what} is ready at {address}; press Ctrl-C to end it", err=True)
        while True:
            signal.pause()


def _end(*_: object) -> None:
    for number in SIGNALS:
        # Closing the broker takes a moment, and a second signal must not interrupt it.
        signal.signal(number, signal.SIG_IGN)
    raise SystemExit(0)


def _start(kind: str, port: int | None, stack: ExitStack) -> tuple[str, str]:
    """Start a broker that ends with *stack*. Returns its address and its name.

    Raises:
        CommandFailed: This broker is not available, or not on this port.
    """
    if kind != "embedded":
        click.echo("starting Apache Kafka (the first time, Maven fetches 45 MB)", err=True)
        try:
            return stack.enter_context(local_kafka(port)), "Apache Kafka"
        except KafkaUnavailableError as error:
            if kind == "kafka" or port is not None:
                raise CommandFailed(str(error)) from error
            click.echo(f"no Apache Kafka here: {error}", err=True)
    if port is not None:
        raise CommandFailed(
            "leave out --port, or use --kind kafka: the embedded broker chooses its port itself"
        )
    embedded = stack.enter_context(EmbeddedBroker())
    name = "the embedded broker (one consumer per group, nothing on disk)"
    return embedded.bootstrap_servers, name


@click.command(name="demo", short_help="See everything at work, on a broker inside the process.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=5.0),
    default=30.0,
    show_default=True,
    envvar="DEMO_SECONDS",
    show_envvar=True,
    metavar="SECONDS",
    help="Duration, counted from when everything is ready.",
)
@click.option(
    "--bootstrap",
    envvar="DEMO_BOOTSTRAP",
    show_envvar=True,
    metavar="HOST:PORT",
    help="Run against this Kafka, in topics and groups of its own. Default: a broker inside the "
    "process.",
)
@options.port("DEMO_PORT", "Port of /health and /metrics. Default: a free one.")
def demo(seconds: float, bootstrap: str | None, port: int | None) -> None:
    """See everything at work: out-of-order acks, a poison record, Spark batches, a live table.

    Starts a broker inside the process, produces orders, payments and clicks, handles them with
    three channels, and ends by itself. Exits with 0 only if every record was handled, every
    position committed, the poison record found, and every click counted. Requires the extra
    [embedded]. With [spark], Spark counts the clicks; with [rich], the table is live.

    \b
    Examples:
      reactive-kafka demo
      DEMO_SECONDS=60 reactive-kafka demo
      reactive-kafka demo --bootstrap localhost:9092
    """
    # The configuration file of the demo refers to these variables.
    if bootstrap:
        os.environ["DEMO_BOOTSTRAP"] = bootstrap
    if port is not None:
        os.environ["DEMO_PORT"] = str(port)
    load_module("demo.main", _folder().parent).main(seconds)


def _folder() -> Path:
    """Return the folder of the demo: in a checkout, else where the package installed it."""
    checkout = Path(__file__).parents[2] / "examples" / "demo"
    if checkout.is_dir():
        return checkout
    with suppress(PackageNotFoundError):
        for file in files("reactive-kafka") or ():
            if file.parts[-2:] == ("demo", "shop.py"):
                return Path(str(file.locate())).resolve().parent
    raise CommandFailed(
        "run the demo from a checkout of the project: make demo; its files are not installed here"
    )


@click.group(name="spark", short_help="Fetch what Spark needs.")
def spark() -> None:
    """Fetch what Spark needs in addition to its pip package.

    \b
    Examples:
      reactive-kafka spark jars --to jars
    """


@spark.command(name="jars", short_help="Fetch Spark's Kafka connector.")
@click.option(
    "--to",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder for the jars, created if missing; set it in the configuration as [spark] jars = "
    '"DIR". Default: the cache (~/.cache/reactive-kafka, or $REACTIVE_KAFKA_CACHE), which needs '
    "no configuration.",
)
def jars(to: Path | None) -> None:
    """Fetch the jars that Spark's executors need to read Kafka, for channels with mode = "ranges".

    Requires Maven (mvn) and access to Maven Central the first time; later calls copy the jars from
    the cache. Prints the folder. Exits with 1 if the jars are not available.

    \b
    Examples:
      reactive-kafka spark jars
      reactive-kafka spark jars --to /opt/app/jars
    """
    try:
        folder = fetch_connector(to)
    except OSError as error:
        where = to or connector_folder()
        raise CommandFailed(
            f"cannot write to {where}: {error.strerror}: {error.filename2 or error.filename}"
        ) from error
    click.echo(folder)
    click.echo("\n".join(artifact.jar for artifact in PINNED), err=True)
