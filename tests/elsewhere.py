"""Programs that check this project and are no dependency of it: installed from PyPI into a venv of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def install(folder: Path, requirement: str) -> Path:
    """A venv in `folder` that has it. Skips where PyPI can't be reached; in CI that is a failure."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    command = [folder / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        missing(f"{requirement} cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
    return folder


def missing(what: str) -> None:
    """What a test needs is not there."""
    pytest.fail(what) if os.environ.get("CI") else pytest.skip(what)
