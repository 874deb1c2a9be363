"""What is asked: prompts, and the n-th of them for a seed.

1. The n-th prompt depends on the seed and n alone, so processes that share a schedule need not talk, and
   a run can be repeated. Each pass over a set is in another order.
2. Nothing is made before it is sent: a trace of long prompts is kept as lengths, its text is made on demand.
3. A prompt knows how its answer can be checked without another model: facts, a schema, tests, a length.
4. No tokenizer. The length of synthetic text is in common words, which are about a token each; the
   backend's own count of prompt tokens is in every reading.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any

import orjson

KINDS = ("short", "long", "code", "structured", "reasoning")
LANGUAGES = ("en", "zh")
BLOCK = 512  # tokens that one hash id of a Mooncake trace stands for


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One thing to ask, and how to tell a good answer."""

    id: str
    kind: str = "other"
    language: str = "en"
    text: str = ""
    blocks: tuple[tuple[str, int], ...] = ()  # (seed, tokens): synthetic text, made when it is sent
    messages: tuple[Mapping[str, Any], ...] = ()  # a whole conversation, instead of a text
    max_tokens: int | None = None
    at: float | None = None  # seconds from the start of a trace
    answers: tuple[str, ...] = ()  # any of these words makes it right
    schema: Mapping[str, Any] | None = None
    tests: str | None = None
    least: int | None = None  # characters
    solution: str | None = None  # a text that passes, for simulated models and for tests of the checks

    def conversation(self) -> list[Mapping[str, Any]]:
        if self.messages:
            return list(self.messages)
        return [{"role": "user", "content": self.text or " ".join(filler(*block) for block in self.blocks)}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is the same for all requests of a run."""

    model: str
    max_tokens: int | None = 256
    temperature: float | None = None
    stream: bool = True
    usage: bool = True  # ask for it; a strict server may refuse the field
    extra: Mapping[str, Any] = field(default_factory=dict)  # verbatim fields, diffusion parameters among them

    def body(self, prompt: Prompt) -> bytes:
        """The chat request that asks `prompt`. Usage is asked for: without it tokens would be guesses."""
        body: dict[str, Any] = {"model": self.model, "messages": prompt.conversation()}
        limit = self.max_tokens if prompt.max_tokens is None else prompt.max_tokens
        optional = {"max_tokens": limit, "temperature": self.temperature}
        body |= {name: value for name, value in optional.items() if value is not None}
        if self.stream:
            body["stream"] = True
            if self.usage:
                body["stream_options"] = {"include_usage": True}
        return orjson.dumps(body | dict(self.extra))


class Workload:
    """An endless sequence of prompts, the same for the same seed."""

    def __init__(self, prompts: Sequence[Prompt], seed: int = 0, *, shuffled: bool = True) -> None:
        if not prompts:
            raise ValueError("the workload holds no prompt")
        self.prompts = prompts
        self._seed = seed
        self._shuffled = shuffled
        self._pass: tuple[int, Sequence[int]] = (-1, ())

    def __getitem__(self, n: int) -> Prompt:
        turn, place = divmod(n, len(self.prompts))
        if not self._shuffled:
            return self.prompts[place]
        if self._pass[0] != turn:
            self._pass = turn, sorted(range(len(self.prompts)), key=lambda i: _hash(f"{self._seed}:{turn}:{i}"))
        return self.prompts[self._pass[1][place]]


def builtin(kinds: Iterable[str] = KINDS, languages: Iterable[str] = LANGUAGES) -> list[Prompt]:
    """The prompt sets that come with this package."""
    languages = tuple(languages)
    prompts = []
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"no prompt set {kind!r}: there are {', '.join(KINDS)}")
        source = resources.files("loadgen").joinpath("prompts", f"{kind}.jsonl").read_text("utf-8")
        for line in source.splitlines():
            row = orjson.loads(line)
            prompts += [_builtin(kind, language, row) for language in languages]
    return prompts


def _builtin(kind: str, language: str, row: dict[str, Any]) -> Prompt:
    return Prompt(
        id=f"{row['id']}-{language}",
        kind=kind,
        language=language,
        text=row[language],
        answers=tuple(row.get("answers", ())),
        schema=row.get("schema"),
        tests=row.get("tests"),
        least=row.get("least", {}).get(language),
        solution=row.get("solution"),
    )


def synthetic(tokens: int, count: int = 64, *, seed: int = 0) -> list[Prompt]:
    """Prompts of about `tokens` tokens that share no prefix, so that no prefix cache helps."""
    if tokens < 1:
        raise ValueError("a synthetic prompt needs at least one token")
    return [Prompt(id=f"synthetic-{n}", kind="synthetic", blocks=((f"{seed}:{n}", tokens),)) for n in range(count)]


def read(lines: Iterable[str], name: str = "prompts") -> list[Prompt]:
    """Prompts from JSON lines. What a line is follows from its fields: see `_SHAPES`. Blank lines are skipped."""
    prompts: list[Prompt] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise ValueError(f"{name}, line {number}: not JSON ({error})") from None
        prompts.append(_read(row, f"{name}, line {number}"))
    if not prompts:
        raise ValueError(f"{name}: holds no prompt")
    return _from_zero(prompts)


def _read(row: Any, where: str) -> Prompt:
    if isinstance(row, dict):
        for fields, make in _SHAPES:
            if fields <= row.keys():
                try:
                    return make(row, where)
                except (TypeError, ValueError, KeyError, AttributeError) as error:
                    raise ValueError(f"{where}: cannot be read ({error})") from None
    raise ValueError(f"{where}: expected an object with `prompt`, `text`, `messages`, `body` or `timestamp`")


def _from_text(row: dict[str, Any], where: str) -> Prompt:
    messages = row.get("messages") or ()
    text = row.get("prompt", row.get("text", ""))
    if not isinstance(text, str) or not all(isinstance(m, dict) for m in messages) or not (text or messages):
        raise ValueError("the prompt is no text")
    limit = row.get("max_tokens", row.get("max_completion_tokens"))
    return Prompt(
        id=str(row.get("id", row.get("custom_id", where))),
        kind=str(row.get("kind", "other")),
        language=str(row.get("language", "en")),
        text=text,
        messages=tuple(messages),
        max_tokens=None if limit is None else int(limit),
        at=None if row.get("at") is None else float(row["at"]),
        answers=tuple(str(answer) for answer in row.get("answers", ())),
        schema=row.get("schema"),
        tests=row.get("tests"),
        least=row.get("least"),
    )


def _from_batch(row: dict[str, Any], where: str) -> Prompt:
    """A line of OpenAI's batch format: the request's body is inside."""
    return _from_text({"id": row.get("custom_id", where)} | row["body"], where)


def _from_trace(row: dict[str, Any], where: str) -> Prompt:
    """Mooncake's trace: milliseconds, lengths, and ids of blocks whose text is shared between requests."""
    tokens, ids = int(row["input_length"]), row.get("hash_ids") or [where]
    blocks = [(str(id), min(BLOCK, tokens - i * BLOCK)) for i, id in enumerate(ids) if tokens > i * BLOCK]
    if len(ids) == 1:
        blocks = [(str(ids[0]), tokens)]
    limit = int(row["output_length"]) if row.get("output_length") is not None else None
    return Prompt(id=where, kind="trace", blocks=tuple(blocks), max_tokens=limit, at=float(row["timestamp"]) / 1000)


def _from_reading(row: dict[str, Any], where: str) -> Prompt:
    """A reading of this proxy. It holds no text, by design: the lengths and the time are replayed."""
    tokens = row["tokens"]
    id = str(row.get("id", where))
    return Prompt(
        id=id,
        kind="recorded",
        blocks=((id, int(tokens.get("prompt") or 1)),),
        max_tokens=tokens.get("completion"),
        at=float(row["started_at"]),
    )


_SHAPES = (
    ({"body"}, _from_batch),
    ({"timestamp", "input_length"}, _from_trace),
    ({"started_at", "tokens"}, _from_reading),
    ({"messages"}, _from_text),
    ({"prompt"}, _from_text),
    ({"text"}, _from_text),
)


def _from_zero(prompts: list[Prompt]) -> list[Prompt]:
    """Of a trace: in order of time, the first at 0."""
    if any(prompt.at is None for prompt in prompts):
        return prompts
    first = min(prompt.at or 0.0 for prompt in prompts)
    ordered = sorted(prompts, key=lambda prompt: prompt.at or 0.0)
    return [replace(prompt, at=(prompt.at or 0.0) - first) for prompt in ordered]


_COMMON = (
    "time year people way day man thing woman life child world school state family student group country problem "
    "hand part place case week company system program question work number night point home water room mother area "
    "money story fact month lot right study book eye job word business issue side kind head house service friend "
    "father power hour game line end member law car city name"
)
_WORDS = _COMMON.split()


def filler(seed: str, tokens: int) -> str:
    """`tokens` common words, the same for the same seed."""
    return " ".join(_WORDS[byte % len(_WORDS)] for byte in hashlib.shake_256(seed.encode()).digest(tokens))


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()
