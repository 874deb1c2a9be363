import json
import stat
from datetime import datetime

import pytest

from loadgen import document, folder
from loadgen.folder import Folder
from loadgen.options import Refused
from tests.documents import ladder
from tests.readings import failure, stream

NOW = datetime(2026, 11, 30, 12, 30, 5)


def test_a_folder_is_named_by_date_and_a_safe_name(tmp_path):
    assert Folder.create(tmp_path / "runs", "../my run!", NOW).path == tmp_path / "runs" / "20261130-123005-my-run"
    assert Folder.create(tmp_path / "runs", "../my run!", NOW).path.name == "20261130-123005-my-run-2"


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused, match=r"--out: .* cannot be written"):
        Folder.create(tmp_path / "file", "x", NOW)


def test_a_folder_holds_everything_and_reads_back(tmp_path):
    place = Folder.create(tmp_path, "climb", NOW)
    place.append([folder.row(stream(), level=0, n=1), folder.row(failure(), level=0, n=2)])
    place.append([folder.row(stream(), level=1, n=3)])
    place.write(ladder())
    place.draw(ladder())
    names = {path.name for path in place.path.iterdir()}
    assert {"readings.jsonl", "summary.json", "summary.csv", "report.html", "throughput.svg", "bursts.svg"} <= names
    assert not any(name.startswith(".") for name in names)
    assert folder.read(place.path) == json.loads(json.dumps(document.plain(ladder())))
    rows = [json.loads(line) for line in (place.path / "readings.jsonl").read_text().splitlines()]
    assert [row["n"] for row in rows] == [1, 2, 3]
    assert (len(rows[0]["at"]), rows[0]["burst"][0], rows[0]["ttft"]) == (8, 8.0, 0.2)
    assert (rows[1]["at"], rows[1]["outcome"]) == ([], "backend_error")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "holds no summary.json"),
        ("{", "cannot be read"),
        ("[]", "not the summary"),
        ('{"schema": 99}', "not the summary"),
    ],
)
def test_what_is_no_run_is_refused_in_one_line(tmp_path, content, message):
    if content is not None:
        (tmp_path / "summary.json").write_text(content)
    with pytest.raises(Refused, match=message):
        folder.read(tmp_path)


def test_a_png_is_drawn_where_something_here_can(tmp_path, monkeypatch):
    picture = tmp_path / "a.svg"
    picture.write_text("<svg/>")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert folder.rasterise(picture) is False
    fake = tmp_path / "rsvg-convert"
    fake.write_text('#!/bin/sh\necho png > "$4"\n')
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert folder.rasterise(picture) is True
    assert (tmp_path / "a.png").exists()
