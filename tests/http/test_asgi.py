import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote, urljoin

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.routing import Mount

from reactive_kafka.http.asgi import make_asgi
from reactive_kafka.http.guard import Guard
from reactive_kafka.http.static_files import MEDIA_TYPES
from tests.http.applike import FactsApp
from tests.observe.samples import (
    app,
    batch,
    channel,
    ended,
    outbox,
    outgoing,
    partition,
    poison,
    spark,
)

PATHS = (
    "/",
    "/metrics",
    "/health",
    "/health/live",
    "/health/ready",
    "/health/started",
    "/api/channels",
    "/api/spark",
)


@pytest.fixture
def served() -> FactsApp:
    return FactsApp()


@pytest.fixture
async def client(served: FactsApp) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=make_asgi(served))
    async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
        yield client


async def probes(client: httpx.AsyncClient) -> dict[str, int]:
    return {
        path: (await client.get(path)).status_code for path in PATHS if path.startswith("/health")
    }


async def test_each_probe_answers_with_its_own_status(
    client: httpx.AsyncClient, served: FactsApp
) -> None:
    assert set((await probes(client)).values()) == {200}
    served.now = app(channel(broker_error="away"))
    assert await probes(client) == {
        "/health": 503,
        "/health/live": 200,
        "/health/ready": 503,
        "/health/started": 200,
    }
    served.now = app(channel(poison=(poison(),)))
    assert await probes(client) == {
        "/health": 503,
        "/health/live": 503,
        "/health/ready": 503,
        "/health/started": 200,
    }
    served.now = app(channel(has_joined=False))
    assert await probes(client) == {
        "/health": 503,
        "/health/live": 200,
        "/health/ready": 503,
        "/health/started": 503,
    }


async def test_a_probe_says_what_the_contract_says(
    client: httpx.AsyncClient, served: FactsApp
) -> None:
    served.now = app(channel(on_poison="pause-partition", poison=(poison(),)))
    answer = await client.get("/health/ready")
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert body["status"] == "DOWN"
    assert [(check["name"], check["status"]) for check in body["checks"]] == [("orders", "DOWN")]
    assert body == served.health().ready.to_json()


async def test_a_reason_that_utf8_cannot_say_is_answered_all_the_same(
    client: httpx.AsyncClient, served: FactsApp
) -> None:
    served.now = app(channel(reason="bad \udc80 byte"))
    assert (await client.get("/health")).json()["checks"][0]["data"]["reason"] == r"bad \udc80 byte"


async def test_metrics_are_text_or_openmetrics_as_asked(client: httpx.AsyncClient) -> None:
    text = await client.get("/metrics")
    assert text.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert {family.name for family in text_string_to_metric_families(text.text)} >= {
        "reactive_kafka_channel_up"
    }
    openmetrics = await client.get(
        "/metrics", headers={"accept": "application/openmetrics-text;version=1.0.0"}
    )
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    assert openmetrics.text.endswith("# EOF\n")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
async def test_nothing_but_get_and_head_is_answered(
    client: httpx.AsyncClient, path: str, method: str
) -> None:
    """Row S4 of the faults."""
    answer = await client.request(method, path)
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}


@pytest.mark.parametrize("path", [*PATHS, "/nothing", "/../etc/passwd", "/health/"])
async def test_every_answer_forbids_scripts_sniffing_and_caching(
    client: httpx.AsyncClient, path: str
) -> None:
    answer = await client.get(path)
    assert answer.status_code == (200 if path in PATHS else 404)
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; ")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"


async def test_channels_are_listed_with_their_data_and_totals(
    client: httpx.AsyncClient, served: FactsApp
) -> None:
    served.now = app(channel(retries=4), outgoing=(outgoing(),))
    body = (await client.get("/api/channels")).json()
    (incoming,) = body["incoming"]
    assert incoming["channel"] == "orders"
    assert incoming["partitions"][0]["position"] == 20
    named = ("received", "acked", "nacked", "dead_lettered", "delayed", "poisoned", "retries")
    assert {name: incoming[name] for name in named} == {
        "received": 20,
        "acked": 16,
        "nacked": 1,
        "dead_lettered": 2,
        "delayed": 3,
        "poisoned": 0,
        "retries": 4,
    }
    assert body["outgoing"] == [
        {
            "channel": "invoices",
            "status": "UP",
            "direction": "outgoing",
            "state": "running",
            "reason": None,
            "topic": None,
            "in_flight": 0,
            "sent": {"ok": 16},
            "sent_per_second": None,
            "send_seconds": {"p50": None, "p99": None},
            "last_error": None,
        }
    ]


@pytest.mark.parametrize("on_poison", ["warn", "pause-partition", "dead-letter-queue", "fail"])
async def test_the_page_shows_poison_whatever_becomes_of_it(
    on_poison: str, client: httpx.AsyncClient, served: FactsApp
) -> None:
    served.now = app(channel(on_poison=on_poison, poison=(poison(),)))
    html = (await client.get("/")).text
    cells = [">orders-0</td>", ">17</td>", ">1 min 1 s</td>", ">42</td>", f">{on_poison}</td>"]
    assert [cell for cell in cells if cell not in html] == []
    assert '<span class="badge down">poison</span>' in html
    served.now = app(channel(on_poison=on_poison))
    assert "unsettled for" not in (await client.get("/")).text


async def test_the_page_shows_what_records_came_to(
    client: httpx.AsyncClient, served: FactsApp
) -> None:
    served.now = app(channel())
    assert (
        "<p>received 20, acked 16, nacked 1, dead letters 2, outputs lost 0, delayed retries 3, poison 0</p>"
        in (await client.get("/channels/orders")).text
    )


async def test_spark_sessions_are_listed_with_the_batches_that_run_and_the_last_ones(
    client: httpx.AsyncClient, served: FactsApp
) -> None:
    failed = ended(id="beef", outcome="failed", reason="ValueError:\nbad", rejected=2, since_s=3.0)
    served.now = app(
        spark=(
            spark(
                ready=False,
                reason="no\ndriver",
                running=(batch(),),
                last=(ended(), failed),
                rejected=2,
            ),
        )
    )
    (session,) = (await client.get("/api/spark")).json()["sessions"]
    running, last = session.pop("running"), session.pop("last")
    assert session == {
        "channel": "clicks",
        "mode": "records",
        "ready": False,
        "reason": r"no\ndriver",
        "jobs": {"ok": 2},
        "job_seconds": 0.0,
        "batch_records": 500,
        "rejected": 2,
        "bisection_jobs": 0,
        "tasks": {"completed": 4},
    }
    shown = {
        "id": "7f3a0123456789ab",
        "ranges": ["clicks-0 [100, 50100)"],
        "records": 50_000,
        "attempt": 1,
        "elapsed_seconds": 12.346,
        "timeout_seconds": 600.0,
        "stages": 2,
        "stages_done": 0,
        "tasks": 8,
        "tasks_done": 5,
        "tasks_active": 2,
        "tasks_failed": 0,
    }
    assert running == [{**shown, "stage": 1, "share": 0.625}]
    assert [one["id"] for one in last] == ["beef", "7f3a0123456789ab"], "the newest first"
    assert {
        key: last[0][key]
        for key in ("outcome", "reason", "rejected", "elapsed_seconds", "ended_at")
    } == {
        "outcome": "failed",
        "reason": r"ValueError:\nbad",
        "rejected": 2,
        "elapsed_seconds": 3.0,
        "ended_at": "2001-01-01T00:00:00Z",
    }


async def test_the_page_has_a_bar_for_each_batch_that_runs(
    client: httpx.AsyncClient, served: FactsApp
) -> None:
    some = (
        batch(),
        batch(tasks=0),
        batch(tasks_done=9),
        batch(share=0.75),
        batch(tasks=0, share=0.5),
    )
    served.now = app(spark=(spark(running=some),))
    html = (await client.get("/")).text
    values = [' value="0.625"', "", ' value="1"', ' value="0.75"', ' value="0.5"']
    assert re.findall(r"<progress([^>]*)></progress>", html) == values
    for text in ("5/8 (2 running)", "12 s of 10 min", "clicks 7f3a", "1/2"):
        assert f">{text}</td>" in html


async def test_the_page_lists_the_twenty_batches_that_ended_last_of_all_channels(
    client: httpx.AsyncClient, served: FactsApp
) -> None:
    times = {"clicks": range(0, 40, 2), "views": range(1, 41, 2)}
    served.now = app(
        spark=tuple(
            spark(channel=name, last=tuple(ended(id=f"{at:04}", ended_at=float(at)) for at in when))
            for name, when in times.items()
        )
    )
    html = (await client.get("/")).text
    shown = re.findall(r">((?:clicks|views) \d{4})</td>", html)
    assert shown == [f"{'views' if at % 2 else 'clicks'} {at:04}" for at in range(39, 19, -1)]


async def test_the_page_without_batches_has_no_empty_tables_of_them(
    client: httpx.AsyncClient, served: FactsApp
) -> None:
    served.now = app(spark=(spark(),))
    html = (await client.get("/")).text
    assert "<h2>Spark</h2>" in html
    assert "batches</h2>" not in html


class Elements(HTMLParser):
    """The tags and attributes that a page really has."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        # What scripts and links name.
        self.loaded: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag in ("script", "link"):
            self.loaded += [value for name, value in attrs if name in ("src", "href")]


async def test_the_page_shows_text_never_markup_and_loads_only_its_own_files(
    client: httpx.AsyncClient, served: FactsApp
) -> None:
    """Row S9 of the faults."""
    evil = "<script>alert(1)</script><img src=x onerror=y>"
    served.now = app(
        channel(reason=evil, channel=evil, state="failed"),
        outgoing=(outgoing(channel=evil, broker_error=evil),),
        spark=(
            spark(
                channel=evil,
                ready=False,
                reason=evil,
                running=(batch(id=evil, ranges=(evil,) * 9),),
                last=(ended(id=evil, outcome="failed", reason=evil, ranges=(evil,)),),
            ),
        ),
    )
    for path in ("/", f"/channels/{quote(evil, safe='')}"):
        html = (await client.get(path)).text
        assert evil not in html
        assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 3
        elements = Elements()
        elements.feed(html)
        assert not elements.tags & {"img", "iframe", "object", "base", "form"}
        assert not [
            name for name in elements.attributes if name.startswith("on") or name == "style"
        ]
        root = "." if path == "/" else ".."
        names = ("down.svg", "page.css", "page.js")
        assert elements.loaded == [f"{root}/static/{name}" for name in names]
        assert ">DOWN<" in html


async def test_the_page_says_why_a_channel_is_paused_and_what_it_warns_of(
    client: httpx.AsyncClient, served: FactsApp
) -> None:
    served.now = app(
        channel(state="paused", paused_by=("lunch",), warnings=("metadata is dropped",))
    )
    html = (await client.get("/")).text
    assert "metadata is dropped" in html
    html = (await client.get("/channels/orders")).text
    assert "<ul><li>paused: lunch</li><li>metadata is dropped</li></ul>" in html


async def test_the_page_says_how_many_events_of_an_outbox_wait_and_for_how_long(
    client: httpx.AsyncClient, served: FactsApp
) -> None:
    served.now = app(channel(outbox=outbox(1200, 12.4, relayed=7)))
    words = "1,200 events of the outbox wait, the first for 12 s"
    assert words in (await client.get("/")).text
    assert f"<li>{words}</li>" in (await client.get("/channels/orders")).text
    (shown,) = (await client.get("/api/channels")).json()["incoming"]
    assert shown["outbox"] == words
    assert (shown["outbox_rows"], shown["outbox_oldest_seconds"]) == (1200, 12.4)
    assert shown["outbox_relayed"] == 7
    served.now = app(channel(outbox=outbox(0, relayed=8)))
    assert "of the outbox" not in (await client.get("/")).text


async def test_the_policy_lets_nothing_run_but_the_files_of_the_page(
    client: httpx.AsyncClient,
) -> None:
    policy = (await client.get("/")).headers["content-security-policy"]
    assert policy.split("; ") == [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
    ]
    for name, kind in MEDIA_TYPES.items():
        answer = await client.get(f"/static/{name}")
        assert answer.status_code == 200
        assert answer.headers["content-type"].partition(";")[0] == kind
    for path in ("/static/nothing.js", "/static/../asgi.py", "/static/", "/static"):
        assert (await client.get(path)).status_code == 404


async def test_a_channel_has_a_page_with_its_partitions_and_others_have_none(
    client: httpx.AsyncClient, served: FactsApp
) -> None:
    islands = partition(settled_above=((18, 19),), log_end=22)
    served.now = app(channel(partitions=(islands,)))
    html = (await client.get("/channels/orders")).text
    assert 'aria-label="orders-0: committed 17, settled above it 18 to 18, read 20, end 22"' in html
    assert (await client.get("/channels/nothing")).status_code == 404


async def test_a_browser_without_the_token_gets_a_page_without_facts() -> None:
    def guard() -> Guard:
        return Guard(token="secret")

    transport = httpx.ASGITransport(app=make_asgi(FactsApp(), guard))
    async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
        browser = {"Accept": "text/html,application/xhtml+xml"}
        for path in ("/", "/channels/orders"):
            answer = await client.get(path, headers=browser)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "static/page.js" in answer.text
            assert "orders" not in answer.text
        assert (await client.get("/static/page.js")).status_code == 200
        refused = await client.get("/api/stream", headers=browser)
        assert (refused.status_code, refused.headers["content-type"]) == (
            401,
            "text/plain; charset=utf-8",
        )


@pytest.mark.parametrize("written", ["/channels/a%2Fb", "/channels/a/b"])
async def test_the_links_of_a_channel_with_a_slash_lead_home_however_it_is_written(
    written: str,
) -> None:
    served = FactsApp(app(channel(channel="a/b")))
    transport = httpx.ASGITransport(app=make_asgi(served))
    async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
        html = (await client.get(written)).text
    (home,) = set(re.findall(r'<a href="([^"]*)">all channels</a>', html))
    assert urljoin(f"http://app{written}", home) == "http://app/"


async def test_mounted_into_another_application_its_links_stay_its_own(served: FactsApp) -> None:
    outer = Starlette(routes=[Mount("/kafka", app=make_asgi(served))])
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=outer), base_url="http://app"
    ) as client:
        assert (await client.get("/kafka/health/live")).status_code == 200
        assert 'href="/kafka/metrics"' in (await client.get("/kafka/")).text


async def test_the_page_of_a_broken_application_is_an_error_without_its_text(
    served: FactsApp,
) -> None:
    class Broken(FactsApp):
        def facts(self) -> Any:
            raise RuntimeError("secret detail")

    transport = httpx.ASGITransport(app=make_asgi(Broken()), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
        for path in ("/", "/metrics", "/api/channels"):
            answer = await client.get(path)
            assert answer.status_code == 500
            assert "secret" not in answer.text
