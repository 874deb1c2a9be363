"""Reports and the reading page in a real Chromium, opened as files, as their readers open them."""

import json

import pytest
import pytest_asyncio

from loadgen import blind, document, report
from tests.chromium import PROGRAM, chromium
from tests.documents import hostile, ladder
from tests.elsewhere import missing

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def open_tab():
    if PROGRAM is None:
        missing("Chromium is not installed: apt install chromium")
    async with chromium() as tab:
        yield tab


async def opened(open_tab, place, text, **look):
    place.write_text(text, "utf-8")
    return await open_tab(place.as_uri(), **look)


@pytest.mark.parametrize("dark", [False, True])
async def test_curves_become_charts_and_nothing_goes_wrong(open_tab, tmp_path, dark):
    pytest.importorskip("plotly")
    page = await opened(open_tab, tmp_path / "r.html", report.html([document.plain(ladder())]), dark=dark)
    await page.until("document.querySelectorAll('.interactive .main-svg').length >= 6")
    assert page.complaints == []
    assert await page.ask("getComputedStyle(document.querySelector('figure > .chart')).display") == "none"
    paper = await page.ask("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(18, 24, 31)") is dark


async def test_without_the_library_the_drawn_curves_stay(open_tab, tmp_path):
    page = await opened(open_tab, tmp_path / "r.html", report.html([document.plain(ladder())], library=False))
    assert await page.ask("document.querySelectorAll('figure > .chart').length") == 7
    assert await page.ask("getComputedStyle(document.querySelector('figure > .chart')).display") == "block"
    assert page.complaints == []


async def test_hostile_names_stay_text(open_tab, tmp_path):
    told = document.plain(hostile())
    told["verdict"] = "<img src=x onerror='window.taken=1'>"
    page = await opened(open_tab, tmp_path / "r.html", report.html([told, document.plain(ladder())]))
    assert await page.ask("window.taken === undefined")
    assert "<img src=x" in (await page.texts(".verdict"))[0]


@pytest.mark.parametrize("width", [390, 1280])
async def test_nothing_sticks_out_on_a_phone_or_a_desk(open_tab, tmp_path, width):
    text = report.html([document.plain(ladder())], library=False)
    page = await opened(open_tab, tmp_path / "r.html", text, width=width)
    assert await page.ask("document.documentElement.scrollWidth <= window.innerWidth")


async def test_answers_are_judged_by_keys_and_the_file_counts_them(open_tab, tmp_path):
    def cell(label, seconds):
        texts = [(n, f"{label} {n} </script>") for n in range(4)]
        answers = [{"n": n, "prompt": f"p{n}", "question": f"Q{n}", "text": text, "passed": True} for n, text in texts]
        return {"label": label, "sec": seconds, "answers": answers}

    cells = [cell("few", 0.1), cell("many", 0.9)]
    (tmp_path / "sweep.json").write_text(json.dumps({"cells": cells}))
    blind.write(tmp_path)
    page = await open_tab((tmp_path / "read.html").as_uri())
    key = json.loads((tmp_path / "read-key.json").read_text())
    assert await page.texts("#place") == ["1 of 4"]
    for pair in key[:3]:
        await page.press(str(pair["settings"].index("many") + 1))
    await page.press("=")
    votes = await page.ask("JSON.stringify(votes)")
    assert await page.texts("#done") == ["4 judged"]
    assert page.complaints == []
    (tmp_path / "votes-saved.json").write_text(json.dumps({"votes": json.loads(votes)}))
    (row,) = blind.count(key, json.loads(votes))
    assert (row["setting"], row["wins"], row["ties"], row["losses"]) == ("few", 0, 1, 3)
