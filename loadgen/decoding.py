"""The two ways of decoding that are simulated, with their knobs and their clock.

Diffusion works on `width` positions at once: a block takes `steps` passes, each a little dearer the wider
it is, and only then appears. Fewer steps are faster and worse. Autoregression reads the prompt, then says
one token after another. Both are dataclasses: every number can be replaced.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from . import prose
from .demand import Demand, Refusal
from .envelope import Counts, Envelope
from .prose import Source
from .script import Plan, Say, Script, Sharing, render

# Per model: input, cached input and output, per million tokens.
Prices = Mapping[str, tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class Reply:
    """What will be said, before anybody knows when."""

    tokens: list[str]
    tool: str | None
    cut: bool  # the limit ended it

    @property
    def finish(self) -> str:
        return "length" if self.cut else "tool_calls" if self.tool else "stop"


def reply(demand: Demand, length: float, spread: float, room: int, random: Source, answers: Mapping[str, str]) -> Reply:
    """The words of the answer: of a natural length around `length` tokens, at most `room`."""
    natural = round(length * (1 - spread + 2 * spread * random.random()))
    if demand.body.get("ignore_eos") is True:
        natural = room
    tool = None
    if demand.tool is not None:
        tool = str(demand.tool.get("name", "function"))
        text = prose.as_json(prose.specimen(demand.tool.get("parameters", {}) or {}, random) or {})
    elif demand.schema is not None:
        text = prose.as_json(prose.specimen(demand.schema, random))
    else:
        text = answers.get(demand.question) or prose.answer(demand.question, natural, random)
    tokens = prose.split(text)
    return Reply(tokens[:room], tool, len(tokens) > room)


def identity(demand: Demand) -> str:
    return hashlib.blake2b(demand.text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


class _Openai:
    """Errors in OpenAI's words."""

    __slots__ = ()

    def busy(self) -> Refusal:
        return Refusal.of(429, "too many requests at once; wait and try again", "rate_limit_reached")

    def unreadable(self, problem: Refusal, raw: bytes) -> Refusal:
        return problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Diffusion(_Openai):
    """Like Mercury: the head at once, silence, then whole blocks, or snapshots when `diffusing` is asked."""

    decoding: ClassVar[str] = "diffusion"
    models: tuple[str, ...] = ("mercury-2.5",)
    prices: Prices = field(default_factory=lambda: {"mercury-2.5": ("0.20", "0.02", "0.75")})
    steps: int = 16  # denoising passes for each block
    width: int = 64  # positions worked on at once
    pass_time: float = 0.004  # seconds of a pass, and what each position adds
    position_time: float = 0.00002
    head: float = 0.002
    prefill: float = 0.02
    prompt_token_time: float = 0.00001
    answer: float = 220.0  # tokens of a natural answer, and by what share it varies
    spread: float = 0.25
    most: int = 16384
    effort: str = "medium"
    efforts: Mapping[str, int] = field(  # hidden reasoning tokens
        default_factory=lambda: {"instant": 0, "low": 32, "medium": 96, "high": 320}
    )
    sharing: Sharing = field(default_factory=lambda: Sharing(0.06, 0.002))
    answers: Mapping[str, str] = field(default_factory=dict)

    def block_time(self, steps: int, width: int) -> float:
        """Seconds from one block to the next, alone on the machine."""
        return steps * (self.pass_time + self.position_time * width)

    def blemished(self, steps: int, width: int) -> float:
        """The share of tokens that so few passes over so many positions leave wrong; 0 where nobody would see it."""
        share = 0.6 * math.exp(-steps / (4 * width / 64))
        return share if share >= 0.02 else 0.0

    def write(self, demand: Demand, random: Source, created: int) -> Script:
        plan = self.plan(demand, random)
        wire = Envelope(demand.api, identity(demand), created, demand.model, flat=True, usage_null=False)
        return render(plan, demand, wire)

    def plan(self, demand: Demand, random: Source) -> Plan:
        steps = demand.whole("num_denoising_steps", demand.whole("steps", self.steps, 1, 512), 1, 512)
        width = demand.whole("parallel_tokens", demand.whole("width", self.width, 1, 1024), 1, 1024)
        limit = demand.limit(self.most)
        thought = min(self._thought(demand), limit // 2)
        said = reply(demand, self.answer, self.spread, limit - thought, random, self.answers)
        tokens = prose.blemish(said.tokens, self.blemished(steps, width), random)
        block = self.block_time(steps, width)
        start = self.prefill + self.prompt_token_time * demand.prompt_tokens + -(-thought // width) * block
        blocks = [tokens[i : i + width] for i in range(0, len(tokens), width)]
        if demand.api == "chat" and demand.stream and demand.body.get("diffusing") is True and not said.tool:
            says = _snapshots(blocks, start, block, steps, random)
        else:
            kind = "tool" if said.tool else "answer"
            says = [Say(start + (i + 1) * block, "".join(b), len(b), kind) for i, b in enumerate(blocks)]
        return Plan(
            head=min(self.head, start),
            says=tuple(says),
            end=start + len(blocks) * block,
            finish=said.finish,
            counts=Counts(
                prompt=demand.prompt_tokens,
                completion=thought + len(tokens),
                cached=demand.cached_tokens,
                reasoning=thought,
            ),
            text="".join(tokens),
            tool=said.tool,
            warning=self._warning(demand),
        )

    def _thought(self, demand: Demand) -> int:
        if demand.api != "chat":
            return 0
        effort = demand.body.get("reasoning_effort") or self.effort
        if effort not in self.efforts:
            known = ", ".join(self.efforts)
            raise Refusal.of(400, f"reasoning_effort must be one of {known}", "invalid_value", "reasoning_effort")
        return self.efforts[effort]

    def _warning(self, demand: Demand) -> str | None:
        given = demand.body.get("temperature")
        if demand.api != "chat" or given is None or (isinstance(given, int | float) and 0.5 <= given <= 1.0):
            return None
        return "temperature is outside 0.5 to 1.0 and was reset to 0.75"


def _snapshots(blocks: Sequence[Sequence[str]], start: float, block: float, steps: int, random: Source) -> list[Say]:
    """One frame for each pass: finished blocks, then the block at work, ever less of it noise."""
    says: list[Say] = []
    done, total = "", len(blocks) * steps
    for i, tokens in enumerate(blocks):
        settles = [1 + int(random.random() * steps) for _ in tokens]  # the pass after which a token is final
        for p in range(1, steps + 1):
            shown = (t if p >= s else prose.noise(t, random) for t, s in zip(tokens, settles, strict=True))
            at = start + i * block + p * (block / steps)
            says.append(Say(at, done + "".join(shown), 0, "snapshot", (i * steps + p) / total))
        done += "".join(tokens)
    return says


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoregressive(_Openai):
    """The head and a role event at once, the prompt read, then one token after another."""

    decoding: ClassVar[str] = "autoregressive"
    models: tuple[str, ...] = ("ar-small",)
    prices: Prices = field(default_factory=lambda: {"ar-small": ("0.30", "0.03", "1.20")})
    head: float = 0.002
    prefill: float = 0.05
    prompt_token_time: float = 0.0001
    token_time: float = 0.0125
    answer: float = 220.0
    spread: float = 0.25
    most: int = 4096
    efforts: Mapping[str, int] = field(  # visible reasoning tokens, only when asked
        default_factory=lambda: {"low": 16, "medium": 48, "high": 160}
    )
    sharing: Sharing = field(default_factory=lambda: Sharing(0.03, 0.0008))
    answers: Mapping[str, str] = field(default_factory=dict)

    def write(self, demand: Demand, random: Source, created: int) -> Script:
        plan = self.plan(demand, random)
        null = demand.include_usage
        wire = Envelope(demand.api, identity(demand), created, demand.model, flat=False, usage_null=null)
        return render(plan, demand, wire)

    def plan(self, demand: Demand, random: Source) -> Plan:
        limit = demand.limit(self.most)
        effort = str(demand.body.get("reasoning_effort")) if demand.api == "chat" else ""
        budget = min(self.efforts.get(effort, 0), limit // 2)
        said = reply(demand, self.answer, self.spread, limit - budget, random, self.answers)
        thought = prose.split(prose.answer(demand.question, budget, random))[:budget]
        start = self.prefill + self.prompt_token_time * demand.prompt_tokens
        kinds = ["reasoning"] * len(thought) + ["tool" if said.tool else "answer"] * len(said.tokens)
        spoken = zip([*thought, *said.tokens], kinds, strict=True)
        says = tuple(Say(start + i * self.token_time, text, 1, kind) for i, (text, kind) in enumerate(spoken))
        return Plan(
            head=min(self.head, start),
            says=says,
            end=says[-1].at if says else start,
            finish=said.finish,
            counts=Counts(
                prompt=demand.prompt_tokens,
                completion=len(says),
                cached=demand.cached_tokens,
                reasoning=len(thought),
            ),
            text="".join(said.tokens),
            tool=said.tool,
            opening=True,
        )
