"""What ``check --connect`` finds, for tests of other rooms."""

from __future__ import annotations

import asyncio

import click

from reactive_kafka import App
from reactive_kafka.cli.commands import commands
from reactive_kafka.cli.connect_report import ConnectReport, report_of


def connect_report(app: App) -> ConnectReport:
    """What the check finds for a configured application. It blocks: call it in a thread."""
    with click.Context(commands):
        return asyncio.run(report_of(app.settings, app.plan))
