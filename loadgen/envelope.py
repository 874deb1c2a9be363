"""How a simulated backend puts what it says on the wire: the events and bodies of OpenAI-compatible APIs.

The envelope of an event is the same for a whole answer, so it is made once and only the text is
encoded for each event: a thousand streams must cost little.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

DONE = b"data: [DONE]\n\n"
_MARK = "\0"


def event(payload: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + orjson.dumps(payload) + b"\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The tokens of one answer. `cached` is part of `prompt`, `reasoning` is part of `completion`."""

    prompt: int
    completion: int
    cached: int = 0
    reasoning: int = 0

    def report(self, flat: bool) -> dict[str, Any]:
        """As a `usage` object: Mercury's flat spelling, or OpenAI's nested one."""
        usage: dict[str, Any] = {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
        }
        if flat:
            return usage | {"reasoning_tokens": self.reasoning, "cached_input_tokens": self.cached}
        return usage | {
            "prompt_tokens_details": {"cached_tokens": self.cached},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning},
        }


class Envelope:
    """The wire of one answer: `api` is chat, completions, fim or edit."""

    def __init__(self, api: str, id: str, created: int, model: str, *, flat: bool, usage_null: bool) -> None:
        self._api = api
        self._flat = flat
        self._null = {"usage": None} if usage_null else {}
        kind = {"chat": "chat.completion", "edit": "edit.completion"}.get(api, "text_completion")
        prefix = "chatcmpl-" if api == "chat" else "cmpl-"
        self._body = {"id": prefix + id, "object": kind, "created": created, "model": model}
        self._chunk = self._body | ({"object": kind + ".chunk"} if api == "chat" else {})
        self._text = self._frame("content")
        self._reasoning = self._frame("reasoning_content")

    def _frame(self, field: str) -> tuple[bytes, bytes]:
        choice = {"text": _MARK} if self._api != "chat" else {"delta": {field: _MARK}}
        before, _, after = event(self._of(choice)).partition(orjson.dumps(_MARK))
        return before, after

    def _of(self, choice: dict[str, Any], finish: str | None = None, **extra: Any) -> dict[str, Any]:
        return self._chunk | {"choices": [{"index": 0, **choice, "finish_reason": finish}]} | self._null | extra

    def role(self) -> bytes:
        """The event that opens a chat stream and holds no output."""
        return event(self._of({"delta": {"role": "assistant", "content": ""}})) if self._api == "chat" else b""

    def text(self, text: str) -> bytes:
        before, after = self._text
        return before + orjson.dumps(text) + after

    def reasoning(self, text: str) -> bytes:
        before, after = self._reasoning
        return before + orjson.dumps(text) + after

    def tool(self, id: str, name: str | None, arguments: str) -> bytes:
        """A fragment of a tool call: its head names the tool, the rest is arguments."""
        call: dict[str, Any] = {"index": 0, "function": {"arguments": arguments}}
        if name is not None:
            call = {"index": 0, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        return event(self._of({"delta": {"tool_calls": [call]}}))

    def snapshot(self, text: str, progress: float) -> bytes:
        """The whole text as it stands; it replaces what was shown before."""
        meta = {"diffusion_content": True, "diffusion_progress": round(progress, 4)}
        return event(self._of({"delta": {"role": "assistant", "content": text}}, diffusion_meta=meta))

    def finish(self, reason: str, warning: str | None = None) -> bytes:
        choice: dict[str, Any] = {"delta": {}} if self._api == "chat" else {"text": ""}
        return event(self._of(choice, reason, **({"warning": warning} if warning else {})))

    def usage(self, counts: Counts) -> bytes:
        return event(self._chunk | {"choices": [], "usage": counts.report(self._flat)})

    def whole(
        self,
        text: str,
        finish: str,
        counts: Counts | None,
        *,
        reasoning: str = "",
        tool: tuple[str, str] | None = None,
        warning: str | None = None,
    ) -> bytes:
        """The answer to a request that did not ask for a stream."""
        choice: dict[str, Any] = {"index": 0}
        if self._api in ("chat", "edit"):
            message: dict[str, Any] = {"role": "assistant", "content": None if tool else text}
            if reasoning:
                message["reasoning_content"] = reasoning
            if tool:
                function = {"name": tool[0], "arguments": tool[1]}
                message["tool_calls"] = [{"id": "call_0", "type": "function", "function": function}]
            choice["message"] = message
        else:
            choice["text"] = text
        body = self._body | {"choices": [choice | {"finish_reason": finish}]}
        if counts is not None:
            body["usage"] = counts.report(self._flat)
        if self._flat:
            body["warning"] = warning
        return orjson.dumps(body)


def error(status: int, message: str, code: str | None = None, param: str | None = None) -> bytes:
    """OpenAI's error envelope."""
    kinds = {400: "invalid_request_error", 401: "authentication_error", 404: "invalid_request_error"}
    kind = kinds.get(status) or ("rate_limit_error" if status == 429 else "server_error")
    return orjson.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}})


def models(rows: Iterable[tuple[str, dict[str, str] | None]], created: int) -> bytes:
    """The answer of /v1/models: names, and prices per single token as strings where there are any."""
    data = []
    for name, pricing in rows:
        row: dict[str, Any] = {"id": name, "object": "model", "created": created, "owned_by": "simulated"}
        if pricing:
            row |= {"name": name, "input_modalities": ["text"], "output_modalities": ["text"]}
            row |= {"context_length": 260_000, "max_output_length": 65_536, "pricing": pricing}
            row |= {"supported_sampling_parameters": ["max_tokens", "temperature", "stop"]}
            row |= {"supported_features": ["streaming", "tools", "structured_outputs"]}
        data.append(row)
    return orjson.dumps({"object": "list", "data": data})
