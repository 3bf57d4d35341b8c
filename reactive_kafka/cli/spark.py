"""``reactive-kafka spark``: what Spark needs beside its pip package."""

from __future__ import annotations

from pathlib import Path

import click

from reactive_kafka.cli.errors import Failure


@click.group(name="spark", short_help="Fetch what Spark needs.")
def command() -> None:
    """Fetch what Spark needs beside its pip package.

    \b
    Examples:
      reactive-kafka spark jars --to jars
    """


@command.command(name="jars", short_help="Fetch Spark's Kafka connector.")
@click.option(
    "--to",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help='Folder for the jars, made where it is missing; name it in the configuration as [spark] jars = "DIR". By '
    "default the cache (~/.cache/reactive-kafka, or $REACTIVE_KAFKA_CACHE), which is found without that.",
)
def jars(to: Path | None) -> None:
    """Fetch the jars with which Spark's executors read Kafka, for channels with mode = "ranges".

    Needs Maven (mvn) and a way to Maven Central the first time; later calls copy what the cache has. Prints the
    folder. Exits with 1 when the jars cannot be had.

    \b
    Examples:
      reactive-kafka spark jars
      reactive-kafka spark jars --to /opt/app/jars
    """
    from reactive_kafka.spark.session.jars import PINNED, connector_folder, fetch_connector

    try:
        folder = fetch_connector(to)
    except OSError as error:
        where = to or connector_folder()
        raise Failure(f"{where} cannot be filled: {error.strerror}: {error.filename2 or error.filename}") from error
    click.echo(folder)
    click.echo("\n".join(artifact.jar for artifact in PINNED), err=True)
