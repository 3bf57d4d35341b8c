"""Makes the HTML of the other processes of a service, for the page without scripts. Pure.

A process knows its peers, and a supervisor its workers. Each of them fills the places that the page
of a process has for that. ``static/members.js`` has the same rules for where scripts run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import quote

from reactive_kafka.http.html_tables import (
    Html,
    duration_text,
    escaped,
    number_text,
    section_html,
)
from reactive_kafka.http.member_json import Json

WORKERS_PLACE = '<div id="workers"></div>'
"""Where the page says of which worker it is. No text of users looks like this, as it is escaped."""
MEMBERS_PLACE = '<div id="members"></div>'
"""Where the first screen lists the members."""
COUNT_PLACE = '<span class="count">1 member</span>'
"""Where a page says how many members there are."""

_MEMBER_COLUMNS = (
    "member",
    "host",
    "process",
    "version",
    "up",
    "partitions",
    "lag",
    "in flight",
    "poison",
    "reason",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOfMember:
    """A page of one process of a service.

    Attributes:
        top: Where the pages of all members begin, as links of this page name it: ``.`` or ``..``.
        worker: Whose page it is. None: it is not that of a worker.
        channel: The channel that it is of. Empty: it is the first screen.
    """

    top: str = "."
    worker: int | None = None
    channel: str = ""


def with_members(html: str, members: Sequence[Json], page: PageOfMember) -> str:
    """Return a page with what it says of all *members*. A process alone is not listed."""
    workers = [one for one in members if one["worker"] and not one["address"]]
    note = _workers_note(workers, page) if len(workers) > 1 else ""
    listed = _member_table(members, page) if len(members) > 1 else ""
    if len(members) > 1:
        html = html.replace(COUNT_PLACE, f"{len(members)} members", 1)
    return html.replace(WORKERS_PLACE, note, 1).replace(MEMBERS_PLACE, listed, 1)


def _workers_note(workers: Sequence[Json], page: PageOfMember) -> str:
    """Say whose numbers these are, and what all workers have together."""
    reached = [one for one in workers if one["is_reached"]]
    whose = f"All {len(workers)} workers"
    if len(reached) < len(workers):
        whose = f"The {len(reached)} of {len(workers)} workers that can be reached"
    what = "This is the channel" if page.channel else "The channels below are those"
    lag, partitions, in_flight, poison = (
        sum(_sum(one, name, page.channel) or 0 for one in reached)
        for name in ("lag", "partition_count", "in_flight", "poison")
    )
    links = " ".join(
        f'<a href="{escape(_link(one, page))}">{escaped(_name(one))}</a>' for one in workers
    )
    return (
        f'<p class="workers">{what} of worker {page.worker}. {whose} together have '
        f"{number_text(partitions)} partitions, lag {number_text(lag)}, {number_text(in_flight)} "
        f"in flight, poison {number_text(poison)}. Pages: {links}</p>"
    )


def _member_table(members: Sequence[Json], page: PageOfMember) -> str:
    rows = [
        (
            Html(
                f'<a href="{escape(_link(one, page))}">{escaped(_name(one))}</a> '
                f'<span class="badge {_kind(one)}">{escaped(_state(one))}</span>'
            ),
            one["host"],
            one["pid"],
            one["version"],
            None if one["uptime_seconds"] is None else duration_text(one["uptime_seconds"]),
            number_text(_sum(one, "partition_count")),
            number_text(_sum(one, "lag")),
            number_text(_sum(one, "in_flight")),
            number_text(_sum(one, "poison")),
            one["reason"],
        )
        for one in members
    ]
    return section_html("<h2>Members</h2>", _MEMBER_COLUMNS, rows, "members")


def _sum(member: Json, name: str, channel: str = "") -> int | None:
    """Return the sum over a member's channels, or over those of one name. None: not known."""
    known = [
        one[name]
        for one in member["channels"]
        if one[name] is not None and channel in ("", one["channel"])
    ]
    return sum(known) if known else None


def _name(member: Json) -> str:
    worker = f"worker {member['worker']}" if member["worker"] else ""
    if member["address"]:
        return ", ".join(filter(None, (member["address"], worker)))
    return worker or "this process"


def _link(member: Json, page: PageOfMember) -> str:
    """Return where the page of a member is: only addresses of the configuration are linked."""
    below = f"workers/{member['worker']}/" if member["worker"] else ""
    if member["address"]:
        return f"http://{member['address']}/{below}"
    of_channel = f"channels/{quote(page.channel, safe='')}" if page.channel else ""
    return f"{page.top}/{below}{of_channel}"


def _state(member: Json) -> str:
    if not member["is_reached"]:
        return "cannot be reached"
    return str(member["state"] if member["status"] == "UP" else member["status"])


def _kind(member: Json) -> str:
    return "up" if member["is_reached"] and member["status"] == "UP" else "down"
