"""What a simulated backend is asked: a request read once, with the knobs and faults that it names.

Faults on demand come by the header `x-simulate: cut=2, no_done` or by the model's name, `mercury-2.5#cut=2`,
for clients that can set only that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from . import envelope

APIS = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/fim/completions": "fim",
    "/v1/edit/completions": "edit",
}
_CHARACTERS_PER_TOKEN = 4


class Refusal(Exception):
    """The backend answers with an error instead of text."""

    def __init__(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        super().__init__(f"{status}: {body.decode(errors='replace')}")
        self.status = status
        self.body = body
        self.content_type = content_type

    @classmethod
    def of(cls, status: int, message: str, code: str | None = None, param: str | None = None) -> Refusal:
        return cls(status, envelope.error(status, message, code, param))


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """One request, as a backend understands it."""

    api: str
    body: dict[str, Any]
    model: str  # without its faults
    text: str  # everything that the model must read
    question: str  # the last thing said by the user
    system: str = ""
    faults: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, api: str, raw: bytes, simulate: str = "") -> Demand:
        """Reads a request's body; raises `Refusal` where it cannot be read."""
        try:
            body = orjson.loads(raw)
        except orjson.JSONDecodeError as problem:
            raise Refusal.of(400, f"the body is not JSON: {problem}") from None
        if not isinstance(body, dict):
            raise Refusal.of(400, "the body must be a JSON object")
        model, _, suffix = str(body.get("model") or "").partition("#")
        if api in ("chat", "edit"):
            messages = _messages(body)
            text = "\n".join(said for _, said in messages)
            question = next((said for role, said in reversed(messages) if role == "user"), text)
            system = "\n".join(said for role, said in messages if role in ("system", "developer"))
        else:
            text = question = _prompt(body)
            system = ""
        faults = _faults(simulate) + _faults(suffix)
        return cls(api=api, body=body, model=model, text=text, question=question, system=system, faults=faults)

    @property
    def stream(self) -> bool:
        return self.body.get("stream") is True and self.api != "edit"

    @property
    def include_usage(self) -> bool:
        options = self.body.get("stream_options")
        return isinstance(options, dict) and options.get("include_usage") is True

    @property
    def prompt_tokens(self) -> int:
        return max(1, -(-len(self.text) // _CHARACTERS_PER_TOKEN))

    @property
    def cached_tokens(self) -> int:
        """The system messages count as warm, in whole blocks of 16."""
        return len(self.system) // _CHARACTERS_PER_TOKEN // 16 * 16

    def limit(self, default: int) -> int:
        """The most tokens the answer may have, hidden reasoning included."""
        for name in ("max_completion_tokens", "max_tokens"):
            if self.body.get(name) is not None:
                return self.whole(name, default, 1, 1 << 20)
        return default

    def whole(self, name: str, default: int, low: int, high: int) -> int:
        """The whole number in field `name`; `default` where it is not given."""
        value = self.body.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise Refusal.of(400, f"{name} must be a whole number from {low} to {high}", "invalid_value", name)
        return value

    @property
    def schema(self) -> Any:
        """The JSON schema that the answer must fit; None where text was asked."""
        wanted = self.body.get("response_format")
        if not isinstance(wanted, dict):
            return None
        if wanted.get("type") == "json_object":
            listing = {"type": "array", "items": {"type": "string"}}
            return {"properties": {"title": {"type": "string"}, "summary": {"type": "string"}, "points": listing}}
        if wanted.get("type") != "json_schema":
            return None
        holder = wanted.get("json_schema")
        return holder.get("schema", {}) if isinstance(holder, dict) else {}

    @property
    def tool(self) -> dict[str, Any] | None:
        """The function that must be called: one that `tool_choice` names or requires."""
        choice, tools = self.body.get("tool_choice"), self.body.get("tools")
        if not isinstance(tools, list):
            return None
        functions = [tool.get("function", {}) for tool in tools if isinstance(tool, dict)]
        if choice == "required":
            return next(iter(functions), None)
        named = choice.get("function", {}).get("name") if isinstance(choice, dict) else None
        return next((function for function in functions if named and function.get("name") == named), None)


def _messages(body: dict[str, Any]) -> list[tuple[str, str]]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refusal.of(400, "messages must be a list with at least one message", "invalid_value", "messages")
    if not all(isinstance(message, dict) for message in messages):
        raise Refusal.of(400, "each message must be an object", "invalid_value", "messages")
    return [(str(message.get("role")), _plain(message.get("content"))) for message in messages]


def _plain(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _prompt(body: dict[str, Any]) -> str:
    prompt = body.get("prompt")
    if isinstance(prompt, list):
        prompt = "\n".join(part for part in prompt if isinstance(part, str))
    if not isinstance(prompt, str):
        raise Refusal.of(400, "prompt must be a string", "invalid_value", "prompt")
    return prompt + str(body.get("suffix") or "")


def _faults(spec: str) -> tuple[tuple[str, str], ...]:
    parts = (part.strip() for part in spec.split(","))
    pairs = (part.partition("=") for part in parts if part)
    return tuple(("error", name) if name.isdigit() else (name.strip(), value.strip()) for name, _, value in pairs)
