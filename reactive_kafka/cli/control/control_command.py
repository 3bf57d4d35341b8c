"""``reactive-kafka control``: acts on a running service, and looks at its records and letters."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import click

from reactive_kafka.cli import options
from reactive_kafka.cli.control.service_client import ServiceAnswer, ServiceClient, token_of
from reactive_kafka.cli.dlq.letter_lines import letter_line
from reactive_kafka.cli.errors import CommandFailed
from reactive_kafka.cli.progress import progress_line
from reactive_kafka.observe.safe_text import one_line

ASKED_EVERY_S = 0.5
"""How often the service is asked how far a replay is."""
UNDER_WAY = 202
_LEVELS = ("debug", "info", "warning", "error", "critical", "notset")

_token_file = click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="REACTIVE_KAFKA_TOKEN_FILE",
    show_envvar=True,
    metavar="FILE",
    help="File with the token of the service: its [http] token_file.",
)
_channel = click.argument("channel", metavar="CHANNEL")
_partition = click.option("--partition", type=click.IntRange(0), metavar="N", help="Its number.")


@click.group(name="control", short_help="Act on a running service: pause, seek, skip.")
@click.argument("url", metavar="URL")
def control(url: str) -> None:
    """Act on a running service, over HTTP.

    URL is that of the service, as its log names it. It needs a token: [http] token_file in the
    configuration of the service, and --token-file here.

    \b
    Examples:
      reactive-kafka control http://shop:9000 pause orders --token-file token
      reactive-kafka control http://shop:9000 skip orders --topic orders --partition 3 --offset 42
      reactive-kafka control http://shop:9000 log-level debug
    """


def _with_service(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the token and ``--json``; it gets the service, and what prints an answer."""

    @wraps(command)
    def called(token_file: Path | None, as_json: bool, **given: Any) -> None:
        parent = click.get_current_context().parent
        # For the type checker: every command is one of the group.
        assert parent is not None  # noqa: S101
        service = ServiceClient(parent.params["url"], token_of(token_file))
        command(service=service, show=_shows(as_json=as_json), **given)

    return _token_file(options.as_json("Print the answer as JSON.")(called))


class Show(Protocol):
    """Prints an answer, as JSON or as text: what was done, then *lines* with the details."""

    def __call__(self, answer: ServiceAnswer, lines: Iterable[str] = ()) -> None: ...


def _shows(*, as_json: bool) -> Show:
    def show(answer: ServiceAnswer, lines: Iterable[str] = ()) -> None:
        if as_json:
            click.echo(json.dumps(answer.body, indent=2))
            return
        # The answer of a look is in the lines.
        default = "" if lines else "done"
        for line in filter(None, (str(answer.body.get("result", default)), *lines)):
            indent = line[: len(line) - len(line.lstrip(" "))]
            click.echo(indent + one_line(line))
        for worker in answer.body.get("workers", ()):
            said = worker.get("error") or worker.get("result")
            click.echo(one_line(f"worker {worker.get('worker')}: {said}"))

    return show


def _asks(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--yes``, and refuse the command without it and without a terminal."""

    @wraps(command)
    def called(**given: Any) -> None:
        if not (given["yes"] or sys.stdin.isatty()):
            raise click.UsageError(
                "there is no terminal for the question: use --yes to go ahead without it"
            )
        command(**given)

    return click.option("--yes", is_flag=True, help="Do not ask.")(called)


def _act(
    service: ServiceClient, channel: str, action: str, body: Mapping[str, Any]
) -> ServiceAnswer:
    return service.post(f"/api/channels/{quote(channel, safe='')}/{action}", body)


def _given(**arguments: object) -> dict[str, object]:
    return {name: value for name, value in arguments.items() if value is not None}


_reason = click.option(
    "--reason", metavar="TEXT", help="One line for people, shown on the page and in health."
)
_one_topic = click.option("--topic", metavar="TOPIC", help="Only one partition of this topic.")


@control.command(short_help="Fetch and handle nothing more.")
@_channel
@_reason
@_one_topic
@_partition
@_with_service
def pause(
    channel: str,
    reason: str | None,
    topic: str | None,
    partition: int | None,
    service: ServiceClient,
    show: Show,
) -> None:
    """Pause a channel, or one partition of it.

    Running handlers and commits continue, and the partitions stay. The pause lasts until resume.

    \b
    Examples:
      reactive-kafka control http://shop:9000 pause orders --reason "database is away"
      reactive-kafka control http://shop:9000 pause orders --topic orders --partition 3
    """
    body = _given(reason=reason, topic=topic, partition=partition)
    show(_act(service, channel, "pause", body))


@control.command(short_help="End a pause.")
@_channel
@_reason
@_one_topic
@_partition
@_with_service
def resume(
    channel: str,
    reason: str | None,
    topic: str | None,
    partition: int | None,
    service: ServiceClient,
    show: Show,
) -> None:
    """End a pause. Name the same reason, if the pause had one.

    Other pauses of the channel stay, such as those of the application. The answer names them.

    \b
    Examples:
      reactive-kafka control http://shop:9000 resume orders
    """
    body = _given(reason=reason, topic=topic, partition=partition)
    show(_act(service, channel, "resume", body))


@control.command(short_help="Drain a channel, commit, and leave its group.")
@_channel
@_with_service
def stop(channel: str, service: ServiceClient, show: Show) -> None:
    """Stop one channel: its handlers may finish, and other members get its partitions.

    \b
    Examples:
      reactive-kafka control http://shop:9000 stop orders
    """
    show(_act(service, channel, "stop", {}))


@control.command(short_help="Start a channel that does not run.")
@_channel
@_with_service
def start(channel: str, service: ServiceClient, show: Show) -> None:
    """Start a channel that was stopped, has failed, or is not enabled.

    \b
    Examples:
      reactive-kafka control http://shop:9000 start orders
    """
    show(_act(service, channel, "start", {}))


@control.command(short_help="Start a channel that has failed.")
@_channel
@_with_service
def restart(channel: str, service: ServiceClient, show: Show) -> None:
    """Start a channel that has failed, at its committed positions.

    \b
    Examples:
      reactive-kafka control http://shop:9000 restart orders
    """
    show(_act(service, channel, "restart", {}))


@control.command(short_help="Read on elsewhere.")
@_channel
@click.option("--topic", required=True, metavar="TOPIC", help="A topic that the channel reads.")
@_partition
@click.option("--all", "is_for_all", is_flag=True, help="All partitions that the service has.")
@click.option("--offset", metavar="OFFSET", help="An offset, or beginning, or end.")
@click.option("--timestamp", metavar="TIME", help="A time with its zone: 2026-11-21T08:00:00Z.")
@_asks
@_with_service
def seek(
    channel: str,
    topic: str,
    partition: int | None,
    is_for_all: bool,
    offset: str | None,
    timestamp: str | None,
    yes: bool,
    service: ServiceClient,
    show: Show,
) -> None:
    """Read on elsewhere. Records in between are skipped, or handled again.

    The committed position moves with the next record that is settled.

    \b
    Examples:
      reactive-kafka control http://shop:9000 seek orders --topic orders --partition 3 --offset 42
      reactive-kafka control http://shop:9000 seek orders --topic orders --all --offset beginning
      reactive-kafka control http://shop:9000 seek orders --topic t --all --timestamp 2026-11-21T08Z
    """
    if is_for_all == (partition is not None):
        raise click.UsageError("one of --partition N and --all is wanted")
    if (offset is None) == (timestamp is None):
        raise click.UsageError("one of --offset and --timestamp is wanted")
    where = int(offset) if offset is not None and offset.isdecimal() else offset
    options.ask(
        f"Continue channel {channel}, {topic} "
        f"{'all partitions' if is_for_all else partition} at {offset or timestamp}?",
        yes=yes,
    )
    body = _given(
        topic=topic, partition="all" if is_for_all else partition, offset=where, timestamp=timestamp
    )
    show(_act(service, channel, "seek", body))


@control.command(short_help="Settle one record without handling it.")
@_channel
@click.option("--topic", required=True, metavar="TOPIC", help="Its topic.")
@click.option("--partition", required=True, type=click.IntRange(0), metavar="N", help="Its number.")
@click.option("--offset", required=True, type=click.IntRange(0), metavar="N", help="Its offset.")
@_asks
@_with_service
def skip(
    channel: str,
    topic: str,
    partition: int,
    offset: int,
    yes: bool,
    service: ServiceClient,
    show: Show,
) -> None:
    """Skip one record, so that its partition continues behind it.

    If a handler has the record, the handler is cancelled. No dead letter is written. If the channel
    has failed for the record, restart it afterwards.

    \b
    Examples:
      reactive-kafka control http://shop:9000 skip orders --topic orders --partition 3 --offset 42
    """
    options.ask(f"Skip {topic}-{partition} offset {offset}? It is not handled.", yes=yes)
    body = {"topic": topic, "partition": partition, "offset": offset}
    show(_act(service, channel, "skip", body))


@control.command(short_help="Show the last dead letters.")
@click.argument("topic", metavar="TOPIC")
@click.option("--last", type=click.IntRange(1), metavar="N", help="How many. Default: 20.")
@click.option(
    "--of",
    nargs=3,
    type=(str, click.IntRange(0), click.IntRange(0)),
    metavar="TOPIC PARTITION OFFSET",
    help="Only those of this record.",
)
@_with_service
def letters(
    topic: str,
    last: int | None,
    of: tuple[str, int, int] | None,
    service: ServiceClient,
    show: Show,
) -> None:
    """Show the last letters of a dead-letter topic, the newest first.

    The service reads them, with its own rights. The replay command sends them back, one or all.

    \b
    Examples:
      reactive-kafka control http://shop:9000 letters dead-letter-topic-orders
      reactive-kafka control http://shop:9000 letters dead-letter-topic-orders --last 100 --json
      reactive-kafka control http://shop:9000 letters dead-letter-topic-orders --of orders 3 42
    """
    query = _given(last=last)
    if of is not None:
        query |= dict(zip(("topic", "partition", "offset"), of, strict=True))
    answer = service.get(f"/api/dlq/{quote(topic, safe='')}?{urlencode(query)}")
    show(answer, [letter_line(topic, letter) for letter in answer.body.get("letters", ())])


@control.command(short_help="Say what happened to one record.")
@click.argument("topic", metavar="TOPIC")
@click.argument("partition", type=click.IntRange(0), metavar="PARTITION")
@click.argument("offset", type=click.IntRange(0), metavar="OFFSET")
@click.option("--channel", metavar="CHANNEL", help="Only for this channel.")
@_with_service
def record(
    topic: str,
    partition: int,
    offset: int,
    channel: str | None,
    service: ServiceClient,
    show: Show,
) -> None:
    """Say where a record is and what happened to it, for each channel that reads its topic.

    Only the process that has the partition knows. The answer says if it is another one.

    \b
    Examples:
      reactive-kafka control http://shop:9000 record orders 3 42
      reactive-kafka control http://shop:9000 record orders 3 42 --channel billing --json
    """
    query = _given(topic=topic, partition=partition, offset=offset, channel=channel)
    answer = service.get(f"/api/record?{urlencode(query)}")
    lines = [line for known in answer.body.get("channels", ()) for line in _record_lines(known)]
    show(answer, lines)


def _record_lines(known: Mapping[str, Any]) -> list[str]:
    """Return what one channel knows of a record."""
    ending = known.get("ending")
    place = known["place"] if ending is None else f"{known['place']}, {ending}"
    return [
        f"channel {known['channel']}: {place}",
        *(f"  {sentence}" for sentence in known.get("text", ())),
        *(f"  {event['at']}  {event['text']}" for event in known.get("past", ())),
    ]


@control.command(short_help="Send dead letters back to their topics.")
@click.argument("topic", metavar="TOPIC")
@click.option("--to", metavar="TOPIC", help="Send all to this topic, instead of their own.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Maximum number of records.")
@click.option("--partition", type=click.IntRange(0), metavar="N", help="With --offset: one letter.")
@click.option("--offset", type=click.IntRange(0), metavar="N", help="The offset of that letter.")
@_asks
@_with_service
def replay(
    topic: str,
    to: str | None,
    limit: int | None,
    partition: int | None,
    offset: int | None,
    yes: bool,
    service: ServiceClient,
    show: Show,
) -> None:
    """Send the letters of a dead-letter topic back to the topics that they came from.

    The service does it, with its own rights. It remembers how far it came, so nothing is sent twice
    but a single letter. Shows the progress until the end; Ctrl-C ends only that.

    \b
    Examples:
      reactive-kafka control http://shop:9000 replay dead-letter-topic-orders
      reactive-kafka control http://shop:9000 replay dead-letter-topic-orders --limit 10 --yes
      reactive-kafka control http://shop:9000 replay letters --partition 0 --offset 17
    """
    if (partition is None) != (offset is None):
        raise click.UsageError("--partition and --offset belong together")
    if limit is not None and offset is not None:
        raise click.UsageError("--limit and --offset exclude each other")
    options.ask(f"Send the letters of {topic} back?", yes=yes)
    body = _given(to=to, limit=limit, partition=partition, offset=offset)
    answer = service.post(f"/api/dlq/{quote(topic, safe='')}/replay", body)
    with progress_line("replayed", lambda: int(answer.body.get("replayed", 0))):
        while answer.status == UNDER_WAY:
            time.sleep(ASKED_EVERY_S)
            answer = service.get(f"/api/dlq/replays/{answer.body['replay']}")
    show(answer)
    if answer.body.get("refused"):
        raise CommandFailed(
            f"{answer.body['refused']} records cannot be sent back; name a topic with --to"
        )


@control.command(name="log-level", short_help="Change what is logged.")
@click.argument("level", metavar="LEVEL", type=click.Choice(_LEVELS, case_sensitive=False))
@click.option(
    "--logger",
    metavar="NAME",
    help="The logger; root is the one above all. Default: reactive_kafka.",
)
@_with_service
def log_level(level: str, logger: str | None, service: ServiceClient, show: Show) -> None:
    """Set the level of a logger, until the service ends. The answer has the level that it had.

    LEVEL is debug, info, warning, error, critical or notset, which means that of the logger above.

    \b
    Examples:
      reactive-kafka control http://shop:9000 log-level debug
      reactive-kafka control http://shop:9000 log-level notset --logger aiokafka
    """
    show(service.post("/api/log-level", _given(level=level, logger=logger)))
