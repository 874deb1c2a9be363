"""A mimic of dlmserve 0.1.1, a diffusion server that refuses what it does not know, as recorded from the real one.

Unknown fields, `stream_options` among them, get 422 with FastAPI's `detail`; lengths that do not divide
get a bare 500; a busy server says 429 without Retry-After. The whole answer comes in one event after all
steps, streams never hold usage, and `completion_tokens` is the size of the canvas, not of the text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import orjson

from . import envelope, prose
from .decoding import Prices, identity, reply
from .demand import Demand, Refusal
from .envelope import Counts
from .prose import Source
from .script import Plan, Say, Script, Sharing, Step

# Field -> kind, lowest, highest. None: any JSON value.
_FIELDS: dict[str, tuple[str, float, float] | None] = {
    "model": None,
    "messages": None,
    "stream": None,
    "temperature": ("number", 0, 2),
    "seed": None,
    "max_tokens": ("integer", 1, 4096),
    "target_length": ("integer", 1, 4096),
    "num_denoising_steps": ("integer", 1, 512),
    "block_length": ("integer", 1, 4096),
    "block_schedule": None,
    "confidence_metric": None,
    "force_single_batch": None,
    "top_k": None,
    "use_local_leap": None,
    "local_leap_anchor_threshold": ("number", 0, 1),
    "local_leap_neighbor_threshold": ("number", 0, 1),
    "local_leap_radius": ("integer", 1, 16),
}
# Declared, so that their presence can be refused by name.
_UNSUPPORTED = frozenset(
    {"top_p", "presence_penalty", "frequency_penalty", "n", "logit_bias", "tools", "tool_choice", "functions"}
)
_CANVAS = 128


def _detail(status: int, detail: Any) -> Refusal:
    return Refusal(status, orjson.dumps({"detail": detail}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Strict:
    """Knobs: `num_denoising_steps` (of the whole answer), `target_length` or `max_tokens`, `block_length`."""

    decoding: ClassVar[str] = "diffusion"
    models: tuple[str, ...] = ("exact-llada",)
    prices: Prices = field(default_factory=dict)
    step_time: float = 0.01
    sharing: Sharing = field(default_factory=lambda: Sharing(0.3, 0.005))
    answer: float = 40.0
    spread: float = 0.25
    answers: Mapping[str, str] = field(default_factory=dict)

    def busy(self) -> Refusal:
        return _detail(429, "server busy")

    def unreadable(self, problem: Refusal, raw: bytes) -> Refusal:
        """The body is no JSON, or no list of messages: this server's words for it."""
        try:
            orjson.loads(raw)
        except orjson.JSONDecodeError as broken:
            told = {"type": "json_invalid", "loc": ["body", broken.pos], "msg": "JSON decode error", "input": {}}
            return _detail(422, [told | {"ctx": {"error": broken.msg}}])
        return _detail(422, [{"type": "missing", "loc": ["body", "messages"], "msg": "Field required", "input": {}}])

    def write(self, demand: Demand, random: Source, created: int) -> Script:
        self._check(demand.body)
        if demand.model not in self.models:
            raise _detail(404, f"Model '{demand.model}' not found. This server hosts '{self.models[0]}'.")
        plan = self.plan(demand, random)
        return _stream(plan, demand) if demand.stream else _whole(plan, demand)

    def plan(self, demand: Demand, random: Source) -> Plan:
        body = demand.body
        canvas = body.get("target_length") or body.get("max_tokens") or _CANVAS
        block = body.get("block_length") or canvas
        steps = body.get("num_denoising_steps") or 128
        if canvas % block or steps % (canvas // block):
            raise Refusal(500, b"Internal Server Error", "text/plain; charset=utf-8")
        said = reply(demand, self.answer, self.spread, canvas, random, self.answers)
        share = 0.6 * math.exp(-steps / 8)
        text = "".join(prose.blemish(said.tokens, share if share >= 0.02 else 0.0, random)).strip()
        end = steps * self.step_time
        counts = Counts(prompt=demand.prompt_tokens, completion=canvas)
        return Plan(
            head=end, says=(Say(end, text, len(said.tokens)),), end=end, finish="stop", counts=counts, text=text
        )

    def _check(self, body: dict[str, Any]) -> None:
        faults = [_misfit(name, value) for name, value in body.items() if name not in _UNSUPPORTED]
        if told := [fault for fault in faults if fault]:
            raise _detail(422, told)
        refused = [name for name in body if name in _UNSUPPORTED]
        if isinstance(body.get("top_k"), int) and body["top_k"] > 1:
            refused.append("top_k")
        if refused:
            message = f"Value error, Parameter(s) {refused} are not supported for diffusion models."
            raise _detail(
                422, [{"type": "value_error", "loc": ["body"], "msg": message, "input": body, "ctx": {"error": {}}}]
            )


def _misfit(name: str, value: Any) -> dict[str, Any] | None:
    where = {"loc": ["body", name], "input": value}
    if name not in _FIELDS:
        return {"type": "extra_forbidden", "msg": "Extra inputs are not permitted"} | where
    rule = _FIELDS[name]
    if rule is None or value is None:
        return None
    kind, low, high = rule
    fits = isinstance(value, int) or (kind == "number" and isinstance(value, float))
    if isinstance(value, bool) or not fits:
        return {"type": f"{kind}_type", "msg": f"Input should be a valid {kind}"} | where
    if value < low:
        told = {"type": "greater_than_equal", "msg": f"Input should be greater than or equal to {low:g}"}
        return told | where | {"ctx": {"ge": low}}
    if value > high:
        told = {"type": "less_than_equal", "msg": f"Input should be less than or equal to {high:g}"}
        return told | where | {"ctx": {"le": high}}
    return None


def _envelope(demand: Demand, kind: str, choice: dict[str, Any]) -> dict[str, Any]:
    return {"id": "dlm-" + identity(demand), "object": kind, "model": demand.model, "choices": [{"index": 0} | choice]}


def _whole(plan: Plan, demand: Demand) -> Script:
    message = {"message": {"role": "assistant", "content": plan.text}, "finish_reason": plan.finish}
    counts = {"prompt_tokens": plan.counts.prompt, "completion_tokens": plan.counts.completion}
    usage = {"usage": counts | {"total_tokens": plan.counts.prompt + plan.counts.completion}}
    body = orjson.dumps(_envelope(demand, "chat.completion", message) | usage)
    return Script(steps=(Step(plan.end, body, "body"),), head=plan.end, plan=plan)


def _stream(plan: Plan, demand: Demand) -> Script:
    kind = "chat.completion.chunk"
    said = {"role": "assistant", "content": plan.text, "denoising_step": 0}
    over = {"role": None, "content": None, "denoising_step": None}
    steps = (
        Step(plan.end, envelope.event(_envelope(demand, kind, {"delta": said, "finish_reason": None}))),
        Step(plan.end, envelope.event(_envelope(demand, kind, {"delta": over, "finish_reason": "stop"})), "finish"),
        Step(plan.end, envelope.DONE, "done"),
    )
    content_type = "text/event-stream; charset=utf-8"
    return Script(steps=steps, content_type=content_type, head=plan.end, streamed=True, plan=plan)
