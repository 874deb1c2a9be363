"""What one event, or one whole JSON body, says: a `Delta`, in words that every API shares.

A grammar knows where an API puts text, reasoning, tool calls, usage and errors; it never knows a
time. Unknown members are passed over, wrong types are nothing, and what is no JSON object is `Unreadable`:
a backend's surprise must never become an exception of the proxy.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import orjson

from . import usage
from .reading import Fault
from .usage import Usage

DONE = b"[DONE]"


class Unreadable(ValueError):
    """The bytes are not what the API promises."""


@dataclass(slots=True)
class Delta:
    """What one event adds."""

    answer: str = ""
    reasoning: str = ""
    tool: str = ""  # fragments of arguments
    names: dict[tuple[int, int], str] = field(
        default_factory=dict
    )  # (choice, call) -> name; some repeat it in each event
    snapshots: dict[int, str] = field(default_factory=dict)  # choice -> its whole text, replacing what was
    tokens: int | None = None  # completion tokens in this event, where it lists them one by one
    usage: Usage | None = None
    model: str | None = None
    choices: set[int] = field(default_factory=set)
    finishes: dict[int, str] = field(default_factory=dict)
    fault: Fault | None = None
    warning: str | None = None
    terminal: bool = False  # the API's own end: [DONE], response.completed

    @property
    def is_output(self) -> bool:
        return bool(self.answer or self.reasoning or self.tool or any(self.snapshots.values()))


@lru_cache(maxsize=256)
def api_of(path: str) -> str:
    """The API that a path belongs to: chat, completions, fim, edit, responses, embeddings, models, other."""
    for end, api in _PATHS:
        if path.rstrip("/").endswith(end):
            return api
    return "other"


_PATHS = (
    ("/chat/completions", "chat"),
    ("/fim/completions", "fim"),
    ("/edit/completions", "edit"),
    ("/apply/completions", "edit"),
    ("/completions", "completions"),
    ("/responses", "responses"),
    ("/embeddings", "embeddings"),
    ("/models", "models"),
)


def loads(data: bytes) -> Any:
    """JSON, read leniently: NaN, lone surrogates and huge numbers are other people's business."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise Unreadable("no JSON") from error


def read_event(data: bytes, name: bytes, replace: bool) -> Delta:
    """One SSE event of any of the APIs. `replace`: the request asked for snapshots (`diffusing`)."""
    if data.startswith(DONE):
        return Delta(terminal=True)
    if name == b"ping" or not data.strip():
        return Delta()  # keep-alives; that clients may choke on an empty event is not ours to judge
    try:
        doc = loads(data)
    except Unreadable:
        if name == b"error":
            return Delta(fault=Fault("error", label(data.decode(errors="replace"))))
        raise
    if not isinstance(doc, dict):
        raise Unreadable("an event that is no JSON object")
    kind = _text(doc.get("type")) or name.decode(errors="replace")
    if kind.startswith("response."):
        return _response_event(kind, doc)
    delta = _completion(doc, "delta", _replaces(doc, replace))
    if name == b"error" and delta.fault is None:
        delta.fault = _fault(doc)
    return delta


def read_body(data: bytes, api: str) -> Delta:
    """A whole JSON answer."""
    doc = loads(data)
    if not isinstance(doc, dict):
        raise Unreadable("a body that is no JSON object")
    if api == "responses" and isinstance(doc.get("output"), list):
        delta = _response(doc)
        for item in _dicts(doc.get("output")):
            _output_item(item, delta)
        return delta
    delta = _completion(doc, "message", replace=False)
    delta.terminal = True
    return delta


def fault_of(body: bytes) -> Fault | None:
    """What an error answer says of itself: OpenAI's envelope, FastAPI's `detail`, or nothing readable."""
    try:
        doc = loads(body)
    except Unreadable:
        return None
    if not isinstance(doc, dict):
        return None
    if "detail" in doc and "error" not in doc:
        detail = doc["detail"]
        return Fault("error", label(detail if isinstance(detail, str) else _dump(detail)))
    return _fault(doc)


def label(text: str, limit: int = 500) -> str:
    """A backend's words, fit to be kept: of bounded length and well-formed."""
    return wellformed(text if len(text) <= limit else text[: limit - 1] + "…")


def wellformed(text: str) -> str:
    """Without lone surrogates, which JSON may escape but no encoder takes; the halves of a pair are joined."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _replaces(doc: dict[str, Any], asked: bool) -> bool:
    """The marker on the event decides; without one, what the request asked for."""
    meta = doc.get("diffusion_meta")
    if isinstance(meta, dict) and isinstance(meta.get("diffusion_content"), bool):
        return bool(meta["diffusion_content"])
    return asked


def _completion(doc: dict[str, Any], member: str, replace: bool) -> Delta:
    """chat, completions, FIM and edit: `choices[]` with a delta, a message or a text."""
    delta = Delta(usage=_usage(doc), model=_name(doc.get("model")), warning=_name(doc.get("warning"), 500))
    if doc.get("error") or doc.get("type") == "error" or doc.get("object") == "error":
        delta.fault = _fault(doc)
    for position, choice in enumerate(_dicts(doc.get("choices"))):
        index = choice.get("index")
        index = index if isinstance(index, int) else position
        delta.choices.add(index)
        body = choice.get(member)
        if not isinstance(body, dict):
            body = choice.get("message") if member == "delta" else choice.get("delta")
        body = body if isinstance(body, dict) else {}
        answer = _content(body.get("content")) + _text(body.get("refusal")) + _text(choice.get("text"))
        if replace and answer:
            delta.snapshots[index] = answer
        else:
            delta.answer += answer
        delta.reasoning += _text(body.get("reasoning_content")) or _text(body.get("reasoning"))
        if body.get("tool_calls") or body.get("function_call"):
            _tools(body, index, delta)
        if choice.get("logprobs") or choice.get("token_ids"):
            delta.tokens = _listed(choice, delta.tokens)
        if finish := _name(choice.get("finish_reason")):
            delta.finishes[index] = finish
            if finish == "error" and delta.fault is None:
                delta.fault = Fault("finish_reason_error")
    return delta


def _content(value: Any) -> str:
    """Message content: a string, or parts that hold text."""
    if isinstance(value, str):
        return value
    return "".join(_text(part.get("text")) for part in _dicts(value))


def _tools(body: dict[str, Any], choice: int, delta: Delta) -> None:
    """Tool calls, or the older spelling of a single one; a server that sends both means the same call."""
    calls = _dicts(body.get("tool_calls")) or [{"function": body.get("function_call")}]
    for position, call in enumerate(calls):
        function = call.get("function") or call.get("custom")
        if not isinstance(function, dict):
            continue
        delta.tool += _arguments(function)
        index = call.get("index")
        if name := _text(function.get("name")):
            delta.names[choice, index if isinstance(index, int) else position] = name


def _arguments(call: dict[str, Any]) -> str:
    """A call's arguments or, of custom tools, its input."""
    return _text(call.get("arguments")) + _text(call.get("input"))


def _listed(choice: dict[str, Any], so_far: int | None) -> int | None:
    """Tokens that the event lists one by one: token ids, or one logprob entry for each."""
    listed = choice.get("token_ids")
    if not isinstance(listed, list):
        logprobs = choice.get("logprobs")
        entries = [logprobs.get(key) for key in ("content", "refusal", "tokens")] if isinstance(logprobs, dict) else []
        listed = next((entry for entry in entries if isinstance(entry, list) and entry), None)
    return (so_far or 0) + len(listed) if isinstance(listed, list) and listed else so_far


def _usage(doc: dict[str, Any]) -> Usage | None:
    found = usage.read(doc.get("usage"))
    if found is None and isinstance(groq := doc.get("x_groq"), dict):
        found = usage.read(groq.get("usage"))
    return found


_ANSWER = {"response.output_text.delta", "response.refusal.delta"}
_REASONING = {"response.reasoning_text.delta", "response.reasoning_summary_text.delta"}
_TOOL = {
    "response.function_call_arguments.delta",
    "response.custom_tool_call_input.delta",
    "response.mcp_call_arguments.delta",
}
_END = {"response.completed", "response.incomplete", "response.failed", "response.cancelled"}


def _response_event(kind: str, doc: dict[str, Any]) -> Delta:
    if kind in _ANSWER:
        return Delta(answer=_text(doc.get("delta")))
    if kind in _REASONING:
        return Delta(reasoning=_text(doc.get("delta")))
    if kind in _TOOL:
        return Delta(tool=_text(doc.get("delta")))
    if kind == "response.output_item.added" and isinstance(item := doc.get("item"), dict):
        return Delta(tool=_text(item.get("name")) if _is_call(item) else "")
    delta = _response(doc["response"]) if isinstance(doc.get("response"), dict) else Delta()
    delta.terminal = kind in _END
    if kind == "response.failed" and delta.fault is None:
        delta.fault = Fault("response_failed")
    return delta


def _response(doc: dict[str, Any]) -> Delta:
    """A Responses API object: its status, usage and error; not its output, which came as deltas."""
    delta = Delta(usage=_usage(doc), model=_name(doc.get("model")), choices={0})
    status = _text(doc.get("status"))
    if doc.get("error") or status == "failed":
        delta.fault = _fault(doc)
    if status in ("completed", "incomplete"):
        details = doc.get("incomplete_details")
        delta.finishes[0] = (_name(details.get("reason")) if isinstance(details, dict) else None) or status
        delta.terminal = True
    return delta


def _output_item(item: dict[str, Any], delta: Delta) -> None:
    shown = "".join(_text(part.get("text")) + _text(part.get("refusal")) for part in _dicts(item.get("content")))
    if item.get("type") == "reasoning":
        delta.reasoning += shown or "".join(_text(part.get("text")) for part in _dicts(item.get("summary")))
    else:
        delta.answer += shown
    if _is_call(item):
        delta.tool += _text(item.get("name")) + _arguments(item)


def _is_call(item: dict[str, Any]) -> bool:
    return _text(item.get("type")).endswith("_call")


def _fault(doc: dict[str, Any]) -> Fault:
    error = doc.get("error")
    source = error if isinstance(error, dict) else doc
    message = error if isinstance(error, str) else source.get("message")
    code = source.get("code")
    return Fault(
        _name(source.get("type")) or "error",
        label(_text(message)),
        label(str(code), 200) if isinstance(code, str | int) and not isinstance(code, bool) else None,
    )


def _name(value: Any, limit: int = 200) -> str | None:
    """A short text such as a model's name; None when there is none."""
    return label(value, limit) if isinstance(value, str) and value else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _dump(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return ""


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
