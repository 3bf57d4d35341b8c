"""``reactive-kafka schema``: what an editor needs to complete and check a configuration."""

from __future__ import annotations

import json

import click

from reactive_kafka.config.json_schema.config_schema import config_schema


@click.command(name="schema")
def schema() -> None:
    """Print the JSON Schema of a configuration, for completion and errors in editors.

    The schema (draft 2020-12) has every table and key, with descriptions and defaults. It says of
    each key by itself what the loader says; contradictions between keys are found by `check`.

    \b
    Examples:
      reactive-kafka schema > reactive-kafka.schema.json
    """
    click.echo(json.dumps(config_schema(), indent=2))
