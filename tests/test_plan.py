import json

import orjson
import pytest

from loadgen.options import Options, Refused
from loadgen.plan import Ask, limits, paced, prompts
from loadgen.schedule import Closed, Open
from loadgen.workload import Question, Workload, builtin


def test_prompts_come_from_sets_from_a_length_or_from_a_file(tmp_path):
    assert {p.kind for p in prompts("short,code", "en", 0)} == {"short", "code"}
    assert len(prompts("short", "both", 0)) == 2 * len(prompts("short", "zh", 0))
    assert prompts("synthetic:50", "both", 1)[0].blocks == (("1:0", 50),)
    (tmp_path / "p.jsonl").write_text(json.dumps({"prompt": "Hi"}))
    assert prompts(str(tmp_path / "p.jsonl"), "both", 0)[0].text == "Hi"


@pytest.mark.parametrize(
    ("spec", "language", "message"),
    [
        ("poems", "both", "--prompts: 'poems' is neither a file nor one of short"),
        ("synthetic:x", "both", "--prompts: "),
        ("synthetic:0", "both", "at least one token"),
        ("short", "fr", "--language: en, zh or both, not 'fr'"),
    ],
)
def test_prompts_that_are_not_there_are_one_line(spec, language, message):
    with pytest.raises(Refused, match=message):
        prompts(spec, language, 0)


def test_the_nth_question_is_the_nth_prompt_with_the_run_s_headers():
    ask = Ask(Workload(builtin(["short"]), 3), Question(model="m", extra={"diffusing": True}), ((b"x-a", b"1"),))
    query = ask(5)
    assert orjson.loads(query.body)["messages"][0]["content"] == ask.work[5].text
    assert (query.model, query.replace, query.headers) == ("m", True, ((b"x-a", b"1"),))


def test_a_token_limit_paces_the_load_to_the_longest_answers():
    schedule = paced(Options(otpm=10_000, max_tokens=250), 8)
    assert isinstance(schedule, Open) and schedule.knots[-1].rate == pytest.approx(10_000 / 60 / 250)
    assert paced(Options(), 8) == Closed(8)


def test_mercury_s_limit_is_warned_of_before_the_load_but_not_for_a_simulated_one():
    assert "10,000 output tokens a minute" in limits(Options(), "mercury-2.5", "https://api.example/v1")[0]
    assert limits(Options(), "mercury-2.5", "http://127.0.0.1:8001/v1") == []
    assert limits(Options(), "gpt-9", "https://api.example/v1") == []
    assert limits(Options(otpm=10_000), "mercury-2.5", "https://api.example/v1") == []
