"""Makes the HTML of the page from the JSON of the facts. Pure.

The page can be read as it is. Where scripts run, ``static/page.js`` then draws the same facts again
whenever the stream brings newer ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import quote

from reactive_kafka.http.html_tables import (
    Html,
    age_text,
    duration_text,
    escaped,
    list_html,
    number_text,
    rate_text,
    section_html,
    table_html,
)
from reactive_kafka.http.members_html import COUNT_PLACE, MEMBERS_PLACE, WORKERS_PLACE
from reactive_kafka.http.partition_marks import marks_of, marks_text
from reactive_kafka.observe.wording import count_of, first_of, short_id

REFRESH_S = 5
"""How often the page reloads where no script runs."""
MOST_ROWS = 50
"""How many rows a table has. The page says how many more there are."""
LAST_BATCHES = 20
SEPARATOR = " \u00b7 "
# How many ranges of a batch the page names. The JSON has all of them.
RANGES_NAMED = 2

Json = Mapping[str, Any]

_CHANNEL_COLUMNS = (
    "channel",
    "topic and group",
    "handler",
    "in/s",
    "out/s",
    "lag",
    "in flight",
    "oldest",
    "p50 / p99",
    "retries",
    "letters",
    "poison",
    "last error",
)
_OUTGOING_COLUMNS = (
    "channel",
    "topic",
    "sent",
    "failed",
    "sent/s",
    "in flight",
    "p50 / p99",
    "last error",
)
_POISON_COLUMNS = (
    "channel",
    "partition",
    "offset",
    "unsettled for",
    "waiting behind it",
    "on_poison",
)
_PARTITION_COLUMNS = (
    "partition",
    "marks",
    "committed",
    "read",
    "end",
    "lag",
    "in flight",
    "queued",
    "oldest",
    "state",
)
_HISTORY_COLUMNS = ("time", "kind", "what happened")
_SESSION_COLUMNS = ("channel", "mode", "session", "ok", "failed", "cancelled", "lost")
_RUNNING_COLUMNS = (
    "batch",
    "progress",
    "stage",
    "tasks",
    "failed",
    "records",
    "attempt",
    "time",
    "ranges",
)
_LAST_COLUMNS = (
    "batch",
    "ended",
    "took",
    "records",
    "rejected",
    "attempt",
    "outcome",
    "ranges",
    "reason",
)
_TOTALS = {
    "received": "received",
    "acked": "acked",
    "nacked": "nacked",
    "dead_lettered": "dead letters",
    "outputs_lost": "outputs lost",
    "delayed": "delayed retries",
    "poisoned": "poison",
}


def overview_page(facts: Json, root: str) -> str:
    """Return the page at ``/``.

    Args:
        facts: What an event of the stream holds.
        root: The path at which the application is mounted.
    """
    has_channels = facts["incoming"] or facts["outgoing"]
    return _page(
        facts,
        root,
        channel="",
        main=WORKERS_PLACE
        + ("" if has_channels else "<p>This application has no channels.</p>")
        + _incoming(facts["incoming"], root)
        + _poison(facts["incoming"])
        + _outgoing(facts["outgoing"])
        + _spark(facts["sessions"])
        + MEMBERS_PLACE,
    )


def channel_page(facts: Json, name: str, root: str, *, all_rows: bool = False) -> str | None:
    """Return the page of one incoming channel, or None if there is no such channel."""
    channel = next((one for one in facts["incoming"] if one["channel"] == name), None)
    if channel is None:
        return None
    sessions = [one for one in facts["sessions"] if one["channel"] == name]
    main = (
        f'<p><a href="{escape(root)}/">all channels</a></p>'
        f"<h2>{escaped(name)} {_badge(channel)}</h2>"
        + WORKERS_PLACE
        + _notes(channel)
        + table_html(_CHANNEL_COLUMNS, [_incoming_row(channel, root)], "channels")
        + _poison([channel])
        + _partitions(channel, all_rows=all_rows)
        + f"<p>{escaped(_totals(channel))}</p>"
        + _history(channel)
        + _spark(sessions)
    )
    return _page(facts, root, channel=name, main=main)


def sign_in_page(root: str) -> str:
    """Return the page for a browser that has not sent the token. It holds no facts."""
    return (
        _head("sign in", "away", root, reloads=False)
        + "<body><header><h1>reactive_kafka</h1></header><main>"
        "<p>This page needs the token of <code>[http] token_file</code>. "
        "A browser sends it only where scripts run.</p></main></body></html>"
    )


def page_state(facts: Json) -> str:
    """Return ``up``, ``down`` or ``poison``: the state in the title and the icon."""
    if facts["application"]["status"] == "DOWN":
        return "down"
    return "poison" if any(channel["poison"] for channel in facts["incoming"]) else "up"


def _page(facts: Json, root: str, *, channel: str, main: str) -> str:
    application = facts["application"]
    state = page_state(facts)
    title = f"{state.upper()} - {application['name']}"
    if channel:
        title += f" - {channel}"
    links = " ".join(
        f'<a href="{escape(root)}/{path}">{path}</a>'
        for path in ("health", "metrics", "api/channels", "api/spark")
    )
    reasons = [
        f"<b>{escaped(one['name'])}</b>: {escaped(one['reason'])}" for one in application["reasons"]
    ]
    return (
        _head(title, state, root, reloads=True) + f'<body><header class="{state}">'
        f'<h1><a href="{escape(root)}/">{escaped(application["name"])}</a> '
        f'<span id="state" class="badge {state}">{state.upper()}</span></h1>'
        f'<p id="about">{_about(application)}</p>'
        '<p id="connection" role="status"></p></header>'
        f'<div id="reasons">{list_html(reasons)}</div>'
        f"<main>{main}</main><footer><p>{links}</p></footer></body></html>"
    )


def _head(title: str, state: str, root: str, *, reloads: bool) -> str:
    static = f"{escape(root)}/static"
    reload = f'<noscript><meta http-equiv="refresh" content="{REFRESH_S}"></noscript>'
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{escaped(title)}</title>"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'<link rel="icon" type="image/svg+xml" href="{static}/{state}.svg">'
        f'<link rel="stylesheet" href="{static}/page.css">'
        f'<script type="module" src="{static}/page.js"></script>{reload if reloads else ""}</head>'
    )


def _about(application: Json) -> str:
    """Return the line under the name, as HTML: version, host, uptime, members, state."""
    version = application["version"]
    parts: list[str] = [
        *([f"version {version}"] if version else []),
        f"reactive_kafka {application['library_version']}",
        f"host {application['host']}",
        f"process {application['pid']}",
    ]
    if application["uptime_seconds"] is not None:
        parts.append(f"up {duration_text(application['uptime_seconds'])}")
    return SEPARATOR.join([*map(escaped, parts), COUNT_PLACE, escaped(application["state"])])


def _incoming(channels: Sequence[Json], root: str) -> str:
    """Return the table of incoming channels, those that are DOWN first."""
    if not channels:
        return ""
    ordered = sorted(channels, key=_severity, reverse=True)
    rows = [_incoming_row(channel, root) for channel in ordered[:MOST_ROWS]]
    more = len(channels) - MOST_ROWS
    note = f"<p>Not shown: {count_of(more, 'more channel')}.</p>" if more > 0 else ""
    return "<h2>Incoming channels</h2>" + table_html(_CHANNEL_COLUMNS, rows, "channels") + note


def _severity(channel: Json) -> int:
    if channel["status"] == "DOWN":
        return 2
    return 1 if channel["poison"] or channel["warnings"] else 0


def _incoming_row(channel: Json, root: str) -> tuple[object, ...]:
    """Return a row for `_CHANNEL_COLUMNS`."""
    name = channel["channel"]
    href = f"{escape(root)}/channels/{quote(name, safe='')}"
    notes = [channel["reason"], *channel["warnings"], channel["outbox"]]
    about = "; ".join(note for note in notes if note)
    group = [f"group {channel['group']}"] if channel["group"] else []
    if channel["protocol"]:
        group.append(channel["protocol"])
    return (
        Html(
            f'<a href="{href}">{escaped(name)}</a> {_badge(channel)}'
            + (f'<small class="note">{escaped(about)}</small>' if about else "")
        ),
        Html(
            escaped(", ".join(channel["topics"]))
            + f"<small>{escaped(SEPARATOR.join(group))}</small>"
        ),
        Html("".join(map(_handler, channel["handlers"]))),
        rate_text(channel["received_per_second"]),
        rate_text(channel["settled_per_second"]),
        _lag_text(channel),
        number_text(channel["in_flight"]),
        age_text(channel["oldest_unacked_seconds"]),
        _percentiles(channel["handler_seconds"]),
        number_text(channel["retries"]),
        number_text(channel["dead_lettered"]),
        number_text(len(channel["poison"])),
        _error_text(channel["last_error"]),
    )


def _handler(name: str) -> str:
    """Return a function, and its module below it."""
    module, _, function = name.rpartition(".")
    return f"{escaped(function)}<small>{escaped(module)}</small>"


def _badge(channel: Json) -> str:
    kind = ("up", "warn", "down")[2 if channel["poison"] else _severity(channel)]
    state = "poison" if channel["poison"] else channel["state"]
    return f'<span class="badge {kind}">{escaped(state)}</span>'


def _lag_text(channel: Json) -> str:
    lag = number_text(channel["lag"])
    change = channel["lag_per_second"]
    if not change:
        return lag
    return f"{lag} ({'+' if change > 0 else ''}{change:g}/s)"


def _percentiles(seconds: Json) -> str:
    if seconds["p50"] is None:
        return "-"
    return f"{age_text(seconds['p50'])} / {age_text(seconds['p99'])}"


def _error_text(error: Json | None) -> str:
    if error is None:
        return ""
    return f"{error['at']} {error['type']}: {error['text']}"


def _notes(channel: Json) -> str:
    notes = [
        *(f"paused: {reason}" for reason in channel["paused_by"]),
        *channel["postponed"],
        *channel["warnings"],
        *filter(None, [channel["outbox"]]),
    ]
    for why in (channel["reason"], channel["stopped_by"]):
        if why is not None and why not in notes:
            notes.insert(0, why)
    return list_html([escaped(note) for note in notes])


def _poison(channels: Sequence[Json]) -> str:
    rows = [
        (
            channel["channel"],
            f"{one['topic']}-{one['partition']}",
            one["offset"],
            age_text(one["age_seconds"]),
            number_text(one["waiting"]),
            channel["on_poison"],
        )
        for channel in channels
        for one in channel["poison"][:MOST_ROWS]
    ]
    return section_html("<h2>Poison</h2>", _POISON_COLUMNS, rows[:MOST_ROWS])


def _partitions(channel: Json, *, all_rows: bool) -> str:
    """Return the table of partitions, the worst first."""
    partitions = sorted(channel["partitions"], key=lambda one: worst_first(one, channel))
    shown = partitions if all_rows else partitions[:MOST_ROWS]
    rows = [
        (
            f"{one['topic']}-{one['partition']}",
            Html(marks_svg(one)),
            number_text(one["committed"]),
            number_text(one["position"]),
            number_text(one["log_end"]),
            number_text(one["lag"]),
            number_text(one["in_flight"]),
            number_text(one["queued"]),
            age_text(one["oldest_unacked_seconds"]),
            _partition_state(one),
        )
        for one in shown
    ]
    more = len(partitions) - len(shown)
    note = f'<p><a href="?all=1">{more} more partitions</a></p>' if more > 0 else ""
    legend = (
        '<p class="legend"><span class="swatch settled"></span>settled, waits for its commit or '
        'for a record before it <span class="swatch open"></span>read and not settled '
        '<span class="swatch unread"></span>in the log and not read</p>'
    )
    return (
        section_html("<h2>Partitions</h2>" + legend, _PARTITION_COLUMNS, rows, "partitions") + note
    )


def worst_first(partition: Json, channel: Json) -> tuple[Any, ...]:
    """Return a key that sorts partitions: poison, then lag, then the oldest record."""
    place = (partition["topic"], partition["partition"])
    is_poisoned = any((one["topic"], one["partition"]) == place for one in channel["poison"])
    return (
        not is_poisoned,
        -(partition["lag"] or 0),
        -(partition["oldest_unacked_seconds"] or 0.0),
        place,
    )


def marks_svg(partition: Json) -> str:
    """Return the marks of a partition as a picture with a name."""
    parts = "".join(
        f'<rect class="{mark.kind}" x="{mark.start:g}" width="{mark.width:g}" height="12"/>'
        for mark in marks_of(partition)
    )
    return (
        f'<svg class="marks" role="img" aria-label="{escaped(marks_text(partition))}" '
        f'viewBox="0 0 200 12" preserveAspectRatio="none">{parts}</svg>'
    )


def _partition_state(partition: Json) -> str:
    if partition["done"]:
        return "done"
    return "paused" if partition["paused"] else ""


def _totals(channel: Json) -> str:
    return ", ".join(f"{label} {number_text(channel[key])}" for key, label in _TOTALS.items())


def _history(channel: Json) -> str:
    rows = [
        (
            entry["at"],
            entry["kind"],
            entry["text"] if entry["count"] == 1 else f"{entry['text']} ({entry['count']} times)",
        )
        for entry in channel.get("history", ())
    ]
    return section_html("<h2>Rebalances and failures</h2>", _HISTORY_COLUMNS, rows, "history")


def _outgoing(channels: Sequence[Json]) -> str:
    rows = [
        (
            Html(
                f'{escaped(one["channel"])} <span class="badge '
                f'{"up" if one["status"] == "UP" else "down"}">{escaped(one["state"])}</span>'
                + (f'<small class="note">{escaped(one["reason"])}</small>' if one["reason"] else "")
            ),
            one["topic"],
            number_text(one["sent"].get("ok", 0)),
            number_text(one["sent"].get("failed", 0)),
            rate_text(one["sent_per_second"]),
            number_text(one["in_flight"]),
            _percentiles(one["send_seconds"]),
            _error_text(one["last_error"]),
        )
        for one in channels
    ]
    return section_html("<h2>Outgoing channels</h2>", _OUTGOING_COLUMNS, rows, "outgoing")


def _spark(sessions: Sequence[Json]) -> str:
    states = []
    running: list[tuple[object, ...]] = []
    ended: list[tuple[str, tuple[object, ...]]] = []
    for session in sessions:
        name = session["channel"]
        state = "ready" if session["ready"] else session["reason"] or "not ready"
        jobs = [
            session["jobs"].get(outcome, 0) for outcome in ("ok", "failed", "cancelled", "lost")
        ]
        states.append((name, session["mode"], state, *jobs))
        running += [_running_row(name, batch) for batch in session["running"]]
        ended += [(batch["ended_at"] or "", _last_row(name, batch)) for batch in session["last"]]
    ended.sort(key=lambda pair: pair[0], reverse=True)
    return (
        section_html("<h2>Spark</h2>", _SESSION_COLUMNS, states)
        + section_html("<h2>Running batches</h2>", _RUNNING_COLUMNS, running, "batches")
        + section_html(
            "<h2>Last batches</h2>",
            _LAST_COLUMNS,
            [row for _, row in ended[:LAST_BATCHES]],
            "batches",
        )
    )


def _running_row(channel: str, batch: Json) -> tuple[object, ...]:
    """Return a row for `_RUNNING_COLUMNS`."""
    # Without a value the bar shows an unknown progress, until Spark knows the number of tasks.
    value = "" if batch["share"] is None else f' value="{batch["share"]:g}"'
    return (
        f"{channel} {short_id(batch['id'])}",
        Html(f"<progress{value}></progress>"),
        f"{batch['stage']}/{batch['stages']}",
        f"{batch['tasks_done']}/{batch['tasks']} ({batch['tasks_active']} running)",
        batch["tasks_failed"],
        number_text(batch["records"]),
        batch["attempt"],
        f"{duration_text(batch['elapsed_seconds'])} of {duration_text(batch['timeout_seconds'])}",
        first_of(batch["ranges"], RANGES_NAMED),
    )


def _last_row(channel: str, batch: Json) -> tuple[object, ...]:
    """Return a row for `_LAST_COLUMNS`."""
    outcome = batch["outcome"]
    if outcome != "ok":
        outcome = Html(f'<span class="badge down">{escaped(outcome)}</span>')
    return (
        f"{channel} {short_id(batch['id'])}",
        batch["ended_at"],
        f"{batch['elapsed_seconds']:.2f} s",
        number_text(batch["records"]),
        batch["rejected"] or None,
        batch["attempt"],
        outcome,
        first_of(batch["ranges"], RANGES_NAMED),
        batch["reason"],
    )
