import pytest

from loadgen.client import Client
from loadgen.identity import choose, identify, names, probed
from loadgen.options import Refused
from proxy.meter.reading import Fault
from tests.readings import failure, stream

URL = "http://b/v1"


def test_models_are_read_from_a_list_and_from_nothing_else():
    assert names(b'{"data": [{"id": "a"}, {"id": "b"}]}') == ["a", "b"]
    for odd in (b"<html>", b"[]", b'{"data": 3}', b'{"data": [{"name": "a"}]}', b'{"data": [{"id": 7}]}', b""):
        assert names(odd) == []


def test_the_named_model_must_be_listed():
    assert choose("a", ["a", "b"], URL) == "a"
    with pytest.raises(Refused, match="does not list 'c', so it is not loaded"):
        choose("c", ["a", "b"], URL)


def test_diffusion_parameters_in_a_model_s_name_do_not_hide_it():
    assert choose("mercury-2.5@steps=8", ["mercury-2.5"], URL) == "mercury-2.5@steps=8"
    assert choose("mercury-2.5#cut=2", ["mercury-2.5"], URL) == "mercury-2.5#cut=2"


def test_an_only_model_need_not_be_named():
    assert choose("", ["a"], URL) == "a"
    with pytest.raises(Refused, match=r"has 9 models, give --model: m0, .*, m7, \.\.\."):
        choose("", [f"m{i}" for i in range(9)], URL)


def test_a_server_without_a_list_must_answer_in_the_model_s_name():
    assert probed(stream(answered_model="m-2026-11-01"), URL, "m").model == "m"
    assert probed(stream(answered_model=None), URL, "m").warnings == (f"{URL} does not say which model answers",)
    with pytest.raises(Refused, match="answers as 'other', not as 'm'"):
        probed(stream(answered_model="other"), URL, "m")


def test_a_server_that_does_not_answer_is_not_loaded():
    broken = failure(fault=Fault("overloaded", "try later"))
    with pytest.raises(Refused, match=r"did not answer a first question \(backend_error: try later\)"):
        probed(broken, URL, "m")


async def test_a_server_that_is_not_there_is_one_line():
    client = Client("http://127.0.0.1:9/v1")
    try:
        with pytest.raises(Refused, match=r"http://127\.0\.0\.1:9/v1: .*127\.0\.0\.1"):
            await identify(client, "http://127.0.0.1:9/v1", "m")
    finally:
        await client.close()
