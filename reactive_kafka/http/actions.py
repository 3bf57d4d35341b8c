"""The paths of actions: ``POST /api/...`` with a token. The guard has checked the token before."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from reactive_kafka.http.action_requests import (
    CHANNEL_ACTIONS,
    CLIENT_HEADER,
    LOG_LEVEL,
    REPLAY,
    ActionAnswer,
    ActionError,
    ActionRequest,
    Actions,
    Records,
)

MAX_BODY_BYTES = 64 * 1024


def action_routes(actions: Actions) -> list[Route]:
    """Return the routes of all actions."""

    def route(path: str, action: str, target: str | None) -> Route:
        async def act(request: Request) -> Response:
            try:
                asked = ActionRequest(
                    action=action,
                    target="" if target is None else request.path_params[target],
                    arguments=await _arguments(request),
                    remote=_remote(request),
                )
            except ActionError as error:
                return _response(error.answer())
            return _response(await actions.act(asked))

        return Route(path, act, methods=["POST"])

    async def progress(request: Request) -> Response:
        return _response(actions.progress(request.path_params["replay"]))

    async def letters(request: Request) -> Response:
        topic = request.path_params["topic"]
        return _response(await actions.letters(topic, request.query_params))

    return [
        *(
            # A name may have slashes.
            route(f"/api/channels/{{channel:path}}/{action}", action, "channel")
            for action in CHANNEL_ACTIONS
        ),
        Route("/api/channels/{rest:path}", _unknown, methods=["POST"]),
        route("/api/dlq/{topic}/replay", REPLAY, "topic"),
        route("/api/log-level", LOG_LEVEL, None),
        Route("/api/dlq/replays/{replay}", progress),
        Route("/api/dlq/{topic}", letters),
    ]


def record_route(records: Records) -> Route:
    """Return the route that says what happened to a record."""

    async def look(request: Request) -> Response:
        return _response(records.look(request.query_params))

    return Route("/api/record", look)


async def _unknown(request: Request) -> Response:
    names = ", ".join(CHANNEL_ACTIONS)
    why = f"there is no such action; POST /api/channels/NAME/ACTION has: {names}"
    return _response(ActionError(404, why).answer())


async def _arguments(request: Request) -> Mapping[str, Any]:
    """Return the JSON object in the body of a request; nothing is an empty one.

    Raises:
        ActionError: It is too large, or no JSON object.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await _body(request)
    # A form is what a page of another origin can send without asking. An empty one is refused,
    # too.
    if kind != "application/json" and (kind or body):
        raise ActionError(415, f"Content-Type: application/json is wanted, not {kind or 'nothing'}")
    if not body:
        return {}
    try:
        arguments = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ActionError(400, f"the body is no JSON: {_why_no_json(error)}") from error
    if not isinstance(arguments, dict):
        raise ActionError(400, f"the body is to be a JSON object, not {_kind_of(arguments)}")
    return arguments


def _why_no_json(error: ValueError | RecursionError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return str(error)
    if isinstance(error, UnicodeDecodeError):
        # The text of the error would repeat the bytes.
        return f"not {error.encoding} at byte {error.start}"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return "a number has too many digits"


def _kind_of(value: object) -> str:
    names = {list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


async def _body(request: Request) -> bytes:
    body = b""
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise ActionError(413, f"the body has more than {MAX_BODY_BYTES} bytes")
    except ClientDisconnect as error:
        raise ActionError(400, "the client has disconnected") from error
    return body


def _remote(request: Request) -> str:
    """Return the address of the client."""
    if request.client is not None and request.client.host:
        return request.client.host
    # A connection that a supervisor has handed over has no address.
    return request.headers.get(CLIENT_HEADER, "unknown")


def _response(answer: ActionAnswer) -> Response:
    # Keep it ASCII: a reason may contain lone surrogates, which UTF-8 cannot encode.
    body = json.dumps(answer.body, allow_nan=False)
    return Response(body, answer.status, media_type="application/json")
