"""Asks a running service for an action over HTTP, with its token."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from reactive_kafka.cli.errors import CommandFailed, WrongUsage
from reactive_kafka.config.config_files import exposure_of, read_secret
from reactive_kafka.observe.safe_text import one_line

ANSWER_S = 35.0
"""How long a service may take to answer. It answers itself after 10 s, a supervisor after 20 s."""
MOST_BYTES = 4 * 1024 * 1024
"""How long an answer may be."""
WRONG_TOKEN = 401
NO_SUCH_PATH = 404


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, which would take the token to another server."""

    def redirect_request(self, *_: Any) -> None:
        """Return None: there is no other request."""


@dataclass(frozen=True, slots=True)
class ServiceAnswer:
    """The answer of a service."""

    status: int
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ServiceClient:
    """Sends requests to one service.

    Raises:
        UsageError: The URL is none of http or https.
    """

    url: str
    token: str

    def __post_init__(self) -> None:
        wanted = f"{self.url!r} is no URL of a service: http://HOST:PORT is wanted"
        try:
            parts = urlsplit(self.url)
            has_port = parts.port is None or parts.port > 0
        except ValueError as error:
            raise click.UsageError(f"{wanted} ({one_line(str(error))})") from error
        if parts.scheme not in ("http", "https") or not parts.hostname or not has_port:
            raise click.UsageError(wanted)
        if parts.username is not None or parts.query or parts.fragment:
            raise click.UsageError("a URL without user, query and fragment is wanted")

    def post(self, path: str, body: Mapping[str, Any]) -> ServiceAnswer:
        """Ask for an action. Raises as :meth:`get`."""
        return self._ask("POST", path, json.dumps(body).encode())

    def get(self, path: str) -> ServiceAnswer:
        """Ask how an action goes.

        Raises:
            CommandFailed: The service does not answer, or refuses.
            WrongUsage: An argument is wrong.
        """
        return self._ask("GET", path, None)

    def _ask(self, method: str, path: str, body: bytes | None) -> ServiceAnswer:
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(self.url.rstrip("/") + path, body, headers, method=method)
        opener = urllib.request.build_opener(_NoRedirects())
        try:
            try:
                response = opener.open(request, timeout=ANSWER_S)
            except urllib.error.HTTPError as error:
                # It is a response, too.
                response = error
            with response:
                content = response.read(MOST_BYTES)
            if isinstance(response, urllib.error.HTTPError):
                raise _refused(self.url, response.code, content) from response
            return ServiceAnswer(response.status, _object(content))
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise CommandFailed(f"{self.url} does not answer: {one_line(str(reason))}") from error


def token_of(file: Path | None) -> str:
    """Read the token.

    Raises:
        UsageError: No file was named.
        WrongUsage: The file cannot be read, or is empty.
    """
    if file is None:
        raise click.UsageError(
            "actions need the token of the service: --token-file FILE, or REACTIVE_KAFKA_TOKEN_FILE"
        )
    try:
        token = read_secret(str(file))
        token.encode("latin-1")
    except ValueError as error:
        raise WrongUsage(f"--token-file {file}: {error}") from error
    if (exposure := exposure_of(str(file))) is not None:
        click.echo(f"--token-file: {exposure}", err=True)
    return token.strip()


def _object(body: bytes) -> Mapping[str, Any]:
    found = json.loads(body)
    if not isinstance(found, dict):
        raise ValueError("the answer is no JSON object: is this a service of reactive_kafka?")
    return found


def _refused(url: str, status: int, body: bytes) -> click.ClickException:
    """Return the error for an answer that is a refusal."""
    if status == WRONG_TOKEN:
        return CommandFailed(
            f"{url} does not accept the token: --token-file has to be the [http] token_file of the "
            f"service (HTTP {status})"
        )
    try:
        found = json.loads(body)
        said = str(found["error"])
        lines = [f"{said} (HTTP {status})"]
        lines += [
            f"worker {one['worker']}: {one.get('error') or one.get('result')}"
            for one in found.get("workers", ())
        ]
        text = "\n".join(one_line(line) for line in lines)
    except (ValueError, KeyError, TypeError):
        text = f"HTTP {status}: {one_line(body.decode(errors='replace').strip(), 300)}"
        if status == NO_SUCH_PATH:
            # Its own answers to wrong names are JSON.
            text += (
                f"; {url} has to be the URL of a service, as its log names it, whose [http] has a "
                "token_file"
            )
    return WrongUsage(text) if status == 400 else CommandFailed(text)
