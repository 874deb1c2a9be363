import json

import pytest

from loadgen.quality import Score, fact, pass_rate, prose, repetition, score, unfenced
from loadgen.sandbox import run
from loadgen.workload import Prompt, builtin


@pytest.mark.parametrize("prompt", builtin(["code"], ["en"]), ids=lambda p: p.id)
def test_a_right_program_passes_its_prompt_s_tests_and_an_empty_one_fails(prompt):
    text = f"Here you are:\n```python\n{prompt.solution}\n```\nThat is all."
    assert score(prompt, text, "stop", run) == Score(True)
    assert score(prompt, "pass", "stop", run).passed is False


def test_code_is_not_run_unless_that_was_allowed():
    prompt = Prompt(id="p", tests="raise SystemExit(1)")
    assert score(prompt, "x = 1") == Score(True, "parsed, not run")
    assert score(prompt, "x = (1").passed is False


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        ("The answer is 45.", True),
        ("**45**", True),
        ("答案是45。", True),
        ("45.00 euros", True),
        ("145", False),
        ("4.5", False),
        ("45.5", False),
        ("45,000", False),
        ("forty five", False),
    ],
)
def test_a_number_counts_only_as_a_number_of_its_own(text, passed):
    assert fact(text, ["45"]).passed is passed


def test_a_fact_is_found_whatever_its_case_width_or_language():
    assert fact("the capital is CANBERRA!", ["Canberra", "堪培拉"]).passed
    assert fact("首都是堪培拉。", ["Canberra", "堪培拉"]).passed
    assert fact("ＨＴＴＰ　４０４", ["404"]).passed
    assert fact("It is Sydney.", ["Canberra"]) == Score(False, "none of Canberra in the text")


def test_structured_output_is_json_that_fits_its_schema_with_or_without_a_fence():
    prompt = builtin(["structured"], ["en"])[0]
    answer = json.dumps({"item": "blue folder", "quantity": 12, "express": False})
    assert score(prompt, answer).passed
    assert score(prompt, f"```json\n{answer}\n```").passed
    assert score(prompt, answer.replace("12", "13")).reason == "$.quantity is not 12"
    assert score(prompt, "Sure! " + answer).reason.startswith("not JSON")


def test_a_long_text_must_be_long_enough_finished_and_not_go_in_circles():
    sentence = "Every morning number {} the keeper writes a new line about wind {} and ships {}. "
    good = "".join(sentence.format(n, n * 7, n * 13) for n in range(20)).strip()
    assert prose(good, 900, "stop").passed
    assert prose(good, 900, "length").reason == "cut off at max_tokens"
    assert prose(good[:150].strip(), 900, "stop").reason == "150 characters, at least 900 were asked for"
    assert prose(good[:-10], 900, "stop").reason == "ends in the middle of a sentence"
    assert "repeated phrases" in prose("The same line again. " * 60, 900, "stop").reason


def test_repetition_is_the_share_of_phrases_seen_before():
    assert repetition("one two three four five") == 0
    assert repetition("a b c d a b c d") == pytest.approx(1 / 5)
    assert repetition("水从云中落下汇入大海" * 20) > 0.9
    assert repetition("") == 0


def test_no_text_is_a_failure_and_no_check_is_no_pass():
    assert score(Prompt(id="p"), "  ").passed is False
    assert score(Prompt(id="p"), None).passed is False
    assert score(Prompt(id="p"), "anything").passed is None


def test_the_pass_rate_is_of_what_was_checked():
    assert pass_rate([Score(True), Score(False), Score(None), Score(True)]) == pytest.approx(2 / 3)
    assert pass_rate([Score(None)]) is None


def test_a_fence_that_was_never_closed_is_read_to_the_end():
    assert unfenced("```python\nx = 1\n") == "x = 1"
    assert unfenced("  x = 1 ") == "x = 1"
