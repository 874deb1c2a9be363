"""The order of questions to one backend: the cheap ones first, and none that an earlier answer made pointless."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

from ..body import Path
from ..catalog import Catalog
from ..dialects import Dialect
from ..dialects.parameters import TUTORIAL
from ..dialects.placement import becomes
from ..meter import Price, Reading, grammar
from ..settings import Backend
from ..upstream import UpstreamFault
from . import findings
from .effect import Effect, turns
from .findings import BAD, ODD, TRIALS, Bill, Findings, Trial
from .probe import TOKENS, Probe

# An answer, again without fixed sampling, a stream, again without stream_options, an unknown member, snapshots.
_BASICS = 6
_ROUNDS = 2  # of pairs: the second only where the first is doubtful
_PROMPT_TOKENS = 100  # more than the prompt has
_UNKNOWN: dict[Path, Any] = {"manometer_unknown_member": 1}
_USAGE: dict[Path, Any] = {("stream_options", "include_usage"): True}

Tell = Callable[[str], None]


def bill(dialect: Dialect, price: Price | None, pairs: int) -> Bill:
    """The most that `check` may ask, and what that costs at this price."""
    requests = _BASICS + _ROUNDS * 2 * pairs * len(_trials(dialect)) if pairs else _BASICS
    cost = None
    if price is not None:
        cost = (requests * (_PROMPT_TOKENS * price.input + TOKENS * price.output)) / Decimal(1_000_000)
    return Bill(requests, requests * TOKENS, cost, price.currency if price else "USD")


async def check(name: str, backend: Backend, dialect: Dialect, pairs: int, tell: Tell) -> Findings:
    """All facts of one backend. `pairs` of requests for each parameter; 0: parameters are not tried."""
    probe, found = Probe(backend, dialect), Findings(name)
    try:
        model = await _reach(probe, found, tell)
        if model and await _answer(probe, found, model):
            await _stream(probe, found, model, tell)
            await _unknown(probe, found, model)
            for row in _trials(dialect) if pairs else ():
                tell(f"{row.name} {row.little} against {row.much}")
                found.trials.append(await _try(probe, model, row, pairs))
    finally:
        await probe.close()
    return found


async def _reach(probe: Probe, found: Findings, tell: Tell) -> str | None:
    """The address, the key, the models. The model to ask, or None when asking is pointless."""
    origin = probe.backend.origin
    tell("its models")
    try:
        answer = await probe.get(probe.target("/v1/models"))
    except UpstreamFault as fault:
        found.add("reachable", fault.message, BAD)
        return None
    secure = "TLS, certificate checked" if origin.scheme == "https" and probe.backend.verify else origin.scheme
    found.add(
        "reachable", f"{origin.scheme}://{origin.host}:{origin.port} in {answer.seconds * 1000:.0f} ms ({secure})"
    )
    if answer.status in (401, 402, 403):
        found.facts.append(findings.key(answer.status, probe.backend.secret is not None))
        return None
    catalog = _catalog(answer.body) if answer.status == 200 else Catalog()
    listed = catalog.models
    if listed:
        found.add("base URL", probe.target("/v1"))
    if catalog.prices:
        found.add("prices", f"published, per million: {'; '.join(map(_priced, catalog.prices[:5]))}")
    configured = probe.backend.named_models
    if listed:
        missing = [model for model in configured if model not in listed]
        says = f"{len(listed)} listed: {', '.join(listed[:5])}" + (", ..." if len(listed) > 5 else "")
        found.add("models", f"{says}; not listed: {', '.join(missing)}" if missing else says, ODD if missing else "ok")
    elif answer.status == 404 and (better := await _better(probe)):
        found.add("base URL", f"{probe.target('/v1/models')} is not there (404), but {better} is: set url to it", BAD)
        return None
    else:
        found.add("models", f"no list at {probe.target('/v1/models')} ({answer.status})", ODD)
    if configured or listed:
        return configured[0] if configured else listed[0]
    found.add("answers", "no model to ask: name one under `models`", BAD)
    return None


async def _better(probe: Probe) -> str | None:
    """The base URL that would have worked."""
    origin = probe.backend.origin
    for prefix in findings.prefixes(origin.prefix):
        try:
            answer = await probe.get(f"{prefix}/models")
        except UpstreamFault:
            return None
        if answer.status in (401, 403) or (answer.status == 200 and _catalog(answer.body).models):
            return f"{origin.scheme}://{origin.host}:{origin.port}{prefix}"
    return None


async def _answer(probe: Probe, found: Findings, model: str) -> bool:
    """A plain answer: whether the backend can be used at all."""
    reading = await probe.chat(model)
    if reading.status in (400, 422):
        refusal, probe.fixed = findings.trouble(reading), False
        reading = await probe.chat(model)
        if reading.outcome == "ok":
            found.add("temperature 0", f"refused ({refusal}): times vary with the answers' lengths", ODD)
    if reading.status in (401, 402, 403):
        found.facts.append(findings.key(reading.status, probe.backend.secret is not None))
        return False
    if reading.status == 404:
        return await _lost(probe, found, model, reading)
    if reading.outcome != "ok":
        found.add("answers", findings.trouble(reading), BAD)
        return False
    found.facts.append(findings.key(200, probe.backend.secret is not None))
    found.add("answers", f"{model} in {reading.e2e:.2f} s")
    if reading.warning:
        found.add("warning", reading.warning, ODD)
    if findings.looks_like_canvas(reading) and not probe.dialect.canvas:
        found.facts.append(findings.usage(reading, probe.dialect))
    return True


async def _lost(probe: Probe, found: Findings, model: str, reading: Reading) -> bool:
    """404: the path or the model is wrong."""
    better = None if any(fact.name == "models" and fact.state == "ok" for fact in found.facts) else await _better(probe)
    if better:
        found.add("base URL", f"{probe.target('/v1/chat/completions')} is not there (404), but {better} is", BAD)
    else:
        found.add("answers", f"{model}: {findings.trouble(reading)}", BAD)
    return False


async def _stream(probe: Probe, found: Findings, model: str, tell: Tell) -> None:
    """How it streams, whether it takes include_usage, what it reports."""
    tell("a stream")
    reading = await probe.chat(model, stream=True, raw=_USAGE)
    if reading.status is not None and 400 <= reading.status < 500:
        state = ODD if probe.dialect.include_usage else "ok"
        found.add("include_usage", f"refused ({findings.trouble(reading)})", state)
        reading = await probe.chat(model, stream=True)
    elif reading.outcome == "ok":
        found.add("include_usage", "accepted" if reading.tokens else "accepted, and ignored")
    if reading.outcome != "ok":
        found.add("stream", findings.trouble(reading), ODD)
        return
    found.facts += [findings.shape(reading), findings.usage(reading, probe.dialect)]
    if "view" in probe.dialect.fields:
        snapshots = await probe.chat(model, stream=True, parameters={"view": "snapshot"})
        shown = findings.shape(snapshots).says if snapshots.outcome == "ok" else findings.trouble(snapshots)
        found.add("view = snapshot", shown, "ok" if any(a.replace for a in snapshots.arrivals) else ODD)


async def _unknown(probe: Probe, found: Findings, model: str) -> None:
    reading = await probe.chat(model, raw=_UNKNOWN)
    if reading.status is not None and 400 <= reading.status < 500:
        found.add("unknown members", f"refused ({findings.trouble(reading)})")
    else:
        says = "accepted or ignored: a misspelt parameter goes unnoticed there"
        found.add("unknown members", says if reading.outcome == "ok" else findings.trouble(reading), ODD)


def _trials(dialect: Dialect) -> list[Trial]:
    """A trial for each parameter that has a field, and for the tutorial's names where they lead nowhere."""
    rows = []
    for name, (little, much, measure) in TRIALS.items():
        if (field := dialect.fields.get(name)) and "chat" in field.apis:
            rows.append(Trial(name, little, much, measure, field.spelled))
    for member, name in TUTORIAL.items():
        if name not in dialect.fields and becomes(name, dialect) is None:
            little, much, measure = TRIALS[name]
            rows.append(Trial(name, little, much, measure, member, known=False))
    return rows


async def _try(probe: Probe, model: str, trial: Trial, pairs: int) -> Trial:
    measured: list[tuple[float, float]] = []
    for _ in range(_ROUNDS):
        for turn in turns(pairs):
            sides = [0.0, 0.0]
            for side in turn:
                reading = await _ask(probe, model, trial, (trial.little, trial.much)[side])
                if reading.outcome != "ok":
                    refused = reading.status is not None and 400 <= reading.status < 500
                    why = findings.trouble(reading)
                    return replace(trial, trouble=f"refused ({why})" if refused else why)
                sides[side] = reading.e2e if trial.measure == "time" else float(_size(reading))
            measured.append((sides[0], sides[1]))
        effect = Effect.of(measured)
        if not effect.doubtful:
            break
    return replace(trial, effect=effect)


async def _ask(probe: Probe, model: str, trial: Trial, value: Any) -> Reading:
    if trial.known:
        return await probe.chat(model, parameters={trial.name: value})
    return await probe.chat(model, raw={trial.by: value})


def _size(reading: Reading) -> int:
    return reading.tokens.completion or len(reading.text or "") or 1


def _catalog(body: bytes) -> Catalog:
    try:
        return Catalog.of(grammar.loads(body))
    except grammar.Unreadable:
        return Catalog()


def _priced(price: Price) -> str:
    return f"{price.model} {price.input} in, {price.output} out"
