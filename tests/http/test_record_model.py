"""For any outcomes of its handlers, each record is said to be where it is."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.app.helpers import committed, in_virtual_time
from tests.http.test_record import Service, send


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["ok", "bad", "stuck"]), min_size=1, max_size=8))
def test_each_record_is_where_its_handler_left_it(values: list[str]) -> None:
    @in_virtual_time
    async def play() -> None:
        service = Service()
        async with service.running() as test:
            await send(test, *values)
            position = committed(test, 0) or 0
            stuck = values.index("stuck") if "stuck" in values else len(values)
            assert position == stuck
            for offset, value in enumerate(values):
                found = await service.ask(offset)
                if value == "stuck":
                    assert found["place"] == "in-flight"
                    continue
                assert found["place"] == ("committed" if offset < position else "settled")
                assert found["ending"] == ("dead-letter" if value == "bad" else None)
            assert (await service.ask(len(values)))["place"] in ("not-read", "not-written")

    play()
