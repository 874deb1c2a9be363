"""Is the answer any good? Checks that need no other model, one kind for each kind of prompt.

| prompt has | passes when |
|---|---|
| answers | one of them is in the text, as a word of its own |
| schema | the text is JSON (a code fence around it is forgiven) and fits |
| tests | the text holds Python that parses; with a `run`, the prompt's own tests pass too |
| least | it is long enough, does not repeat itself and was not cut off |

A check can prove an answer wrong; that it passes proves little. The hard cases have to be read by someone:
`sweep --read` makes the page for that.
"""

from __future__ import annotations

import ast
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from .schema import misfit
from .workload import Prompt

REPETITION = 0.5  # a text of which more than this share is repeated phrases goes in circles
Run = Callable[[str], str | None]  # runs a program; None when it ended well, else why not

_FENCE = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)", re.DOTALL)
_WORDS = re.compile(r"[^\W\d_]+|\d+|[^\w\s]", re.UNICODE)
_IDEOGRAPHS = re.compile(r"[\u3400-\u9fff]")
_ENDS = tuple(".!?。！？…\"'”’)）】`*|")


@dataclass(frozen=True, slots=True)
class Score:
    """What a check found. `passed` None: there was nothing to check."""

    passed: bool | None
    reason: str = ""


NOT_CHECKED = Score(None, "nothing to check")


def score(prompt: Prompt, text: str | None, finish: str | None = None, run: Run | None = None) -> Score:
    """Check one answer. `finish` is its finish reason; `run` executes code and is only given when that was allowed."""
    if not text or not text.strip():
        return Score(False, "no text")
    if prompt.answers:
        return fact(text, prompt.answers)
    if prompt.schema is not None:
        return structure(text, prompt.schema)
    if prompt.tests is not None:
        return code(text, prompt.tests, run)
    if prompt.least is not None:
        return prose(text, prompt.least, finish)
    return NOT_CHECKED


def pass_rate(scores: Sequence[Score]) -> float | None:
    """Passed / checked. None when nothing was checked."""
    checked = [s.passed for s in scores if s.passed is not None]
    return sum(checked) / len(checked) if checked else None


def fact(text: str, answers: Sequence[str]) -> Score:
    """Whether one of the answers occurs as a word: 45 is not in 145, 4.5, 45.5 or 45,000, but it is in 45.00."""
    plain = _plain(text)
    for answer in answers:
        wanted = re.escape(_plain(answer))
        before = r"(?<![\w.,])" if wanted[:1].isascii() else ""
        after = r"(?!\w|,\d|\.\d*[1-9])" if wanted[-1:].isascii() else ""
        # An ideograph next to a Latin word or a number is no part of it
        if re.search(before + wanted + after, _IDEOGRAPHS.sub(" \\g<0> ", plain) if wanted.isascii() else plain):
            return Score(True)
    return Score(False, f"none of {', '.join(answers)} in the text")


def structure(text: str, schema: Any) -> Score:
    """Whether the text is JSON that fits the schema."""
    try:
        value = orjson.loads(unfenced(text))
    except orjson.JSONDecodeError as error:
        return Score(False, f"not JSON: {error}")
    reason = misfit(value, schema)
    return Score(reason is None, reason or "")


def code(text: str, tests: str, run: Run | None) -> Score:
    """Whether the text holds Python that parses and, where it may be run, passes the tests."""
    program = unfenced(text)
    try:
        ast.parse(program)
    except (SyntaxError, ValueError, RecursionError) as error:
        return Score(False, f"does not parse: {error}")
    if run is None:
        return Score(True, "parsed, not run")
    reason = run(f"{program}\n\n{tests}\n")
    return Score(reason is None, reason or "")


def prose(text: str, least: int, finish: str | None) -> Score:
    """Whether a long text is long enough, does not go in circles, and came to its end."""
    if finish == "length":
        return Score(False, "cut off at max_tokens")
    if len(text.strip()) < least:
        return Score(False, f"{len(text.strip())} characters, at least {least} were asked for")
    repeated = repetition(text)
    if repeated > REPETITION:
        return Score(False, f"{repeated:.0%} of it is repeated phrases")
    if not text.rstrip().endswith(_ENDS):
        return Score(False, "ends in the middle of a sentence")
    return Score(True)


def repetition(text: str, phrase: int = 4) -> float:
    """The share of phrases (of four words; of eight ideographs) that occurred before. 0 in short texts."""
    ideographs = _IDEOGRAPHS.findall(text)
    words = ideographs if len(ideographs) > len(text) / 4 else _WORDS.findall(text.casefold())
    length = phrase * 2 if words is ideographs else phrase
    phrases = [tuple(words[i : i + length]) for i in range(len(words) - length + 1)]
    return 1 - len(set(phrases)) / len(phrases) if phrases else 0.0


def unfenced(text: str) -> str:
    """What stands in the text's code fences, or the text when there are none."""
    blocks = _FENCE.findall(text)
    return "\n".join(blocks).strip() if blocks else text.strip()


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()
