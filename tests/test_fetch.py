"""The proxy's own questions: a whole answer, or a fault; never half of one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proxy import fetch as fetching
from proxy.fetch import fetch
from proxy.origin import Origin
from proxy.upstream import Pool, Request, Timeouts, UpstreamFault
from tests.stage import LAST, Peer, events, head, piece, replies

GET = Request(b"GET", b"/v1/models", [])


async def test_an_answer_comes_whole(stage: Any) -> None:
    back = await stage(replies(events(x_a="1") + piece(b"ab") + piece(b"cd") + LAST))
    pool = Pool(Origin.of(back.url))
    found = await fetch(pool, GET)
    assert (found.status, found.body) == (200, b"abcd")
    assert (b"x-a", b"1") in found.headers
    assert 0 <= found.seconds < 10
    await fetch(pool, GET)
    assert len(back.peers) == 1
    await pool.close()


@pytest.mark.parametrize("sent", [b"", head(content_length=10) + b"half"])
async def test_half_an_answer_is_a_fault(stage: Any, sent: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(sent)
        peer.cut()

    back = await stage(script)
    pool = Pool(Origin.of(back.url))
    with pytest.raises(UpstreamFault):
        await fetch(pool, GET)
    await pool.close()


async def test_an_answer_that_is_too_long_is_a_fault_and_read_no_further(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "LIMIT", 1000)

    async def script(peer: Peer) -> None:
        await peer.request()
        peer.send(events(), piece(b"x" * 600), piece(b"y" * 600))
        await peer.gone.wait()

    back = await stage(script)
    pool = Pool(Origin.of(back.url))
    with pytest.raises(UpstreamFault, match="1000 bytes"):
        await fetch(pool, GET)
    await asyncio.wait_for(back.peers[0].gone.wait(), 10)
    await pool.close()


async def test_who_asks_no_more_cancels_the_request(stage: Any) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.gone.wait()

    back = await stage(script)
    pool = Pool(Origin.of(back.url))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await fetch(pool, GET)
    await asyncio.wait_for(back.peers[0].gone.wait(), 10)
    await pool.close()


async def test_an_answer_that_is_not_there_is_a_fault() -> None:
    pool = Pool(Origin.of("http://127.0.0.1:1/v1"), Timeouts())
    with pytest.raises(UpstreamFault, match="Connection refused"):
        await fetch(pool, GET)
    await pool.close()
