"""``reactive-kafka run``: run an application, in one process or in several."""

from __future__ import annotations

import socket
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from reactive_kafka.app import App
from reactive_kafka.cli import options
from reactive_kafka.cli.app_loading import load_app
from reactive_kafka.cli.run_logging import LogOptions, add_worker_to_records
from reactive_kafka.cli.spark_progress import bottom_of_the_terminal, show_spark

MOST_WORKERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What one process of an application is started with."""

    target: str
    config: tuple[Path, ...] | None
    port: int | None
    log_format: Literal["text", "json"] | None
    log_level: str | None
    log_config: Path | None
    exit_on_failure: bool
    until_end: bool
    app_dir: Path

    def arguments(self) -> list[str]:
        """Return the command line that gives another process the same options.

        What the environment has given is in it, too, with the same value.
        """
        found = [f"--config={file}" for file in self.config or ()]
        for name in ("port", "log_format", "log_level", "log_config", "app_dir"):
            value = getattr(self, name)
            if value is not None:
                found.append(f"--{name.replace('_', '-')}={value}")
        found += ["--exit-on-failure"] if self.exit_on_failure else []
        found += ["--until-end"] if self.until_end else []
        return [*found, "--", self.target]


@click.command(name="run", short_help="Run an application, in one process or in several.")
@options.target
@options.app_config
@options.port(
    "REACTIVE_KAFKA_PORT",
    "Port of /health and /metrics; 0 takes a free one. Default: the port in [http], or 9000.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    envvar="REACTIVE_KAFKA_LOG_FORMAT",
    show_envvar=True,
    help="Format of the log lines on stderr. Replaces what the application has configured. If "
    "neither is given: text.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error", "critical"], case_sensitive=False),
    envvar="REACTIVE_KAFKA_LOG_LEVEL",
    show_envvar=True,
    metavar="LEVEL",
    help="Level of the root logger: debug, info, warning, error or critical. Default: the "
    "application's, or info.",
)
@click.option(
    "--log-config",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    envvar="REACTIVE_KAFKA_LOG_CONFIG",
    show_envvar=True,
    metavar="FILE",
    help="Configure logging with the tables of logging.config.dictConfig in this file (.toml, "
    ".yaml, .json).",
)
@click.option(
    "--exit-on-failure",
    is_flag=True,
    envvar="REACTIVE_KAFKA_EXIT_ON_FAILURE",
    show_envvar=True,
    help="Exit with 1 when a channel has failed, so that a supervisor can restart the process. "
    "Without this option the other channels continue, and /health/live is DOWN.",
)
@click.option(
    "--until-end",
    is_flag=True,
    help="Exit with 0 when every channel that has a handler has handled and committed what was in "
    "its partitions when they were assigned. Exit with 1 if a channel has failed, a topic is "
    "missing, or a signal came before.",
)
@options.app_dir
@click.option(
    "--workers",
    type=click.IntRange(1, MOST_WORKERS),
    envvar="REACTIVE_KAFKA_WORKERS",
    show_envvar=True,
    metavar="N",
    help="Run N processes under a supervisor, which restarts those that die and serves HTTP for "
    "all. Default: one process, without a supervisor.",
)
@click.option(
    "--reload",
    is_flag=True,
    help="Restart the application when a Python file in --app-dir or a configuration file "
    "changes. For development; requires the extra [reload].",
)
@click.option("--link", type=int, hidden=True)
@click.option("--worker", type=int, hidden=True)
def run(
    target: str,
    config: tuple[Path, ...] | None,
    port: int | None,
    log_format: Literal["text", "json"] | None,
    log_level: str | None,
    log_config: Path | None,
    exit_on_failure: bool,
    until_end: bool,
    app_dir: Path,
    workers: int | None,
    reload: bool,
    link: int | None,
    worker: int | None,
) -> None:
    """Run an application until SIGINT (Ctrl-C), SIGTERM or SIGHUP.

    MODULE:APP names the application: billing:app is the App called app in billing.py.

    The first signal drains: fetching stops, running handlers may finish, settled records are
    committed, and the process exits with 0. A second signal exits immediately, with 1.

    \b
    Examples:
      reactive-kafka run billing:app
      reactive-kafka run shop.billing:app --config prod.toml --port 9100
      reactive-kafka run billing:app --workers 4
      reactive-kafka run billing:app --reload
      reactive-kafka run backfill:app --until-end
      REACTIVE_KAFKA__KAFKA__BOOTSTRAP_SERVERS=kafka:9092 reactive-kafka run billing:app
    """
    run_options = RunOptions(
        target=target,
        config=config,
        port=port,
        log_format=log_format,
        log_level=log_level,
        log_config=log_config,
        exit_on_failure=exit_on_failure,
        until_end=until_end,
        app_dir=app_dir,
    )
    _check_together(workers, reload, until_end)
    logs = LogOptions(log_format, log_level, log_config)
    if link is None and reload:
        _apply_in_parent(logs, app_dir)
        run_reloading(run_options)
    elif link is None and workers is not None:
        _apply_in_parent(logs, app_dir)
        supervise(run_options, workers)
    else:
        run_here(run_options, logs, link, worker)


def _apply_in_parent(logs: LogOptions, app_dir: Path) -> None:
    """Configure logging in a process that does not load the application."""
    # The file of --log-config may name classes of the application's modules.
    sys.path.insert(0, str(app_dir.resolve()))
    logs.apply()


def _check_together(workers: int | None, reload: bool, until_end: bool) -> None:
    """Raise UsageError for options that do not fit each other, or this system."""
    if reload and workers is not None and workers > 1:
        raise click.UsageError(
            "--reload cannot be combined with --workers above 1: it restarts one process"
        )
    if reload and until_end:
        raise click.UsageError(
            "--reload cannot be combined with --until-end: it waits for changes for ever"
        )
    if (reload or workers is not None) and not hasattr(socket, "send_fds"):
        name = "--reload" if reload else "--workers"
        raise click.UsageError(f"{name} needs Unix sockets, which this system does not have")


def run_here(
    run_options: RunOptions, logs: LogOptions, link: int | None, worker: int | None
) -> None:
    """Run the application in this process.

    Args:
        link: Descriptor of the socket to the parent process. None: nobody has started this process
            as a child.
        worker: The number of this worker. None: this is the only process of the application.
    """
    supervisor = None
    if link is not None:
        from reactive_kafka.cli.workers.supervisor_link import SupervisorLink

        supervisor = SupervisorLink(link)
    if worker is not None:
        add_worker_to_records(worker)
    shows_spark = run_options.log_format != "json" and worker is None
    with bottom_of_the_terminal() if shows_spark else nullcontext() as bottom:
        app = load_app(run_options.target, run_options.app_dir)
        logs.apply()
        port = run_options.port
        overrides: dict[str, Any] = {} if port is None else {"http": {"port": port}}
        settings = app.configure(run_options.config, overrides=overrides)
        if worker is not None:
            _number_static_members(app, overrides, worker)
        if supervisor is not None:
            supervisor.tell_loaded(settings.http)
            if worker is not None:
                app._handed_connections = supervisor.connections
        if bottom is not None:
            show_spark(app, bottom)
        app.run(exit_on_failure=run_options.exit_on_failure, until_end=run_options.until_end)


def _number_static_members(app: App, overrides: dict[str, Any], worker: int) -> None:
    """Give the channels of this worker their own ``group_instance_id``, if they have one.

    With the same id, the workers would take each other's place in the group.
    """
    channels = {}
    for name, channel in app.settings.incoming.items():
        instance_id = channel.client.get("group_instance_id")
        if instance_id is not None:
            channels[name] = {"group_instance_id": f"{instance_id}-{worker}"}
    if channels:
        app.configure(overrides={**overrides, "incoming": channels})


def supervise(run_options: RunOptions, workers: int) -> None:
    """Run the application in *workers* processes, until a signal or a failure ends them."""
    import asyncio

    from reactive_kafka.cli.workers.restart_rules import EndRules
    from reactive_kafka.cli.workers.worker_supervisor import WorkerSupervisor

    rules = EndRules(exit_on_failure=run_options.exit_on_failure, until_end=run_options.until_end)

    async def main() -> int:
        return await WorkerSupervisor(workers, run_options.arguments(), rules).run()

    code = asyncio.run(main())
    if code:
        raise SystemExit(code)


def run_reloading(run_options: RunOptions) -> None:
    """Run the application in a child, and restart it when its files change.

    Raises:
        MissingExtraError: The extra ``reload`` is not installed.
    """
    import asyncio

    from reactive_kafka.cli.workers.reloader import Reloader, check_reload

    check_reload()

    async def main() -> int:
        files = [file.resolve() for file in run_options.config or ()]
        folder = run_options.app_dir.resolve()
        return await Reloader(run_options.arguments(), folder, files).run()

    code = asyncio.run(main())
    if code:
        raise SystemExit(code)
