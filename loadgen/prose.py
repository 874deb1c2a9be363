"""What a simulated model says: text made of countable tokens, JSON that fits a schema, and noise.

1. A token is what `split` says: its pieces joined give the text back, so token counts are exact and
   an answer cut at a token is a prefix of the whole one.
2. The same question gives the same answer. Knobs (denoising steps, width) change only how much of it
   is noise, so that a sweep compares like with like.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Source(Protocol):
    """Where chance comes from: `random.Random(seed)` fits."""

    def random(self) -> float: ...
    def choice(self, seq: Sequence[T], /) -> T: ...
    def sample(self, population: Sequence[T], k: int) -> list[T]: ...


_TOKEN = re.compile(r"\s*(?:[A-Za-z]{1,12}|\d{1,3}|[\u3400-\u9fff]{1,2}|\S)|\s+")
_CHINESE = re.compile(r"[\u3400-\u9fff]")
_WANTS_CODE = re.compile(r"\b(?:code|function|python|class|script|refactor)\b|代码|函数|脚本", re.IGNORECASE)

_ENGLISH = (
    "A gauge shows the pressure at one point of a pipe.",
    "The column of mercury rises until its weight balances the load.",
    "Nobody can steer a plant by an average alone.",
    "Two readings taken together say more than ten taken apart.",
    "The first drop tells little about how fast the vessel fills.",
    "A valve that opens in bursts still has a steady mean flow.",
    "Write down the unit before you write down the number.",
    "If the needle trembles, look at the mounting before you blame the boiler.",
    "The pump starts slowly, then delivers a whole chamber at once.",
    "Long pipes hide short surges from the instrument at their end.",
    "A leak is found by comparing what went in with what came out.",
    "The engineer on duty keeps the log, and the log keeps the engineer honest.",
    "Every tank has a size at which more inlets no longer help.",
    "When the queue grows, the wait grows faster than the work.",
    "A good instrument disturbs the stream as little as it can.",
    "What is not written in the log did not happen.",
    "Calibrate against a known weight, then against a second one.",
    "The cold reading and the warm reading belong in separate columns.",
    "Half the steps give nearly the same shape, until suddenly they do not.",
    "Ask who reads the dial before you choose its scale.",
)
_CHINESE_SENTENCES = (
    "压力计只说明管道中一个点的情况。",
    "水银柱上升，直到它的重量与负载平衡。",
    "单看平均值，没有人能管好一座工厂。",
    "两次同时的读数胜过十次分开的读数。",
    "第一滴水很难说明容器多久会满。",
    "阀门一阵一阵地打开，平均流量仍然可以稳定。",
    "先写单位，再写数字。",
    "指针抖动时，先检查安装，再怀疑锅炉。",
    "水泵起步很慢，然后一次送出整整一腔。",
    "长管道会掩盖末端仪表看不到的短暂波动。",
    "把流入和流出相比较，就能找到泄漏。",
    "排队变长时，等待比工作增长得更快。",
    "好的仪器尽量少打扰水流。",
    "没有写进记录的事，就等于没有发生。",
    "步数减半，形状几乎不变，直到某一刻突然变了。",
)
_CODE = (
    """\
def binary_search(items, wanted):
    low, high = 0, len(items) - 1
    while low <= high:
        middle = (low + high) // 2
        if items[middle] == wanted:
            return middle
        if items[middle] < wanted:
            low = middle + 1
        else:
            high = middle - 1
    return -1
""",
    """\
def moving_average(values, width):
    total, averages = 0.0, []
    for i, value in enumerate(values):
        total += value
        if i >= width:
            total -= values[i - width]
        if i >= width - 1:
            averages.append(total / width)
    return averages
""",
    """\
def flow(pressure, area, density=1000.0):
    if pressure < 0 or area < 0:
        raise ValueError("negative")
    speed = (2 * pressure / density) ** 0.5
    return speed * area
""",
)


def split(text: str) -> list[str]:
    """The tokens of `text`; joined, they are `text` again."""
    return _TOKEN.findall(text)


def answer(question: str, tokens: int, random: Source) -> str:
    """An answer of at least `tokens` tokens in the question's language: prose, or code where code was asked for."""
    if _WANTS_CODE.search(question):
        return _until(tokens, _shuffled(_CODE, random), "\n\n")
    chinese = _CHINESE.search(question) is not None
    return _until(tokens, _shuffled(_CHINESE_SENTENCES if chinese else _ENGLISH, random), "" if chinese else " ")


def _shuffled(parts: Sequence[str], random: Source) -> Iterator[str]:
    while True:
        yield from random.sample(parts, len(parts))


def _until(tokens: int, parts: Iterator[str], joint: str) -> str:
    said, count = [next(parts)], 0
    while (count := count + len(split(said[-1]))) < tokens:
        said.append(next(parts))
    return joint.join(said)


def blemish(tokens: Sequence[str], share: float, random: Source) -> list[str]:
    """`tokens` as too few denoising steps leave them: about `share` of them repeated, misspelt or lost.

    The number of tokens stays. One draw for each token, so a larger share spoils a superset.
    """
    out: list[str] = []
    for i, token in enumerate(tokens):
        chance, way = random.random(), random.random()
        out.append(_spoil(token, tokens[i - 1] if i else token, way) if chance < share else token)
    return out


def _spoil(token: str, before: str, way: float) -> str:
    blank = token[: len(token) - len(token.lstrip())]
    word = token.strip()
    if way < 0.4:
        return before
    if way < 0.7 and len(word) > 2:
        return blank + word[0] + " " + word[2:]
    if way < 0.9:
        return blank + word + word[-1:]
    return " "


def noise(token: str, random: Source) -> str:
    """A token of the same length that has not converged yet."""
    return "".join(c if c.isspace() else random.choice("abcdefghijklmnopqrstuvwxyz") for c in token)


def specimen(schema: Any, random: Source) -> Any:
    """A value that fits a JSON schema: the usual keywords, `$ref` within the schema, nothing exotic."""
    return _fit(schema, schema, random, 0)


def _fit(schema: Any, root: Any, random: Source, depth: int) -> Any:
    if not isinstance(schema, dict) or depth > 12:
        return None
    if isinstance(ref := schema.get("$ref"), str):
        return _fit(_at(root, ref), root, random, depth + 1)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if options := schema.get("enum"):
        return random.choice(options)
    for key in ("anyOf", "oneOf", "allOf"):
        if options := schema.get(key):
            return _fit(options[0], root, random, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "object":
        return {name: _fit(part, root, random, depth + 1) for name, part in schema.get("properties", {}).items()}
    if kind == "array":
        return [_fit(schema.get("items"), root, random, depth + 1) for _ in range(max(1, schema.get("minItems", 2)))]
    return _scalar(kind, schema, random)


def _scalar(kind: str, schema: dict[str, Any], random: Source) -> Any:
    low = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
    if kind == "integer":
        return int(min(low + int(random.random() * 40), schema.get("maximum", low + 40)))
    if kind == "number":
        return round(min(low + random.random() * 40, schema.get("maximum", low + 40)), 2)
    if kind == "boolean":
        return random.random() < 0.5
    if kind == "null":
        return None
    text = " ".join(random.choice(_ENGLISH).rstrip(".").split()[:4])
    return text.ljust(schema.get("minLength", 0), ".")[: schema.get("maxLength", len(text) + 999)]


def _at(root: Any, ref: str) -> Any:
    for part in ref.removeprefix("#/").split("/"):
        root = root.get(part) if isinstance(root, dict) else None
    return root


def as_json(value: Any) -> str:
    """JSON as models write it: readable, not escaped."""
    return json.dumps(value, ensure_ascii=False, indent=1)
