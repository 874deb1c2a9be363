"""Splice, then parse, is parse, then change; and what nobody changed stays byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.body import Body, BodyError

# -- transcripts ---------------------------------------------------------------------------------


ROWS = [
    ("a value is replaced in place", b'{"a": 1, "b":2}', {"a": "x"}, (), b'{"a": "x", "b":2}'),
    ("an absent key goes right after the brace", b'{ "a":1 }', {"b": True}, (), b'{"b":true, "a":1 }'),
    ("an empty object gets no comma", b" {} ", {"b": None}, (), b' {"b":null} '),
    (
        "big integers survive",
        b'{"seed":9007199254740993123,"a":1}',
        {"a": 2},
        (),
        b'{"seed":9007199254740993123,"a":2}',
    ),
    (
        "numbers keep their spelling",
        b'{"t":0.10000000000000000555,"a":1}',
        {"a": 2},
        (),
        b'{"t":0.10000000000000000555,"a":2}',
    ),
    ("duplicates elsewhere survive", b'{"m":{"k":1,"k":2},"a":1}', {"a": 2}, (), b'{"m":{"k":1,"k":2},"a":2}'),
    ("all spellings of the key are changed", b'{"a":1,"\\u0061":2}', {"a": 3}, (), b'{"a":3,"\\u0061":3}'),
    ("lone surrogates survive", b'{"p":"\\ud800","a":1}', {"a": 2}, (), b'{"p":"\\ud800","a":2}'),
    ("NaN survives", b'{"p":NaN,"a":1}', {"a": 2}, (), b'{"p":NaN,"a":2}'),
    ("bytes that are no UTF-8 survive", b'{"p":"\xff","a":1}', {"a": 2}, (), b'{"p":"\xff","a":2}'),
    ("a byte order mark survives", b'\xef\xbb\xbf{"a":1}', {"b": 2}, (), b'\xef\xbb\xbf{"b":2,"a":1}'),
    ("a key that is no ASCII is found", b'{"caf\xc3\xa9":1}', {"café": 2}, (), b'{"caf\xc3\xa9":2}'),
    ("braces in strings are text", b'{"p":"}{\\"a\\":9","a":1}', {"a": 2}, (), b'{"p":"}{\\"a\\":9","a":2}'),
    ("the first member goes with its comma", b'{ "a":1, "b":2}', {}, ("a",), b'{ "b":2}'),
    ("a member in the middle goes with one comma", b'{"a":1, "b":2 , "c":3}', {}, ("b",), b'{"a":1, "c":3}'),
    ("the last member goes with its comma", b'{"a":1, "b":2 }', {}, ("b",), b'{"a":1 }'),
    ("the only member goes", b'{"a":1 }', {}, ("a",), b"{ }"),
    ("removing what is absent changes nothing", b'{"a":null}', {}, ("b", ("a", "c"), ("b", "c")), b'{"a":null}'),
    ("all go and one comes", b'{"a":1,"b":2}', {"c": 3}, ("a", "b"), b'{"c":3}'),
    ("a path is set inside an object", b'{"s":{ "x":1},"a":1}', {("s", "y"): 2}, (), b'{"s":{"y":2, "x":1},"a":1}'),
    ("a path makes the objects it needs", b'{"a":1}', {("s", "y", "z"): 2}, (), b'{"s":{"y":{"z":2}},"a":1}'),
    ("a path replaces what is no object", b'{"s":null}', {("s", "y"): 2}, (), b'{"s":{"y":2}}'),
    ("two paths meet in one object", b"{}", {("s", "y"): 1, ("s", "z"): 2}, (), b'{"s":{"y":1,"z":2}}'),
    ("removed, then set inside: a new object", b'{"s":{"x":1}}', {("s", "y"): 2}, ("s",), b'{"s":{"y":2}}'),
    ("set whole, then in part", b'{"s":1}', {("s", "y"): 2, "s": {"x": 1}}, (), b'{"s":{"y":2,"x":1}}'),
    ("removed and set: set", b'{"s":1}', {"s": 2}, ("s",), b'{"s":2}'),
    ("a member inside goes", b'{"s":{"x":1,"y":2}}', {}, (("s", "x"),), b'{"s":{"y":2}}'),
    ("an integer over 64 bits is written", b"{}", {"a": 1 << 70}, (), b'{"a":1180591620717411303424}'),
    ("a lone surrogate is written", b"{}", {"a": "\ud800"}, (), b'{"a":"\\ud800"}'),
]


@pytest.mark.parametrize(
    ("raw", "changes", "remove", "wanted"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_splices(raw: bytes, changes: dict[Any, Any], remove: tuple[Any, ...], wanted: bytes) -> None:
    assert Body.read(raw).replace(changes, remove) == wanted


def test_without_changes_the_bytes_are_the_very_same_object() -> None:
    raw = b'{ "a" : 1 }'
    assert Body.read(raw).replace({}) is raw
    assert Body.read(raw).replace({}, remove=("b",)) == raw


def test_of_equal_keys_the_last_one_is_read() -> None:
    body = Body.read(b'{"model":"a","model":"b"}')
    assert body.get("model") == "b"
    assert "model" in body and "stream" not in body
    assert body.get("stream", False) is False


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "no JSON"),
        (b'{"a":1} x', "no JSON"),
        (b'{"a":1', "no JSON"),
        (b"[1]", "must be a JSON object"),
        (b'"text"', "must be a JSON object"),
        (b"\xff\xfe{", "no JSON"),
        (b'{"a":' * 500_000, "nested too deeply"),
    ],
)
def test_what_is_no_object_is_refused_in_one_line(raw: bytes, says: str) -> None:
    with pytest.raises(BodyError, match=says) as refusal:
        Body.read(raw)
    assert "\n" not in str(refusal.value)


def test_the_bytes_of_a_prompt_are_in_no_repr() -> None:
    assert "secret" not in repr(Body.read(b'{"messages":"secret"}'))


def test_an_integer_of_thousands_of_digits_is_no_error() -> None:
    digits = b"9" * 5000
    assert Body.read(b'{"big":' + digits + b',"a":1}').replace({"a": 2}) == b'{"big":' + digits + b',"a":2}'


# -- laws ----------------------------------------------------------------------------------------

KEYS = st.sampled_from(["a", "b", "model", "stream_options", "é", "\n", '"', "", "模型"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text('ab"\\\n{}é模\u2028', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
PATHS = st.one_of(KEYS, st.tuples(KEYS), st.tuples(KEYS, KEYS))


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """Objects in many spellings: ASCII or not, tight or roomy."""
    members = draw(st.dictionaries(KEYS, VALUES, max_size=6))
    text = json.dumps(members, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1, "\t"])))
    return (draw(st.sampled_from(["", " ", "\n"])) + text + draw(st.sampled_from(["", "\r\n "]))).encode()


def _steps(path: str | tuple[str, ...]) -> tuple[str, ...]:
    return (path,) if isinstance(path, str) else path


def _without(said: dict[str, Any], path: tuple[str, ...]) -> None:
    for key in path[:-1]:
        said = said.get(key)  # type: ignore[assignment]
        if not isinstance(said, dict):
            return
    said.pop(path[-1], None)


def _with(said: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        if not isinstance(said.get(key), dict):
            said[key] = {}
        said = said[key]
    said[path[-1]] = value


@given(documents(), st.dictionaries(PATHS, VALUES, max_size=4), st.lists(PATHS, max_size=4))
def test_splice_then_parse_is_parse_then_change(raw: bytes, changes: dict[Any, Any], remove: list[Any]) -> None:
    sets = {_steps(path): value for path, value in changes.items()}
    wanted = json.loads(raw)
    for path in remove:
        _without(wanted, _steps(path))
    for path, value in sorted(sets.items(), key=lambda item: len(item[0])):
        _with(wanted, path, value)
    assert json.loads(Body.read(raw).replace(sets, remove)) == wanted


@given(documents(), KEYS)
def test_all_bytes_around_a_changed_value_stay(raw: bytes, key: str) -> None:
    body, marker = Body.read(raw), "the only text of its kind"
    before, after = body.replace({key: marker}).split(json.dumps(marker).encode())
    if key in body:
        assert raw.startswith(before) and raw.endswith(after)
        assert json.loads(raw[len(before) : len(raw) - len(after)]) == body.get(key)
    else:
        brace = raw.index(b"{") + 1
        assert before.startswith(raw[:brace]) and after.removeprefix(b",") == raw[brace:]


@given(documents(), st.lists(KEYS, max_size=3))
def test_removing_keeps_every_other_member_as_it_was_spelled(raw: bytes, gone: list[str]) -> None:
    left = Body.read(raw).replace({}, gone)
    for key, value in json.loads(raw).items():
        if key not in gone:
            assert json.loads(left)[key] == value
    assert Body.read(left).replace({}, gone) == left
