import random

import pytest

from loadgen.cell import differs, grid, labels, mark


def cell(steps, width, seconds, tokens=100, text="t{n}", ok=True, seed=0):
    source = random.Random(f"{steps}{width}{seed}")
    answers = [
        {"n": n, "sec": seconds * source.uniform(0.97, 1.03), "tokens": tokens, "text": text.format(n=n)}
        for n in range(8)
    ]
    settings = {"steps": steps, "width": width, "effort": None, "max_tokens": 256, "concurrency": 1}
    return {"settings": settings, "answers": answers if ok else [], "effect": "" if ok else "refused: no"}


def test_the_grid_is_every_combination_and_names_what_varies():
    cells = grid(steps=[4, 8], width=[32, 64], effort=[], max_tokens=[256], concurrency=[1])
    assert len(cells) == 4
    assert labels(cells) == ["steps 4, width 32", "steps 4, width 64", "steps 8, width 32", "steps 8, width 64"]
    assert labels(grid(steps=[], width=[], effort=[], max_tokens=[256], concurrency=[1])) == [
        "max tokens 256, concurrency 1"
    ]


def test_a_setting_that_changes_times_is_seen_and_one_that_does_not_is_named():
    cells = [cell(steps, width, 0.1 * steps, text=f"{steps}-{{n}}") for steps in (4, 8) for width in (32, 64)]
    mark(cells)
    assert {c["effect"] for c in cells} == {"no effect seen: width"}


def test_three_questions_are_too_few_to_say_that_a_setting_has_no_effect():
    cells = [cell(steps, 32, 0.1 * steps, text=f"{steps}-{{n}}") for steps in (4, 64)]
    for each in cells:
        each["answers"] = each["answers"][:3]
    mark(cells)
    assert {c["effect"] for c in cells} == {"under 6 questions, can't tell: steps"}


def test_settings_that_all_matter_are_seen():
    cells = [cell(steps, width, 0.1 * steps + 1 / width) for steps in (4, 8) for width in (8, 16)]
    mark(cells)
    assert {c["effect"] for c in cells} == {"seen"}


def test_a_refused_cell_keeps_its_reason_and_is_compared_with_nobody():
    cells = [cell(4, 32, 0.4), cell(8, 32, 0.4, ok=False)]
    mark(cells)
    assert [c["effect"] for c in cells] == ["", "refused: no"]


@pytest.mark.parametrize(
    ("other", "different"),
    [
        (cell(8, 32, 0.4, seed=1), False),  # the same but for noise
        (cell(8, 32, 0.8), True),
        (cell(8, 32, 0.4, tokens=50), True),
        (cell(8, 32, 0.404), False),  # one percent is no effect
    ],
)
def test_cells_differ_by_time_or_length(other, different):
    assert differs(cell(4, 32, 0.4), other) is different


def test_texts_speak_only_where_the_server_says_the_same_twice():
    some = cell(8, 32, 0.4)
    for answer in some["answers"][:3]:
        answer["text"] = "changed"
    assert differs(cell(4, 32, 0.4), some)
    assert not differs(cell(4, 32, 0.4, text="a{n}"), cell(8, 32, 0.4, text="b{n}"))
