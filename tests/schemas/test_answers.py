"""What each answer of a registry means, for records that come and for what is sent."""

from __future__ import annotations

import json

import pytest

from reactive_kafka.schemas.answers import (
    NoGuids,
    NotFound,
    Refused,
    RegistryAway,
    StatusMeaning,
    answer_of,
    meaning_of,
)

STATUSES = range(300, 600)
WAITING = {401, 403, 407, 408, 425, 429}
"""4xx that are about credentials, or about now."""
PAGES = [
    b"",
    b"<html>404 Not Found</html>",
    b"[]",
    b'"no"',
    b"{}",
    b'{"code": 404}',
    b'{"error_code": "404"}',
    b"\xff",
]
"""Bodies that no registry sends with an error."""


def kind_of(status: int, body: bytes, *, by_guid: bool = False) -> type[Exception]:
    with pytest.raises((NotFound, Refused, RegistryAway)) as raised:
        answer_of(status, body, {}, by_guid=by_guid)
    assert str(raised.value).startswith(f"{status}: ")
    return raised.type


def own_words(code: int) -> bytes:
    return json.dumps({"error_code": code, "message": "no"}).encode()


@pytest.mark.parametrize("by_guid", [False, True])
def test_what_a_registry_itself_refuses_with_4xx_is_about_the_question_and_5xx_about_the_registry(
    by_guid: bool,
) -> None:
    for status in STATUSES:
        kind = kind_of(status, own_words(status), by_guid=by_guid)
        if not 400 <= status < 500 or status in WAITING:
            assert kind is RegistryAway, status
        elif status == 404:
            assert kind is (NoGuids if by_guid else NotFound)
        else:
            assert kind is Refused, status


@pytest.mark.parametrize("body", PAGES)
def test_a_page_of_something_before_the_registry_says_nothing_about_a_schema(body: bytes) -> None:
    for status in STATUSES:
        expected = Refused if status in (409, 422) else RegistryAway
        assert kind_of(status, body) is expected, status


@pytest.mark.parametrize("body", PAGES)
def test_a_registry_without_guids_may_say_so_in_any_form(body: bytes) -> None:
    for status in STATUSES:
        kind = kind_of(status, body, by_guid=True)
        assert (kind is NoGuids) == (status == 404), status


@pytest.mark.parametrize("code", [40401, 40402, 40403, 40499])
def test_a_guid_that_is_not_found_does_not_mean_that_there_are_no_guids(code: int) -> None:
    assert kind_of(404, own_words(code), by_guid=True) is NotFound
    assert kind_of(404, own_words(code)) is NotFound


@pytest.mark.parametrize("status", [200, 201, 204, 206])
@pytest.mark.parametrize("body", [b"", b"<html>welcome</html>", b"[]", b"[" * 100_000])
def test_an_answer_that_is_no_json_object_is_no_answer_of_a_registry(
    status: int, body: bytes
) -> None:
    with pytest.raises(RegistryAway):
        answer_of(status, body, {})


def test_an_answer_is_its_json() -> None:
    assert answer_of(200, b'{"id": 7}', {}) == {"id": 7}


@pytest.mark.parametrize(
    ("status", "given", "wait_s"),
    [
        (429, "7", 7.0),
        (503, "3600", 60.0),
        (500, "7", 0.0),
        (429, "soon", 0.0),
        (429, "9" * 400, 0.0),
        (429, "\xb2", 0.0),
    ],
)
def test_a_registry_that_asks_for_time_gets_a_minute_at_most(
    status: int, given: str, wait_s: float
) -> None:
    for name in ("Retry-After", "retry-after"):
        with pytest.raises(RegistryAway) as raised:
            answer_of(status, b"", {name: given})
        assert raised.value.wait_s == wait_s


def test_each_reason_has_the_status_and_the_registrys_own_words() -> None:
    for status, words in [
        (401, "401: it refuses these credentials: no"),
        (403, "403: it refuses these credentials: no"),
        (404, "404: no"),
        (406, "406: no"),
        (422, "422: no"),
        (500, "500: no"),
    ]:
        with pytest.raises((NotFound, Refused, RegistryAway)) as raised:
            answer_of(status, own_words(status), {})
        assert str(raised.value) == words


def test_credentials_are_for_an_operator_to_mend() -> None:
    assert {
        status
        for status in STATUSES
        if meaning_of(status, is_registry=True) is StatusMeaning.NOT_ALLOWED
    } == {
        401,
        403,
        407,
    }
