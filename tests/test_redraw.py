from datetime import datetime

from typer.testing import CliRunner

from loadgen.cli import build
from loadgen.folder import Folder
from tests.documents import ladder


def report(*arguments):
    return CliRunner().invoke(build("report"), ["report", *map(str, arguments)])


def run(root, name):
    place = Folder.create(root, name, datetime(2026, 11, 30))
    place.write(ladder(name))
    return place.path


def test_a_report_is_drawn_again_from_the_summary_alone(tmp_path):
    folder = run(tmp_path, "one")
    result = report(folder, "--no-charts")
    assert result.exit_code == 0
    assert "mercury: as measured" in (folder / "report.html").read_text()


def test_several_runs_become_one_page_beside_their_folders(tmp_path):
    folders = [run(tmp_path, name) for name in ("one", "two")]
    assert report(*folders, "--no-charts").exit_code == 0
    assert "Runs compared" in (tmp_path / "compared.html").read_text()


def test_what_is_no_run_is_one_line(tmp_path):
    result = report(tmp_path)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "holds no summary.json" in result.stderr
