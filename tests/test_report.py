import csv
import io
import re
from html.parser import HTMLParser

import pytest

from loadgen import document, report
from tests.documents import EVIL, hostile, ladder


class Page(HTMLParser):
    """Tags with their attributes, and the text that a reader sees."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self._skip = [], [], 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._skip += tag in ("script", "style")

    def handle_endtag(self, tag):
        self._skip -= tag in ("script", "style")

    def handle_data(self, data):
        if not self._skip and data.strip():
            self.text.append(data.strip())


def page(*documents, **options):
    return report.html([document.plain(d) for d in documents], library=False, **options)


def test_the_verdict_is_the_first_thing_after_the_title():
    text = Page(page(ladder())).text
    assert text[:2] == ["ladder climb", "ladder · climb"]  # the page's title and its heading
    assert "mercury: as measured" in text[2:4]


def test_a_report_loads_nothing_from_anywhere():
    told = page(ladder())
    for tag, attributes in Page(told).tags:
        assert tag not in ("link", "img", "iframe")
        assert not {"src", "href"} & attributes.keys()
    assert "default-src 'none'" in told
    assert not re.search(r"https?://(?!www\.w3\.org)", told.replace("http://127.0.0.1:1/v1", ""))


def test_nothing_from_outside_becomes_markup():
    told = page(hostile(), ladder())
    assert EVIL not in told
    scripts = [attributes for tag, attributes in Page(told).tags if tag == "script"]
    drawn = [tag for tag, attributes in Page(told).tags if tag == "figure" and "data-chart" in attributes]
    assert len(scripts) == len(drawn) + 1  # the data of each chart, and the page's own


def test_every_curve_of_a_ladder_is_drawn_with_its_knee():
    told = page(ladder())
    ids = [
        attributes["data-chart"]
        for tag, attributes in Page(told).tags
        if tag == "figure" and "data-chart" in attributes
    ]
    assert ids == ["throughput", "ttft", "e2e", "cost", "distribution", "time"]
    assert told.count("95 % at ") >= 8  # throughput, both latencies and cost; as SVG and for the library
    assert "at 2.5 an hour" in told and "at 4 an hour" in told
    assert "How a typical answer comes" in told


def test_several_runs_are_compared_in_one_page():
    text = Page(page(ladder("before"), ladder("after", size=16))).text
    assert "Runs compared" in text
    assert "before: mercury" in text and "after: mercury" in text


def test_a_comparison_shows_its_decision_and_its_ratios():
    told = ladder() | {
        "decisions": [{"scenario": "code", "choice": "mercury", "evidence": "e2e mercury / ar = 0.50"}],
        "ratios": [
            {
                "scenario": "code",
                "metric": "e2e",
                "a": "ar",
                "b": "mercury",
                "value": 0.5,
                "low": 0.4,
                "high": None,
                "pairs": 20,
                "verdict": "better",
            }
        ],
    }
    text = Page(page(told)).text
    assert "Decision" in text and "e2e mercury / ar = 0.50" in text
    assert "0.4 – ∞" in text and "mercury / ar" in text


def test_the_library_goes_in_only_where_it_is_asked_for_and_installed(monkeypatch):
    pytest.importorskip("plotly")
    assert len(report.html([document.plain(ladder())])) > 1_000_000
    monkeypatch.setattr(report, "find_spec", lambda name: None)
    assert len(report.html([document.plain(ladder())])) < 200_000


def test_the_csv_has_a_row_for_each_level_and_a_column_for_each_number():
    rows = list(csv.DictReader(io.StringIO(report.table(document.plain(ladder())))))
    assert [row["concurrency"] for row in rows] == ["1", "2", "4", "8"]
    assert float(rows[0]["ttft_p50"]) == pytest.approx(0.2)
    assert float(rows[0]["instance_cost_per_million_2.5"]) > 0


def test_a_spreadsheet_takes_no_text_for_a_formula():
    told = ladder()
    told["levels"][0]["backend"] = "=1+2"
    assert next(csv.DictReader(io.StringIO(report.table(document.plain(told)))))["backend"] == "'=1+2"
