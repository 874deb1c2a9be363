"""The live page in a real Chromium, fed with readings whose numbers are known."""

import asyncio
import re

import orjson
import pytest
import pytest_asyncio
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from proxy.admin import make_admin, plotly
from proxy.meter import Fault, Usage
from proxy.metrics import LATENCY
from proxy.ring import Ring
from tests.chromium import PROGRAM, chromium
from tests.elsewhere import missing
from tests.served import Manometer
from tests.traffic import AR, MERCURY, NOW, arrivals, busy, opening, plain, reading

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]
HOSTILE = '<img src=x onerror="window.taken=1"><script>window.taken=1</script>"\'&{{7*7}}'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def open_tab():
    if PROGRAM is None:
        missing("Chromium is not installed: apt install chromium")
    async with chromium() as tab:
        yield tab


@pytest.fixture
def ring():
    return Ring((MERCURY, AR), since=NOW - 100)


@pytest_asyncio.fixture(loop_scope="module")
async def serve():
    """Serves a ring; gives the server. The clock stands still, so that every number is known."""
    servers = []

    async def start(ring, *, charts=True, port=None):
        app = make_admin(
            ring,
            lambda _: ("text/plain", b""),
            version="9.9",
            clock=lambda: NOW,
            charts=plotly if charts else lambda: None,
        )
        server = TestServer(app, host="127.0.0.1", port=port)
        await server.start_server()
        servers.append(server)
        return server

    yield start
    for server in servers:
        await server.close()


@pytest_asyncio.fixture(loop_scope="module")
async def page(serve, open_tab, ring):
    """Opens a page of the admin side; afterwards it must not have complained of anything."""
    tabs = []

    async def show(path="/", *, width=1280, dark=False, charts=False):
        server = await serve(ring, charts=charts)
        tab = await open_tab(str(server.make_url(path)), width, 900, dark)
        tabs.append(tab)
        tab.server = server
        if path == "/":
            await tab.until("document.body.dataset.state === 'live'")
            await tab.until("document.querySelectorAll('[data-drawn]').length === 2")
        if charts:
            await tab.until("document.querySelector('[data-drawn=plotly] .main-svg')")
        return tab

    yield show
    for tab in tabs:
        await tab.close()
        assert tab.complaints == []


def some(ring):
    """Two of Mercury, of which one was cut, and one of the other."""
    ring.finished(reading("m1", started_at=NOW - 30))
    ring.finished(plain("a1", started_at=NOW - 20))
    cut = {"outcome": "truncated", "tokens": Usage(), "cost": None, "done": 0.7, "fault": Fault("truncated", "cut off")}
    ring.finished(reading("m2", started_at=NOW - 10, arrivals=arrivals([(0.6, 10), (0.65, 10)]), **cut))


async def row(tab, n):
    return await tab.ask(f"[...document.querySelectorAll('#backends tbody tr')[{n}].cells].map((c) => c.innerText)")


async def ids(tab):
    links = "[...document.querySelectorAll('#requests tbody a')].map((a) => a.getAttribute('href').slice(10)).join(' ')"
    return await tab.ask(links)


async def test_a_row_shows_what_the_backend_did(page, ring):
    some(ring)
    ring.opened(opening("open"))
    tab = await page()
    assert [words.split() for words in await row(tab, 0)] == [
        ["mercury", "diffusion"],
        ["1"],
        ["0.033"],  # 2 in 60 s
        ["50", "1", "of", "2"],
        ["0.550", "n=2"],  # between 0.5 and 0.6
        ["0.595", "n=2"],
        ["53"],  # (0.4 + 0.5) of 1.7 s
        ["3.20"],  # 192 tokens in 60 s
        ["192", "n=1"],
        ["48.0"],
        ["0.00888"],  # 0.000148 in 60 s
        ["0.771"],  # 0.000148 for 192 tokens
    ]
    assert (await row(tab, 1))[8].split() == ["43.5", "n=1"]  # 100 tokens in 2.30 s


async def test_a_backend_without_traffic_shows_dashes_not_zeros(page):
    tab = await page()
    assert [words.split()[0] for words in (await row(tab, 1))[1:]] == [
        *("0", "0", "–", "–", "–", "–", "0", "–", "–", "–", "–")
    ]
    assert await tab.texts("#failures") == ["none since the start"]
    assert await tab.texts("#matched") == ["none"]
    assert await tab.texts(".plot") == [
        "Time to first token: no streamed answer in this window",
        "Output tokens per second: none in this window",
    ]


async def test_what_happens_shows_without_reloading(page, ring):
    tab = await page()
    ring.finished(reading("m1", started_at=NOW - 5))
    await tab.until("document.querySelector('#totals').innerText.includes('1 ended')")
    assert (await row(tab, 0))[4].split() == ["0.500", "n=1"]
    await tab.until("document.querySelectorAll('#requests tbody tr').length === 1")


async def test_it_says_how_old_it_is(page):
    tab = await page()
    (age,) = await tab.texts("#age")
    assert re.fullmatch(r"last event \d\.\d s ago", age)


async def test_a_p95_of_few_is_set_apart(page, ring):
    for i in range(19):
        ring.finished(reading(f"m{i}", started_at=NOW - 30))
    tab = await page()
    assert await tab.texts("#backends td.pale") == ["0.500 n=19", "– n=0"]
    ring.finished(reading("m19", started_at=NOW - 30))
    await tab.until("document.querySelectorAll('#backends td.pale').length === 1")


async def test_the_charts_change_with_the_theme(page, ring):
    some(ring)
    tab = await page(charts=True)
    colours = []
    for dark, colour in ((False, "#c25500"), (True, "#e69f00")):
        await tab.theme(dark)
        await tab.until(f"document.querySelector('#ttft .plot > div').data[0].marker.color === '{colour}'")
        colours.append(await tab.ask("getComputedStyle(document.querySelector('.mark.diffusion')).fill"))
    assert colours == ["rgb(194, 85, 0)", "rgb(230, 159, 0)"]


async def test_the_window_can_be_widened(page, ring):
    ring.finished(reading("m1", started_at=NOW - 80))
    tab = await page()
    assert (await row(tab, 0))[2] == "0"
    await tab.ask("document.querySelector('[name=window][value=\"300\"]').click()")
    await tab.until("document.querySelector('#covered').innerText.startsWith('last 100 s: all there is of 300 s')")
    assert (await row(tab, 0))[2] == "0.010"


async def test_the_distribution_is_of_shares_per_bucket(page, ring):
    some(ring)
    tab = await page(charts=True)
    drawn = await tab.ask("document.querySelector('#ttft .plot > div').data.map(({name, x, y}) => [name, x, y])")
    assert [name for name, _, _ in drawn] == ["diffusion", "autoregressive"]
    shares = {name: dict(zip(x, y, strict=True)) for name, x, y in drawn}
    assert {at: share for at, share in shares["diffusion"].items() if share} == {"≤0.5": 0.5, "≤0.75": 0.5}
    assert {at: share for at, share in shares["autoregressive"].items() if share} == {"≤0.3": 1}
    assert set(shares["diffusion"]) <= {f"≤{bound:g}" for bound in LATENCY}
    assert await tab.texts("#ttft .legend li") == ["diffusion n=2", "autoregressive n=1"]


async def test_the_series_puts_tokens_into_their_seconds(page, ring):
    some(ring)
    tab = await page(charts=True)
    x, y = await tab.ask("(({x, y}) => [x, y])(document.querySelector('#tokens .plot > div').data[0])")
    assert [value for value in y if value] == [192]
    offset = await tab.ask(f"new Date({NOW * 1000}).getTimezoneOffset()")
    assert x[y.index(192)] == (NOW - 30 - 60 * offset) * 1000


async def test_failures_say_what_where_and_how_far(page, ring):
    some(ring)
    tab = await page()
    (words,) = await tab.texts("#failures li")
    assert words.endswith("truncated mercury after 2 arrivals, 0.700 s cut off")


async def test_requests_are_newest_first_and_can_be_narrowed_and_sorted(page, ring):
    some(ring)
    tab = await page()
    await tab.until("document.querySelectorAll('#requests tbody tr').length === 3")
    assert await ids(tab) == "m2 a1 m1"
    cells = await tab.ask("[...document.querySelectorAll('#requests tbody tr')[2].cells].map((c) => c.innerText)")
    assert cells[1:] == ["mercury", "mercury-2.5", "ok", "0.500", "1.00", "192", "192", "0.000148"]

    async def choose(name, value, expected):
        await tab.ask(
            f"(() => {{ const e = document.querySelector('#filter').elements.{name}; e.value = '{value}';"
            " e.dispatchEvent(new Event('input', { bubbles: true })); })()"
        )
        shown = "[...document.querySelectorAll('#requests tbody a')].map((a) => a.getAttribute('href').slice(10))"
        await tab.until(f"{shown}.join(' ') === '{expected}'")

    await choose("backend", "ar", "a1")
    await choose("backend", "", "m2 a1 m1")
    await choose("outcome", "failed", "m2")
    await choose("outcome", "", "m2 a1 m1")
    await choose("text", "CUT", "m2")
    await choose("text", "", "m2 a1 m1")
    for expected, order in (("m2 m1 a1", "descending"), ("a1 m1 m2", "ascending")):
        await tab.ask("[...document.querySelectorAll('#requests thead button')][1].click()")
        await tab.until(f"document.querySelector('#requests th:nth-child(5)').ariaSort === '{order}'")
        assert await ids(tab) == expected


async def test_a_json_answer_is_not_taken_for_a_stream(page, ring):
    ring.finished(reading("m1", streamed=False, arrivals=arrivals([(1.0, 400)]), mirror=True))
    tab = await page()
    await tab.until("document.querySelectorAll('#requests tbody tr').length === 1")
    assert await tab.texts("#requests td.pale") == ["1.00"]
    assert await tab.ask("document.querySelector('#requests td.pale').title") == (
        "not streamed: the time of the whole answer"
    )
    assert (await tab.texts("#requests tbody td"))[3] == "ok shadow"


async def test_a_request_is_drawn_as_the_steps_it_came_in(page, ring):
    steps = [(0.5, 192), (0.6, 192), (1.4, 192), (1.5, 192)]
    ring.finished(plain("a1", started_at=NOW - 60))
    ring.finished(reading("m1", started_at=NOW - 50, arrivals=arrivals(steps), ended=1.55, done=1.6))
    tab = await page("/requests/m1", charts=True)
    data = await tab.ask(
        "document.querySelector('#steps .plot > div').data.map(({x, y, mode, name, marker, line}) => "
        "({x, y, mode, name, symbol: marker?.symbol, shape: line?.shape}))"
    )
    curve = next(trace for trace in data if trace.get("name") == "mercury")
    assert (curve["x"], curve["y"]) == ([0.1, 0.5, 0.6, 1.4, 1.5, 1.6], [0, 48, 96, 144, 192, 192])
    assert curve["shape"] == "hv"
    assert [(t["x"], t["y"]) for t in data if t["mode"] == "lines" and "name" not in t] == [([0.6, 1.4], [96, 96])]
    marks = [(t["x"][0], t["y"][0]) for t in data if t["mode"] == "markers"]
    assert marks[:3] == [(1.6, 192), (0.1, 0), (0.5, 48)]  # end, head, first token
    other = next(trace for trace in data if trace.get("name") == "ar")
    assert (len(other["x"]), other["y"][-1]) == (102, 100)
    facts = await tab.texts("#facts tbody tr")
    assert "Time to first token s 0.500 0.300" in facts
    assert "Stalls 1 (0.800 s) 0" in facts


async def test_another_request_can_be_put_beside_it(page, ring):
    for name in ("m1", "m2"):
        ring.finished(reading(name, started_at=NOW - 60))
    ring.finished(plain("a1", started_at=NOW - 60))
    tab = await page("/requests/m1?with=m2")
    await tab.until("document.querySelectorAll('#facts thead th').length === 2")
    assert await tab.texts("#steps .legend li") == ["mercury this request", "mercury beside"]
    await tab.ask(
        "(() => { const s = document.querySelector('#with'); s.value = 'a1'; s.dispatchEvent(new Event('change')); })()"
    )
    await tab.until("document.querySelectorAll('#steps .legend li')[1].innerText.includes('ar')")
    assert await tab.ask("location.search") == "?with=a1"


async def test_a_stream_of_unknown_tokens_is_drawn_in_characters(page, ring):
    ring.finished(reading("m1", tokens=Usage(), usage_source="none"))
    tab = await page("/requests/m1")
    await tab.until("document.querySelector('#facts tbody')")
    assert await tab.texts("#measure") == ["Cumulative characters (tokens are not known)"]
    output = next(line for line in await tab.texts("#facts tbody tr") if line.startswith("Output"))
    assert output == "Output tokens – (about 192 by characters)"


async def test_a_request_in_flight_is_shown_when_it_has_ended(page, ring):
    ring.opened(opening("m1"))
    tab = await page("/requests/m1")
    await tab.until("document.querySelector('#state').innerText === 'in flight'")
    ring.finished(reading("m1"))
    await tab.until("document.querySelector('#state').innerText === 'ok, 200'")
    tab.complaints.clear()  # the 404s of the time in between


async def test_a_request_that_is_not_kept_says_so(page):
    tab = await page("/requests/nope")
    await tab.until("!document.querySelector('#notice').hidden")
    assert await tab.texts("#notice") == ["nope: no request with this id is kept; the newest 0 are"]
    tab.complaints.clear()


@pytest.mark.parametrize("path", ["/", "/requests/m1"])
async def test_what_strangers_wrote_stays_text(page, ring, path):
    ring.finished(
        reading(
            "m1",
            asked_model=HOSTILE,
            answered_model=HOSTILE,
            outcome="backend_error",
            warning=HOSTILE,
            fault=Fault(HOSTILE, HOSTILE, HOSTILE),
            finish_reasons=(HOSTILE,),
        )
    )
    tab = await page(path)
    await tab.until("document.body.textContent.includes('onerror=')")
    assert await tab.ask("document.querySelectorAll('main img, main script').length") == 0
    assert await tab.ask("window.taken") is None
    selector = "#failures q, #requests td:nth-child(3)" if path == "/" else "#title small:first-of-type"
    await tab.until(f"document.querySelector('{selector}')")
    assert HOSTILE in await tab.ask(f"[...document.querySelectorAll('{selector}')].map((e) => e.textContent)")


async def test_nothing_is_fetched_from_elsewhere(page, ring):
    some(ring)
    tab = await page(charts=True)
    assert await tab.ask(
        "performance.getEntriesByType('resource').every((entry) => new URL(entry.name).origin === location.origin)"
    )


async def test_without_plotly_the_charts_are_plain_and_say_what_is_missing(page, ring):
    some(ring)
    tab = await page()
    assert await tab.ask("document.querySelectorAll('#ttft svg rect').length") >= 4
    assert await tab.ask("document.querySelectorAll('#tokens .plot path').length") == 2
    assert "manometer[page]" in (await tab.texts("#plain"))[0]


async def test_a_thousand_requests_a_second_do_not_freeze_it(page, ring):
    ring.finished(reading("first", started_at=NOW - 40))
    tab = await page(charts=True)
    frames = asyncio.create_task(tab.ask(FRAMES))
    for tick in range(300):
        for i in range(10):
            make = reading if i % 2 else plain
            ring.finished(make(f"{tick:03}{i}", started_at=NOW - 30 + tick / 10))
        await asyncio.sleep(0.01)
    assert await frames > 10
    await tab.until("document.querySelector('#totals').innerText.includes('3,001 ended')")
    assert await tab.ask("document.querySelectorAll('*').length") < 2500
    assert await tab.ask("document.querySelectorAll('#requests tbody tr').length") == 24


# How many frames were drawn in three seconds.
FRAMES = """new Promise((done) => {
  let n = 0;
  const start = performance.now();
  const count = () => (performance.now() - start > 3000 ? done(n) : (n++, requestAnimationFrame(count)));
  count();
})"""


async def test_more_rows_can_be_had_but_not_without_end(page, ring):
    for r in busy(300):
        ring.finished(r)
    tab = await page()
    for expected in (24, 112, 200):
        await tab.until(f"document.querySelectorAll('#requests tbody tr').length === {expected}")
        await tab.ask("document.querySelector('#more').click()")
    assert await tab.ask("document.querySelector('#more').hidden")


async def test_it_outlives_a_restart_of_the_proxy(page, serve, ring):
    some(ring)
    tab = await page()
    await tab.ask("window.same = true")
    port = tab.server.port
    await tab.server.close()
    await tab.until("document.body.dataset.state === 'stale'")
    assert await tab.texts("#notice") == ["No event for some seconds: the numbers below are old. Trying again."]
    assert (await row(tab, 0))[4].split() == ["0.550", "n=2"]
    fresh = Ring((MERCURY, AR), since=NOW - 10)
    fresh.finished(reading("new", started_at=NOW - 5))
    await serve(fresh, port=port)
    await tab.until("document.body.dataset.state === 'live'")
    await tab.until("document.querySelector('#requests tbody').rows.length === 1")
    assert await ids(tab) == "new"
    assert (await row(tab, 0))[4].split() == ["0.500", "n=1"]
    assert await tab.ask("window.same")
    assert await tab.ask("document.querySelector('#notice').hidden")
    tab.complaints.clear()  # the refused connections of the time in between


async def test_paused_it_stands_still_until_it_may_go_on(page, ring):
    tab = await page()
    await tab.ask("document.querySelector('#pause').click()")
    ring.finished(reading("m1", started_at=NOW - 5))
    assert len([e async for e in _events(tab, 2)]) == 2
    assert await tab.texts("#state, #pause") == ["paused", "Go on"]
    assert "0 ended" in (await tab.texts("#totals"))[0]
    await tab.ask("document.querySelector('#pause').click()")
    await tab.until("document.querySelector('#totals').innerText.includes('1 ended')")


async def _events(tab, count):
    for _ in range(count):
        yield await tab.ask(
            "new Promise((done) => { const s = new EventSource('/api/events');"
            " s.addEventListener('summary', () => { s.close(); done(1); }); })"
        )


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("path", ["/", "/requests/m1"])
async def test_it_fits_its_width(page, ring, width, path):
    some(ring)
    ring.finished(reading("long", asked_model="x" * 300, outcome="backend_error", fault=Fault("e" * 300, "m" * 300)))
    tab = await page(path, width=width, charts=True)
    assert await tab.ask("document.scrollingElement.scrollWidth") == width
    wide = "[...document.querySelectorAll('main *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1)"
    assert await tab.ask(f"{wide}.filter((e) => !e.closest('.plot, td')).map((e) => e.outerHTML)") == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("path", ["/", "/requests/m1"])
async def test_text_stands_out_from_its_ground(page, ring, dark, path):
    some(ring)
    tab = await page(path, dark=dark, charts=True)
    assert await tab.ask(CONTRAST) == []
    ground = await tab.ask("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(","))) < 150) is dark


CONTRAST = """(() => {
  const rgb = (text) => (text.match(/[\\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
  const light = (text) => rgb(text).slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (e) => { for (; e; e = e.parentElement) {
    const c = getComputedStyle(e).backgroundColor; if ((rgb(c)[3] ?? 1) > 0) return c; } return 'rgb(255,255,255)'; };
  const texts = [...document.querySelectorAll('body *')].filter((e) => e.checkVisibility()
    && [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()) && !e.closest('noscript'));
  return texts.map((e) => {
    const style = getComputedStyle(e);
    const [a, b] = [light(e.closest('svg') ? style.fill : style.color), light(ground(e))].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), e.tagName + '.' + e.className + ': ' + e.textContent.slice(0, 30)];
  }).filter(([ratio]) => ratio < 4.5);
})()"""


async def test_it_can_be_used_with_keys_alone(page, ring):
    some(ring)
    tab = await page()
    await tab.until("document.querySelectorAll('#requests tbody tr').length === 3")
    reached = []
    for _ in range(40):
        await tab.press("Tab")
        reached.append(
            await tab.ask(
                "document.activeElement.id || document.activeElement.name || document.activeElement.innerText"
            )
        )
        if reached[-1].startswith("TTFT"):
            break
    assert reached[:2] == ["window", "pause"]
    assert [name for name in reached if name in ("backend", "outcome", "text")] == ["backend", "outcome", "text"]
    assert await tab.ask("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    await tab.press("Enter")
    await tab.until("document.querySelector('#requests th:nth-child(5)').ariaSort === 'descending'")


@pytest.mark.parametrize("width", [1280, 400])
async def test_a_screen_reader_is_told_the_same(page, ring, width):
    some(ring)
    tab = await page(width=width, charts=True)
    await tab.until("document.querySelectorAll('#requests tbody tr').length === 3")
    tree = await tab.tree()
    assert any(role == "status" for role, _ in tree)
    names = {role: [name for r, name in tree if r == role] for role, _ in tree}
    assert names["table"][0].startswith("Backends last 60 s")
    assert names["image"] == [
        "Time to first token. diffusion: most often ≤0.5 s; autoregressive: most often ≤0.3 s",
        "Output tokens per second. mercury: peak 192; ar: peak 50.0",
    ]
    assert "Pause" in names["button"]
    assert names["combobox"] == ["Backend", "Outcome"]


async def test_a_chart_can_be_read_as_a_table(page, ring):
    some(ring)
    tab = await page()
    await tab.ask("document.querySelector('#ttft summary').click()")
    await tab.until("document.querySelector('#ttft table tbody')")
    assert "≤0.5 50 0" in await tab.texts("#ttft tbody tr")


async def test_it_shows_what_went_through_the_real_proxy(open_tab, tmp_path):
    proxy = await asyncio.to_thread(Manometer, tmp_path)
    backend = TestServer(_backend(), host="127.0.0.1", port=proxy.backend)
    await backend.start_server()
    try:
        async with ClientSession() as session:
            for _ in range(3):
                await _chat(session, proxy.url)
        ids = await asyncio.to_thread(proxy.readings, [], 3)
        tab = await open_tab(f"{proxy.admin}/")
        await tab.until("document.querySelectorAll('#requests tbody tr').length === 3")
        name, _, _, errors, median, *_ = [words.split() for words in await row(tab, 0)]
        assert (name[0], errors, median[1]) == ("main", ["0"], "n=3")
        times = sorted(reading["ttft"] for reading in ids)
        assert float(median[0]) == pytest.approx(times[1], rel=0.01, abs=0.001)
        cells = await tab.ask("[...document.querySelectorAll('#requests tbody tr')[0].cells].map((c) => c.innerText)")
        assert (cells[1:4], cells[6], cells[8]) == (["main", "m-dif", "ok"], "96", "0.0000985")
        await tab.go(f"{proxy.admin}/requests/{ids[0]['id']}")
        await tab.until("document.querySelector('#facts tbody')")
        assert (await tab.texts("#steps .legend li"))[0] == "main this request"
        assert tab.complaints == []
        await tab.close()
    finally:
        await backend.close()
        await asyncio.to_thread(proxy.stop)


def _backend():
    """Says 96 tokens in two bursts for 10 that were asked: 10 x 0.25 + 96 x 1.00 per million."""

    async def chat(request):
        await request.read()
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        for text, finish in (("a" * 192, None), ("b" * 192, "stop")):
            choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
            await answer.write(b"data: " + orjson.dumps({"choices": [choice]}) + b"\n\n")
            await asyncio.sleep(0.05)
        usage = {"prompt_tokens": 10, "completion_tokens": 96, "total_tokens": 106}
        await answer.write(b"data: " + orjson.dumps({"choices": [], "usage": usage}) + b"\n\ndata: [DONE]\n\n")
        return answer

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    return app


async def _chat(session, url):
    body = {"model": "m-dif", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
    headers = {"Authorization": "Bearer client-key"}
    async with session.post(f"{url}/v1/chat/completions", json=body, headers=headers) as answer:
        assert answer.status == 200
        await answer.read()
