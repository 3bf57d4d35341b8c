"""Sends alarms and digests through a remote API that is slow and often busy. See README.md."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import httpx
from pydantic import BaseModel

from reactive_kafka import App, Depends, Later, Message

app = App(Path(__file__).with_name("reactive-kafka.toml"))


class Notice(BaseModel):
    to: str
    text: str


class Refused(Exception):
    """The API refuses this notice, and would refuse it again."""


async def remote() -> AsyncIterator[httpx.AsyncClient]:
    """One connection pool for the application. The channel says how long a call may take."""
    address = os.environ.get("NOTICES_API", "http://localhost:8000")
    async with httpx.AsyncClient(base_url=address, timeout=None) as client:
        yield client


@app.incoming("alarms")
@app.incoming("digests")
async def deliver(
    message: Message[Notice], api: Annotated[httpx.AsyncClient, Depends(remote, scope="app")]
) -> None:
    """Send one notice. If it comes again, after a crash, the API knows it by its place."""
    once = {"Idempotency-Key": f"{message.topic}/{message.partition}/{message.offset}"}
    try:
        answer = await api.post("/notices", json=message.payload.model_dump(), headers=once)
    except httpx.TransportError as error:
        raise Later("1s") from error
    if answer.status_code == 429:
        raise Later(answer.headers.get("Retry-After", "1s"), scope="channel")
    if answer.is_server_error:
        raise Later("500ms")
    if answer.is_client_error:
        raise Refused(answer.text)
