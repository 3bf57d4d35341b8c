"""What a command ends with when something is wrong: a text that says who must act, and the contract's exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from reactive_kafka.errors import ConfigError, MissingExtraError, ReactiveKafkaError

FAILED = 1
WRONG_USAGE = 2


class Failure(click.ClickException):
    """The command ran and failed: exit code 1."""

    exit_code = FAILED


class WrongUsage(click.ClickException):
    """The command cannot begin: exit code 2. For what is wrong in the user's files; flags have click's UsageError."""

    exit_code = WRONG_USAGE


@contextmanager
def reported() -> Iterator[None]:
    """Turn our errors into their text and exit code. Others are bugs, and keep their traceback."""
    try:
        yield
    except (ConfigError, MissingExtraError) as error:
        raise WrongUsage(str(error)) from error
    except ReactiveKafkaError as error:
        raise Failure(str(error)) from error
