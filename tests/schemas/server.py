"""A small schema registry that speaks the subset of Confluent's REST API which clients use, and
fails on demand.
"""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.faults.driver import free_port


class RegistryServer:
    """Runs in a thread of its own, on a free loopback port.

    Attributes:
        fault: Answered to every request: a status, or "slow" (no answer in time) or "noise" (no
            JSON).
        times: How many requests meet the fault; None: all.
        requests: Method and path of what was asked, in order.
        authorizations: The header of each.
        compatible: False: a subject that has a schema takes no other one.
        guids: False: it has no path for GUIDs, as older registries.
        body: What comes with the status of a fault: a registry's error by default.
    """

    def __init__(self, **tls: Any) -> None:
        self._tls = tls
        self.port = free_port()
        self.fault: int | str | None = None
        self.times: int | None = None
        self.retry_after: str | None = None
        self.requests: list[str] = []
        self.authorizations: list[str | None] = []
        self.compatible = True
        self.guids = True
        self.body: str | None = None
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    def start(self) -> None:
        app = Starlette(
            routes=[
                Route("/schemas/ids/{id:int}", self._by_id),
                Route("/schemas/guids/{guid}", self._by_guid),
                Route("/subjects/{subject:path}/versions", self._register, methods=["POST"]),
                Route("/subjects/{subject:path}/versions/{version}", self._version),
                Route("/subjects/{subject:path}", self._lookup, methods=["POST"]),
            ]
        )
        config = uvicorn.Config(
            app, host="127.0.0.1", port=self.port, log_level="critical", lifespan="off", **self._tls
        )
        self._server = uvicorn.Server(config)
        self._server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        self._thread = threading.Thread(
            target=self._server.run, name="schema registry", daemon=True
        )
        self._thread.start()
        while not self._server.started:
            threading.Event().wait(0.005)

    def stop(self) -> None:
        """Close the port: the registry is away."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = self._server.force_exit = True
            self._thread.join()
        self._server = self._thread = None

    def add(
        self,
        subject: str,
        schema: str,
        kind: str = "AVRO",
        references: list[dict[str, Any]] | None = None,
    ) -> int:
        """Register a schema; its id."""
        told = {"schema": schema, "schemaType": kind, "references": references or []}
        id = next(
            (id for id, known in self.schemas.items() if known == told), len(self.schemas) + 1
        )
        self.schemas[id] = told
        ids = self.subjects.setdefault(subject, [])
        if id not in ids:
            ids.append(id)
        return id

    async def _failed(self, request: Request) -> Response | None:
        self.requests.append(f"{request.method} {request.url.path}")
        self.authorizations.append(request.headers.get("Authorization"))
        fault = self.fault
        if fault is None:
            return None
        if self.times is not None:
            self.times -= 1
            if self.times <= 0:
                self.fault = self.times = None
        if fault == "slow":
            await asyncio.sleep(30)
        if not isinstance(fault, int):
            return Response("<html>welcome</html>", media_type="text/html")
        headers = None if self.retry_after is None else {"Retry-After": self.retry_after}
        if self.body is not None:
            return Response(self.body, fault, headers)
        return JSONResponse(
            {"error_code": fault, "message": f"told to answer {fault}"}, fault, headers
        )

    def _told(self, id: int) -> dict[str, Any]:
        known = self.schemas[id]
        told = {name: value for name, value in known.items() if value and value != "AVRO"}
        return {**told, "guid": str(uuid.UUID(int=id))}

    async def _by_id(self, request: Request) -> Response:
        id = request.path_params["id"]
        if failed := await self._failed(request):
            return failed
        return (
            JSONResponse(self._told(id))
            if id in self.schemas
            else _missing(40403, "Schema not found")
        )

    async def _by_guid(self, request: Request) -> Response:
        id = uuid.UUID(request.path_params["guid"]).int
        if failed := await self._failed(request):
            return failed
        if not self.guids:
            return Response("Not Found", 404)
        return (
            JSONResponse(self._told(id))
            if id in self.schemas
            else _missing(40403, "Schema not found")
        )

    async def _version(self, request: Request) -> Response:
        subject, version = request.path_params["subject"], request.path_params["version"]
        if failed := await self._failed(request):
            return failed
        ids = self.subjects.get(subject, [])
        if not ids:
            return _missing(40401, f"Subject '{subject}' not found.")
        number = len(ids) if version == "latest" else int(version)
        if not 0 < number <= len(ids):
            return _missing(40402, f"Version {version} not found.")
        return JSONResponse(
            {**self._told(ids[number - 1]), **self._place(subject, ids[number - 1])}
        )

    async def _register(self, request: Request) -> Response:
        subject, body = request.path_params["subject"], json.loads(await request.body())
        if failed := await self._failed(request):
            return failed
        ids = self.subjects.get(subject, [])
        if (
            not self.compatible
            and ids
            and all(self.schemas[id]["schema"] != body["schema"] for id in ids)
        ):
            text = f"Schema being registered is incompatible with an earlier schema for subject '{subject}'"
            return JSONResponse({"error_code": 409, "message": text}, 409)
        id = self.add(
            subject, body["schema"], body.get("schemaType") or "AVRO", body.get("references")
        )
        return JSONResponse({"id": id, "guid": str(uuid.UUID(int=id))})

    async def _lookup(self, request: Request) -> Response:
        subject, body = request.path_params["subject"], json.loads(await request.body())
        if failed := await self._failed(request):
            return failed
        if subject not in self.subjects:
            return _missing(40401, f"Subject '{subject}' not found.")
        for id in self.subjects[subject]:
            if self.schemas[id]["schema"] == body["schema"]:
                return JSONResponse({**self._told(id), **self._place(subject, id)})
        return _missing(40403, "Schema not found")

    def _place(self, subject: str, id: int) -> dict[str, Any]:
        return {"subject": subject, "id": id, "version": self.subjects[subject].index(id) + 1}


def _missing(code: int, text: str) -> Response:
    return JSONResponse({"error_code": code, "message": text}, 404)


@contextmanager
def registry_server(**tls: Any) -> Iterator[RegistryServer]:
    """A running server, with uvicorn's settings of TLS; stopped at the end."""
    server = RegistryServer(**tls)
    server.start()
    try:
        yield server
    finally:
        server.stop()
