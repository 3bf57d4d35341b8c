"""The page in a real browser. ``REACTIVE_KAFKA_WITHOUT=chromium`` leaves it out, and nothing else
does.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from reactive_kafka.http.asgi import make_asgi
from reactive_kafka.http.server import serve
from tests.harness.chromium import load
from tests.http.applike import FactsApp
from tests.observe.samples import app, batch, channel, ended, spark

pytestmark = [
    pytest.mark.chromium,
    pytest.mark.skipif(
        "chromium" in os.environ.get("REACTIVE_KAFKA_WITHOUT", "").split(","), reason="left out"
    ),
]

EVIL = "<script>document.title='taken'</script><img src='http://127.0.0.1:1/x'>"


async def test_a_browser_shows_batches_as_text_and_bars_and_has_nothing_to_complain_of(
    tmp_path: Path,
) -> None:
    """Row S9 of the faults."""
    failed = ended(outcome="failed", reason=EVIL, rejected=2)
    served = FactsApp(
        app(channel(), spark=(spark(running=(batch(), batch(tasks=0)), last=(ended(), failed)),))
    )
    async with serve(make_asgi(served), "127.0.0.1", 0) as server:
        page = await asyncio.to_thread(load, server.url, tmp_path)
    assert page.complaints == (), (
        "its policy lets the page's own style through, and nothing was asked for elsewhere"
    )
    assert "<title>reactive_kafka</title>" in page.html
    assert "&lt;script&gt;document.title='taken'&lt;/script&gt;" in page.html
    assert '<progress max="8" value="5"></progress>' in page.html
    assert page.html.count("<progress") == 2
    assert page.html.count("<table") == 4, "partitions, the session, running batches, the last ones"
