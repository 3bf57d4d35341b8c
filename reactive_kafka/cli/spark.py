"""``reactive-kafka spark``: what Spark needs in addition to its pip package."""

from __future__ import annotations

from pathlib import Path

import click

from reactive_kafka.cli.errors import Failure
from reactive_kafka.spark.session.kafka_source import PINNED, connector_folder, fetch_connector


@click.group(name="spark", short_help="Fetch what Spark needs.")
def command() -> None:
    """Fetch what Spark needs in addition to its pip package.

    \b
    Examples:
      reactive-kafka spark jars --to jars
    """


@command.command(name="jars", short_help="Fetch Spark's Kafka connector.")
@click.option(
    "--to",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help='Folder for the jars, created if missing; set it in the configuration as [spark] jars = "DIR". Default: '
    "the cache (~/.cache/reactive-kafka, or $REACTIVE_KAFKA_CACHE), which needs no configuration.",
)
def jars(to: Path | None) -> None:
    """Fetch the jars that Spark's executors need to read Kafka, for channels with mode = "ranges".

    Requires Maven (mvn) and access to Maven Central the first time; later calls copy the jars from the cache.
    Prints the folder. Exits with 1 if the jars are not available.

    \b
    Examples:
      reactive-kafka spark jars
      reactive-kafka spark jars --to /opt/app/jars
    """
    try:
        folder = fetch_connector(to)
    except OSError as error:
        where = to or connector_folder()
        raise Failure(f"cannot write to {where}: {error.strerror}: {error.filename2 or error.filename}") from error
    click.echo(folder)
    click.echo("\n".join(artifact.jar for artifact in PINNED), err=True)
