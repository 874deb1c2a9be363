"""One app, unchanged, through the proxy to servers that speak otherwise; their answers are as recorded."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from proxy.meter import sse
from tests.stage import (
    Answer,
    Client,
    Peer,
    Proxy,
    Script,
    Stage,
    ask,
    chat,
    events,
    piece,
    post,
    replies,
    settings,
    whole,
)

Stages = Callable[..., Awaitable[Stage]]
Proxies = Callable[..., Awaitable[Proxy]]

OK = whole(b'{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}')

# -- dlmserve, recorded --------------------------------------------------------------------------

ALLOWED = {"model", "messages", "temperature", "seed", "stream", "max_tokens", "num_denoising_steps", "block_length"}
TEXT = "The fox is bright and quiet. The bmight fox watches the fox near the b idge."


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return sse.encode(json.dumps({"id": "c1", "object": "chat.completion.chunk", "choices": [choice]} | more).encode())


async def dlmserve(peer: Peer) -> None:
    """Strict: 422 in FastAPI's words for any unknown member. One burst, no usage in streams, a canvas of 128."""
    while True:
        asked = (await peer.request()).json
        unknown = [key for key in asked if key not in ALLOWED | {"target_length"}]
        if unknown:
            faults = [
                {"type": "extra_forbidden", "loc": ["body", key], "msg": "Extra inputs are not permitted"}
                for key in unknown
            ]
            peer.send(whole(json.dumps({"detail": faults}).encode(), 422))
        elif asked["model"] != "exact-llada":
            peer.send(whole(b"{\"detail\":\"Model 'nope' not found. This server hosts 'exact-llada'.\"}", 404))
        elif asked.get("stream"):
            burst = (
                chunk({"role": "assistant", "content": TEXT, "denoising_step": 0})
                + chunk({}, "stop")
                + b"data: [DONE]\n\n"
            )
            peer.send(events(), piece(burst), b"0\r\n\r\n")
        else:
            message = {"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}
            usage = {"prompt_tokens": 40, "completion_tokens": 128, "total_tokens": 168}
            peer.send(whole(json.dumps({"id": "d1", "choices": [message], "usage": usage}).encode()))


def dlm(stage: Stage, **more: Any) -> Any:
    return settings(stage, dialect="dlmserve", **more)


async def test_what_openais_sdk_sends_works_with_a_server_that_refuses_it(stage: Stages, proxy: Proxies) -> None:
    backend = await stage(dlmserve)
    through = await proxy(dlm(backend))
    options = {
        "stream_options": {"include_usage": True},
        "user": "u",
        "stop": ["x"],
        "max_completion_tokens": 64,
        "n": 1,
    }
    answer = await ask(through, post(chat(True, "exact-llada", **options)))
    assert (answer.status, answer.clean) == (200, True)
    assert answer.body.endswith(b"data: [DONE]\n\n")
    assert backend.asked[0].json.keys() == {"model", "messages", "stream", "max_tokens"}
    assert answer.header("x-manometer-translated") == "max_tokens=64 (from max_completion_tokens)"
    assert answer.header("x-manometer-dropped") == "stream_options; user; stop; n"
    reading = await through.records.reading()
    assert reading.outcome == "ok" and reading.dropped == ("stream_options", "user", "stop", "n")


@pytest.mark.parametrize(
    ("more", "model", "headers"),
    [
        ({"diffusion": {"steps": 4}}, "exact-llada", {}),
        ({"num_denoising_steps": 4}, "exact-llada", {}),
        ({}, "exact-llada", {"x_diffusion_steps": 4}),
        ({}, "exact-llada@steps=4", {}),
    ],
)
async def test_steps_arrive_whichever_way_they_were_said(
    stage: Stages, proxy: Proxies, more: dict[str, Any], model: str, headers: dict[str, Any]
) -> None:
    backend = await stage(dlmserve)
    answer = await ask(await proxy(dlm(backend)), post(chat(model=model, **more), **headers))
    assert answer.status == 200
    assert backend.asked[0].json["num_denoising_steps"] == 4
    assert backend.asked[0].json["model"] == "exact-llada"
    assert backend.asked[0].header("x-diffusion-steps") is None


async def test_an_impossible_division_is_rounded_and_told(stage: Stages, proxy: Proxies) -> None:
    backend = await stage(dlmserve)
    body = chat(model="exact-llada", max_tokens=50, diffusion={"steps": 7, "block": 32})
    answer = await ask(await proxy(dlm(backend)), post(body))
    sent = backend.asked[0].json
    assert (sent["target_length"], sent["block_length"], sent["num_denoising_steps"]) == (64, 32, 8)
    told = answer.header("x-manometer-translated")
    assert told == "num_denoising_steps=8 (from steps=7); block_length=32; target_length=64 (from max_tokens=50)"


async def test_a_fastapi_error_reaches_the_client_in_openais_shape(stage: Stages, proxy: Proxies) -> None:
    through = await proxy(dlm(await stage(dlmserve)))
    answer = await ask(through, post(chat(model="nope")))
    assert (answer.status, answer.clean) == (404, True)
    assert answer.header("content-type") == "application/json"
    assert answer.error["message"] == "Model 'nope' not found. This server hosts 'exact-llada'."
    assert json.loads(answer.body)["detail"] == answer.error["message"]
    assert (await through.records.reading()).outcome == "backend_error"


async def test_plain_text_errors_get_the_shape_too(stage: Stages, proxy: Proxies) -> None:
    through = await proxy(dlm(await stage(replies(whole(b"Internal Server Error", 500, content_type="text/plain")))))
    answer = await ask(through, post(chat(model="exact-llada")))
    assert (answer.status, answer.error["message"]) == (500, "Internal Server Error")
    assert (answer.error["type"], answer.error["original"]) == ("server_error", "Internal Server Error")


async def test_the_size_of_a_canvas_is_no_number_of_tokens(stage: Stages, proxy: Proxies) -> None:
    through = await proxy(dlm(await stage(dlmserve)))
    await ask(through, post(chat(model="exact-llada")))
    reading = await through.records.reading()
    assert (reading.canvas, reading.tokens.completion, reading.e2e_rate) == (128, None, None)
    assert reading.tokens.prompt == 40


async def test_strict_refuses_and_sends_nothing(stage: Stages, proxy: Proxies) -> None:
    backend = await stage(dlmserve)
    through = await proxy(dlm(backend))
    answer = await ask(through, post(chat(model="exact-llada", diffusion={"threshold": 0.9}), x_manometer_strict=1))
    assert (answer.status, answer.error["code"]) == (400, "unsupported_parameter")
    assert "there is no field for threshold" in answer.error["message"]
    assert backend.asked == []
    assert (await through.records.reading()).outcome == "refused"


async def test_a_backend_may_reject_by_configuration(stage: Stages, proxy: Proxies) -> None:
    backend = await stage(dlmserve)
    answer = await ask(
        await proxy(dlm(backend, unsupported="reject")), post(chat(model="exact-llada", diffusion={"threshold": 0.9}))
    )
    assert (answer.status, backend.asked) == (400, [])


async def test_a_misspelt_parameter_is_refused(stage: Stages, proxy: Proxies) -> None:
    backend = await stage(dlmserve)
    answer = await ask(await proxy(dlm(backend)), post(chat(model="exact-llada", diffusion={"stpes": 4})))
    assert (answer.status, answer.error["param"]) == (400, "diffusion.stpes")
    assert backend.asked == []


# -- Mercury, as its parsers expect it -----------------------------------------------------------


def snapshot(text: str) -> bytes:
    return chunk({"content": text}, diffusion_meta={"diffusion_content": True})


SNAPSHOTS = (snapshot("Thr sky qv blue"), snapshot("The sky is blu!"), snapshot("The sky is blue."))
END = chunk({"content": ""}, "stop") + sse.encode(b'{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":5}}')


async def mercury(peer: Peer) -> None:
    while True:
        await peer.request()
        peer.send(events(), *map(piece, SNAPSHOTS), piece(END + b"data: [DONE]\n\n"), b"0\r\n\r\n")


def contents(answer: Answer) -> list[str]:
    docs = [json.loads(e.data) for e in sse.Parser().feed(answer.body) if e.data != b"[DONE]"]
    return [choice["delta"]["content"] for doc in docs for choice in doc["choices"] if choice["delta"].get("content")]


async def test_an_app_that_can_only_append_watches_nothing_and_reads_the_answer(stage: Stages, proxy: Proxies) -> None:
    backend = await stage(mercury)
    through = await proxy(settings(backend, dialect="mercury"))
    answer = await ask(through, post(chat(True, diffusion={"view": "append"})))
    assert backend.asked[0].json["diffusing"] is True
    assert contents(answer) == ["The sky is blue."]
    assert b"usage" not in answer.body and answer.body.endswith(b"data: [DONE]\n\n")
    reading = await through.records.reading()
    assert reading.outcome == "ok" and all(arrival.replace for arrival in reading.arrivals)
    assert reading.stability.churn is not None and reading.tokens.completion == 5


async def test_an_app_that_asks_for_snapshots_gets_every_byte_of_them(stage: Stages, proxy: Proxies) -> None:
    through = await proxy(settings(await stage(mercury), dialect="mercury"))
    options = {"diffusing": True, "stream_options": {"include_usage": True}}
    answer = await ask(through, post(chat(True, **options)))
    assert answer.body == b"".join(SNAPSHOTS) + END + b"data: [DONE]\n\n"
    assert answer.header("x-manometer-translated") is None


async def test_the_tutorials_request_reaches_mercury_within_its_schema(stage: Stages, proxy: Proxies) -> None:
    backend = await stage(replies(OK))
    through = await proxy(settings(backend, dialect="mercury"))
    body = chat(max_tokens=512, temperature=0, num_denoising_steps=8, parallel_tokens=64)
    answer = await ask(through, post(body))
    assert backend.asked[0].json == chat(max_tokens=512, temperature=0.5)
    assert answer.header("x-manometer-translated") == "temperature=0.5 (from 0)"
    assert answer.header("x-manometer-dropped") == "steps; width"


async def test_mercurys_warning_is_in_the_reading(stage: Stages, proxy: Proxies) -> None:
    doc = {"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}], "warning": "reset to 0.75"}
    through = await proxy(settings(await stage(replies(whole(json.dumps(doc).encode()))), dialect="openai"))
    await ask(through, post(chat(temperature=0)))
    assert (await through.records.reading()).warning == "reset to 0.75"


# -- a server that does not stream ---------------------------------------------------------------


async def test_an_app_that_asks_for_a_stream_gets_one(stage: Stages, proxy: Proxies) -> None:
    backend = await stage(replies(OK))
    answer = await ask(await proxy(settings(backend, dialect="ollada")), post(chat(True, max_tokens=64)))
    assert (answer.header("content-type"), answer.clean) == ("text/event-stream", True)
    assert contents(answer) == ["hi"] and answer.body.endswith(b"data: [DONE]\n\n")
    assert backend.asked[0].json["options"] == {"gen_length": 64}


# -- routes --------------------------------------------------------------------------------------


async def test_each_leg_gets_the_request_in_its_own_words(stage: Stages, proxy: Proxies) -> None:
    busy = await stage(replies(whole(b'{"detail":"server busy"}', 429)))
    other = await stage(replies(OK))
    conf = settings(
        busy, other, routes={"r": {"split": {"b0/exact-llada": 1}, "fallback": ["b1"], "diffusion": {"steps": 4}}}
    )
    conf = conf.model_copy(
        update={
            "backends": {
                n: b.model_copy(update={"dialect": d})
                for (n, b), d in zip(conf.backends.items(), ("dlmserve", "openai"), strict=True)
            }
        }
    )
    through = await proxy(conf)
    answer = await ask(through, post(chat(model="r")))
    assert answer.status == 200
    assert busy.asked[0].json == chat(model="exact-llada", num_denoising_steps=4)
    assert other.asked[0].json == chat(model="m1")
    assert answer.header("x-manometer-dropped") == "steps"
    reading = await through.records.reading()
    assert [(attempt.backend, attempt.status) for attempt in reading.attempts] == [("b0", 429), ("b1", 200)]
    assert (reading.route, reading.backend, reading.model, reading.asked_model) == ("r", "b1", "m1", "r")


async def test_a_backend_that_asked_for_rest_is_passed_over(stage: Stages, proxy: Proxies) -> None:
    busy = await stage(replies(whole(b"{}", 429, retry_after=30), OK))
    other = await stage(replies(OK))
    through = await proxy(settings(busy, other, routes={"r": {"split": {"b0": 1}, "fallback": ["b1"]}}))
    for _ in range(3):
        assert (await ask(through, post(chat(model="r")))).header("x-manometer-backend") == "b1"
    assert (len(busy.asked), len(other.asked)) == (1, 3)


async def test_a_split_holds_its_shares_and_its_users(stage: Stages, proxy: Proxies) -> None:
    left, right = await stage(replies(OK)), await stage(replies(OK))
    through = await proxy(settings(left, right, routes={"r": {"split": {"b0": 0.7, "b1": 0.3}}}))
    sides: dict[str, set[str | None]] = {}
    async with Client(through.port) as client:
        for n in range(300):
            client.send(post(chat(model="r", user=f"u{n % 150}")))
            sides.setdefault(f"u{n % 150}", set()).add((await client.answer()).header("x-manometer-backend"))
    assert all(len(side) == 1 for side in sides.values())
    counts = Counter(side for each in sides.values() for side in each)
    assert 0.6 < counts["b0"] / 150 < 0.8


async def test_a_header_forces_the_backend(stage: Stages, proxy: Proxies) -> None:
    left, right = await stage(replies(OK)), await stage(replies(OK))
    through = await proxy(settings(left, right, routes={"r": {"split": {"b0": 1}}}))
    answer = await ask(through, post(chat(model="r"), x_manometer_backend="b1"))
    assert (answer.header("x-manometer-backend"), len(right.asked), left.asked) == ("b1", 1, [])
    assert right.asked[0].header("x-manometer-backend") is None
    refused = await ask(through, post(chat(model="r"), x_manometer_backend="b9"))
    assert (refused.status, refused.error["code"]) == (404, "backend_not_found")


async def hangs(peer: Peer) -> None:
    await peer.request()
    await asyncio.Event().wait()


async def fails(peer: Peer) -> None:
    await peer.request()
    peer.reset()


async def floods(peer: Peer) -> None:
    await peer.request()
    peer.send(events())
    while not peer.gone.is_set():
        if peer.unsent < 1 << 20:
            peer.send(piece(chunk({"content": "x" * 4096})))
        await asyncio.sleep(0)


@pytest.mark.parametrize("shadow", [hangs, fails, floods, replies(whole(b"no", 500))])
async def test_a_mirror_that_misbehaves_is_not_seen_by_the_client(
    stage: Stages, proxy: Proxies, shadow: Script
) -> None:
    shown, hidden = await stage(replies(OK)), await stage(shadow)
    route = {"split": {"b0": 1}, "mirror": {"to": "b1", "share": 1, "max_in_flight": 3}}
    through = await proxy(settings(shown, hidden, routes={"r": route}))
    for _ in range(8):
        answer = await ask(through, post(chat(model="r")))
        assert (answer.status, answer.header("x-manometer-backend")) == (200, "b0")
    readings = [reading for reading in through.readings if not reading.mirror]
    assert [reading.outcome for reading in readings] == ["ok"] * 8
    assert len([opening for opening in through.records.open.values() if opening.mirror]) <= 3
    assert all(opening.mirror == (opening.backend == "b1") for opening in through.records.openings)


# -- whatever fails ------------------------------------------------------------------------------


async def cut(peer: Peer) -> None:
    """Fails after bytes were given out."""
    await peer.request()
    peer.send(events(), piece(chunk({"content": "half"})))
    await asyncio.sleep(0.02)
    peer.reset()


BEHAVIOURS: dict[str, tuple[Script, bool, int]] = {  # script, whether the next one is tried, status if nobody else
    "answers": (replies(OK), False, 200),
    "is wrong": (replies(whole(b'{"error":{"message":"no"}}', 400)), False, 400),
    "is busy": (replies(whole(b"{}", 429)), True, 429),
    "is broken": (replies(whole(b"{}", 503)), True, 503),
    "dies": (fails, True, 502),
    "is silent": (hangs, True, 504),
    "is cut": (cut, False, 200),
}


@pytest.mark.parametrize("second", BEHAVIOURS)
@pytest.mark.parametrize("first", BEHAVIOURS)
async def test_one_request_has_one_answer_and_one_reading(
    stage: Stages, proxy: Proxies, first: str, second: str
) -> None:
    (script, goes_on, alone), (other, _, last) = BEHAVIOURS[first], BEHAVIOURS[second]
    one, two = await stage(script), await stage(other)
    routes = {"r": {"split": {"b0": 1}, "fallback": ["b1"]}}
    through = await proxy(settings(one, two, routes=routes, timeouts={"first_output": 0.15}))
    async with Client(through.port) as client:
        client.send(post(chat(True, model="r")))
        answer = await client.answer()
        reading = await through.records.reading()
        assert answer.status == (last if goes_on else alone)
        assert answer.clean == ((second if goes_on else first) != "is cut")
        assert (len(one.asked), len(two.asked)) == (1, int(goes_on))
        assert [attempt.backend for attempt in reading.attempts] == (["b0", "b1"] if goes_on else ["b0"])
        if answer.clean:  # and nothing follows it: the next request gets its own answer
            client.send(post(method="GET", path="/v1/nothing/here"))
            assert (await client.answer()).status in (200, 400, 429, 502, 503, 504)
    assert len(through.readings) <= 2
