import io

from rich.console import Console

from loadgen import document
from loadgen.console import Screen, pictures, rolling, tables
from tests.documents import hostile, ladder, level_json
from tests.readings import failure, stream


def shown(told, width=100):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    Screen(console=console).show(document.plain(told), "runs/x/report.html")
    return console.file.getvalue()


def single():
    return ladder() | {"levels": [level_json(4)], "knees": {}}


def test_the_verdict_is_the_first_line():
    assert shown(ladder()).splitlines()[0] == "mercury: as measured"
    assert shown(ladder()).splitlines()[-1] == "Report: runs/x/report.html"


def test_one_level_has_at_most_twelve_rows_and_each_unit_once():
    (table,) = tables(document.plain(single()))
    assert table.row_count <= 12
    text = shown(single())
    assert "first token, ms" in text and "decode rate, tokens/s" in text
    assert "0.2 s" not in text


def test_a_ladder_has_a_row_for_each_level_and_marks_the_knee():
    text = shown(ladder())
    assert "P50 P95 P99" in text
    assert "◂" in text


def test_a_table_fits_eighty_columns():
    for told in (single(), ladder()):
        assert max(len(line) for line in shown(told, 80).splitlines() if not line.startswith("!")) <= 80


def test_a_long_refusal_does_not_push_the_settings_away():
    cell = level_json(1) | {"label": "steps 4, width 32", "speed": None, "quality": None, "chars": None}
    cell |= {"effect": "refused: " + "because " * 30}
    text = shown(ladder() | {"cells": [cell], "front": []}, 80)
    assert "steps 4, width 32" in text and "refused: because" in text


def test_what_is_not_defined_is_called_so():
    readings = [stream(bursts=1) for _ in range(3)]
    from loadgen.analysis.level import level

    told = ladder() | {
        "levels": [document.measured(level(readings, backend="b", concurrency=1), readings)],
        "knees": {},
    }
    assert "not defined" in shown(told)


def test_repeats_show_the_median_and_its_interval():
    told = ladder()
    told["levels"] = told["levels"] * 2
    told["repeats"] = {"mercury": [{"concurrency": 1, "mean": 188.0, "interval": [180.0, 196.0]}]}
    (table,) = tables(document.plain(told))
    assert table.row_count == 4
    assert "± 8" in shown(told, 120)


def test_untrusted_text_is_not_read_as_markup():
    told = hostile()
    told["verdict"] = "[bold red]not markup[/] [/oops]"
    assert "[bold red]not markup[/] [/oops]" in shown(told)


def test_an_answer_is_drawn_as_silence_and_bursts():
    lines = pictures("m", document.shown([stream(start=float(i)) for i in range(9)]))
    assert lines[0] == "m: 200.0 ms silence, 8 bursts, 340.0 ms in all"
    assert "·" * 30 in lines[1] and lines[2].startswith("  the run")


def test_rolling_numbers_are_of_what_was_seen_last():
    readings = [stream(start=float(i)) for i in range(4)] + [failure()]
    assert rolling(readings) == "first token 200 ms · 77 tokens/s · 1 failed"
    assert rolling([]) == ""


def test_progress_is_shown_in_a_terminal_and_nowhere_else():
    for terminal in (True, False):
        console = Console(file=io.StringIO(), force_terminal=terminal, width=80)
        screen = Screen(console=console)
        screen.begin("mercury [x] × 4", 2)
        screen.saw(stream())
        screen.saw(failure())
        screen.end()
        assert ("mercury [x] × 4" in console.file.getvalue()) is terminal
