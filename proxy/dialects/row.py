"""The columns of the table: what can be said of a backend, and what follows from it for one value.

`Dialect.fields` says where a canonical parameter goes. `Dialect.standard` lists, per API, all other members of the
request body that the backend takes, with their ranges; an API that is not listed is open, and every member passes as
it came. The other columns are capabilities: what the proxy has to do, or may not do, so that this backend works.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TEXT_APIS = ("chat", "completions", "fim", "edit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One member of a request body: where it is, and what it may hold."""

    path: tuple[str, ...]
    kind: str = "any"  # int, number, word, list, object, any
    least: float | None = None
    most: float | None = None
    words: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)  # another's word -> this one's; "{}": any object
    members: tuple[str, ...] = ()  # of an object: the only ones taken; empty: all
    apis: tuple[str, ...] = TEXT_APIS

    @property
    def spelled(self) -> str:
        return ".".join(self.path)

    def hold(self, value: Any) -> Any:
        """What the field can hold of a value: the nearest number, its own word; None: nothing.

        A value of the wrong type stays as it is: the backend says best what is wrong with it.
        """
        match self.kind:
            case "int" | "number" if isinstance(value, int | float) and not isinstance(value, bool):
                return self._bounded(value)
            case "word":
                word = self.aliases.get("{}" if isinstance(value, dict) else str(value), value)
                return word if word in self.words else None
            case "list" if isinstance(value, str):
                return [value]
            case "object" if isinstance(value, dict) and self.members and not value.keys() <= set(self.members):
                return {key: inner for key, inner in value.items() if key in self.members}
        return value

    def _bounded(self, value: float) -> float:
        if self.least is not None and value < self.least:
            value = self.least
        elif self.most is not None and value > self.most:
            value = self.most
        else:
            return value
        return int(value) if self.kind == "int" else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """What chat messages may look like."""

    members: tuple[str, ...] = ()  # the only ones taken; empty: all
    roles: Mapping[str, str] = field(default_factory=dict)  # another's role -> this one's
    text_only: bool = False  # content is a string, never a list of parts or null

    def takes(self, message: Any) -> bool:
        """Whether a message can stay as it is."""
        if not isinstance(message, dict):
            return True
        if self.members and not all(key in self.members for key in message):
            return False
        role = message.get("role")
        if isinstance(role, str) and role in self.roles:
            return False
        return not self.text_only or isinstance(message.get("content"), str)

    def remade(self, message: Mapping[str, Any], told: dict[str, None]) -> Mapping[str, Any]:
        """One message as the backend takes it; `told` collects what was done to it."""
        changed = {key: value for key, value in message.items() if not self.members or key in self.members}
        if any(message[key] is not None for key in message.keys() - changed.keys()):
            told[f"only {', '.join(self.members)}"] = None
        role = changed.get("role")
        if isinstance(role, str) and role in self.roles:
            changed["role"] = self.roles[role]
            told[f"{role} as {changed['role']}"] = None
        content = changed.get("content")
        if self.text_only and not isinstance(content, str):
            parts = content if isinstance(content, list) else []
            texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
            changed["content"] = "".join(texts)
            told["content as text" if len(texts) == len(parts) else "without content that is no text"] = None
        return changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One backend's words."""

    name: str
    about: str = ""
    fields: Mapping[str, Field] = field(default_factory=dict)  # canonical name -> where it goes
    standard: Mapping[str, Mapping[str, Field]] = field(default_factory=dict)  # API -> member -> what it may hold
    refuses: frozenset[str] = frozenset()  # members that it cannot take, where `standard` lists none
    renames: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # a member -> its path here
    messages: Mapping[str, Messages] = field(default_factory=dict)  # API -> what its messages may look like
    length: int | None = None  # the answer's length when the request says none
    block: int | None = None  # the block's length when the request says none; None: the whole answer
    steps: int | None = None  # the steps when the request says none
    even: bool = False  # whole blocks only: length % block == 0 and steps % blocks == 0
    effort_from_steps: tuple[tuple[int, str], ...] = ()  # opt in: steps up to here -> effort, where steps have no field
    include_usage: bool = True  # takes stream_options.include_usage, and reports
    canvas: bool = False  # its completion_tokens are the size of the canvas, not of the text
    plain_errors: bool = False  # its errors are FastAPI's or plain text, and get OpenAI's envelope
    streams: bool = True  # False: answers stream=true with one JSON body

    @property
    def open(self) -> bool:
        """Whether every ordinary member passes as it came."""
        return not (self.standard or self.refuses or self.renames or self.messages)
