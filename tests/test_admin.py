import asyncio
import contextlib
import json
import threading

import orjson
import pytest
from aiohttp import ClientSession, ClientTimeout
from aiohttp.test_utils import TestServer

from proxy.admin import ADMIN, HEADERS, make_admin, plotly
from proxy.meter import Fault
from proxy.ring import Ring
from tests.traffic import AR, MERCURY, NOW, arrivals, opening, plain, reading

METRICS = b"manometer_requests_total 3\n# EOF\n"


def render(accept):
    kind = "application/openmetrics-text" if "openmetrics" in accept else "text/plain"
    return f"{kind}; version=1.0.0; charset=utf-8", METRICS


@pytest.fixture
def ring():
    return Ring((MERCURY, AR), since=NOW - 100)


@pytest.fixture
async def admin(ring):
    """Starts the admin side with any arguments; answers `get(path)` with (status, headers, body)."""
    running = []

    async def start(**facts):
        app = make_admin(
            ring,
            **{"render": render, "version": "9.9", "clock": lambda: NOW, "beat": 0.01, "charts": lambda: None} | facts,
        )
        server = TestServer(app, host="127.0.0.1")
        await server.start_server()
        session = ClientSession(server.make_url("/"), timeout=ClientTimeout(10))
        running.append((server, session))

        async def get(path, **headers):
            async with session.get(path, headers=headers) as response:
                return response.status, response.headers, await response.read()

        get.session = session
        get.server = server
        return get

    yield start
    for server, session in running:
        await session.close()
        await server.close()


async def error(get, path, **headers):
    status, _, body = await get(path, **headers)
    assert b"\n" not in body
    return status, orjson.loads(body)["error"]["message"]


async def test_metrics_are_rendered_as_accepted_and_off_the_loop(admin):
    threads = []

    def noted(accept):
        threads.append(threading.current_thread())
        return render(accept)

    get = await admin(render=noted)
    status, headers, body = await get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert (status, body) == (200, METRICS)
    assert headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert threads[0] is not threading.main_thread()


async def test_health_says_the_version(admin):
    status, _, body = await (await admin())("/healthz")
    assert (status, orjson.loads(body)) == (200, {"status": "ok", "version": "9.9"})


async def test_not_ready_says_why(admin):
    reasons = []
    get = await admin(ready=lambda: reasons)
    assert (await get("/readyz"))[0] == 200
    reasons.append("draining")
    status, _, body = await get("/readyz")
    assert (status, orjson.loads(body)) == (503, {"ready": False, "reasons": ["draining"]})


async def test_requests_are_the_summaries_newest_first(admin, ring):
    for i in range(3):
        ring.finished(reading(f"r{i}"))
    _, headers, body = await (await admin())("/api/requests?limit=2")
    found = orjson.loads(body)
    assert headers["Content-Type"] == "application/json"
    assert [r["id"] for r in found["requests"]] == ["r2", "r1"]
    assert found["requests"][0] == orjson.loads(orjson.dumps(ring.find("r2").summary()))
    assert (found["matched"], found["kept"], found["next"]) == (3, 3, "r1")


@pytest.mark.parametrize(
    ("asked", "ids"),
    [
        ("", "gfedcba"),
        ("?backend=ar", "fd"),
        ("?backend=none", "g"),
        ("?outcome=truncated", "e"),
        ("?outcome=failed", "ge"),
        ("?outcome=ok&backend=mercury", "cba"),
        ("?before=c", "ba"),
        ("?before=d&backend=mercury", "cba"),
        ("?text=SLOW", "f"),
        ("?text=cut+off", "e"),
        ("?sort=ttft", "cbadfge"),
        ("?sort=ttft&order=asc", "fdabcge"),
        ("?sort=completion&order=asc&backend=ar", "df"),
    ],
)
async def test_requests_can_be_narrowed_and_sorted(admin, ring, asked, ids):
    for i, name in enumerate("abc"):
        ring.finished(reading(name, arrivals=arrivals([(0.5 + i / 10, 4), (0.9, 4)])))
    ring.finished(plain("d", tokens=10))
    ring.finished(reading("e", outcome="truncated", arrivals=arrivals([]), fault=Fault("truncated", "Cut off")))
    ring.finished(plain("f", tokens=20, asked_model="slow-one", arrivals=arrivals([(0.2, 4)])))
    ring.finished(reading("g", outcome="refused", backend=None, arrivals=arrivals([])))
    status, _, body = await (await admin())(f"/api/requests{asked}")
    assert status == 200
    assert "".join(r["id"] for r in orjson.loads(body)["requests"]) == ids


async def test_pages_join_without_gap_or_overlap(admin, ring):
    for i in range(25):
        ring.finished(reading(f"{i:02}"))
    get = await admin()
    seen, before = [], ""
    while before is not None:
        _, _, body = await get(f"/api/requests?limit=10{before and '&before=' + before}")
        found = orjson.loads(body)
        seen += [r["id"] for r in found["requests"]]
        before = found["next"]
    assert seen == [f"{i:02}" for i in reversed(range(25))]


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ("limit=0", "limit: must be a whole number from 1 to 1000"),
        ("limit=1e3", "limit: must be a whole number from 1 to 1000"),
        ("limit=٣", "limit: must be a whole number from 1 to 1000"),
        ("backend=gpt", "backend: must be one of mercury, ar, none"),
        ("sort=beauty", "sort: must be one of started_at, ended_at,"),
        ("order=up", "order: must be one of asc, desc"),
        ("outcome=bad", "outcome: must be one of ok, client_gone,"),
        ("before=gone", "before: no request with this id is kept"),
        ("before=a&sort=ttft", "before: goes with newest first only"),
        ("limt=5", "limt: is not a parameter here; there are: limit,"),
    ],
)
async def test_a_query_that_is_not_understood_is_said_in_one_line(admin, ring, query, line):
    ring.finished(reading("a"))
    status, message = await error(await admin(), f"/api/requests?{query}")
    assert status == 400
    assert message.startswith(line)


async def test_one_request_comes_with_its_arrivals(admin, ring):
    ring.finished(reading("a"))
    _, _, body = await (await admin())("/api/requests/a")
    found = orjson.loads(body)
    assert [(row["at"], row["burst"]) for row in found["arrivals"]] == [(0.5, 48), (0.6, 48), (0.7, 48), (0.8, 48)]
    assert found["ttft"] == 0.5


async def test_a_request_that_is_not_there_is_one_clear_line(admin, ring):
    ring.opened(opening("open"))
    get = await admin()
    assert await error(get, "/api/requests/nope") == (404, "no request with this id is kept; the newest 0 are")
    assert await error(get, "/api/requests/open") == (
        404,
        "this request is still in flight; ask again when it has ended",
    )


async def test_the_summary_is_of_the_window_asked_for(admin, ring):
    ring.finished(reading("a", started_at=NOW - 90))
    get = await admin()
    for window, n in ((60, 0), (95, 1)):
        found = orjson.loads((await get(f"/api/summary?window={window}"))[2])
        assert (found["window"], found["backends"][0]["n"], found["version"]) == (window, n, "9.9")
    assert await error(get, "/api/summary?window=0") == (400, "window: must be a whole number from 1 to 900")


async def until(reached):
    for _ in range(2000):
        if reached():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came to that")


async def events(get, count, path="/api/events"):
    found = []
    async with get.session.get(path) as response:
        assert response.headers["Content-Type"] == "text/event-stream"
        async for line in response.content:
            if line.startswith(b"data: "):
                found.append(orjson.loads(line[6:]))
            if len(found) == count:
                return found
    return found


async def test_events_carry_the_whole_summary_and_what_changed_since(admin, ring):
    get = await admin()
    before = (await events(get, 1))[-1]
    ring.finished(reading("a"))
    after = (await events(get, 3))[-1]
    assert (before["finished"], after["finished"]) == (0, 1)
    assert after["backends"][0]["ttft"]["n"] == 1


async def test_pages_that_look_at_once_share_the_work(admin, ring, monkeypatch):
    looks = []
    look = ring.look
    monkeypatch.setattr(ring, "look", lambda now, span: looks.append(span) or look(now, span))
    get = await admin(beat=60)
    await asyncio.gather(*(events(get, 1) for _ in range(10)))
    assert looks == [60]


async def test_too_many_pages_are_told_so(admin, monkeypatch):
    monkeypatch.setattr("proxy.live._MOST", 1)
    get = await admin()
    async with get.session.get("/api/events"):
        assert (await error(get, "/api/events"))[0] == 503
    await until(lambda: get.server.app[ADMIN].live.watching == 0)
    assert len(await events(get, 1)) == 1


async def test_a_page_that_does_not_read_is_dropped(admin, ring, monkeypatch):
    monkeypatch.setattr("proxy.live._PATIENCE", 0.05)
    for i in range(100):
        ring.finished(reading(f"{i}", outcome="backend_error", fault=Fault("e", "x" * 100_000)))
    get = await admin(beat=0.001)
    live = get.server.app[ADMIN].live
    reader, writer = await asyncio.open_connection("127.0.0.1", get.server.port, limit=4096)
    writer.write(b"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    await until(lambda: live.watching == 1)
    await until(lambda: live.watching == 0)
    assert b"event: summary" in await reader.read(4096)  # it was served, until it fell behind
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def test_stopping_ends_the_events(ring):
    server = TestServer(make_admin(ring, render, version="1", beat=60), host="127.0.0.1")
    await server.start_server()
    async with ClientSession(server.make_url("/")) as session, session.get("/api/events") as response:
        await response.content.readuntil(b"\n\n")
        stopping = asyncio.create_task(server.close())
        await asyncio.wait_for(response.read(), 5)
        await stopping


@pytest.mark.parametrize("path", ["/", "/api/requests", "/api/nope", "/api/requests/x", "/metrics", "/page/style.css"])
async def test_every_answer_keeps_strangers_out(admin, path):
    _, headers, _ = await (await admin())(path)
    assert {name: headers[name] for name in HEADERS} == HEADERS
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize("host", ["localhost:9464", "127.0.0.1", "[::1]:9464"])
async def test_loopback_may_be_asked_by_its_own_names(admin, host):
    assert (await (await admin())("/healthz", Host=host))[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:9464", "a b"])
async def test_a_name_that_someone_pointed_at_loopback_is_turned_away(admin, host):
    status, message = await error(await admin(), "/api/requests", Host=host)
    assert status == 421
    assert message.endswith("on loopback only 127.0.0.1, ::1, localhost")


async def test_elsewhere_any_name_will_do(admin):
    assert (await (await admin(hosts=None))("/healthz", Host="manometer.example"))[0] == 200


async def test_a_path_that_is_not_there_is_json_too(admin):
    assert await error(await admin(), "/nope") == (404, "404: Not Found")
    assert (await error(await admin(), "/page/..%2fadmin.py"))[0] == 404


async def test_nothing_can_be_changed(admin):
    get = await admin()
    async with get.session.post("/api/requests") as response:
        assert response.status == 405


async def test_the_page_of_a_request_that_is_not_kept_is_a_404_with_a_page(admin, ring):
    ring.finished(reading("a"))
    get = await admin()
    for path, expected in (("/", 200), ("/requests/a", 200), ("/requests/b", 404)):
        status, headers, _ = await get(path)
        assert (status, headers["Content-Type"]) == (expected, "text/html; charset=utf-8")


async def test_charts_come_from_the_installed_package_or_not_at_all(admin):
    without, with_ = await admin(), await admin(charts=plotly)
    assert (await without("/page/plotly.min.js"))[0] == 404
    assert orjson.loads((await without("/api/summary"))[2])["charts"] is False
    status, headers, body = await with_("/page/plotly.min.js")
    assert (status, body[:80].count(b"plotly.js")) == (200, 1)
    assert "javascript" in headers["Content-Type"]
    assert orjson.loads((await with_("/api/summary"))[2])["charts"] is True


async def test_untrusted_text_leaves_as_json_only(admin, ring):
    hostile = "</script><img src=x onerror=alert(1)>"
    ring.finished(reading("a", asked_model=hostile, fault=Fault(hostile, hostile)))
    get = await admin()
    for path in ("/", "/requests/a"):
        assert b"onerror" not in (await get(path))[2]
    assert json.loads((await get("/api/requests/a"))[2])["asked_model"] == hostile
