"""Names of exceptions in settings: those that no exception has are told when an application is
planned.
"""

from __future__ import annotations

from typing import Any

import pytest

from reactive_kafka import App


class NoStockError(Exception):
    """An exception of the module of the handler."""


def warnings(orders: dict[str, Any]) -> list[str]:
    app = App({"incoming": {"orders": {"group_id": "billing", **orders}}})

    @app.incoming("orders")
    async def handler(order: bytes) -> None: ...

    return [text for text in app.plan.warnings if "names" in text]


TABLES = pytest.mark.parametrize(
    ("key", "table"),
    [
        ("retry.never", lambda name: {"retry": {"max_attempts": 3, "never": [name]}}),
        ("retry.only", lambda name: {"retry": {"max_attempts": 3, "only": [name]}}),
        ("failure_routes", lambda name: {"failure_routes": {name: "ignore"}}),
    ],
)


@TABLES
@pytest.mark.parametrize(
    "name",
    [
        "ValueError",
        "ValidationError",
        "DecodeError",
        "NoStockError",
        f"{__name__}.NoStockError",
        "json.JSONDecodeError",
        "json.decoder.JSONDecodeError",
        "reactive_kafka.EncodeError",
    ],
)
def test_an_exception_that_exists_is_nothing_to_tell(key: str, table: Any, name: str) -> None:
    assert warnings(table(name)) == []


@TABLES
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("ValueErorr", "did you mean 'ValueError'?"),
        ("DecodeEror", "did you mean 'DecodeError'?"),
        ("NoStokError", "did you mean 'NoStockError'?"),
        ("Zzzzzzzzzz", "no exception that is loaded has this name"),
        ("json.JSONDecodeErorr", "json has no such exception; did you mean 'JSONDecodeError'?"),
        ("json.loads", "it is no exception"),
        (
            "no_such_module_here.SomeError",
            "no_such_module_here cannot be imported: ModuleNotFoundError",
        ),
    ],
)
def test_a_name_that_no_exception_has_is_told_with_the_one_that_was_meant(
    key: str, table: Any, name: str, why: str
) -> None:
    (text,) = warnings(table(name))
    assert text.startswith(f"channel 'orders': {key} names {name!r}: ")
    assert why in text
