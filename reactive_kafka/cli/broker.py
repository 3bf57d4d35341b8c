"""``reactive-kafka broker``."""

from __future__ import annotations

import signal
from contextlib import ExitStack

import click

from reactive_kafka.broker.embedded import EmbeddedBroker
from reactive_kafka.broker.jars import KafkaUnavailableError
from reactive_kafka.broker.local import local_kafka
from reactive_kafka.cli import options
from reactive_kafka.cli.errors import Failure

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@click.command(name="broker")
@options.port(
    "REACTIVE_KAFKA_BROKER_PORT",
    "Port for clients. Default: a free one. Apache Kafka only: the embedded broker chooses its own.",
    lowest=1,
)
@click.option(
    "--kind",
    type=click.Choice(["auto", "kafka", "embedded"]),
    default="auto",
    show_default=True,
    envvar="REACTIVE_KAFKA_BROKER_KIND",
    show_envvar=True,
    help="kafka: Apache Kafka (needs Java, and Maven the first time). embedded: librdkafka's mock broker (needs "
    "the extra [embedded]; one consumer per group, nothing on disk). auto: kafka if available, otherwise embedded.",
)
def command(port: int | None, kind: str) -> None:
    """Run a broker for development until Ctrl-C. It listens on 127.0.0.1, and its data is deleted when it ends.

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
        click.echo(f"{what} is ready at {address}; Ctrl-C ends it", err=True)
        while True:
            signal.pause()


def _end(*_: object) -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # closing takes a moment; nobody interrupts it
    raise SystemExit(0)


def _start(kind: str, port: int | None, stack: ExitStack) -> tuple[str, str]:
    """Start a broker that ends with *stack*; its address, and what it is. Failure: it cannot be had, or not there."""
    if kind != "embedded":
        click.echo("starting Apache Kafka (the first time, Maven fetches 45 MB)", err=True)
        try:
            return stack.enter_context(local_kafka(port)), "Apache Kafka"
        except KafkaUnavailableError as error:
            if kind == "kafka" or port is not None:
                raise Failure(str(error)) from error
            click.echo(f"no Apache Kafka here: {error}", err=True)
    if port is not None:
        raise Failure("the embedded broker chooses its port itself: leave out --port, or use --kind kafka")
    embedded = stack.enter_context(EmbeddedBroker())
    return embedded.bootstrap_servers, "the embedded broker (one consumer a group, nothing on disk)"
