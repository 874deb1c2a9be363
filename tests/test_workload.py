import json
from collections import Counter

import orjson
import pytest

from loadgen.workload import KINDS, Prompt, Question, Workload, builtin, filler, read, synthetic


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_each_set_has_at_least_15_prompts_in_each_language(kind, language):
    prompts = builtin([kind], [language])
    assert len(prompts) >= 15
    assert len({p.text for p in prompts}) == len(prompts) == len({p.id for p in prompts})
    chinese = [any("\u4e00" <= c <= "\u9fff" for c in p.text) for p in prompts]
    assert all(chinese) if language == "zh" else not any(chinese)


def test_every_built_in_prompt_can_be_checked():
    for prompt in builtin():
        checks = [bool(prompt.answers), prompt.schema is not None, prompt.tests is not None, prompt.least is not None]
        assert sum(checks) == 1, prompt.id


def test_an_unknown_set_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="no prompt set 'poems': there are short, long"):
        builtin(["poems"])


def test_the_same_seed_asks_the_same_and_another_seed_another_order():
    prompts = builtin(["short"])
    first, again, other = (Workload(prompts, seed) for seed in (1, 1, 2))
    ids = [first[n].id for n in range(100)]
    assert ids == [again[n].id for n in range(100)]
    assert ids != [other[n].id for n in range(100)]


def test_the_nth_prompt_does_not_depend_on_what_was_asked_before():
    prompts = builtin(["code"])
    straight = [Workload(prompts, 5)[n].id for n in range(80)]
    one = Workload(prompts, 5)
    assert [one[n].id for n in reversed(range(80))] == straight[::-1]


def test_each_pass_asks_every_prompt_once():
    prompts = builtin(["long"], ["en"])
    work = Workload(prompts, 3)
    size = len(prompts)
    for turn in range(3):
        assert set(Counter(work[turn * size + n].id for n in range(size)).values()) == {1}
    assert [work[n].id for n in range(size)] != [work[size + n].id for n in range(size)]


def test_an_empty_workload_is_refused():
    with pytest.raises(ValueError, match="no prompt"):
        Workload([])


def test_synthetic_prompts_have_their_length_and_share_no_prefix():
    prompts = synthetic(200, 8, seed=1)
    texts = [p.conversation()[0]["content"] for p in prompts]
    assert all(len(text.split()) == 200 for text in texts)
    assert len({text[:40] for text in texts}) == 8
    assert filler("a", 5) == filler("a", 9)[: len(filler("a", 5))]


def test_a_body_asks_for_a_stream_with_usage_and_passes_extra_fields_on():
    question = Question(model="m", max_tokens=64, temperature=0.0, extra={"num_denoising_steps": 8})
    assert orjson.loads(question.body(Prompt(id="1", text="Hi"))) == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 64,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "num_denoising_steps": 8,
    }


def test_a_prompt_s_own_length_goes_before_the_run_s():
    body = orjson.loads(Question(model="m", stream=False).body(Prompt(id="1", text="Hi", max_tokens=7)))
    assert (body["max_tokens"], "stream" in body, "temperature" in body) == (7, False, False)


def test_json_lines_in_the_common_spellings_are_read():
    rows = [
        {"prompt": "a", "max_tokens": 5, "answers": ["x"]},
        {"text": "b", "kind": "short"},
        {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "c"}]},
        {"custom_id": "q", "method": "POST", "body": {"model": "m", "messages": [{"role": "user", "content": "d"}]}},
    ]
    prompts = read([*(json.dumps(row) for row in rows), ""])
    assert [p.conversation()[-1]["content"] for p in prompts] == ["a", "b", "c", "d"]
    assert (prompts[0].max_tokens, prompts[0].answers, prompts[3].id) == (5, ("x",), "q")


def test_a_mooncake_trace_keeps_times_lengths_and_shared_prefixes():
    rows = [
        {"timestamp": 5000, "input_length": 1000, "output_length": 20, "hash_ids": [7, 9]},
        {"timestamp": 2000, "input_length": 600, "output_length": 30, "hash_ids": [7, 8]},
    ]
    first, second = read(map(json.dumps, rows))
    assert (first.at, second.at) == (0.0, 3.0)  # in order of time, from 0
    assert (first.max_tokens, second.max_tokens) == (30, 20)
    words = [p.conversation()[0]["content"].split() for p in (first, second)]
    assert [len(w) for w in words] == [600, 1000]
    assert words[0][:512] == words[1][:512]
    assert words[0][512:] != words[1][512:600]


def test_recorded_readings_are_replayed_by_length_and_time():
    rows = [{"id": "r1", "started_at": 1000.5, "tokens": {"prompt": 12, "completion": 34}, "outcome": "ok"}]
    (prompt,) = read(map(json.dumps, rows))
    assert (prompt.at, prompt.max_tokens, len(prompt.conversation()[0]["content"].split())) == (0.0, 34, 12)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["{"], "f, line 1: not JSON"),
        (['{"prompt": "a"}', "[]"], "f, line 2: expected an object with"),
        (['{"prompt": 3}'], "f, line 1: cannot be read"),
        (['{"timestamp": "x", "input_length": 3}'], "f, line 1: cannot be read"),
        (['{"body": 3}'], "f, line 1: cannot be read"),
        ([""], "f: holds no prompt"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(lines, message):
    with pytest.raises(ValueError, match=message):
        read(lines, "f")
