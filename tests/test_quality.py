import json

import pytest

from loadgen.quality import Score, fact, pass_rate, prose, repetition, score, unfenced
from loadgen.sandbox import run
from loadgen.workload import Prompt, builtin

SOLUTIONS = {
    "code-01": """
def binary_search(items, target):
    low, high = 0, len(items)
    while low < high:
        middle = (low + high) // 2
        if items[middle] < target:
            low = middle + 1
        else:
            high = middle
    return low if low < len(items) and items[low] == target else -1""",
    "code-02": """
def is_palindrome(text):
    kept = [c.lower() for c in text if c.isalnum()]
    return kept == kept[::-1]""",
    "code-03": """
def merge(left, right):
    merged, left, right = [], list(left), list(right)
    while left and right:
        merged.append((left if left[0] <= right[0] else right).pop(0))
    return merged + left + right""",
    "code-04": """
def roman(number):
    signs = [(1000, 'M'), (900, 'CM'), (500, 'D'), (400, 'CD'), (100, 'C'), (90, 'XC'), (50, 'L'), (40, 'XL'),
             (10, 'X'), (9, 'IX'), (5, 'V'), (4, 'IV'), (1, 'I')]
    written = ''
    for value, sign in signs:
        while number >= value:
            written, number = written + sign, number - value
    return written""",
    "code-05": """
def balanced(text):
    stack = []
    for c in text:
        if c in '([{':
            stack.append(c)
        elif c in ')]}' and (not stack or stack.pop() != {')': '(', ']': '[', '}': '{'}[c]):
            return False
    return not stack""",
    "code-06": """
def flatten(nested):
    return [leaf for item in nested for leaf in (flatten(item) if isinstance(item, list) else [item])]""",
    "code-07": """
def primes(limit):
    return [n for n in range(2, limit) if all(n % d for d in range(2, int(n ** 0.5) + 1))]""",
    "code-08": """
import re
def word_count(text):
    counts = {}
    for word in re.findall('[a-z]+', text.lower()):
        counts[word] = counts.get(word, 0) + 1
    return counts""",
    "code-09": """
from itertools import groupby
def run_lengths(text):
    return [(c, len(list(run))) for c, run in groupby(text)]""",
    "code-10": """
def gcd(a, b):
    while b:
        a, b = b, a % b
    return a""",
    "code-11": """
def transpose(rows):
    return [list(column) for column in zip(*rows)]""",
    "code-12": """
class Stack:
    def __init__(self):
        self.items = []
    def push(self, item):
        self.items.append(item)
    def pop(self):
        return self.items.pop()
    def peek(self):
        return self.items[-1]
    def __len__(self):
        return len(self.items)""",
    "code-13": """
import os
def longest_common_prefix(words):
    return os.path.commonprefix(list(words))""",
    "code-14": """
import re
def parse_duration(text):
    found = re.fullmatch(r'(?:(\\d+)h)?(?:(\\d+)m)?(?:(\\d+)s)?', text)
    if not text or not found:
        raise ValueError(text)
    h, m, s = (int(part or 0) for part in found.groups())
    return h * 3600 + m * 60 + s""",
    "code-15": """
from collections import deque
def shortest_path(graph, start, goal):
    paths, seen = deque([[start]]), {start}
    while paths:
        path = paths.popleft()
        if path[-1] == goal:
            return path
        for node in graph[path[-1]]:
            if node not in seen:
                seen.add(node)
                paths.append([*path, node])
    return None""",
    "code-16": """
def percentile(values, q):
    ordered = sorted(values)
    place = (len(ordered) - 1) * q / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)""",
}


@pytest.mark.parametrize("prompt", builtin(["code"], ["en"]), ids=lambda p: p.id)
def test_a_right_program_passes_its_prompt_s_tests_and_an_empty_one_fails(prompt):
    text = f"Here you are:\n```python\n{SOLUTIONS[prompt.id.removesuffix('-en')]}\n```\nThat is all."
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
