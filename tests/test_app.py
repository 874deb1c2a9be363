"""The OpenAI side as a server: it starts, serves every path, and ends without losing a reading."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from tests import wire
from tests.stage import LAST, Client, Peer, ask, chat, events, piece, post, replies, settings, whole

BODY = wire.body("hi")


async def half(peer: Peer) -> None:
    """A stream that never ends."""
    await peer.request()
    peer.send(events(), piece(wire.text("a")))
    await peer.gone.wait()


async def test_every_path_and_method_under_v1_reaches_the_backend(stage: Any, proxy: Any) -> None:
    back = await stage(replies(whole(b"{}")))
    gate = await proxy(settings(back))
    for method, path in [
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/completions"),
        ("POST", "/v1/fim/completions"),
        ("POST", "/v1/edit/completions"),
        ("POST", "/v1/responses"),
        ("POST", "/v1/embeddings"),
        ("POST", "/v1/images/generations?a=%20b"),
        ("GET", "/v1/files"),
        ("DELETE", "/v1/files/x"),
        ("PATCH", "/v1/x"),
        ("PUT", "/v1/x"),
    ]:
        assert (await ask(gate, post({"model": "m"} if method == "POST" else None, path, method=method))).status == 200
        assert (back.asked[-1].method, back.asked[-1].target) == (method, path)
    assert [reading.api for reading in gate.readings][:6] == [
        *("chat", "completions", "fim", "edit", "responses", "embeddings")
    ]


async def test_questions_about_models_are_no_exchanges(stage: Any, proxy: Any) -> None:
    back = await stage(replies(whole(b'{"data":[]}')))
    gate = await proxy(settings(back))
    assert (await ask(gate, post(path="/v1/models", method="GET"))).status == 200
    assert not gate.records.openings


async def test_at_its_end_it_waits_for_streams(stage: Any, proxy: Any) -> None:
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(events(), piece(wire.text("a")))
        await go_on.wait()
        peer.send(piece(wire.stop() + wire.DONE), LAST)

    back = await stage(script)
    gate = await proxy(settings(back, listen={"drain": 10.0}))
    async with Client(gate.port) as client:
        client.send(post(chat(stream=True)))
        await client.until(b'"a"')
        ending = asyncio.ensure_future(gate.stop())
        await asyncio.sleep(0.02)
        assert not ending.done()
        go_on.set()
        got = await client.answer()
        await ending
    assert (got.body, got.clean) == (wire.text("a") + wire.stop() + wire.DONE, True)
    assert (await gate.records.reading()).outcome == "ok"


async def test_a_stream_that_outlasts_the_limit_is_cut_and_the_cut_is_ours(stage: Any, proxy: Any) -> None:
    back = await stage(half)
    gate = await proxy(settings(back, listen={"drain": 0.1}))
    async with Client(gate.port) as client, Client(gate.port) as leaves:
        for each in (client, leaves):
            each.send(post(chat(stream=True)))
            await each.until(b'"a"')
        ending = asyncio.ensure_future(gate.stop())
        leaves.leave()
        got = await client.answer()
        await ending
    assert not got.clean
    assert b"[DONE]" not in got.body
    await gate.records.reading(1)
    assert [reading.outcome for reading in gate.readings] == ["client_gone", "internal"]
    assert gate.readings[1].fault is not None
    assert gate.readings[1].fault.code == "shutting_down"
    await asyncio.wait_for(back.peers[0].gone.wait(), 10)


async def test_a_client_that_asks_on_without_taking_its_answers_waits(stage: Any, proxy: Any) -> None:
    big = wire.body("x" * 500_000)
    back = await stage(replies(whole(big)))
    gate = await proxy(settings(back))
    async with Client(gate.port, buffer=8192) as client:
        client.send(post(chat()) * 50)
        before = -1
        while before != len(back.asked) or not before:  # until nothing moves any more
            before = len(back.asked)
            await asyncio.sleep(0.1)
        (connection,) = gate.connections()
        assert connection.transport.get_write_buffer_size() < 2_000_000
        assert before < 50
        client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        taken = 0
        while taken < 50 * len(big):
            taken += len(await client.reader.read(1 << 20))
    await gate.records.reading(49)
    assert {reading.outcome for reading in gate.readings} == {"ok"}
