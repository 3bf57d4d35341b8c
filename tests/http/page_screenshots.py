"""Takes the pictures of the live page for the documentation: ``make docs-pictures``.

A shop runs on the broker of the tests, with everything that an operator may meet: a failed channel,
a poison record, a pause, dead letters. Chromium shows its page.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from reactive_kafka import App
from reactive_kafka.http.asgi import make_asgi
from reactive_kafka.http.server import serve
from reactive_kafka.testing import MemoryBroker
from tests.faults.driver import free_port
from tests.harness.browser_tab import BrowserTab, browser_tab
from tests.http.applike import FactsApp
from tests.observe.samples import app, batch, channel, ended, spark
from tests.pages import ROOT

FOLDER = ROOT / "docs" / "screenshots"
NAMES = (
    "live-page",
    "live-page-up",
    "live-page-dark",
    "live-page-phone",
    "channel-page",
    "channel-page-dark",
    "act-skip",
    "act-phone",
    "dead-letters",
    "record",
    "record-dark",
    "no-token",
    "no-connection",
    "members",
    "spark",
)
TOKEN = "shown-in-no-picture"
DIALOG = "document.querySelector('dialog[open]')"
# So long the sparklines grow.
RUNS_S = 25.0
EVERY_S = 0.02


class ShopApp(App):
    """An application that may say that it runs elsewhere."""

    elsewhere: str | None = None

    def identity(self) -> Any:
        own = super().identity()
        return own if self.elsewhere is None else replace(own, host=self.elsewhere, pid=1)


class Shop:
    """A service with four channels, and what comes into them."""

    def __init__(
        self,
        *,
        token: str | None = TOKEN,
        is_well: bool = False,
        peers: Sequence[str] = (),
        broker: MemoryBroker | None = None,
    ) -> None:
        self.is_well = is_well
        self.never = asyncio.Event()
        http: dict[str, Any] = {"port": 0, "service_name": "shop"}
        if token is not None:
            http["token"] = token
        if peers:
            http["peers"] = list(peers)
        plain: dict[str, Any] = {
            "auto_offset_reset": "earliest",
            "value_deserializer": "string",
            "commit_interval": "1s",
        }
        several = {"ordering": "unordered", "concurrency": 16}
        self.app = ShopApp(
            {
                "http": http,
                "incoming": {
                    "orders": {
                        **plain,
                        **several,
                        "group_id": "invoices",
                        "unprocessed_record_max_age": "3s",
                        "on_poison": "warn",
                    },
                    "payments": {**plain, "group_id": "cards", "restart.max_attempts": 0},
                    "addresses": {
                        **plain,
                        "group_id": "geocoding",
                        "topics": ["customer-addresses"],
                    },
                    "clicks": {
                        **plain,
                        **several,
                        "group_id": "clicks",
                        "failure_strategy": "dead-letter-queue",
                    },
                },
                "outgoing": {"invoices": {}},
            }
        )
        self.broker = broker or MemoryBroker()
        for topic, partitions in (
            ("orders", 3),
            ("payments", 2),
            ("customer-addresses", 2),
            ("clicks", 6),
            ("invoices", 2),
        ):
            self.broker.create_topic(topic, partitions)
        self.app._connector = self.broker.connector()
        self._decorate()

    def _decorate(self) -> None:
        async def invoice(order: str) -> str:
            await asyncio.sleep(0.02)
            if order == "no answer":
                await self.never.wait()
            return f"invoice of {order}"

        async def charge(payment: str) -> None:
            if payment == "unknown":
                raise ValueError("no card with this number")

        async def geocode(address: str) -> None:
            """Accept every address."""

        async def count_click(click: str) -> None:
            await asyncio.sleep(0.15 if click.endswith("7") else 0.03)
            if click.startswith("{"):
                raise ValueError("not a click: " + click)

        for function in (invoice, charge, geocode, count_click):
            function.__module__ = "shop.handlers"
            function.__qualname__ = function.__name__
        self.app.incoming("orders")(self.app.outgoing("invoices")(invoice))
        self.app.incoming("payments")(charge)
        self.app.incoming("addresses")(geocode)
        self.app.incoming("clicks")(count_click)

    def _send(self, topic: str, value: str, partition: int) -> None:
        self.broker.produce(topic, value.encode(), partition=partition, key=b"ada")

    async def _trade(self) -> None:
        """Produce records until it is cancelled."""
        number = 0
        while True:
            number += 1
            self._send("orders", f"order {number}", number % 3)
            self._send("clicks", f"click {number}", number % 6)
            self._send("clicks", f"click {number * 7}", (number * 5 + 1) % 6)
            if number % 10 == 0:
                self._send("customer-addresses", f"address {number}", number % 2)
                self._send("payments", f"payment {number}", number % 2)
            if not self.is_well:
                if number == 40:
                    self._send("orders", "no answer", 1)
                    self._send("clicks", '{"page": null}', 2)
                    self._send("clicks", '{"page": "<b>start</b>"}', 4)
                if number == 60:
                    self._send("payments", "unknown", 0)
                    self.app.channel("addresses").pause("the geocoder moves")
            await asyncio.sleep(EVERY_S)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        """Run it; yields the address of its page."""
        async with self.app:
            assert self.app.http is not None
            trade = asyncio.create_task(self._trade(), name="trade")
            try:
                yield self.app.http.url
            finally:
                trade.cancel()
                await asyncio.wait([trade])
                self.never.set()
        await self.broker.close()


class Camera:
    """A tab, and the pictures that it takes."""

    def __init__(self, tab: BrowserTab, folder: Path) -> None:
        self.tab = tab
        self._folder = folder
        self.taken: list[str] = []

    async def take(self, name: str) -> None:
        """Take a picture of what the tab shows."""
        await self.tab.picture(self._folder / f"{name}.png")
        self.taken.append(name)

    async def visit(self, url: str, path: str, text: str) -> None:
        """Open a page, and wait until it shows a text."""
        await self.tab.open(url + path)
        shown = f"document.body?.innerText.includes({json.dumps(text)})"
        await self.tab.until(
            f"location.pathname === {json.dumps(path)} && document.querySelector('#clock') && {shown}",
            20.0,
        )

    async def type(self, **values: str) -> None:
        """Fill in the form that is shown."""
        for name, value in values.items():
            await self.tab.run(
                f"(() => {{ const one = ({DIALOG} || document).querySelector('[name={name}]'); "
                f"one.value = {json.dumps(value)}; "
                "one.dispatchEvent(new Event('input', { bubbles: true })) })()"
            )

    async def leave_dialog(self) -> None:
        """Close the dialog, and go back to the top of the page."""
        await self.tab.press("Escape")
        await self.tab.until(f"!{DIALOG}")
        await self.tab.run("document.activeElement.blur(); scrollTo(0, 0)")

    async def find(self, topic: str, partition: int, offset: int) -> None:
        """Ask what happened to a record."""
        await self.type(topic=topic, partition=str(partition), offset=str(offset))
        await self.tab.click("find")
        await self.tab.until("document.querySelector('.found')")
        await self.tab.run(
            "document.querySelector('section.record').scrollIntoView({ block: 'start' })"
        )

    async def confirm(self, button: str) -> None:
        """Confirm the dialog, and close it."""
        await self.tab.click(button, "dialog")
        await self.tab.click("Close", "dialog")


async def take_all(folder: Path) -> list[str]:
    """Take every picture; returns their names."""
    with tempfile.TemporaryDirectory() as profile:
        async with browser_tab(Path(profile)) as tab:
            camera = Camera(tab, folder)
            await _of_trouble(camera)
            await _of_quiet(camera)
            await _of_members(camera)
            await _of_spark(camera)
    return camera.taken


async def _of_trouble(camera: Camera) -> None:
    tab = camera.tab
    shop = Shop()
    async with shop.open() as url:
        await tab.see(height=820)
        await camera.visit(url, "/", "Poison")
        await tab.until("document.querySelector('.channels').innerText.includes('no card')")
        await asyncio.sleep(RUNS_S)
        await camera.take("live-page")
        await tab.click("skip", ".channels")
        await camera.take("act-skip")
        await camera.leave_dialog()
        await tab.see(height=820, dark=True)
        await camera.take("live-page-dark")
        await tab.see(width=390, height=844, dark=True, phone=True)
        await camera.take("live-page-phone")
        await tab.click("skip", ".channels")
        await camera.take("act-phone")
        await camera.leave_dialog()
        await tab.see(height=900)
        await camera.visit(url, "/channels/clicks", "Partitions")
        await tab.until("document.querySelectorAll('.marks .settled').length > 3")
        await camera.take("channel-page")
        await tab.see(height=900, dark=True)
        await camera.take("channel-page-dark")
        await tab.see(height=620)
        await tab.click("look")
        await camera.type(token=TOKEN)
        await camera.confirm("Look")
        await tab.run("document.querySelector('.letters').scrollIntoView({ block: 'center' })")
        await tab.run("document.querySelector('.letters button').click()")
        await camera.take("dead-letters")
        await camera.leave_dialog()
        await camera.visit(url, "/channels/orders", "Partitions")
        where = await tab.run(
            "fetch('/api/channels').then(answer => answer.json()).then(all => "
            "all.incoming.find(one => one.channel === 'orders').poison[0])"
        )
        await camera.find("orders", where["partition"], where["offset"])
        await camera.take("record")
        await tab.see(height=620, dark=True)
        await camera.find("orders", where["partition"], where["offset"] + 1)
        await camera.take("record-dark")
        await tab.see(height=360)
        await camera.visit(url, "/", "Poison")
    await tab.until("document.title.startsWith('NO CONNECTION')")
    await camera.take("no-connection")


async def _of_quiet(camera: Camera) -> None:
    tab = camera.tab
    for name, token in (("live-page-up", TOKEN), ("no-token", None)):
        shop = Shop(token=token, is_well=True)
        async with shop.open() as url:
            await tab.see(height=620 if token else 260)
            await camera.visit(url, "/", "Outgoing")
            await asyncio.sleep(RUNS_S if token else 1)
            await camera.take(name)


async def _of_members(camera: Camera) -> None:
    tab = camera.tab
    first = Shop(is_well=True)
    first.app.elsewhere = "shop-1"
    async with first.open() as peer:
        away = f"127.0.0.1:{free_port()}"
        peers = [peer.removeprefix("http://"), away]
        second = Shop(is_well=True, peers=peers, broker=first.broker)
        async with second.open() as url:
            await tab.see(height=420)
            await camera.visit(url, "/", "Members")
            await asyncio.sleep(6)
            await tab.run("document.querySelector('.members').scrollIntoView({ block: 'center' })")
            await camera.take("members")


async def _of_spark(camera: Camera) -> None:
    """Show batches of a channel on Spark, two of which run at a time."""
    outcomes = {4: "failed", 7: "lost"}
    last = tuple(
        ended(
            id=f"{number * 7919:04x}",
            records=40_000 + number * 631,
            since_s=14.0 + number % 3 * 6,
            ended_ago_s=150.0 - number * 15,
            ended_at=time.time() - 150 + number * 15,
            outcome=outcomes.get(number, "ok"),
            reason={4: "ValueError: no such page", 7: "the cluster does not answer"}.get(number),
            ranges=(f"clicks-{number % 2} [{number + 1}00000, {number + 1}50000)",),
        )
        for number in range(9)
    )
    running = (
        batch(id="c0ff", since_s=24.0, ranges=("clicks-1 [1000000, 1050000)",)),
        batch(id="ad0b", since_s=9.0, tasks_done=1, ranges=("clicks-0 [1100000, 1150000)",)),
    )
    facts = app(
        channel(channel="clicks", topics=("clicks",), group_id="pages", handlers=("shop.pages",)),
        spark=(spark(channel="clicks", running=running, last=last),),
    )
    async with serve(make_asgi(FactsApp(facts)), "127.0.0.1", 0) as server:
        await camera.tab.see(height=740)
        await camera.visit(server.url, "/channels/clicks", "Last batches")
        await camera.tab.run(
            "[...document.querySelectorAll('h2')].find(one => one.innerText === 'Spark')"
            ".scrollIntoView({ block: 'start' })"
        )
        await camera.take("spark")


def main(run: Callable[..., Any] = asyncio.run) -> None:
    """Take every picture into the documentation."""
    FOLDER.mkdir(exist_ok=True)
    taken = run(take_all(FOLDER))
    assert set(taken) == set(NAMES), taken


if __name__ == "__main__":
    main()
