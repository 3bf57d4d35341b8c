"""The token of the HTTP server while its file changes."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from reactive_kafka import App
from reactive_kafka.http.guard import CurrentGuard
from reactive_kafka.http.token_file import TokenFile
from tests.config.values import secret_of


class Now:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


def written(file: Path, text: str, mode: int = 0o600) -> Path:
    file.write_text(text)
    file.chmod(mode)
    return file


def test_a_token_that_is_rotated_counts_a_second_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    file = written(tmp_path / "token", "first\n")
    now = Now()
    tokens = TokenFile(secret_of("first", file), now)
    written(file, "second\n")
    assert tokens.token == "first"
    now.s = 1.0
    assert tokens.token == "second"
    assert "the token has changed" in caplog.text
    assert "first" not in caplog.text
    assert "second" not in caplog.text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the file is empty"),
        ("\n", "the file is empty"),
        ("with blanks", "printable ASCII characters without spaces"),
        (None, "there is no such file"),
    ],
)
def test_a_file_without_a_token_changes_nothing_and_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str | None, why: str
) -> None:
    file = written(tmp_path / "token", "first")
    now = Now()
    tokens = TokenFile(secret_of("first", file), now)
    if text is None:
        file.unlink()
    else:
        written(file, text)
    for _ in range(3):
        now.s += 1
        assert tokens.token == "first"
    (line,) = caplog.messages
    assert why in line
    assert "the last token still counts" in line
    assert "with blanks" not in line
    written(file, "other-token")
    now.s += 1
    assert tokens.token == "other-token"


def test_a_new_file_that_others_may_read_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = written(tmp_path / "token", "first")
    now = Now()
    tokens = TokenFile(secret_of("first", file), now)
    written(file, "second", 0o644)
    now.s = 1
    assert tokens.token == "second"
    assert "chmod 600" in caplog.text


def test_the_guard_of_an_application_reads_the_file_that_its_configuration_names(
    tmp_path: Path,
) -> None:
    file = written(tmp_path / "token", "first")
    app = App({"incoming": {"orders": {"group_id": "g"}}, "http": {"token_file": str(file)}})
    guard = CurrentGuard(lambda: app.settings.http, is_mounted=False)

    @app.incoming("orders")
    async def handle(value: bytes) -> None: ...

    assert guard().token == "first"
    assert str(app.settings.http.token) == "***"
    assert app.settings.http.token.file == str(file)


def test_a_token_in_the_configuration_has_no_file() -> None:
    assert TokenFile(secret_of("only"), Now()).token == "only"
    assert TokenFile(None, Now()).token is None


def test_a_token_that_is_rotated_before_the_first_request_counts(tmp_path: Path) -> None:
    """Without probes the first request may come long after the start."""
    file = written(tmp_path / "token", "first")
    app = App({"incoming": {"orders": {"group_id": "g"}}, "http": {"token_file": str(file)}})
    assert app.settings.http.token == "first"
    guard = CurrentGuard(lambda: app.settings.http, is_mounted=False)
    written(file, "second")
    assert guard().token == "second"
