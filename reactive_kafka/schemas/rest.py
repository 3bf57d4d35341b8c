"""The client of a schema registry with Confluent's REST API, which Apicurio has, too.

A schema is asked for once, so the standard library's client in a thread is fast enough. Confluent's
client would install 11 more packages. It retries internally, so that readiness could not say why it
waits, and has no timeout by default. ``python -m benchmarks.serialisers`` prints the figures.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
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
from reactive_kafka.schemas.answers import MOST_TEXT, NotFound, Refused, RegistryAway, answer_of

ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
MOST_BYTES = 16 * 1024 * 1024
"""How long an answer may be."""
MOST_REFERENCES = 200
"""How many references a schema may have, with those of its references."""

Answer = tuple[int, bytes, Mapping[str, str]]


class RestRegistry:
    """The client of one registry, which may have several URLs.

    Raises:
        ConfigError: A certificate or key cannot be used.
    """

    def __init__(self, settings: SchemaRegistrySettings) -> None:
        self._urls = [url.rstrip("/") for url in settings.url or ()]
        self._timeout_s = settings.timeout_s
        self._headers = _headers(settings)
        handlers = []
        if any(url.startswith("https:") for url in self._urls):
            handlers.append(urllib.request.HTTPSHandler(context=_context(settings)))
        self._opener = urllib.request.build_opener(*handlers)
        self._limiter: CapacityLimiter | None = None
        # A registry that has found a GUID has the path for GUIDs. From then on a 404 without the
        # registry's JSON comes from a proxy.
        self._has_guids = False

    async def schema(self, id: int) -> Schema:
        path = f"/schemas/ids/{id}"
        return await self._with_references(await self._get(path), path)

    async def by_guid(self, guid: str) -> Schema:
        path = f"/schemas/guids/{guid}"
        found = await self._ask(path, None, by_guid=not self._has_guids)
        self._has_guids = True
        return await self._with_references(found, path)

    async def latest(self, subject: str) -> SchemaWithId:
        path = f"/subjects/{quote(subject, safe='')}/versions/latest"
        found = await self._get(path)
        return SchemaWithId(_integer(found, "id"), await self._with_references(found, path))

    async def register(self, subject: str, schema: Schema) -> int:
        body = await self._body_of(schema, {})
        answer = await self._post(f"/subjects/{quote(subject, safe='')}/versions", body)
        return _integer(answer, "id")

    async def lookup(self, subject: str, schema: Schema) -> int:
        body = await self._body_of(schema, {})
        answer = await self._post(f"/subjects/{quote(subject, safe='')}", body)
        return _integer(answer, "id")

    async def _body_of(
        self, schema: Schema, registered: dict[tuple[str, str], int]
    ) -> dict[str, Any]:
        """Register the references of a schema, and return the JSON to post for the schema.

        Args:
            registered: Subject and text of a reference -> its version, for those that are
                registered already: several schemas may refer to the same one.
        """
        references = []
        for reference in schema.references:
            version = reference.version or registered.get(
                (reference.subject, reference.schema.text), 0
            )
            if not version:
                path = f"/subjects/{quote(reference.subject, safe='')}"
                reference_body = await self._body_of(reference.schema, registered)
                await self._post(f"{path}/versions", reference_body)
                version = _integer(await self._post(path, reference_body), "version")
                registered[reference.subject, reference.schema.text] = version
            references.append(
                {"name": reference.name, "subject": reference.subject, "version": version}
            )
        body: dict[str, Any] = {"schema": schema.text}
        # A registry takes a schema without a type for Avro.
        if schema.kind != "AVRO":
            body["schemaType"] = schema.kind
        if references:
            body["references"] = references
        return body

    async def _with_references(self, found: Any, path: str) -> Schema:
        """Return the schema of an answer with all that it refers to, each fetched once."""
        fetched: dict[tuple[str, int], Schema] = {}

        async def whole(found: Any, path: str) -> Schema:
            text = found.get("schema")
            kind = found.get("schemaType") or "AVRO"
            if not isinstance(text, str) or not isinstance(kind, str):
                raise RegistryAway("its answer is not the JSON of a schema registry")
            if kind not in get_args(SchemaKind):
                raise Refused(f"a schema of type {escaped(kind[:MOST_TEXT])!r} cannot be read here")
            references = []
            for reference in found.get("references") or ():
                subject = str(reference.get("subject"))
                version = int(reference.get("version"))
                key = (subject, version)
                if key not in fetched:
                    if len(fetched) >= MOST_REFERENCES:
                        raise Refused(f"a schema refers to more than {MOST_REFERENCES} others")
                    # A placeholder, so that references in a circle come to an end.
                    fetched[key] = Schema("AVRO", "")
                    reference_path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
                    fetched[key] = await whole(await self._get(reference_path), reference_path)
                name = str(reference.get("name"))
                references.append(Reference(name, subject, version, fetched[key]))
            schema = Schema(cast(SchemaKind, kind), text, tuple(references))
            if kind == "PROTOBUF":
                return await self._serialized(schema, path)
            return schema

        try:
            return await whole(found, path)
        except (TypeError, ValueError, AttributeError):
            raise RegistryAway("its answer is not the JSON of a schema registry") from None

    async def _serialized(self, schema: Schema, path: str) -> Schema:
        """Return a Protobuf schema as a serialized file.

        Confluent's registry returns that on request. Others have only the text, which is compiled
        here.
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
            raise Refused(f"protoc does not accept it as a Protobuf schema: {error}") from None

    async def check_access(self) -> None:
        """Ask for a schema that may exist or not, to learn whether the registry answers.

        Raises:
            RegistryAway: It cannot be reached, or refuses the credentials.
            Refused: It refuses the request.
        """
        with contextlib.suppress(NotFound):
            await self._get("/schemas/ids/1")

    async def _get(self, path: str) -> Any:
        return await self._ask(path, None)

    async def _post(self, path: str, body: dict[str, Any]) -> Any:
        return await self._ask(path, json.dumps(body).encode())

    async def _ask(self, path: str, body: bytes | None, *, by_guid: bool = False) -> Any:
        """Return the answer of the first URL that can be used, or raise why the last one cannot."""
        away = RegistryAway("it has no URL")
        for url in self._urls:
            try:
                status, data, headers = await self._once(url + path, body)
                answer = answer_of(status, data, headers, by_guid=by_guid)
            except RegistryAway as error:
                away = error
                continue
            # The next request tries this URL first.
            self._urls = [url, *(other for other in self._urls if other != url)]
            return answer
        raise away

    async def _once(self, url: str, body: bytes | None) -> Answer:
        # Without a limit, so that threads that hang do not keep other requests waiting.
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
            text = text_of(reason) if isinstance(reason, Exception) else reason
            raise RegistryAway(f"away: {text}") from None


def _fetch(
    opener: urllib.request.OpenerDirector,
    url: str,
    body: bytes | None,
    headers: Mapping[str, str],
    timeout_s: float,
) -> Answer:
    """Make one request, in a thread. It ends soon after *timeout_s*, also if its caller gave up."""
    request = urllib.request.Request(url, body, method="GET" if body is None else "POST")
    for name, value in headers.items():
        # Not sent again after a redirect: credentials are for this host only.
        request.add_unredirected_header(name, value)
    if body is not None:
        request.add_header("Content-Type", "application/vnd.schemaregistry.v1+json")
    deadline = time.monotonic() + timeout_s
    try:
        response = opener.open(request, timeout=timeout_s)
    except urllib.error.HTTPError as error:
        response = error
    with response:
        # In chunks, so that a slow or endless answer is noticed. A bytearray grows without copies.
        data = bytearray()
        while True:
            chunk = response.read1(65536) if hasattr(response, "read1") else response.read()
            if not chunk:
                return response.status, bytes(data), dict(response.headers.items())
            data += chunk
            if time.monotonic() > deadline:
                raise TimeoutError
            if len(data) > MOST_BYTES:
                raise Refused(f"its answer is longer than {MOST_BYTES} bytes")


def _headers(settings: SchemaRegistrySettings) -> dict[str, str]:
    headers = {"Accept": ACCEPT}
    if settings.token is not None:
        headers["Authorization"] = f"Bearer {revealed(settings.token)}"
    elif settings.username is not None:
        login = f"{settings.username}:{revealed(settings.password or '')}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
    return headers


def _context(settings: SchemaRegistrySettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ssl_cafile)
        if settings.ssl_certfile is not None:
            context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile)
    except OSError as error:
        # The errors of ssl are OSErrors, too.
        raise ConfigError(
            f"[schema_registry]: a certificate or key cannot be used: {error}"
        ) from error
    return context


def _integer(found: Any, name: str) -> int:
    value = found.get(name)
    if type(value) is not int or not 0 <= value < 2**32:
        raise RegistryAway("its answer is not the JSON of a schema registry")
    return value
