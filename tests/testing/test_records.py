"""Records built for tests look like a client's."""

from __future__ import annotations

from reactive_kafka.testing import record


def test_values_and_keys_become_bytes() -> None:
    assert record({"id": 1}, key="k", offset=7).value == b'{"id": 1}'
    assert record("ü", key="k").key == b"k"
    assert record("ü").value == "ü".encode()
    assert record(b"raw").value == b"raw"


def test_a_tombstone_and_a_missing_key_stay_none() -> None:
    built = record(None, headers=[("a", None)], timestamp=None)
    assert (built.key, built.value, built.timestamp, built.headers) == (None, None, None, (("a", None),))
