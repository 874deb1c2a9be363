"""`manometer check` against servers that behave as recorded ones do: strict ones, lenient ones, broken ones."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from proxy.check import Findings, bill, check
from proxy.check.effect import Effect, turns
from proxy.check.findings import Trial, prefixes
from proxy.cli import app
from proxy.dialects import BUILT_IN
from proxy.settings import Backend

# -- effect --------------------------------------------------------------------------------------


def test_a_ratio_is_the_geometric_mean_of_the_pairs() -> None:
    effect = Effect.of([(1, 4), (1, 9)])
    assert effect.ratio == pytest.approx(6) and effect.pairs == 2


def test_the_interval_is_students() -> None:
    effect = Effect.of([(1, 2), (1, 4), (1, 8)])
    margin = 4.303 * math.log(2) / math.sqrt(3)
    assert (effect.low, effect.high) == pytest.approx((4 / math.exp(margin), 4 * math.exp(margin)), rel=1e-3)


@pytest.mark.parametrize(
    ("pairs", "seen"),
    [
        ([(1, 7), (1, 7.5), (1, 6.8)], True),
        ([(7, 1), (7.5, 1), (6.8, 1)], True),
        ([(1, 1.1), (1, 0.9), (1, 1.0)], False),
        ([(1, 1.02), (1, 1.02), (1, 1.02)], False),  # certain, and too small to notice
        ([(1, 2), (1, 1), (1, 8)], False),  # large, and too uncertain
        ([(1, 2)], None),
        ([], None),
    ],
)
def test_when_an_effect_is_seen(pairs: list[tuple[float, float]], seen: bool | None) -> None:
    assert Effect.of(pairs).seen is seen


@given(st.lists(st.tuples(st.floats(0.01, 100), st.floats(0.01, 100)), min_size=2, max_size=12))
def test_the_ratio_lies_in_its_interval(pairs: list[tuple[float, float]]) -> None:
    effect = Effect.of(pairs)
    assert effect.low is not None and effect.ratio is not None and effect.high is not None
    assert effect.low <= effect.ratio * 1.000001 and effect.ratio <= effect.high * 1.000001


def test_sides_take_turns_at_being_first() -> None:
    assert turns(3) == [(0, 1), (1, 0), (0, 1)]


# -- base URLs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "first"),
    [
        ("/v1/v1", "/v1"),
        ("", "/api/v1"),
        ("/openai", "/openai/v1"),
        ("/v1/chat/completions", "/v1"),
        ("/api/v1", "/api/v1/v1"),
    ],
)
def test_likely_base_urls_come_first(prefix: str, first: str) -> None:
    assert next(prefixes(prefix)) == first
    assert prefix not in list(prefixes(prefix)) and "/v1" in [prefix or "/v1", *prefixes(prefix)]


# -- backends ------------------------------------------------------------------------------------

STRICT = {
    "model",
    "messages",
    "max_tokens",
    "stream",
    "temperature",
    "seed",
    "num_denoising_steps",
    "block_length",
    "target_length",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Start = Callable[..., Awaitable[str]]


def dlmserve(step: float = 0.001) -> Handler:
    """Refuses what it does not know; steps take time; one burst; no usage in streams; tokens are the canvas."""

    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if unknown := [key for key in body if key not in STRICT]:
            faults = [{"type": "extra_forbidden", "loc": ["body", key], "msg": "Not permitted"} for key in unknown]
            return web.json_response({"detail": faults}, status=422)
        await asyncio.sleep(step * body.get("num_denoising_steps", 128))
        canvas = body.get("target_length") or body.get("max_tokens", 128)
        if body.get("stream"):
            return await stream(request, ["The fox."], None)
        return web.json_response(whole("The fox.", canvas))

    return answer


async def llama(request: web.Request) -> web.StreamResponse:
    """Ignores what it does not know; takes as long as it takes; reports usage when asked."""
    body = await request.json()
    await asyncio.sleep(0.02)
    if body.get("stream"):
        usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
        return await stream(request, ["a ", "b ", "c"], usage if body.get("stream_options") else None)
    return web.json_response(whole("word " * 100, 100))


def whole(text: str, tokens: int) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": tokens, "total_tokens": 9 + tokens}}


async def stream(request: web.Request, parts: list[str], usage: dict[str, int] | None) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for part in parts:
        event = {"choices": [{"index": 0, "delta": {"content": part}}]}
        await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        await asyncio.sleep(0.005)
    await response.write(b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n')
    if usage:
        await response.write(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")
    await response.write(b"data: [DONE]\n\n")
    return response


def failing(status: int, body: dict[str, Any]) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status)

    return answer


async def models(request: web.Request) -> web.StreamResponse:
    return web.json_response({"object": "list", "data": [{"id": "m"}, {"id": "n"}]})


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts a backend with a handler for chats and one for models; its address."""
    servers: list[TestServer] = []

    async def begin(chat: Handler, listing: Handler = models) -> str:
        application = web.Application()
        application.router.add_post("/v1/chat/completions", chat)
        application.router.add_get("/v1/models", listing)
        servers.append(TestServer(application))
        await servers[-1].start_server()
        return f"http://127.0.0.1:{servers[-1].port}"

    yield begin
    for server in servers:
        await server.close()


async def examined(url: str, dialect: str = "openai", pairs: int = 0, **options: Any) -> Findings:
    options.setdefault("models", ("m",))
    return await check("b", Backend(url=url, dialect=dialect, **options), BUILT_IN[dialect], pairs, lambda _: None)


def said(found: Findings) -> dict[str, tuple[str, str]]:
    return {fact.name: (fact.state, fact.says) for fact in found.facts}


async def test_a_strict_diffusion_server(start: Start) -> None:
    found = await examined(await start(dlmserve()) + "/v1", "dlmserve", pairs=3)
    facts = said(found)
    assert found.usable
    assert facts["include_usage"] == ("ok", "refused (422: stream_options: Not permitted)")
    assert facts["unknown members"] == ("ok", "refused (422: manometer_unknown_member: Not permitted)")
    assert facts["stream"][1].startswith("one burst")
    assert facts["usage"] == ("ok", "no usage in streams: tokens of streams are unknown")
    trials = {trial.name: trial for trial in found.trials}
    assert trials["steps"].effect and trials["steps"].effect.seen and trials["steps"].effect.ratio > 2  # type: ignore[operator]
    assert trials["length"].effect and trials["length"].effect.ratio == pytest.approx(4)
    assert "width" not in trials  # it becomes steps


async def test_a_lenient_server_on_which_steps_do_nothing(start: Start) -> None:
    found = await examined(await start(llama) + "/v1", pairs=3)
    facts = said(found)
    assert found.usable
    assert facts["base URL"] == ("ok", "/v1")
    assert facts["models"] == ("ok", "2 listed: m, n")
    assert facts["key"] == ("ok", "none is configured, none is needed")
    assert facts["include_usage"] == ("ok", "accepted")
    assert facts["stream"][1].startswith("append: ")
    assert facts["usage"] == ("ok", "reported: 9 in, 3 out")
    assert facts["unknown members"][0] == "odd"
    assert {trial.name: trial.effect and trial.effect.seen for trial in found.trials} == {
        "steps": False,
        "width": False,
    }
    assert found.trials[0].says.startswith(
        "4 against 64 (num_denoising_steps, for which the dialect has no field): no effect"
    )


async def test_a_model_that_refuses_temperature_0_is_asked_without(start: Start) -> None:
    async def picky(request: web.Request) -> web.StreamResponse:
        if "temperature" in await request.json():
            return web.json_response({"error": {"message": "temperature must be 1"}}, status=400)
        return await llama(request)

    found = await examined(await start(picky) + "/v1")
    assert found.usable
    assert said(found)["temperature 0"] == (
        "odd",
        "refused (400: temperature must be 1): times vary with the answers' lengths",
    )


def test_what_works_without_a_field_is_told_with_the_field_to_write() -> None:
    trial = Trial("steps", 4, 64, "time", "num_denoising_steps", known=False, effect=Effect.of([(1, 8)] * 3))
    assert trial.says.endswith('. To use it: fields = { steps = "num_denoising_steps" }')


async def test_a_small_effect_gets_a_second_look(start: Start) -> None:
    asked = 0

    async def slower(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        body = await request.json()
        if "num_denoising_steps" in body:
            asked += 1
        await asyncio.sleep(0.02 if body.get("num_denoising_steps", 4) == 4 else 0.04)
        return web.json_response(whole("word", 1))

    found = await examined(await start(slower) + "/v1", pairs=3)
    effect = found.trials[0].effect
    assert effect and asked == 2 * effect.pairs and effect.pairs in (3, 6)
    assert effect.pairs == 6 or not effect.doubtful


async def test_a_parameter_that_is_refused_is_told(start: Start) -> None:
    found = await examined(await start(dlmserve(0)) + "/v1", pairs=2)
    trial = next(trial for trial in found.trials if trial.name == "width")
    assert trial.says.endswith("has no field): refused (422: parallel_tokens: Not permitted)")


async def test_a_canvas_that_is_taken_for_text_is_told(start: Start) -> None:
    found = await examined(await start(dlmserve(0)) + "/v1", "tutorial")
    usage = next(fact for fact in found.facts if fact.name == "usage")
    assert usage.state == "odd"
    assert usage.says.startswith("128 completion tokens for 8 characters: probably the size of a canvas.")


@pytest.mark.parametrize(
    ("status", "key", "says"),
    [
        (401, "sk-x", "refused (401): change the key"),
        (401, None, "needed (401): none is configured"),
        (402, "sk-x", "accepted, but the account cannot pay (402)"),
        (403, "sk-x", "not allowed to do this (403)"),
    ],
)
async def test_what_is_wrong_with_a_key_is_told_apart(start: Start, status: int, key: str | None, says: str) -> None:
    refuse = failing(status, {"error": {"message": "no"}})
    for listing in (models, refuse):  # some servers list models to everybody
        found = await examined(await start(refuse, listing) + "/v1", key=key)
        assert not found.usable and said(found)["key"] == ("bad", says)


async def test_a_doubled_path_is_told_with_the_one_that_works(start: Start) -> None:
    url = await start(llama)
    found = await examined(url + "/v1/v1")
    assert not found.usable
    assert said(found)["base URL"] == ("bad", f"/v1/v1/models is not there (404), but {url}/v1 is: set url to it")


async def test_a_server_that_is_not_there_is_told(unused_tcp_port: int) -> None:
    found = await examined(f"http://127.0.0.1:{unused_tcp_port}/v1")
    assert not found.usable and [fact.name for fact in found.facts] == ["reachable"]


async def test_a_model_that_is_not_there_is_told(start: Start) -> None:
    missing = failing(404, {"detail": "Model 'x' not found."})
    found = await examined(await start(missing) + "/v1", models=("x",))
    assert not found.usable
    assert said(found)["models"] == ("odd", "2 listed: m, n; not listed: x")
    assert said(found)["answers"] == ("bad", "x: 404: Model 'x' not found.")


async def test_published_prices_are_told(start: Start) -> None:
    row = {"id": "m", "pricing": {"prompt": "0.00000004", "completion": "0.00000015"}}
    found = await examined(await start(llama, failing(200, {"data": [row]})) + "/v1")
    assert said(found)["prices"] == ("ok", "published, per million: m 0.04 in, 0.15 out")


async def test_without_a_configured_model_the_first_listed_one_is_asked(start: Start) -> None:
    found = await examined(await start(llama) + "/v1", models=("*",))
    assert said(found)["answers"][1].startswith("m in ")


# -- the bill ------------------------------------------------------------------------------------


def test_what_it_may_cost_is_an_upper_bound() -> None:
    backend = Backend(url="http://x/v1", prices=({"model": "m", "input": "1", "output": "2"},))  # type: ignore[arg-type]
    told = bill(BUILT_IN["openai"], backend.book.at("m", 0), pairs=3)
    assert (told.requests, told.tokens) == (6 + 2 * 2 * 3 * 2, 30 * 128)
    assert told.says == "up to 30 short requests, 3840 tokens of output; at most 0.0107 USD"
    assert bill(BUILT_IN["openai"], None, 0).says.endswith("; no price is configured")


async def test_no_check_asks_more_than_it_told(start: Start) -> None:
    asked = 0

    async def counting(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        return await dlmserve(0)(request)

    for dialect in ("dlmserve", "openai", "mercury"):
        asked = 0
        await examined(await start(counting) + "/v1", dialect, pairs=2)
        assert asked <= bill(BUILT_IN[dialect], None, 2).requests


# -- the command ---------------------------------------------------------------------------------


def run(tmp_path: Any, toml: str, *arguments: str) -> Any:
    file = tmp_path / "manometer.toml"
    file.write_text(toml)
    return CliRunner().invoke(app, ["check", "--config", str(file), *arguments])


def test_a_backend_that_cannot_be_used_makes_the_exit_status_1(tmp_path: Any, unused_tcp_port: int) -> None:
    toml = f'[backends.b]\nurl = "http://127.0.0.1:{unused_tcp_port}/v1"\nmodels = ["m"]\n'
    result = run(tmp_path, toml, "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)["backends"][0]
    assert (found["backend"], found["usable"], found["facts"][0]["name"]) == ("b", False, "reachable")
    assert "b: up to 30 short requests" in result.stderr


def test_an_unknown_backend_is_named_in_one_line(tmp_path: Any) -> None:
    result = run(tmp_path, '[backends.b]\nurl = "http://127.0.0.1:1/v1"\n', "nope")
    assert result.exit_code == 2
    assert result.stderr == "manometer: no backend is called 'nope'; there are: b\n"
