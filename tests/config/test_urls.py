"""URLs of stores as values; which of them open is in ``tests/checkpoint/test_opening.py``."""

from __future__ import annotations

import pytest

from reactive_kafka.config.store_urls import scheme_of, shown


@pytest.mark.parametrize(
    ("url", "as_shown"),
    [
        ("postgresql://u:p@db/shop", "postgresql://***@db/shop"),
        ("redis://:p@cache/0", "redis://***@cache/0"),
        ("postgresql://db/shop?user=u&password=p", "postgresql://db/shop?user=u&password=***"),
        ("file:///var/lib", "file:///var/lib"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, as_shown: str) -> None:
    assert shown(url) == as_shown


def test_a_url_has_a_scheme_whatever_its_case() -> None:
    assert [scheme_of(url) for url in ("SQLite:///x.db", "offsets.db", "")] == ["sqlite", "", ""]
