"""Answers of servers with quirks, as clients know answers. Bytes in, bytes out, whatever the slicing.

1. `Append`: snapshots, of which each replaces the one before, as ordinary deltas. Clients that append would show
   every draft one after the other. Nothing is final before the end: a diffusion model may still change the first
   word in its last step, and what was sent cannot be taken back. So the role goes out at once, the newest
   snapshot is held, and the last one becomes the one delta. Between, a comment keeps the connection alive.
2. `Envelope`: FastAPI's `{"detail": ...}` and plain text as OpenAI's error, with the original kept inside.
3. `Events`: the one JSON body of a server that does not stream, for a client that asked for a stream.

Which of them an answer needs follows from the dialect's columns, the request, and the answer's head: `needed`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import orjson

from .body import Body, BodyError
from .dialects import Dialect
from .meter import grammar, sse

LIMIT = 1 << 20  # bytes of an error that are looked at
_KEEP_ALIVE = b": denoising\n\n"


class Filter(Protocol):
    """`feed` what was read, send on what it returns; `finish` returns what is left at the end."""

    content_type: str | None  # what the answer's becomes; None: stays

    def feed(self, chunk: bytes) -> bytes: ...

    def finish(self) -> bytes: ...


def needed(
    dialect: Dialect, *, status: int, streamed: bool, asked_stream: bool, asked_usage: bool, append: bool
) -> list[Filter]:
    """The filters for one answer. `streamed`: it is a stream of events; `append`: of the request's translation."""
    if status >= 400:
        return [Envelope(status)] if dialect.plain_errors else []
    if streamed:
        return [Append()] if append else []
    return [Events(asked_usage)] if asked_stream and not dialect.streams and status == 200 else []


class Append:
    """Snapshots of chat completions as append deltas."""

    content_type: str | None = None

    def __init__(self) -> None:
        self._parser = sse.Parser()
        self._held: dict[int, dict[str, Any]] = {}  # choice -> the event with its newest snapshot
        self._sent: dict[int, str] = {}  # choice -> the text that the client has

    def feed(self, chunk: bytes) -> bytes:
        return b"".join(self._event(event) for event in self._parser.feed(chunk))

    def finish(self) -> bytes:
        return self._release(*self._held)

    def _event(self, event: sse.Event) -> bytes:
        same = (b"event: " + event.name + b"\n" if event.name else b"") + sse.encode(event.data)
        try:
            delta = grammar.read_event(event.data, event.name, replace=True)
        except grammar.Unreadable:
            return same
        if delta.terminal:
            return self._release(*self._held) + same
        if delta.snapshots:
            return self._hold(grammar.loads(event.data), delta)
        over = delta.choices if delta.answer else delta.finishes.keys()  # ordinary text, or the end, follows
        out = self._release(*(over & self._held.keys())) + same
        for index in delta.choices if delta.answer else ():
            self._sent[index] = self._sent.get(index, "") + delta.answer
        return out

    def _hold(self, doc: dict[str, Any], delta: grammar.Delta) -> bytes:
        """The event's snapshots are held; what else it says goes on: roles, other choices, usage."""
        out = b""
        for index, text in delta.snapshots.items():
            if index not in self._sent:
                self._sent[index] = ""
                out += self._say(doc, index, {"role": "assistant", "content": ""}, None)
            self._held[index] = {"doc": doc, "text": text}
        if rest := list(_others(doc["choices"], delta.snapshots)):
            out += _encode(_plain(doc) | {"choices": rest})
        if doc.get("usage"):
            out += _encode(_plain(doc) | {"choices": [], "usage": doc["usage"]})
        for index in delta.finishes.keys() & self._held.keys():
            out += self._release(index) + self._say(doc, index, {}, delta.finishes[index])
        return out or _KEEP_ALIVE

    def _release(self, *choices: int) -> bytes:
        """The newest snapshots as deltas: the client has what it lacks of them."""
        out = b""
        for index in sorted(choices):
            held = self._held.pop(index)
            text, sent = held["text"], self._sent[index]
            if text.startswith(sent):  # else ordinary text was changed afterwards, and that cannot be told
                self._sent[index] = text
                out += self._say(held["doc"], index, {"content": text[len(sent) :]}, None)
        return out

    def _say(self, doc: Mapping[str, Any], index: int, delta: dict[str, str], finish: str | None) -> bytes:
        choice = {"index": index, "delta": delta, "finish_reason": finish}
        return _encode(_plain(doc) | {"choices": [choice]})


def _others(choices: list[Any], snapshots: Mapping[int, str]) -> Iterator[dict[str, Any]]:
    """What an event says beside its snapshots: other choices, and tool calls next to the text."""
    for choice in choices:
        if not isinstance(choice, dict):
            continue
        if _index(choice) not in snapshots:
            yield choice
        elif isinstance(delta := choice.get("delta"), dict):
            more = {key: value for key, value in delta.items() if key not in ("role", "content") and value}
            if more:
                yield {"index": _index(choice), "delta": more, "finish_reason": None}


def _plain(doc: Mapping[str, Any]) -> dict[str, Any]:
    """The event without what marks it as a snapshot, and without what is said once."""
    return {key: value for key, value in doc.items() if key not in ("diffusion_meta", "usage", "choices")}


class Envelope:
    """An error in OpenAI's shape. One that has it passes as it is."""

    content_type: str | None = "application/json"

    def __init__(self, status: int) -> None:
        self._status = status
        self._body = bytearray()

    def feed(self, chunk: bytes) -> bytes:
        self._body += chunk[: LIMIT - len(self._body)]
        return b""

    def finish(self) -> bytes:
        return enveloped(self._status, bytes(self._body))


_TYPES = {401: "authentication_error", 402: "billing_error", 403: "permission_error", 429: "rate_limit_error"}


def enveloped(status: int, raw: bytes) -> bytes:
    """An error's body with OpenAI's `error` member; a JSON object keeps all its bytes, text is kept as `original`."""
    try:
        body = Body.read(raw)
    except BodyError:
        text = raw.decode("utf-8", "replace")
        shown = text.strip() if "<" not in text else ""
        message = grammar.label(shown or f"The backend answered with status {status} and no OpenAI error.")
        return orjson.dumps({"error": _error(status, message) | {"original": text}})
    if "error" in body:
        return raw
    detail = body.get("detail", body.get("message"))
    first = detail[0] if isinstance(detail, list) and detail and isinstance(detail[0], dict) else {}
    code = first.get("type") if isinstance(first.get("type"), str) else None
    return body.replace({"error": _error(status, sentence(detail), _place(first) or None, code)})


def _error(status: int, message: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    kind = _TYPES.get(status) or ("server_error" if status >= 500 else "invalid_request_error")
    return {"message": message, "type": kind, "param": param, "code": code}


def sentence(detail: Any) -> str:
    """FastAPI's detail: a text, or a list of faults with their places."""
    if isinstance(detail, list):
        faults = [fault for fault in detail if isinstance(fault, dict)]
        detail = "; ".join(": ".join(filter(None, (_place(fault), str(fault.get("msg", ""))))) for fault in faults)
    return grammar.label(detail if isinstance(detail, str) and detail else "The backend gave no reason.")


def _place(fault: Mapping[str, Any]) -> str:
    loc = fault.get("loc")
    return ".".join(str(step) for step in loc if step != "body") if isinstance(loc, list) else ""


class Events:
    """A whole JSON answer as a stream: one chunk with everything, the finish, usage if it was asked for, [DONE]."""

    content_type: str | None = "text/event-stream"

    def __init__(self, usage: bool) -> None:
        self._usage = usage
        self._body = bytearray()

    def feed(self, chunk: bytes) -> bytes:
        self._body += chunk
        return b""

    def finish(self) -> bytes:
        try:
            doc = grammar.loads(bytes(self._body))
        except grammar.Unreadable:
            return bytes(self._body)
        if not isinstance(doc, dict) or not isinstance(doc.get("choices"), list):
            return bytes(self._body)
        return b"".join(self._chunks(doc))

    def _chunks(self, doc: dict[str, Any]) -> list[bytes]:
        head = {key: value for key, value in doc.items() if key not in ("choices", "usage")}
        head["object"] = "chat.completion.chunk"
        rows = [row for row in doc["choices"] if isinstance(row, dict)]
        said = [{"index": _index(row), "delta": row.get("message") or {}, "finish_reason": None} for row in rows]
        ends: list[dict[str, Any]] = [
            {"index": _index(row), "delta": {}, "finish_reason": row.get("finish_reason")} for row in rows
        ]
        chunks = [_encode(head | {"choices": said}), _encode(head | {"choices": ends})]
        if self._usage and doc.get("usage"):
            chunks.append(_encode(head | {"choices": [], "usage": doc["usage"]}))
        return [*chunks, sse.encode(grammar.DONE)]


def _index(choice: Mapping[str, Any]) -> int:
    index = choice.get("index")
    return index if isinstance(index, int) else 0


def _encode(doc: Mapping[str, Any]) -> bytes:
    try:
        return sse.encode(orjson.dumps(doc))
    except TypeError:  # a lone surrogate, or an integer over 64 bits
        return sse.encode(json.dumps(doc).encode())
