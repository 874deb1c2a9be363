import sys

import pytest

from loadgen.sandbox import run


def test_a_program_that_ends_well_says_nothing():
    assert run("assert 1 + 1 == 2") is None


def test_a_failed_assertion_is_named():
    assert run("assert False, 'seven is not eight'") == "AssertionError: seven is not eight"


def test_leaving_early_with_an_error_status_is_a_failure():
    assert run("raise SystemExit(3)") == "exit status 3"


@pytest.mark.skipif(sys.platform == "win32", reason="limits are POSIX")
def test_an_endless_loop_is_stopped():
    assert "1 s of CPU" in run("while True: pass", seconds=1)


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS is not kept everywhere")
def test_memory_is_limited():
    assert "MemoryError" in run("x = bytearray(2 << 30)")


def test_waiting_for_input_or_sleeping_does_not_hang():
    assert run("import time; time.sleep(60)", seconds=1) == "took more than 1 s"


def test_the_program_sees_none_of_our_environment(monkeypatch):
    monkeypatch.setenv("MERCURY_API_KEY", "secret-value")
    assert run("import os; assert 'MERCURY_API_KEY' not in os.environ") is None
