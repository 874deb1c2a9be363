import json
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loadgen.cli import build
from loadgen.decoding import Diffusion
from loadgen.known import answers
from tests.threaded import simulated

QUICK = Diffusion(prefill=0.0, pass_time=0.002, position_time=0.0, effort="instant", answers=answers(random.Random(0)))


def sweep(url, out, *more):
    given = [
        "sweep",
        "-u",
        url,
        "-n",
        "6",
        "--temperature",
        "0.5",
        "--prompts",
        "short",
        "--json",
        "--out",
        str(out),
        *more,
    ]
    result = CliRunner().invoke(build("sweep"), given)
    lines = result.stdout.strip().splitlines()
    return result, json.loads(lines[-1]) if lines else {}


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    with simulated(profile=QUICK, keep=4096) as backend:
        result, found = sweep(backend.url, out, "--steps", "2,32", "--width", "32,64")
        asked = list(backend.asked.values())
    return result, found, asked


def test_every_combination_is_asked_the_same_questions(swept):
    result, found, asked = swept
    assert result.exit_code == 0
    assert [cell["label"] for cell in found["cells"]] == [
        "steps 2, width 32", "steps 2, width 64", "steps 32, width 32", "steps 32, width 64",
    ]  # fmt: skip
    questions = [[answer["question"] for answer in cell["answers"]] for cell in found["cells"]]
    assert all(own == questions[0] for own in questions)
    bodies = [json.loads(x.body) for x in asked if x.method == "POST"]
    assert {(b["num_denoising_steps"], b["parallel_tokens"]) for b in bodies} == {(2, 32), (2, 64), (32, 32), (32, 64)}


def test_requests_ask_a_proxy_to_be_strict(swept):
    posts = [x for x in swept[2] if x.method == "POST"]
    assert all(dict(x.headers)[b"x-manometer-strict"] == b"1" for x in posts)


def test_speed_and_quality_stand_beside_each_other(swept):
    cells = swept[1]["cells"]
    few, many = cells[1], cells[2]
    assert few["speed"] > many["speed"]
    assert many["quality"] == 1.0
    assert few["quality"] < 1.0
    assert {cells[i]["label"] for i in swept[1]["front"]} >= {few["label"]} or few["quality"] == 0
    assert all(cell["effect"] == "seen" for cell in cells)


def test_sweep_json_has_what_the_tutorial_s_has(swept):
    cells = json.loads(Path(swept[1]["folder"], "sweep.json").read_text())["cells"]
    for cell in cells:
        assert (cell["steps"], cell["width"]) in {(2, 32), (2, 64), (32, 32), (32, 64)}
        assert cell["sec"] > 0
        assert cell["chars"] == len(cell["text"]) > 0


def test_a_sweep_goes_on_where_it_stopped(tmp_path):
    with simulated(profile=QUICK, keep=4096) as backend:
        _, first = sweep(backend.url, tmp_path, "--steps", "2,4")
        before = len(backend.asked)
        result, found = sweep(backend.url, tmp_path, "--steps", "2,4,8", "--resume", first["folder"])
        asked = [json.loads(x.body) for x in list(backend.asked.values())[before:] if x.method == "POST"]
        other, _ = sweep(backend.url, tmp_path, "--steps", "2", "--seed", "9", "--resume", first["folder"])
    assert result.exit_code == 0
    assert {body["num_denoising_steps"] for body in asked} == {8}
    assert [cell["label"] for cell in found["cells"]] == ["steps 2", "steps 4", "steps 8"]
    assert found["folder"] == first["folder"]
    assert other.exit_code == 2 and "seed" in other.stderr  # cells of another seed do not compare


def test_a_folder_without_a_sweep_is_refused(tmp_path):
    result = CliRunner().invoke(build("sweep"), ["sweep", "--resume", str(tmp_path), "--steps", "2"])
    assert (result.exit_code, "holds no readable sweep.json" in result.stderr) == (2, True)
