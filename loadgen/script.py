"""What a simulated backend says and when: pure plans that a server, or a test, can play.

1. A `Plan` is the truth: which words, how many tokens, at which second. A `Script` is its bytes. A meter
   that is fed a script must read the plan's own numbers back; a test holds it to that for every slicing.
2. Times are seconds of *work* from the moment the request gets its slot. Whoever plays the script may
   stretch them: `Sharing` says by how much when several requests share the machine.
3. Faults are changes to a finished script, one function each in a table, so that any answer can go wrong
   in any way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import orjson

from . import envelope
from .demand import Demand, Refusal
from .envelope import Counts, Envelope


class Step(NamedTuple):
    at: float  # seconds of work
    data: bytes
    kind: str = "output"  # role, output, finish, usage, done, body


class Say(NamedTuple):
    """One burst: what is said at one moment."""

    at: float
    text: str
    tokens: int
    kind: str = "answer"  # answer, reasoning, tool, snapshot
    progress: float = 1.0  # of a snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The truth of one answer."""

    head: float  # when a stream's head goes out
    says: tuple[Say, ...]
    end: float
    finish: str
    counts: Counts
    text: str  # the whole answer, as it stands at the end
    tool: str | None = None  # the name of the function called; `text` is then its arguments
    warning: str | None = None
    opening: bool = False  # a role event goes with the head, before any output

    @property
    def ttft(self) -> float:
        return self.says[0].at if self.says else self.end


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    steps: tuple[Step, ...]
    status: int = 200
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    head: float = 0.0
    streamed: bool = False
    ending: str = (
        "clean"  # clean; cut: closes inside the body; drop: closes without a head; reset; hang: nothing more comes
    )
    plan: Plan | None = None  # None for errors


class Sharing(NamedTuple):
    """How requests that run together slow each other down: the universal scalability law.

    n requests at once run at 1 / slowdown(n) of a lone one's speed, so throughput grows by
    speedup(n) = n / (1 + sigma (n - 1) + kappa n (n - 1)), which peaks at n = sqrt((1 - sigma) / kappa).
    """

    sigma: float = 0.0  # contention: the share of the work that cannot run together
    kappa: float = 0.0  # crosstalk: what each pair costs

    def slowdown(self, n: int) -> float:
        return 1.0 if n < 2 else 1.0 + self.sigma * (n - 1) + self.kappa * n * (n - 1)

    def speedup(self, n: int) -> float:
        return n / self.slowdown(n)

    @property
    def knee(self) -> float:
        """The concurrency with the highest throughput; infinite where crosstalk is nil."""
        return math.sqrt((1 - self.sigma) / self.kappa) if self.kappa else math.inf


def render(plan: Plan, demand: Demand, wire: Envelope) -> Script:
    """The bytes of `plan`: a stream where one was asked, else one JSON body at the end."""
    if not demand.stream:
        reasoning = "".join(say.text for say in plan.says if say.kind == "reasoning")
        tool = (plan.tool, plan.text) if plan.tool else None
        body = wire.whole(plan.text, plan.finish, plan.counts, reasoning=reasoning, tool=tool, warning=plan.warning)
        return Script(steps=(Step(plan.end, body, "body"),), head=plan.end, plan=plan)
    steps = [Step(plan.head, wire.role(), "role")] if plan.opening and wire.role() else []
    first = b"" if plan.opening or (plan.says and plan.says[0].kind == "snapshot") else wire.role()
    called = False
    for say in plan.says:
        steps.append(Step(say.at, first + _said(say, plan, wire, opens=not called)))
        called = called or say.kind == "tool"
        first = b""
    steps.append(Step(plan.end, first + wire.finish(plan.finish, plan.warning), "finish"))
    if demand.include_usage:
        steps.append(Step(plan.end, wire.usage(plan.counts), "usage"))
    steps.append(Step(plan.end, envelope.DONE, "done"))
    return Script(
        steps=tuple(steps), content_type="text/event-stream; charset=utf-8", head=plan.head, streamed=True, plan=plan
    )


def _said(say: Say, plan: Plan, wire: Envelope, opens: bool) -> bytes:
    if say.kind == "answer":
        return wire.text(say.text)
    if say.kind == "reasoning":
        return wire.reasoning(say.text)
    if say.kind == "snapshot":
        return wire.snapshot(say.text, say.progress)
    return wire.tool("call_0", plan.tool if opens else None, say.text)


def refusal(problem: Refusal, retry_after: str | None = None) -> Script:
    """An error, told at once."""
    headers = (("retry-after", retry_after),) if retry_after else ()
    steps = (Step(0.0, problem.body, "body"),)
    return Script(steps=steps, status=problem.status, content_type=problem.content_type, headers=headers)


def afflict(script: Script, faults: tuple[tuple[str, str], ...]) -> Script:
    """`script` with what was asked to go wrong with it; raises `Refusal` for a fault that does not exist."""
    for name, value in faults:
        if name not in FAULTS:
            raise Refusal.of(400, f"x-simulate knows no {name!r}; it knows {', '.join(sorted(FAULTS))}")
        try:
            script = FAULTS[name](script, value)
        except ValueError:
            raise Refusal.of(400, f"x-simulate: {name} cannot take {value!r}") from None
    return script


def _error(script: Script, value: str) -> Script:
    status = int(value or 500)
    if not 400 <= status < 600:
        raise ValueError(status)
    problem = Refusal.of(status, f"simulated error {status}", "simulated")
    return refusal(problem, retry_after="1" if status in (429, 503) else None)


def _after(script: Script, value: str) -> int:
    """The index of the step after so many outputs; without a number, after half of them."""
    outputs = [i for i, step in enumerate(script.steps) if step.kind == "output"]
    count = int(value) if value else (len(outputs) + 1) // 2
    if count < 0:
        raise ValueError(count)
    if not outputs or count > len(outputs):
        return len(script.steps)
    return outputs[count - 1] + 1 if count else outputs[0]


def _cut(script: Script, value: str, ending: str = "cut") -> Script:
    """Ends inside the event that would have come next, or inside the body."""
    index = 0 if not script.streamed else _after(script, value)
    torn = [Step(s.at, s.data[: len(s.data) // 2], s.kind) for s in script.steps[index : index + 1]]
    return replace(script, steps=(*script.steps[:index], *torn), ending=ending)


def _stall(script: Script, value: str) -> Script:
    index = _after(script, value) if script.streamed else 0
    head = script.head if script.streamed else 0.0
    return replace(script, steps=script.steps[:index], head=head, ending="hang")


def _error_event(script: Script, value: str) -> Script:
    if not script.streamed:
        return _error(script, "500")
    index = _after(script, value)
    at = script.steps[max(0, index - 1)].at
    told = b"data: " + envelope.error(500, "simulated error inside the stream", "simulated") + b"\n\n"
    return replace(script, steps=(*script.steps[:index], Step(at, told, "finish"), Step(at, envelope.DONE, "done")))


def _page(script: Script, value: str) -> Script:
    page = b"<!doctype html><html><head><title>Sign in</title></head><body>Please sign in.</body></html>"
    return replace(
        script, steps=(Step(script.head, page, "body"),), content_type="text/html; charset=utf-8", streamed=False
    )


def _without(*kinds: str) -> Callable[[Script, str], Script]:
    def drop(script: Script, value: str) -> Script:
        steps = tuple(step for step in script.steps if step.kind not in kinds)
        if "usage" in kinds and not script.streamed:
            steps = tuple(Step(step.at, _unpaid(step.data), step.kind) for step in steps)
        return replace(script, steps=steps)

    return drop


def _unpaid(body: bytes) -> bytes:
    answer = orjson.loads(body)
    answer.pop("usage", None)
    return orjson.dumps(answer)


def _malformed(script: Script, value: str) -> Script:
    index = _after(script, value)
    at = script.steps[max(0, index - 1)].at
    return replace(script, steps=(*script.steps[:index], Step(at, b"data: {not json\n\n"), *script.steps[index:]))


def _later(script: Script, value: str) -> Script:
    by = float(value or 0.5)
    steps = tuple(Step(step.at + by, step.data, step.kind) for step in script.steps)
    return replace(script, steps=steps, head=script.head + by)


def _late_head(script: Script, value: str) -> Script:
    outputs = [step.at for step in script.steps if step.kind != "role"]
    return replace(script, head=outputs[0] if outputs else script.head)


# Name -> what it does; the value after "=" is a count of outputs, a status or seconds.
FAULTS: dict[str, Callable[[Script, str], Script]] = {
    "error": _error,  # error=503: that status at once
    "cut": _cut,  # cut=2: after two outputs the connection closes inside an event
    "reset": lambda script, value: _cut(script, value, "reset"),
    "stall": _stall,  # stall=2: after two outputs nothing more comes, and the connection stays open
    "error_event": _error_event,  # an error object in the stream, then [DONE]
    "html": _page,  # a page with status 200
    "truncate": _without("finish", "usage", "done"),  # ends in good order, but without its ending
    "empty": _without("role", "output", "finish", "usage", "body"),  # 200 and nothing in it
    "drop": lambda script, value: replace(script, steps=(), ending="drop"),  # closed without a head
    "no_usage": _without("usage"),
    "no_done": _without("done"),
    "malformed": _malformed,  # one event that is no JSON
    "delay": _later,  # delay=0.5: everything that much later
    "late_head": _late_head,  # the head waits for the first output
}
