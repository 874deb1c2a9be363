import json
import random

import pytest
from typer.testing import CliRunner

from loadgen.blind import choose, count
from loadgen.cli import build

EVIL = "</script><script>alert(1)</script>"


def cell(label, sec, passed=True, text=None):
    answers = [
        {
            "n": n,
            "prompt": f"p{n}",
            "question": f"Q{n} {EVIL}",
            "text": text or f"{label} says {n} {EVIL}",
            "passed": passed if n == 3 else True,
        }
        for n in range(6)
    ]
    return {"label": label, "sec": sec, "answers": answers}


def folder(tmp_path, *cells):
    (tmp_path / "sweep.json").write_text(json.dumps({"cells": cells}))
    return tmp_path


def read(*arguments):
    return CliRunner().invoke(build("sweep"), ["sweep", *map(str, arguments)])


def test_every_pair_holds_the_slowest_setting_and_another():
    pairs = choose([cell("fast", 0.1), cell("slow", 0.9), cell("middle", 0.5)], 100, random.Random(1))
    assert len(pairs) == 12
    assert all("slow" in pair["settings"] and len(set(pair["settings"])) == 2 for pair in pairs)
    sides = [pair["settings"].index("slow") for pair in pairs]
    assert 0 < sum(sides) < 12  # by chance left or right


def test_questions_on_which_the_checks_disagree_come_first():
    pairs = choose([cell("slow", 0.9), cell("fast", 0.1, passed=False)], 3, random.Random(1))
    assert len(pairs) == 3 and pairs[0]["prompt"] == "p3"


def test_equal_texts_and_a_single_setting_give_nothing_to_read(tmp_path):
    assert choose([cell("a", 1, text="same"), cell("b", 2, text="same")], 9, random.Random(1)) == []
    result = read("--read", folder(tmp_path, cell("only", 1)))
    assert (result.exit_code, "no two settings" in result.stderr) == (2, True)


def test_the_page_does_not_say_whose_an_answer_is(tmp_path):
    cells = [cell("steps 4", 0.1, text="Yes."), cell("steps 32", 0.9, text="No.")]
    assert read("--read", folder(tmp_path, *cells)).exit_code == 0
    page = (tmp_path / "read.html").read_text()
    assert "Yes." in page and "steps" not in page
    assert EVIL not in page
    assert len(json.loads((tmp_path / "read-key.json").read_text())) == 6


def test_votes_are_counted_against_the_reference():
    key = [
        {"settings": ["slow", "fast"] if n % 2 else ["fast", "slow"], "prompt": f"p{n}", "reference": "slow"}
        for n in range(10)
    ]
    votes = {str(n): ("1" if n % 2 else "2") for n in range(8)} | {"8": "=", "9": "skip"}
    (row,) = count(key, votes)
    assert (row["setting"], row["reference"]) == ("fast", "slow")
    assert (row["wins"], row["ties"], row["losses"]) == (0, 1, 8)
    assert row["chance"] == pytest.approx(2 / 2**8)


def test_a_saved_file_is_read_back(tmp_path):
    cells = [cell("steps 4", 0.1), cell("steps 32", 0.9)]
    read("--read", folder(tmp_path, *cells))
    key = json.loads((tmp_path / "read-key.json").read_text())
    votes = {str(i): str(pair["settings"].index("steps 32") + 1) for i, pair in enumerate(key)}
    (tmp_path / "saved.json").write_text(json.dumps({"folder": tmp_path.name, "votes": votes}))
    result = read("--read", tmp_path, "--votes", tmp_path / "saved.json")
    assert result.exit_code == 0
    assert "steps 4  against  steps 32: 0 better, 0 equal, 6 worse: worse (p = 0.031)" in result.stdout


def test_votes_that_do_not_fit_are_one_line(tmp_path):
    read("--read", folder(tmp_path, cell("a", 0.1), cell("b", 0.9)))
    (tmp_path / "saved.json").write_text(json.dumps({"votes": {"99": "1"}}))
    result = read("--read", tmp_path, "--votes", tmp_path / "saved.json")
    assert (result.exit_code, "does not fit" in result.stderr) == (2, True)
