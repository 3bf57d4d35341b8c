"""The page in a real browser. ``REACTIVE_KAFKA_WITHOUT=chromium`` leaves it out, and nothing else
does.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Mount, Route

from reactive_kafka import App
from reactive_kafka.events import RecordIgnored
from reactive_kafka.http.asgi import make_asgi
from reactive_kafka.http.guard import Guard
from reactive_kafka.http.server import serve
from reactive_kafka.http.static_files import MEDIA_TYPES
from reactive_kafka.records import TopicPartition
from tests.app.helpers import make_broker
from tests.faults.driver import free_port
from tests.harness.browser_tab import BrowserTab, browser_tab
from tests.http.applike import FactsApp
from tests.observe.samples import (
    app,
    batch,
    channel,
    ended,
    grown,
    outgoing,
    partition,
    poison,
    spark,
)

pytestmark = [
    pytest.mark.chromium,
    pytest.mark.skipif(
        "chromium" in os.environ.get("REACTIVE_KAFKA_WITHOUT", "").split(","), reason="left out"
    ),
]

HOST = "127.0.0.1"
EVIL = "<script>document.title='taken'</script><img src='http://127.0.0.1:1/x' onerror='alert(1)'>"
IS_LIVE = "document.querySelector('#clock')"
ICON = "document.querySelector('link[rel=icon]').href"
# The service must be seen within a second. This has room for a busy machine.
SOON_S = 5.0


@pytest.fixture
async def tab(tmp_path: Path) -> AsyncIterator[BrowserTab]:
    async with browser_tab(tmp_path) as tab:
        await tab.see()
        yield tab


async def test_a_record_is_seen_within_a_second_of_its_production(tab: BrowserTab) -> None:
    service = App(
        {
            "http": {"port": 0, "service_name": "billing <b>"},
            "incoming": {"orders": {"group_id": "billing", "auto_offset_reset": "earliest"}},
        }
    )
    broker = make_broker(partitions=3)
    service._connector = broker.connector()

    @service.incoming("orders")
    async def invoice(order: bytes) -> None:
        """Accept every order."""

    async with service:
        assert service.http is not None
        await tab.open(f"{service.http.url}/channels/orders")
        await tab.until(IS_LIVE)
        await tab.until("document.body.innerText.includes('received 0,')")
        broker.produce("orders", b"one", partition=1)
        # The clock of the page: the time between the record and its sight is measured there.
        produced_at = await tab.run("performance.now()")
        await tab.until("document.body.innerText.includes('received 1,')", SOON_S)
        seen_at = await tab.run("performance.now()")
        assert seen_at - produced_at < 1000 * SOON_S
        shown = await tab.text()
        for text in ("billing <b>", "orders", "group billing", "classic", "invoice"):
            assert text in shown, text
        assert "tests.http.test_page" in shown
        name = await tab.run(
            "[...document.querySelectorAll('svg.marks')].map(one => one.ariaLabel).join('|')"
        )
        assert "orders-1: committed" in name
        assert tab.complaints == []
    await broker.close()


async def test_poison_turns_title_icon_and_row_red_and_green_again(tab: BrowserTab) -> None:
    served = FactsApp()
    async with serve(make_asgi(served), HOST, 0) as server:
        await tab.open(server.url)
        await tab.until(IS_LIVE)
        assert await tab.run("document.title") == "UP - shop"
        for on_poison, word in (("fail", "DOWN"), ("warn", "POISON")):
            served.now = app(channel(on_poison=on_poison, poison=(poison(),)))
            await tab.until(f"document.title === '{word} - shop'", SOON_S)
            assert (await tab.run(ICON)).endswith(f"/static/{word.lower()}.svg")
            assert await tab.run("document.querySelector('.channels tbody tr').className") == "down"
            assert await tab.text(".channels .badge") == "poison"
            assert "running" not in await tab.text(".channels")
            served.now = app(channel())
            await tab.until("document.title === 'UP - shop'", SOON_S)
            assert (await tab.run(ICON)).endswith("/static/up.svg")
            assert await tab.run("document.querySelector('.channels tbody tr').className") == ""
        # State changes are told to those who hear the page, and nothing else is.
        assert await tab.run("document.querySelector('.unseen').textContent") == (
            "orders: running, was poison"
        )
        assert tab.complaints == []


async def test_the_page_is_live_again_when_the_service_has_restarted(tab: BrowserTab) -> None:
    port = free_port()
    async with serve(make_asgi(FactsApp()), HOST, port) as server:
        await tab.open(server.url)
        await tab.until(IS_LIVE)
    await tab.until("document.title.startsWith('NO CONNECTION')", SOON_S)
    assert (await tab.text("#connection")).startswith("no connection since ")
    assert (await tab.run(ICON)).endswith("/static/away.svg")
    async with serve(make_asgi(FactsApp(app(channel(retries=4711)))), HOST, port):
        await tab.until("document.title === 'UP - shop'", 10.0)
        assert "4\u202f711" in await tab.text(".channels")
        assert await tab.text("#connection") == ""


async def test_an_application_without_channels_says_so(tab: BrowserTab) -> None:
    served = FactsApp(app())
    says = "This application has no channels."
    async with serve(make_asgi(served), HOST, 0) as server:
        async with httpx.AsyncClient() as client:
            assert says in (await client.get(server.url)).text
        await tab.open(server.url)
        await tab.until(IS_LIVE)
        assert says in await tab.text()
        served.now = app(channel())
        await tab.until("document.querySelector('.channels').offsetParent", SOON_S)
        assert says not in await tab.text()


async def test_a_name_that_turns_the_direction_of_text_turns_no_word_behind_it(
    tab: BrowserTab,
) -> None:
    served = FactsApp(app(channel(channel="orders \u202e", state="failed", reason="broken")))
    async with serve(make_asgi(served), HOST, 0) as server:
        await tab.open(server.url)
        await tab.until(IS_LIVE)
        # Where the first and the last letter of the word are seen.
        edges = await tab.run(
            "(() => { const word = document.querySelector('.channels .badge').firstChild;"
            " return [0, word.length - 1].map(place => { const one = document.createRange();"
            " one.setStart(word, place); one.setEnd(word, place + 1);"
            " return one.getBoundingClientRect().x }) })()"
        )
        assert edges[0] < edges[1], "failed reads as deliaf"


async def test_facts_that_the_page_cannot_show_are_no_outage_and_do_not_pass_as_shown(
    tab: BrowserTab,
) -> None:
    is_over = asyncio.Event()

    async def other_facts(_: Request) -> StreamingResponse:
        async def facts() -> AsyncIterator[str]:
            yield 'event: facts\ndata: {"application": {}, "incoming": {}}\n\n'
            await is_over.wait()

        return StreamingResponse(facts())

    asgi = Starlette(routes=[Route("/api/stream", other_facts), Mount("/", make_asgi(FactsApp()))])
    async with serve(asgi, HOST, 0) as server:
        await tab.open(server.url)
        await tab.until("document.title.startsWith('OUT OF DATE')", SOON_S)
        assert re.match(
            r"this page cannot show what the service sends \(.+\): load it again",
            await tab.text("#connection"),
        )
        assert "orders" in await tab.text(".channels"), "what the server has drawn stays"
        assert tab.complaints != []
        is_over.set()


async def test_hostile_text_is_shown_as_text_and_the_policy_has_nothing_to_refuse(
    tab: BrowserTab,
) -> None:
    """Row S9 of the faults."""
    failed = ended(outcome="failed", reason=EVIL, rejected=2)
    served = FactsApp(
        app(
            channel(
                channel=EVIL,
                reason=EVIL,
                state="failed",
                topics=(EVIL,),
                group_id=EVIL,
                handlers=(EVIL,),
                warnings=(EVIL,),
                paused_by=(EVIL,),
                partitions=(partition(partition=TopicPartition(EVIL, 0)),),
                poison=(poison(partition=TopicPartition(EVIL, 0)),),
            ),
            outgoing=(outgoing(channel=EVIL, topic=EVIL, broker_error=EVIL),),
            spark=(
                spark(
                    channel=EVIL,
                    reason=EVIL,
                    ready=False,
                    running=(batch(id=EVIL, ranges=(EVIL,) * 3), batch(tasks=0)),
                    last=(ended(), failed),
                ),
            ),
        )
    )
    event = RecordIgnored(
        channel=EVIL,
        partition=TopicPartition(EVIL, 0),
        offset=1,
        reason=EVIL,
        error=ValueError(EVIL),
    )
    served.recent_events.on(event)
    async with serve(make_asgi(served), HOST, 0) as server:
        await tab.open(server.url)
        await tab.until(IS_LIVE)
        link = await tab.run("document.querySelector('.channels a').href")
        for place in (None, link):
            if place is not None:
                await tab.open(place)
                await tab.until(f"{IS_LIVE} && location.href !== {json.dumps(server.url + '/')}")
            assert await tab.run("document.querySelectorAll('img, main script').length") == 0
            shown = await tab.text()
            assert shown.count("<script>document.title='taken'</script>") >= 6
            assert (await tab.run("document.title")).startswith("DOWN - shop")
        assert "ValueError" in shown
        assert await tab.run("document.querySelectorAll('progress').length") == 2
        assert tab.complaints == []
        # HTML from a string does not get through.
        refused = await tab.run(
            "(() => { try { document.body.innerHTML = '<b>x</b>' } catch (error) { return error.name } })()"
        )
        assert refused == "TypeError"


async def test_batches_of_spark_have_bars_on_one_time_axis(tab: BrowserTab) -> None:
    began_first = ended(id="aaaa", since_s=30.0, ended_ago_s=10.0)
    failed = ended(id="bbbb", since_s=0.001, ended_ago_s=0.0, outcome="failed")
    lost = ended(id="cccc", since_s=4.0, ended_ago_s=16.0, outcome="lost")
    served = FactsApp(
        app(
            spark=(
                spark(channel="clicks", running=(batch(since_s=20.0),), last=(began_first,)),
                spark(channel="views", last=(lost, failed)),
            )
        )
    )
    async with serve(make_asgi(served), HOST, 0) as server:
        await tab.open(server.url)
        await tab.until(IS_LIVE)
        bars = await tab.run(
            "[...document.querySelectorAll('svg.when')].map(one => [one.firstChild.className.baseVal,"
            " Number(one.firstChild.getAttribute('x')), Number(one.firstChild.getAttribute('width')),"
            " one.ariaLabel])"
        )
        assert bars == [
            ["running", 100, 100, "began 20 s ago, runs"],
            ["failed", 199, 1, "began 0 s ago, took 1 ms, failed"],
            ["settled", 0, 150, "began 40 s ago, took 30.0 s, ok"],
            ["unread", 100, 20, "began 20 s ago, took 4.0 s, lost"],
        ]
        assert "one time axis, from 40 s ago until now" in await tab.text()
        assert tab.complaints == []


async def test_a_page_without_javascript_has_the_same_tables(tab: BrowserTab) -> None:
    served = FactsApp(app(channel(), outgoing=(outgoing(),)))
    async with serve(make_asgi(served), HOST, 0) as server:
        await tab.call("Emulation.setScriptExecutionDisabled", value=True)
        await tab.open(server.url)
        await tab.until("document.readyState === 'complete' && document.querySelector('.channels')")
        assert await tab.run("document.querySelectorAll('table').length") == 2
        assert "orders" in await tab.text(".channels")
        assert await tab.run("document.querySelector('#clock')") is None


async def test_under_a_mount_path_and_with_a_token_it_asks_for_it(tab: BrowserTab) -> None:
    served = FactsApp()
    host = Starlette(routes=[Mount("/kafka", make_asgi(served, lambda: Guard(token="sesame")))])
    async with serve(host, HOST, 0) as server:
        await tab.open(f"{server.url}/kafka/channels/orders")
        await tab.until("document.querySelector('input[type=password]')")
        assert "partition" not in await tab.text()
        for typed in ("wrong", "sesame"):
            await tab.until("document.querySelector('input')")
            await tab.run(f"document.querySelector('input').value = '{typed}'")
            await tab.run("document.querySelector('form').requestSubmit()")
        await tab.until("document.querySelector('svg.marks')")
        assert await tab.run("document.title") == "UP - shop - orders"
        assert "orders-0" in await tab.text(".partitions")
        assert await tab.run("sessionStorage.length") == 1


async def test_it_fits_a_phone_and_a_desk_in_light_and_dark(tab: BrowserTab) -> None:
    long = "a-topic-with-a-name-that-never-ends-" * 6
    served = FactsApp(
        app(
            channel(topics=(long,), handlers=(f"shop.handlers.{long}",), warnings=(long,)),
            channel(channel=long),
            outgoing=(outgoing(channel=long[:200], topic=long),),
            spark=(spark(running=(batch(),), last=(ended(),)),),
        )
    )
    async with serve(make_asgi(served), HOST, 0) as server:
        for width, dark in ((1280, False), (390, True)):
            await tab.see(width=width, dark=dark, phone=width < 500)
            for path in ("/", "/channels/orders"):
                await tab.open(server.url + path)
                await tab.until(f"{IS_LIVE} && location.pathname === '{path}'")
                wider = (
                    "document.documentElement.scrollWidth - document.documentElement.clientWidth"
                )
                assert await tab.run(wider) <= 0, (width, path)


def busy_app() -> FactsApp:
    """200 channels, one of which has 1000 partitions; every number changes at each look."""
    places = [TopicPartition("orders", number) for number in range(1000)]
    wide = channel(
        channel="wide",
        partitions=tuple(partition(partition=place, lag=place.partition) for place in places),
    )
    others = [
        channel(channel=f"channel-{number:03}", topics=(f"topic-{number}",), group_id="billing")
        for number in range(199)
    ]
    return FactsApp(app(wide, *others), change=lambda last, looks: grown(last, 7))


async def test_two_hundred_channels_and_a_thousand_partitions_stay_smooth(tab: BrowserTab) -> None:
    """The main thread works for less than a fifth of the time, also with every row shown."""
    async with serve(make_asgi(busy_app()), HOST, 0) as server:
        for path, rows in (("/", 200), ("/channels/wide", 1000)):
            await tab.open(server.url + path)
            await tab.until(f"{IS_LIVE} && location.pathname === '{path}'")
            table = ".channels" if path == "/" else ".partitions"
            assert await tab.run(f"document.querySelectorAll('{table} tbody tr').length") == 50
            await tab.run(
                "[...document.querySelectorAll('button')].find(one => one.offsetParent).click()"
            )
            assert await tab.run(f"document.querySelectorAll('{table} tbody tr').length") == rows
            before = await tab.busy_s(), asyncio.get_running_loop().time()
            await asyncio.sleep(4)
            after = await tab.busy_s(), asyncio.get_running_loop().time()
            print(path, (after[0] - before[0]) / (after[1] - before[1]))
            assert (after[0] - before[0]) / (after[1] - before[1]) < 0.2, path
        assert tab.complaints == []


async def test_all_that_the_page_loads_weighs_less_than_a_picture() -> None:
    transport = httpx.ASGITransport(app=make_asgi(FactsApp()))
    async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
        scripts = [f"/static/{name}" for name in MEDIA_TYPES if name.endswith(".js")]
        paths = ("/", *scripts, "/static/page.css", "/static/up.svg")
        sizes = {path: len((await client.get(path)).content) for path in paths}
    assert sum(sizes.values()) < 80_000, sizes
