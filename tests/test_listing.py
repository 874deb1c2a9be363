"""`manometer requests` against an admin API."""

import asyncio
import json
import time

import pytest
from aiohttp import web

from proxy import listing
from proxy.admin import make_admin
from proxy.meter import Arrival, Arrivals, Fault, Reading, Usage
from proxy.ring import Ring


def readings() -> list[Reading]:
    row = Arrival(0.2, 1, 12, 0, 0, False, None, 0.0001)
    good = Reading(
        id="a" * 32,
        started_at=time.time(),
        outcome="ok",
        api="chat",
        streamed=True,
        backend="mercury",
        asked_model="[bold]m[/]",
        arrivals=Arrivals.of(row),
        tokens=Usage(3, 12, 15),
        done=0.25,
    )
    bad = Reading(
        id="b" * 32, started_at=1.0, outcome="unreachable", api="chat", streamed=False, fault=Fault("x", "<script>")
    )
    return [good, bad]


@pytest.fixture
async def admin():
    ring = Ring(since=time.time())
    for reading in readings():
        ring.finished(reading)
    runner = web.AppRunner(make_admin(ring, lambda accept: ("text/plain", b""), version="1"))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_the_list_shows_each_request_and_a_model_name_stays_text(admin, capsys) -> None:
    await asyncio.to_thread(listing.show, admin, None, 20, False)
    out = capsys.readouterr().out
    assert "mercury" in out and "[bold]m[/]" in out and "unreachable" in out
    assert "0.200" in out and "48.0" in out  # ttft; 12 tokens in 0.25 s


async def test_one_request_shows_its_arrivals(admin, capsys) -> None:
    await asyncio.to_thread(listing.show, admin, "a" * 32, 20, False)
    out = capsys.readouterr().out
    assert "0.2000" in out and "12.0" in out and "0.000100" in out


async def test_as_json_it_is_the_api_s_answer(admin, capsys) -> None:
    await asyncio.to_thread(listing.show, admin, None, 1, True)
    rows = json.loads(capsys.readouterr().out)["requests"]
    assert [row["id"] for row in rows] == ["b" * 32]


async def test_an_unknown_id_and_a_proxy_that_is_not_there_are_one_line_each(admin) -> None:
    with pytest.raises(listing.NoAnswer, match=r"c{32}") as unknown:
        await asyncio.to_thread(listing.show, admin, "c" * 32, 20, False)
    with pytest.raises(listing.NoAnswer, match="is `manometer serve` running") as gone:
        await asyncio.to_thread(listing.show, "127.0.0.1:1", None, 20, False)
    assert "\n" not in f"{unknown.value}{gone.value}"
