"""One request's life in the proxy: what its client gets, what its backend gets, and what its reading says.

Each test has a real socket on both sides. Whatever happens, `Records` holds started = outcomes + in flight at
every call, and the `proxy` fixture holds that nothing is in flight at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import random
import socket
import ssl
from decimal import Decimal
from itertools import product
from typing import Any

import pytest
import trustme

from tests import wire
from tests.stage import (
    LAST,
    Answer,
    Client,
    Peer,
    Proxy,
    Script,
    ask,
    chat,
    events,
    eventually,
    head,
    piece,
    post,
    replies,
    settings,
    whole,
)

USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
BODY = wire.body("hi", usage=USAGE)
STREAM = wire.text("a") + wire.text("b") + wire.stop()
UNREACHABLE = "http://127.0.0.1:1/v1"


def streams(*parts: bytes, end: bytes = LAST) -> Script:
    """One chunk for each part, and an end."""

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            peer.send(events(), *map(piece, parts), end)

    return script


def breaks(*sent: bytes, how: str = "cut") -> Script:
    """Sends this to the first request, and then ends the connection."""

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(*sent)
        await asyncio.sleep(0.01)
        getattr(peer, how)()

    return script


def stalls(*sent: bytes) -> Script:
    """Sends this, and then nothing."""

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(*sent)
        await peer.gone.wait()

    return script


# -- what crosses ----------------------------------------------------------------------------------


async def test_an_answer_crosses_byte_for_byte_and_is_measured(stage: Any, proxy: Any) -> None:
    back = await stage(replies(whole(BODY, x_ratelimit_remaining="7", connection="x-hop", x_hop="1")))
    gate = await proxy(settings(back, key="backend-key"))
    got = await ask(gate, post(chat(), authorization="Bearer client-key", x_custom="kept"))
    assert (got.status, got.body, got.clean) == (200, BODY, True)
    assert (got.header("x-ratelimit-remaining"), got.header("x-hop")) == ("7", None)
    assert got.header("content-length") == str(len(BODY))
    assert got.header("x-manometer-backend") == "b0"
    reading = await gate.records.reading()
    assert got.header("x-request-id") == reading.id
    assert (reading.outcome, reading.status, reading.tokens.completion) == ("ok", 200, 2)
    (asked,) = back.asked
    assert (asked.method, asked.target) == ("POST", "/v1/chat/completions")
    assert asked.json == chat()
    assert asked.header("authorization") == "Bearer backend-key"
    assert (asked.header("x-custom"), asked.header("accept-encoding")) == ("kept", "identity")
    assert asked.header("host") == f"127.0.0.1:{back.port}"


async def test_a_backends_own_request_id_is_kept(stage: Any, proxy: Any) -> None:
    back = await stage(replies(whole(BODY, x_request_id="req_42")))
    got = await ask(await proxy(settings(back)), post(chat()))
    assert got.header("x-request-id") == "req_42"
    assert len(got.header("x-manometer-id") or "") == 32


async def test_a_stream_crosses_as_it_comes_without_the_usage_that_we_asked_for(stage: Any, proxy: Any) -> None:
    more = asyncio.Event()

    async def script(peer: Peer) -> None:
        asked = await peer.request()
        assert asked.json["stream_options"] == {"include_usage": True}
        peer.send(events(), piece(wire.text("a")))
        await more.wait()
        peer.send(piece(wire.stop() + wire.usage(5, 7)[:30]), piece(wire.usage(5, 7)[30:] + wire.DONE), LAST)

    back = await stage(script)
    gate = await proxy(settings(back))
    async with Client(gate.port) as client:
        client.send(post(chat(stream=True)))
        await client.until(b'"a"')  # before the backend says more
        more.set()
        got = await client.answer()
    assert (got.body, got.clean) == (wire.text("a") + wire.stop() + wire.DONE, True)
    assert got.header("transfer-encoding") == "chunked"
    reading = await gate.records.reading()
    assert (reading.outcome, reading.tokens.prompt, reading.tokens.completion) == ("ok", 5, 7)
    assert len(reading.arrivals) == 1


@pytest.mark.parametrize(
    "options, usage, stripped",
    [
        (None, {}, True),
        ({"include_usage": True}, {}, False),
        ({"chunk": 1}, {}, True),
        (None, {"usage": "as-asked"}, False),
        (None, {"usage": "inject"}, True),
    ],
)
async def test_usage_is_stripped_only_where_the_proxy_asked(
    stage: Any, proxy: Any, options: Any, usage: Any, stripped: bool
) -> None:
    stream = STREAM.replace(b"\n", b"\r\n") + wire.usage(1, 2).replace(b"\n", b"\r\n") + wire.DONE
    back = await stage(streams(stream[:77], stream[77:300], stream[300:]))
    gate = await proxy(settings(back, **usage))
    got = await ask(gate, post(chat(stream=True, **({"stream_options": options} if options else {}))))
    assert got.clean
    assert (b'"prompt_tokens"' not in got.body) is stripped
    assert got.body == (stream.replace(wire.usage(1, 2).replace(b"\n", b"\r\n"), b"") if stripped else stream)
    assert (await gate.records.reading()).tokens.completion == 2


async def test_usage_null_on_every_chunk_stays(stage: Any, proxy: Any) -> None:
    stream = wire.text("a", usage=None) + wire.stop(usage=None)
    back = await stage(streams(stream + wire.usage(1, 2) + wire.DONE))
    got = await ask(await proxy(settings(back)), post(chat(stream=True)))
    assert got.body == stream + wire.DONE


@pytest.mark.parametrize("kind", ["", "content-type: text/plain\r\n", "content-type: application/json\r\n"])
async def test_a_stream_that_does_not_say_so_is_stripped_too(stage: Any, proxy: Any, kind: str) -> None:
    answer = f"HTTP/1.1 200 OK\r\n{kind}transfer-encoding: chunked\r\n\r\n".encode()

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(answer, piece(wire.text("a")))
        await asyncio.sleep(0.01)
        peer.send(piece(wire.stop() + wire.usage(1, 2) + wire.DONE), LAST)

    back = await stage(script)
    gate = await proxy(settings(back))
    got = await ask(gate, post(chat(stream=True)))
    assert (got.body, got.clean) == (wire.text("a") + wire.stop() + wire.DONE, True)
    assert (await gate.records.reading()).streamed


async def test_a_json_answer_to_a_stream_request_crosses_as_it_is(stage: Any, proxy: Any) -> None:
    back = await stage(replies(whole(BODY)))
    gate = await proxy(settings(back))
    got = await ask(gate, post(chat(stream=True)))
    assert (got.body, got.clean, got.header("content-type")) == (BODY, True, "application/json")
    reading = await gate.records.reading()
    assert (reading.outcome, reading.streamed, reading.tokens.completion) == ("ok", False, 2)


async def test_head_and_bodiless_answers(stage: Any, proxy: Any) -> None:
    async def script(peer: Peer) -> None:
        while True:
            asked = await peer.request()
            peer.send(head(200, content_length=99) if asked.method == "HEAD" else head(204))

    back = await stage(script)
    gate = await proxy(settings(back))
    async with Client(gate.port) as client:
        client.send(post(path="/v1/files/a", method="HEAD"))
        got = await client.answer("HEAD")
        assert (got.status, got.header("content-length"), got.clean) == (200, "99", True)
        client.send(post(path="/v1/files/a", method="DELETE"))
        got = await client.answer()
        assert (got.status, got.body, got.header("transfer-encoding"), got.clean) == (204, b"", None, True)
        client.send(post(path="/v1/files/a", method="DELETE"))
        assert (await client.answer()).status == 204


async def test_an_old_client_gets_an_answer_that_ends_with_its_connection(stage: Any, proxy: Any) -> None:
    back = await stage(streams(STREAM, wire.DONE))
    gate = await proxy(settings(back, usage="as-asked"))
    async with Client(gate.port) as client:
        client.send(post(chat(stream=True), version="1.0"))
        got = await client.answer()
        assert (got.status, got.header("transfer-encoding"), got.body) == (200, None, STREAM + wire.DONE)
        assert await client.ended()


async def test_an_old_client_is_told_of_a_cut_by_nothing_but_the_error_event(stage: Any, proxy: Any) -> None:
    back = await stage(breaks(events(), piece(wire.text("a"))))
    got = await ask(await proxy(settings(back)), post(chat(stream=True), version="1.0"))
    assert b'"upstream_cut"' in got.body
    assert b"[DONE]" not in got.body


async def test_a_compressed_stream_passes_with_its_label(stage: Any, proxy: Any) -> None:
    data = gzip.compress(STREAM + wire.usage(1, 2) + wire.DONE)
    back = await stage(
        replies(events(content_encoding="gzip") + piece(data[:40]) + piece(data[40:]) + LAST),
    )
    gate = await proxy(settings(back))
    got = await ask(gate, post(chat(stream=True)))
    assert (got.body, got.header("content-encoding"), got.clean) == (data, "gzip", True)
    assert (await gate.records.reading()).tokens.completion == 2


async def test_a_compressed_request_goes_to_a_sole_backend_as_it_is(stage: Any, proxy: Any) -> None:
    body = gzip.compress(json.dumps(chat()).encode())
    back = await stage(replies(whole(BODY)))
    gate = await proxy(settings(back, listen={"body_limit": 1000}))
    assert (await ask(gate, post(body, content_encoding="gzip"))).status == 200
    assert (back.asked[0].body, back.asked[0].header("content-encoding")) == (body, "gzip")
    got = await ask(gate, post(gzip.compress(b" " * 5_000_000), content_encoding="gzip"))
    assert got.status == 413  # the limit is on what comes


async def test_odd_headers_of_a_backend_cross(stage: Any, proxy: Any) -> None:
    back = await stage(replies(head(299, content_length=2, x_latin="caf\xe9", x_empty="") + b"ok"))
    got = await ask(await proxy(settings(back)), post(chat()))
    assert (got.status, got.body, got.clean) == (299, b"ok", True)
    assert got.header("x-empty") == ""
    assert got.header("x-latin") == "caf\xe9"  # byte for byte


# -- refusals of the proxy's own -------------------------------------------------------------------


async def refused(proxy: Any, request: bytes, **options: Any) -> tuple[Answer, Proxy]:
    """The answer, and the proxy whose one reading says refused."""
    config = settings("http://127.0.0.1:1/v1", "http://127.0.0.1:1/v1", **{"models": ["known"]} | options)
    gate = await proxy(config)
    got = await ask(gate, request)
    assert (await gate.records.reading()).outcome == "refused"
    assert got.clean
    assert got.header("content-type") == "application/json"
    return got, gate


async def test_a_model_that_nobody_lists_is_404_with_the_known_ones(proxy: Any) -> None:
    got, gate = await refused(proxy, post(chat(model="unknown")), models=["known"])
    assert (got.status, got.error["code"], got.error["param"]) == (404, "model_not_found", "model")
    assert "known" in got.error["message"]
    reading = gate.readings[0]
    assert (reading.backend, reading.status, reading.model) == (None, 404, None)


@pytest.mark.parametrize("kind", ["text/plain", "text/plain;charset=UTF-8", "application/x-www-form-urlencoded", None])
async def test_a_page_that_did_not_ask_can_spend_nothing_where_no_key_is_needed(proxy: Any, kind: str | None) -> None:
    got, _ = await refused(proxy, post(chat(), origin="https://elsewhere.example", content_type=kind))
    assert (got.status, got.error["code"]) == (403, "unasked_page")


@pytest.mark.parametrize(
    "headers, clients",
    [
        ({"origin": "https://app.example"}, {}),  # JSON: the browser has asked
        ({"content_type": "text/plain"}, {}),  # no page sent it
        ({"origin": "https://app.example", "content_type": "text/plain", "authorization": "Bearer k"}, {"me": "k"}),
    ],
)
async def test_a_page_that_asked_and_a_client_with_a_key_are_served(
    stage: Any, proxy: Any, headers: dict[str, str], clients: dict[str, str]
) -> None:
    back = await stage(replies(whole(b"{}")))
    gate = await proxy(settings(back, key="secret", clients=clients))
    assert (await ask(gate, post(chat(), **headers))).status == 200


@pytest.mark.parametrize(
    "headers, said",
    [({}, "No client key was sent"), ({"authorization": "Bearer wrong-key"}, "This client key is not known here")],
)
async def test_no_key_or_a_wrong_one_is_401(proxy: Any, headers: dict[str, str], said: str) -> None:
    got, gate = await refused(proxy, post(chat(), **headers), key="k", clients={"me": "right-key"})
    assert (got.status, got.error["code"]) == (401, "invalid_api_key")
    assert said in got.error["message"]
    for secret in ("right-key", "wrong-key"):
        assert secret not in got.body.decode()
        assert secret not in json.dumps(gate.readings[0].detail(), default=str)


@pytest.mark.parametrize("name", ["authorization", "x-api-key", "api-key"])
async def test_a_known_key_names_its_client_and_does_not_go_on(stage: Any, proxy: Any, name: str) -> None:
    back = await stage(replies(whole(BODY)))
    gate = await proxy(settings(back, key="backend-key", clients={"me": "right-key"}))
    got = await ask(gate, post(chat(), **{name.replace("-", "_"): ("Bearer " if name[1] == "u" else "") + "right-key"}))
    assert got.status == 200
    assert (await gate.records.reading()).client == "me"
    assert b"right-key" not in back.peers[0].raw
    assert b"backend-key" in back.peers[0].raw


async def test_malformed_json_is_400_where_several_backends_could_be_meant(proxy: Any) -> None:
    got, _ = await refused(proxy, post(b'{"model": "known", '))
    assert (got.status, got.error["code"]) == (400, "invalid_json")


async def test_malformed_json_is_for_a_sole_backend_to_judge(stage: Any, proxy: Any) -> None:
    back = await stage(replies(whole(b'{"error":{"message":"theirs"}}', 400)))
    gate = await proxy(settings(back))
    got = await ask(gate, post(b'{"model": "m", '))
    assert (got.status, got.error["message"]) == (400, "theirs")
    assert back.asked[0].body == b'{"model": "m", '
    assert (await gate.records.reading()).outcome == "backend_error"


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("size, status", [(2000, 200), (2001, 413)])
async def test_a_body_at_the_limit_passes_and_one_byte_more_is_413(
    stage: Any, proxy: Any, chunked: bool, size: int, status: int
) -> None:
    back = await stage(replies(whole(BODY)))
    gate = await proxy(settings(back, listen={"body_limit": 2000}))
    body = json.dumps(chat(pad="")).encode()
    body = json.dumps(chat(pad="x" * (size - len(body)))).encode()
    assert len(body) == size
    request = post(body)
    if chunked:
        request = post(piece(body[:1000]) + piece(body[1000:]) + LAST, content_length=None, transfer_encoding="chunked")
    got = await ask(gate, request)
    assert (got.status, got.clean) == (status, True)
    assert len(back.asked) == (status == 200)
    if status == 413:
        assert "2000 bytes" in got.error["message"]
        assert (await gate.records.reading()).outcome == "refused"


@pytest.mark.parametrize("path", ["/chat/completions", "/", "/v1evil", "/v2/chat/completions", "/models", "/x/models"])
async def test_what_is_not_under_v1_is_404_and_reaches_no_backend(stage: Any, proxy: Any, path: str) -> None:
    back = await stage(replies(whole(BODY)))
    gate = await proxy(settings(back, key="backend-key"))
    for method in ("POST", "GET", "OPTIONS"):
        got = await ask(gate, post(path=path, method=method), method)
        assert got.status == 404, method
        assert got.error["code"] == "not_found"
    assert not back.asked


@pytest.mark.parametrize("path", ["/v1/../admin", "/v1/files/../../admin", "/v1/%2e%2e/admin", "/v1/..", "/v1/.%2E/x"])
async def test_a_path_cannot_climb_out_of_the_backends_base(stage: Any, proxy: Any, path: str) -> None:
    back = await stage(replies(whole(BODY)))
    gate = await proxy(settings(back, key="backend-key"))
    got = await ask(gate, post(chat(), path=path))
    assert got.status == 404
    got = await ask(gate, post(path=path + "/models", method="GET"), "GET")
    assert got.status == 404
    assert not back.asked


async def test_a_path_in_other_letters_reaches_the_backend_as_it_is(stage: Any, proxy: Any) -> None:
    back = await stage(replies(whole(b"{}")))
    gate = await proxy(settings(back))
    async with Client(gate.port) as client:
        client.send(post(path="/v1/files/\u00e9?q=\u00fc", method="GET"))
        assert (await client.answer()).status in (200, 400)
    if back.peers:
        assert "/v1/files/\u00e9?q=\u00fc".encode() in back.peers[0].raw


# -- shapes that hide a second request -------------------------------------------------------------

SMUGGLED = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"


@pytest.mark.parametrize(
    "request_",
    [
        post(b"0\r\n\r\n" + SMUGGLED, transfer_encoding="chunked"),
        post(b"", content_length=f"{len(SMUGGLED)}\r\ncontent-length: 0") + SMUGGLED,
        post(b"0\r\n\r\n" + SMUGGLED, content_length=None, transfer_encoding="chunked, identity"),
        post(b"0\r\n\r\n" + SMUGGLED, content_length=None, transfer_encoding="\x0bchunked"),
        post(b"", content_length="+0") + SMUGGLED,
        post(b"", content_length="0, 0") + SMUGGLED,
        post(b"", content_length="-1") + SMUGGLED,
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length : 0\r\n\r\n" + SMUGGLED,
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n content-length: 0\r\n\r\n" + SMUGGLED,
        post(b"zz\r\n" + SMUGGLED, content_length=None, transfer_encoding="chunked"),
    ],
    ids=["both", "two lengths", "identity", "tab", "plus", "list", "minus", "space", "folded", "bad chunk"],
)
async def test_a_request_of_two_minds_is_refused_and_hides_no_other(stage: Any, proxy: Any, request_: bytes) -> None:
    back = await stage(replies(whole(BODY)))
    gate = await proxy(settings(back))
    async with Client(gate.port) as client:
        client.send(request_)
        got = await client.answer()
        assert got.status == 400
        assert await client.ended()
    assert not back.asked


@pytest.mark.parametrize(
    "request_, status",
    [
        (b"GET http://x/v1/files HTTP/1.1\r\nhost: x\r\n\r\n", (200, 404)),
        (b"CONNECT x:443 HTTP/1.1\r\nhost: x\r\n\r\n", (400, 404, 405)),
        (b"GET /v1/files\r\n\r\n", (200, 400)),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", (400,)),
        (b"GET /v1/files HTTP/1.1\r\nhost: x\r\n" + b"a: " + b"x" * 20_000 + b"\r\n\r\n", (200, 400, 431)),
    ],
)
async def test_odd_requests_get_a_clear_answer(stage: Any, proxy: Any, request_: bytes, status: tuple[int]) -> None:
    back = await stage(replies(whole(b"{}")))
    gate = await proxy(settings(back))
    async with Client(gate.port) as client:
        client.send(request_)
        assert (await client.answer()).status in status


# -- the client's connection -----------------------------------------------------------------------


async def test_a_connection_serves_on_after_errors(stage: Any, proxy: Any) -> None:
    back = await stage(replies(whole(BODY)))
    gate = await proxy(settings(back, UNREACHABLE, listen={"body_limit": 1000}))
    async with Client(gate.port) as client:
        for request, status in [
            (post(b"{"), 400),
            (post(chat(model="m1")), 502),
            (post(chat(pad="x" * 1000)), 413),
            (post(chat(), path="/nowhere"), 404),
            (post(chat()), 200),
        ]:
            client.send(request)
            got = await client.answer()
            assert (got.status, got.clean) == (status, True)
    assert [reading.outcome for reading in gate.readings] == [*("refused", "unreachable", "refused", "refused", "ok")]


async def test_requests_in_a_row_are_answered_in_their_order(stage: Any, proxy: Any) -> None:
    async def script(peer: Peer) -> None:
        while True:
            asked = await peer.request()
            peer.send(whole(b"answer " + asked.json["n"].encode()))

    back = await stage(script)
    gate = await proxy(settings(back))
    async with Client(gate.port) as client:
        client.send(b"".join(post(chat(n=str(n))) for n in range(5)))
        seen = await client.until(b"answer 4")
    assert [seen.index(b"answer %d" % n) for n in range(5)] == sorted(seen.index(b"answer %d" % n) for n in range(5))
    assert seen.count(b"HTTP/1.1 200") == 5


async def test_the_backends_connection_is_used_again(stage: Any, proxy: Any) -> None:
    back = await stage(replies(whole(BODY)))
    gate = await proxy(settings(back))
    for _ in range(5):
        assert (await ask(gate, post(chat()))).status == 200
    assert len(back.peers) == 1
    assert [reading.connect > 0 for reading in gate.readings] == [True, False, False, False, False]


async def test_a_stale_connection_is_replaced_without_the_client_noticing(stage: Any, proxy: Any) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(whole(BODY))
        if len(back.peers) == 1:
            await peer.request()  # and dies with the second request in its hands
            peer.cut()

    back = await stage(script)
    gate = await proxy(settings(back))
    for _ in range(2):
        assert (await ask(gate, post(chat()))).body == BODY
    assert len(back.peers) == 2
    assert len(gate.readings) == 2


# -- faults: the client learns of each, and the reading says which ---------------------------------


FAULTS: dict[str, tuple[Script, dict[str, float], str, int, bool]] = {
    # name -> script, timeouts, outcome, status for the client, whether the client's message ends cleanly
    "no answer": (breaks(), {}, "backend_error", 502, True),
    "half a head": (breaks(b"HTTP/1.1 200 OK\r\ncont"), {}, "backend_error", 502, True),
    "reset at once": (breaks(how="reset"), {}, "backend_error", 502, True),
    "no HTTP": (breaks(b"hello\r\n\r\n"), {}, "backend_error", 502, True),
    "no head in time": (stalls(), {"first_output": 0.02}, "timeout_first_output", 504, True),
    "no head in all": (stalls(), {"total": 0.02}, "timeout_total", 504, True),
    "no output in time": (
        stalls(events(), piece(b": hi\n\n")),
        {"first_output": 0.3},
        "timeout_first_output",
        200,
        False,
    ),
    "silence after output": (stalls(events(), piece(wire.text("a"))), {"idle": 0.05}, "timeout_idle", 200, False),
    "too long in all": (stalls(events(), piece(wire.text("a"))), {"total": 0.3}, "timeout_total", 200, False),
    "cut in a stream": (breaks(events(), piece(wire.text("a"))), {}, "truncated", 200, False),
    "reset in a stream": (breaks(events(), piece(wire.text("a")), how="reset"), {}, "truncated", 200, False),
    "cut in an event": (breaks(events(), piece(wire.text("a")[:-9])), {}, "truncated", 200, False),
    "bad framing": (breaks(events(), piece(wire.text("a")), b"zz\r\n"), {}, "truncated", 200, False),
    "a short body": (breaks(whole(BODY)[:-3]), {}, "truncated", 200, False),
    "an end without a finish": (streams(wire.text("a")), {}, "truncated", 200, True),
    "an error event": (
        streams(wire.text("a"), wire.event({"error": {"message": "no"}})),
        {},
        "backend_error",
        200,
        True,
    ),
    "a page": (replies(whole(b"<html>", content_type="text/html")), {}, "bad_stream", 200, True),
    "nothing at all": (streams(), {}, "empty", 200, True),
    "an error status": (
        replies(whole(b'{"error":{"message":"slow down"}}', 429, retry_after=7)),
        {},
        "backend_error",
        429,
        True,
    ),
}


@pytest.mark.parametrize("script, limits, outcome, status, clean", FAULTS.values(), ids=FAULTS.keys())
async def test_every_fault_has_its_outcome_and_its_answer(
    stage: Any, proxy: Any, script: Script, limits: dict[str, float], outcome: str, status: int, clean: bool
) -> None:
    back = await stage(script)
    gate = await proxy(settings(back, timeouts=limits))
    got = await ask(gate, post(chat(stream=True)))
    assert (got.status, got.clean) == (status, clean)
    assert b"[DONE]" not in got.body
    reading = await gate.records.reading()
    assert (reading.outcome, reading.status) == (outcome, status)
    assert len(back.asked) == 1
    if status >= 500:
        assert got.error["type"] == "upstream_error"
        assert reading.fault is not None
        assert got.error["message"] == reading.fault.message
    elif not clean and got.header("content-type") == "text/event-stream":
        assert json.loads(got.body.split(b"data: ")[-1])["error"]["type"] == "upstream_error"
    if status == 429:
        assert got.header("retry-after") == "7"
        assert got.error["message"] == "slow down"


async def test_a_backend_that_is_not_there_is_502(proxy: Any) -> None:
    gate = await proxy(settings(UNREACHABLE))
    got = await ask(gate, post(chat()))
    assert (got.status, got.error["code"]) == (502, "connect")
    reading = await gate.records.reading()
    assert (reading.outcome, reading.backend, reading.sent) == ("unreachable", "b0", None)
    assert [attempt.outcome for attempt in reading.attempts] == ["unreachable"]


async def test_what_came_before_a_cut_is_delivered_and_measured(stage: Any, proxy: Any) -> None:
    back = await stage(breaks(events(), piece(wire.text("a")), piece(wire.text("b") + wire.text("c")[:-20])))
    gate = await proxy(settings(back))
    got = await ask(gate, post(chat(stream=True)))
    assert got.body.startswith(wire.text("a") + wire.text("b"))
    assert not got.clean
    reading = await gate.records.reading()
    assert reading.outcome == "truncated"
    assert sum(reading.arrivals.column("answer")) == 2


async def test_a_failure_of_our_own_is_500_and_counted(stage: Any, proxy: Any, caplog: Any) -> None:
    back = await stage(replies(whole(BODY)))
    gate = await proxy(settings(back))
    gate.gate.table = None  # type: ignore[assignment]
    got = await ask(gate, post(chat(secret="sk-very-secret")))
    assert (got.status, got.error["code"]) == (500, "internal")
    reading = await gate.records.reading()
    assert reading.outcome == "internal"
    assert reading.id in got.error["message"]
    assert reading.id in caplog.text
    assert "sk-very-secret" not in caplog.text


async def test_a_meter_that_fails_costs_its_reading_and_nothing_else(
    stage: Any, proxy: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    from proxy.meter import Meter

    def fails(self: Meter, *args: Any, **facts: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Meter, "finish", fails)
    back = await stage(replies(whole(BODY)))
    gate = await proxy(settings(back))
    got = await ask(gate, post(chat()))
    assert (got.status, got.body) == (200, BODY)
    assert (await gate.records.reading()).outcome == "internal"


async def test_a_meter_that_fails_under_way_breaks_no_stream(
    stage: Any, proxy: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    from proxy.meter import Meter

    def fails(self: Meter, *args: Any, **facts: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Meter, "feed", fails)

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(events(), piece(wire.text("a")))
        await asyncio.sleep(0.01)
        peer.send(piece(wire.stop() + wire.DONE), LAST)

    back = await stage(script)
    gate = await proxy(settings(back))
    got = await ask(gate, post(chat(stream=True, stream_options={"include_usage": True})))
    assert (got.body, got.clean) == (wire.text("a") + wire.stop() + wire.DONE, True)
    assert len(gate.readings) == 1


# -- clients that leave ----------------------------------------------------------------------------


PHASES: dict[str, tuple[bytes, bytes]] = {
    # what the backend has sent; what the client has seen when it leaves
    "before the head": (b"", b""),
    "in the silence": (events(), b"text/event-stream"),
    "in the stream": (events() + piece(wire.text("abc")), b"abc"),
    "in a json answer": (head(content_length=100, content_type="application/json") + b'{"cho', b'{"cho'),
}


@pytest.mark.parametrize("sent, seen", PHASES.values(), ids=PHASES.keys())
async def test_a_client_that_leaves_cancels_the_backends_request_at_once(
    stage: Any, proxy: Any, sent: bytes, seen: bytes
) -> None:
    back = await stage(stalls(sent))
    gate = await proxy(settings(back))
    async with Client(gate.port) as client:
        client.send(post(chat(stream=b"event" in sent)))
        if seen:
            await client.until(seen)
        else:
            await eventually(lambda: back.asked)
    left = asyncio.get_running_loop().time()
    await asyncio.wait_for(back.peers[0].gone.wait(), 10)
    assert back.peers[0].gone_at - left < 1.0  # 100 ms is what is promised; a busy machine gets more
    reading = await gate.records.reading()
    assert reading.outcome == "client_gone"
    assert (reading.head is not None) == bool(sent)


async def test_a_client_that_leaves_while_its_body_is_read_is_counted(stage: Any, proxy: Any) -> None:
    back = await stage(replies(whole(BODY)))
    gate = await proxy(settings(back))
    async with Client(gate.port) as client:
        client.send(post(b'{"model"', content_length=1000))
        await asyncio.sleep(0.02)
    reading = await gate.records.reading()
    assert reading.outcome == "client_gone"
    assert not back.asked


async def test_a_client_that_leaves_while_connecting_is_counted(proxy: Any) -> None:
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.socket())  # a server that has no room for one more connection
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        gate = await proxy(settings(f"http://127.0.0.1:{full.getsockname()[1]}/v1"))
        async with Client(gate.port) as client:
            client.send(post(chat()))
            await eventually(lambda: gate.records.open)
        reading = await gate.records.reading()
    assert (reading.outcome, reading.sent) == ("client_gone", None)
    assert gate.gate.pools["b0"].open == 0


# -- slow clients ----------------------------------------------------------------------------------


async def test_a_slow_reader_slows_its_backend_and_loses_nothing(stage: Any, proxy: Any) -> None:
    event = wire.text("x" * 10_000)
    total = 2000  # 20 MB: more than all socket buffers between the two can hold
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        peer.send(events())
        for _ in range(total):
            await eventually(lambda: peer.unsent < 100_000 or peer.gone.is_set())
            peer.send(piece(event))
            sent += 1
        peer.send(piece(wire.stop() + wire.DONE), LAST)

    back = await stage(script)
    gate = await proxy(settings(back, usage="as-asked"))
    async with Client(gate.port, buffer=16_384) as client:
        client.send(post(chat(stream=True)))
        await client.until(b"xxx")
        before = -1
        while before != sent:  # until nothing moves any more
            before = sent
            await asyncio.sleep(0.1)
        assert sent < total / 1.5, "the proxy took in nearly everything for a client that reads nothing"
        client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        got = await client.answer()
    assert got.clean
    assert got.body == event * total + wire.stop() + wire.DONE
    reading = await gate.records.reading()
    assert reading.outcome == "ok"
    assert reading.hold_max is not None
    assert reading.hold_max > 0.05


async def test_a_slow_reader_that_leaves_frees_its_backend(stage: Any, proxy: Any) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(events())
        while not peer.gone.is_set():
            if peer.unsent < 100_000:
                peer.send(piece(wire.text("x" * 2000)))
            await asyncio.sleep(0)

    back = await stage(script)
    gate = await proxy(settings(back))
    async with Client(gate.port, buffer=16_384) as client:
        client.send(post(chat(stream=True)))
        await client.until(b"xxx")
        await asyncio.sleep(0.05)
    await asyncio.wait_for(back.peers[0].gone.wait(), 10)
    assert (await gate.records.reading()).outcome == "client_gone"


@pytest.mark.parametrize("path", ["/v1/files/x/content", "/v1/chat/completions"])
async def test_a_body_that_flows_is_not_held_to_the_first_outputs_limit(stage: Any, proxy: Any, path: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(head(content_length=100, content_type="application/octet-stream"))
        for _ in range(10):
            await asyncio.sleep(0.03)
            peer.send(b"0123456789")

    back = await stage(script)
    gate = await proxy(settings(back, timeouts={"first_output": 0.15, "idle": 5}))
    got = await ask(gate, post(path=path, method="GET"), "GET")
    assert (got.body, got.clean) == (b"0123456789" * 10, True)


# -- fallbacks -------------------------------------------------------------------------------------

ROUTE = {"routes": {"r": {"split": {"b0": 1.0}, "fallback": ["b1"]}}}


@pytest.mark.parametrize(
    "script, limits",
    [
        (breaks(), {}),
        (replies(whole(b"{}", 429, retry_after=30)), {}),
        (replies(whole(b"{}", 500)), {}),
        (replies(whole(b"{}", 503)), {}),
        (stalls(), {"first_output": 0.2}),
        (stalls(events()), {"first_output": 0.2}),
    ],
    ids=["dies", "429", "500", "503", "no head in time", "no output in time"],
)
async def test_the_next_backend_is_asked_while_the_client_has_got_nothing(
    stage: Any, proxy: Any, script: Script, limits: dict[str, float]
) -> None:
    first, second = await stage(script), await stage(replies(whole(BODY)))
    gate = await proxy(settings(first, second, timeouts=limits, **ROUTE))
    got = await ask(gate, post(chat(stream=True, model="r")))
    assert (got.status, got.body, got.clean) == (200, BODY, True)
    assert got.header("x-manometer-backend") == "b1"
    reading = await gate.records.reading()
    assert (reading.outcome, reading.backend, reading.route) == ("ok", "b1", "r")
    assert [attempt.backend for attempt in reading.attempts] == ["b0", "b1"]
    assert reading.attempts[0].outcome != "ok"
    if first.peers:
        await asyncio.wait_for(first.peers[0].gone.wait(), 10) if limits else None


async def test_a_backend_that_is_not_there_falls_back_too(stage: Any, proxy: Any) -> None:
    second = await stage(replies(whole(BODY)))
    gate = await proxy(settings(UNREACHABLE, second, **ROUTE))
    assert (await ask(gate, post(chat(model="r")))).body == BODY


@pytest.mark.parametrize("script", [replies(whole(b'{"error":{}}', 400)), replies(whole(b"{}", 401))])
async def test_what_is_the_requests_own_fault_does_not_fall_back(stage: Any, proxy: Any, script: Script) -> None:
    first, second = await stage(script), await stage(replies(whole(BODY)))
    gate = await proxy(settings(first, second, **ROUTE))
    assert (await ask(gate, post(chat(model="r")))).status in (400, 401)
    assert not second.asked


async def test_retry_after_lets_a_backend_rest(stage: Any, proxy: Any) -> None:
    first, second = await stage(replies(whole(b"{}", 429, retry_after=30))), await stage(replies(whole(BODY)))
    now = [1000.0]
    gate = await proxy(settings(first, second, **ROUTE), wall=lambda: now[0])
    for _ in range(3):
        assert (await ask(gate, post(chat(model="r")))).body == BODY
    assert len(first.asked) == 1
    now[0] += 31
    await ask(gate, post(chat(model="r")))
    assert len(first.asked) == 2


async def test_when_all_fail_the_last_answer_is_the_answer(stage: Any, proxy: Any) -> None:
    first, second = await stage(breaks()), await stage(replies(whole(b'{"error":{"message":"mine"}}', 503)))
    gate = await proxy(settings(first, second, **ROUTE))
    got = await ask(gate, post(chat(model="r")))
    assert (got.status, got.error["message"]) == (503, "mine")
    reading = await gate.records.reading()
    assert (reading.outcome, reading.backend, len(reading.attempts)) == ("backend_error", "b1", 2)


# What a backend can do, and whether it may be followed by another's answer.
ENDS: dict[str, tuple[Script, bytes]] = {
    "answers": (replies(whole(BODY)), BODY),
    "streams": (streams(STREAM, wire.DONE), STREAM + wire.DONE),
    "dies": (breaks(), b""),
    "refuses": (replies(whole(b'{"error":"busy"}', 503)), b'{"error":"busy"}'),
    "stalls": (stalls(), b""),
    "stays silent": (stalls(events()), b""),
    "is cut": (breaks(events(), piece(wire.text("first"))), wire.text("first")),
    "is reset": (breaks(events(), piece(wire.text("first")), how="reset"), wire.text("first")),
}


@pytest.mark.parametrize("kinds", list(product(ENDS, repeat=2)), ids=" then ".join)
async def test_whatever_fails_there_is_one_answer_of_one_backend(
    stage: Any, proxy: Any, kinds: tuple[str, str]
) -> None:
    backs = [await stage(ENDS[kind][0]) for kind in kinds]
    patience = 0.1 if any(kind.startswith("sta") for kind in kinds) else 10  # one that stalls costs this much
    limits = {"first_output": patience, "idle": 10}
    gate = await proxy(settings(*backs, timeouts=limits, usage="as-asked", **ROUTE))
    got = await ask(gate, post(chat(stream=True, model="r")))
    reading = await gate.records.reading()
    assert len(gate.readings) == 1
    assert [len(back.asked) for back in backs] == [1, len(reading.attempts) - 1]
    said = ENDS[kinds[int((reading.backend or "")[1:])]][1]
    if got.status in (502, 504):
        assert set(got.error) == {"message", "type", "param", "code"}
        assert got.error["type"] == "upstream_error"
    else:
        assert got.body.startswith(said)
        rest = got.body[len(said) :]
        assert not rest or (not got.clean and b'"upstream_error"' in rest)
    assert got.clean or reading.outcome in ("truncated", "timeout_first_output", "timeout_idle")
    if kinds[0] in ("answers", "streams"):
        assert (reading.outcome, reading.backend) == ("ok", "b0")
    elif kinds[1] in ("answers", "streams") and kinds[0] not in ("is cut", "is reset"):
        assert (reading.outcome, reading.backend) == ("ok", "b1")


# -- many at once, and reloads under way -----------------------------------------------------------


async def test_two_hundred_streams_at_once_and_the_count_is_right_at_every_moment(stage: Any, proxy: Any) -> None:
    release = asyncio.Event()

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            peer.send(events(), piece(wire.text("a")))
            await release.wait()
            peer.send(piece(wire.stop() + wire.usage(1, 1) + wire.DONE), LAST)

    back = await stage(script)
    gate = await proxy(settings(back))

    async def one() -> Answer:
        async with Client(gate.port) as client:
            client.send(post(chat(stream=True)))
            await client.until(b'"a"')
            return await client.answer()

    running = [asyncio.ensure_future(one()) for _ in range(200)]
    await eventually(lambda: len(gate.records.open) == 200)
    assert (len(gate.records.openings), len(gate.readings)) == (200, 0)
    release.set()
    for got in await asyncio.gather(*running):
        assert (got.body, got.clean) == (wire.text("a") + wire.stop() + wire.DONE, True)
    await gate.records.reading(199)
    assert {reading.outcome for reading in gate.readings} == {"ok"}


async def test_a_reload_that_removes_a_backend_lets_its_streams_end(stage: Any, proxy: Any) -> None:
    release = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(events(), piece(wire.text("a")))
        await release.wait()
        peer.send(piece(wire.stop() + wire.usage(1000, 2000) + wire.DONE), LAST)

    price = {"model": "m", "input": 1, "output": 2}
    back, other = await stage(script), await stage(replies(whole(BODY)))
    gate = await proxy(settings(back, prices=[price]))
    async with Client(gate.port) as client:
        client.send(post(chat(stream=True)))
        await client.until(b'"a"')
        from proxy.settings import Settings

        gate.gate.reload(Settings(backends={"other": {"url": other.url}}))
        assert (await ask(gate, post(chat()))).header("x-manometer-backend") == "other"
        release.set()
        got = await client.answer()
    assert (got.body, got.clean) == (wire.text("a") + wire.stop() + wire.DONE, True)
    reading = await gate.records.reading(1)
    assert (reading.outcome, reading.backend, reading.cost) == ("ok", "b0", Decimal("0.005"))
    await asyncio.wait_for(back.peers[0].gone.wait(), 10)  # its pool is not kept


async def test_a_reload_between_two_legs_does_not_lose_the_request(stage: Any, proxy: Any) -> None:
    from proxy.settings import Settings

    async def script(peer: Peer) -> None:
        await peer.request()
        gate.gate.reload(Settings(backends={"other": {"url": UNREACHABLE}}))
        peer.send(whole(b"{}", 500))

    first, second = await stage(script), await stage(replies(whole(BODY)))
    gate = await proxy(settings(first, second, **ROUTE))
    got = await ask(gate, post(chat(model="r")))
    assert (got.status, got.body) == (200, BODY)
    assert (await gate.records.reading()).backend == "b1"


async def test_a_proxy_that_drains_says_so_and_lets_streams_end(stage: Any, proxy: Any) -> None:
    back = await stage(replies(whole(BODY)))
    gate = await proxy(settings(back))
    gate.gate.draining = True
    got = await ask(gate, post(chat()))
    assert (got.status, got.error["code"]) == (503, "shutting_down")


@pytest.mark.parametrize("kind", ["application/x-ndjson", "application/json", "text/plain"])
async def test_other_bodies_that_trickle_reach_the_client_as_they_come(stage: Any, proxy: Any, kind: str) -> None:
    more = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(events(content_type=kind), piece(b'{"a":1}\n'))
        await more.wait()
        peer.send(piece(b'{"b":1}\n'), LAST)

    back = await stage(script)
    gate = await proxy(settings(back))
    async with Client(gate.port) as client:
        client.send(post(chat(stream=True)))
        await client.until(b'"a"')  # before the backend says more
        more.set()
        assert (await client.answer()).body == b'{"a":1}\n{"b":1}\n'


async def test_a_backend_with_a_wrong_certificate_is_unreachable(stage: Any, proxy: Any) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    back = await stage(replies(whole(BODY)), tls=context)
    gate = await proxy(settings(back))
    got = await ask(gate, post(chat()))
    assert (got.status, got.error["code"]) == (502, "tls")
    assert "its certificate: " in got.error["message"]
    reading = await gate.records.reading()
    assert (reading.outcome, reading.status) == ("unreachable", 502)
    assert not back.asked


async def test_many_slow_readers_cost_little_memory_each(stage: Any, proxy: Any) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(events())
        event = piece(wire.text("x" * 20_000))
        while not peer.gone.is_set():
            if peer.unsent < 500_000:
                peer.send(event * 10)
            await asyncio.sleep(0.005)

    back = await stage(script)
    gate = await proxy(settings(back, usage="as-asked"))
    clients = [await Client(gate.port, buffer=8192).__aenter__() for _ in range(20)]
    for client in clients:
        client.send(post(chat(stream=True)))
    await eventually(lambda: len(back.peers) == 20 and all(peer.unsent >= 500_000 for peer in back.peers), 30)
    waiting = [each.transport.get_write_buffer_size() for each in gate.connections()]
    assert len(waiting) == 20
    assert max(waiting) < 1_000_000  # the high-water mark, and one read of a backend
    for client in clients:
        client.leave()
    await gate.records.reading(19)
    assert {reading.outcome for reading in gate.readings} == {"client_gone"}


async def test_a_body_is_asked_for_before_it_is_sent_unless_it_will_be_refused(stage: Any, proxy: Any) -> None:
    back = await stage(replies(whole(BODY)))
    gate = await proxy(settings(back, listen={"body_limit": 1000}))
    body = json.dumps(chat()).encode()
    async with Client(gate.port) as client:
        client.send(post(None, content_length=len(body), expect="100-continue"))
        assert await client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client._rest = b""
        client.send(body)
        assert (await client.answer()).body == BODY
    assert back.asked[0].header("expect") is None
    async with Client(gate.port) as client:
        client.send(post(None, content_length=1001, expect="100-continue"))
        assert (await client.answer()).status == 413


async def test_whatever_clients_and_backends_do_every_exchange_ends_once(stage: Any, proxy: Any) -> None:
    """Seeded chance on both sides; `Records` holds the sums at every call."""
    chance = random.Random(3)

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            fate = chance.random()
            await asyncio.sleep(chance.random() * 0.02)
            if fate < 0.2:
                return peer.cut() if fate < 0.1 else peer.reset()
            if fate < 0.3:
                peer.send(whole(b'{"error":"x"}', chance.choice([429, 500, 503]), retry_after=0))
                continue
            peer.send(events())
            for _ in range(chance.randint(0, 5)):
                peer.send(piece(wire.text("x" * chance.randint(1, 30_000))))
                await asyncio.sleep(chance.random() * 0.01)
            if fate < 0.5:
                peer.send(b"zz\r\n") if fate < 0.4 else peer.cut()
                return None
            if fate < 0.55:
                await peer.gone.wait()
                return None
            peer.send(piece(wire.stop() + wire.usage(1, 2) + wire.DONE), LAST)

    async def client() -> None:
        for _ in range(20):
            async with Client(gate.port, buffer=chance.choice([None, 8192])) as one:
                one.send(post(chat(stream=chance.random() < 0.8, model=chance.choice(["r", "m1", "m"]))))
                if chance.random() < 0.3:
                    await asyncio.sleep(chance.random() * 0.04)
                    continue  # and leaves
                got = await one.answer()
                assert got.status in (200, 429, 500, 502, 503, 504)
                assert got.clean or got.status == 200

    routes = {"r": {"split": {"b0": 0.5, "b1": 0.5}, "fallback": ["b1", "b0"]}}
    limits = {"first_output": 0.5, "idle": 0.2}
    gate = await proxy(settings(await stage(script), await stage(script), timeouts=limits, routes=routes))
    await asyncio.gather(*(client() for _ in range(30)))
    await eventually(lambda: not gate.records.open)
    outcomes = {reading.outcome for reading in gate.readings}
    assert {"ok", "client_gone", "truncated", "backend_error"} <= outcomes
    assert "internal" not in outcomes
    assert not any(pool._calls for pool in gate.gate.pools.values())
