"""``reactive-kafka schema``: the JSON Schema of a configuration, for editors."""

from __future__ import annotations

import json

import click

from reactive_kafka.config.json_schema.config_schema import config_schema


@click.command(name="schema", short_help="Print the JSON Schema of a configuration, for editors.")
def schema() -> None:
    """Print the JSON Schema of a configuration, for completion and errors in editors.

    The schema (draft 2020-12) has every table and key, with descriptions and defaults. It accepts
    for each key what the loader accepts. Contradictions between keys are found by `check` only.

    \b
    Examples:
      reactive-kafka schema > reactive-kafka.schema.json
    """
    click.echo(json.dumps(config_schema(), indent=2))
