"""A schema registry that speaks Confluent's REST API, as Apicurio does, too.

It is asked once for a schema. So the standard library's client, in a thread, is enough. Confluent's
own would bring 11 more packages. It tries again inside, where readiness cannot say why it waits,
and has no timeout unless it is given one. ``python -m benchmarks.serialisers`` measures that, and
docs/formats.md has the figures.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import partial
from math import inf
from typing import Any, cast, get_args
from urllib.parse import quote

from anyio import CapacityLimiter, to_thread

from reactive_kafka.config.secrets import revealed
from reactive_kafka.config.tables import SchemaRegistrySettings
from reactive_kafka.errors import ConfigError, escaped, text_of
from reactive_kafka.formats.format_names import FormatError
from reactive_kafka.formats.registered.schema_questions import (
    Reference,
    Schema,
    SchemaKind,
    SchemaWithId,
)
from reactive_kafka.schemas.answers import MOST_TEXT, Refused, RegistryAway, answer_of

ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
MOST_BYTES = 16 * 1024 * 1024
"""Of one answer."""
MOST_REFERENCES = 200
"""Of one schema, those of its references included."""

Answer = tuple[int, bytes, Mapping[str, str]]


class RestRegistry:
    """One registry, which may answer at several URLs. ConfigError: a certificate or key cannot be
    used.
    """

    def __init__(self, settings: SchemaRegistrySettings) -> None:
        self._urls = [url.rstrip("/") for url in settings.url or ()]
        self._timeout_s = settings.timeout_s
        self._headers = _headers(settings)
        context = (
            _context(settings) if any(url.startswith("https:") for url in self._urls) else None
        )
        handlers = [] if context is None else [urllib.request.HTTPSHandler(context=context)]
        self._opener = urllib.request.build_opener(*handlers)
        self._limiter: CapacityLimiter | None = None
        # Once it has found a GUID it has that path. A page that says 404 is not its own from then
        # on.
        self._has_guids = False

    async def schema(self, id: int) -> Schema:
        path = f"/schemas/ids/{id}"
        return await self._whole(await self._get(path), path)

    async def by_guid(self, guid: str) -> Schema:
        path = f"/schemas/guids/{guid}"
        found = await self._ask(path, None, by_guid=not self._has_guids)
        self._has_guids = True
        return await self._whole(found, path)

    async def latest(self, subject: str) -> SchemaWithId:
        path = f"/subjects/{quote(subject, safe='')}/versions/latest"
        found = await self._get(path)
        return SchemaWithId(_integer(found, "id"), await self._whole(found, path))

    async def register(self, subject: str, schema: Schema) -> int:
        body = await self._registered(schema)
        return _integer(
            await self._post(f"/subjects/{quote(subject, safe='')}/versions", body), "id"
        )

    async def lookup(self, subject: str, schema: Schema) -> int:
        body = await self._registered(schema)
        return _integer(await self._post(f"/subjects/{quote(subject, safe='')}", body), "id")

    async def _registered(self, schema: Schema) -> dict[str, Any]:
        """What is posted of a schema, once what it refers to is there."""
        references = []
        for one in schema.references:
            version = one.version
            if not version:
                path = f"/subjects/{quote(one.subject, safe='')}"
                body = await self._registered(one.schema)
                await self._post(f"{path}/versions", body)
                version = _integer(await self._post(path, body), "version")
            references.append({"name": one.name, "subject": one.subject, "version": version})
        kind = {} if schema.kind == "AVRO" else {"schemaType": schema.kind}
        return {"schema": schema.text, **kind, **({"references": references} if references else {})}

    async def _whole(self, found: Any, path: str) -> Schema:
        """A schema of an answer, and what it refers to, each of them fetched once."""
        fetched: dict[tuple[str, int], Schema] = {}

        async def whole(found: Any, path: str) -> Schema:
            text = found.get("schema")
            kind = found.get("schemaType") or "AVRO"
            if not isinstance(text, str) or not isinstance(kind, str):
                raise RegistryAway("its answer is not the JSON of a schema registry")
            if kind not in get_args(SchemaKind):
                raise Refused(f"a schema of type {escaped(kind[:MOST_TEXT])!r} cannot be read here")
            references = []
            for one in found.get("references") or ():
                name, subject, version = (one.get(key) for key in ("name", "subject", "version"))
                at = (str(subject), int(version))
                if at not in fetched:
                    if len(fetched) >= MOST_REFERENCES:
                        raise Refused(f"a schema refers to more than {MOST_REFERENCES} others")
                    # A circle ends here.
                    fetched[at] = Schema("AVRO", "")
                    there = f"/subjects/{quote(at[0], safe='')}/versions/{at[1]}"
                    fetched[at] = await whole(await self._get(there), there)
                references.append(Reference(str(name), *at, fetched[at]))
            schema = Schema(cast(SchemaKind, kind), text, tuple(references))
            return await self._serialized(schema, path) if kind == "PROTOBUF" else schema

        try:
            return await whole(found, path)
        except (TypeError, ValueError, AttributeError):
            raise RegistryAway("its answer is not the JSON of a schema registry") from None

    async def _serialized(self, schema: Schema, path: str) -> Schema:
        """A Protobuf schema as a serialized file: Confluent's registry gives that, others have the
        text only.
        """
        from reactive_kafka.formats.registered.proto_files import compiled_text, is_serialized

        if is_serialized(schema.text):
            return schema
        text = (await self._get(f"{path}?format=serialized")).get("schema")
        if is_serialized(text):
            return schema._replace(text=text)
        try:
            return schema._replace(text=await to_thread.run_sync(compiled_text, schema))
        except FormatError as error:
            raise Refused(f"it is no Protobuf schema that protoc takes: {error}") from None

    async def _get(self, path: str) -> Any:
        return await self._ask(path, None)

    async def _post(self, path: str, body: dict[str, Any]) -> Any:
        return await self._ask(path, json.dumps(body).encode())

    async def _ask(self, path: str, body: bytes | None, *, by_guid: bool = False) -> Any:
        """The answer of the first URL that can be used; else why the last one cannot."""
        away = RegistryAway("it has no URL")
        for url in self._urls:
            try:
                status, data, headers = await self._once(url + path, body)
                answer = answer_of(status, data, headers, by_guid=by_guid)
            except RegistryAway as error:
                away = error
                continue
            # The next question begins here.
            self._urls = [url, *(other for other in self._urls if other != url)]
            return answer
        raise away

    async def _once(self, url: str, body: bytes | None) -> Answer:
        # A thread that hangs keeps nobody else out.
        self._limiter = self._limiter or CapacityLimiter(inf)
        call = partial(_fetch, self._opener, url, body, self._headers, self._timeout_s)
        slow = RegistryAway(f"slow: no answer within {self._timeout_s:g} s")
        try:
            async with asyncio.timeout(self._timeout_s):
                return await to_thread.run_sync(call, abandon_on_cancel=True, limiter=self._limiter)
        except TimeoutError:
            raise slow from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, TimeoutError):
                raise slow from None
            raise RegistryAway(
                f"away: {text_of(reason) if isinstance(reason, Exception) else reason}"
            ) from None


def _fetch(
    opener: urllib.request.OpenerDirector,
    url: str,
    body: bytes | None,
    headers: Mapping[str, str],
    timeout_s: float,
) -> Answer:
    """One request, in a thread. A thread that nobody waits for any more ends soon after
    *timeout_s*.
    """
    request = urllib.request.Request(url, body, method="GET" if body is None else "POST")
    for name, value in headers.items():
        # Credentials are for this host only.
        request.add_unredirected_header(name, value)
    if body is not None:
        request.add_header("Content-Type", "application/vnd.schemaregistry.v1+json")
    deadline = time.monotonic() + timeout_s
    try:
        response = opener.open(request, timeout=timeout_s)
    except urllib.error.HTTPError as error:
        response = error
    with response:
        # Bytes would be copied with each piece.
        data = bytearray()
        while piece := response.read1(65536) if hasattr(response, "read1") else response.read():
            data += piece
            if time.monotonic() > deadline:
                raise TimeoutError
            if len(data) > MOST_BYTES:
                raise Refused(f"its answer is longer than {MOST_BYTES} bytes")
        return response.status, bytes(data), dict(response.headers.items())


def _headers(settings: SchemaRegistrySettings) -> dict[str, str]:
    found = {"Accept": ACCEPT}
    if settings.token is not None:
        found["Authorization"] = f"Bearer {revealed(settings.token)}"
    elif settings.username is not None:
        login = f"{settings.username}:{revealed(settings.password or '')}".encode()
        found["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
    return found


def _context(settings: SchemaRegistrySettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ssl_cafile)
        if settings.ssl_certfile is not None:
            context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile)
    except OSError as error:
        # What ssl raises is one, too.
        raise ConfigError(
            f"[schema_registry]: a certificate or key cannot be used: {error}"
        ) from error
    return context


def _integer(found: Any, name: str) -> int:
    value = found.get(name)
    if type(value) is not int or not 0 <= value < 2**32:
        raise RegistryAway("its answer is not the JSON of a schema registry")
    return value
