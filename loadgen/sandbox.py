"""Run a program that a model wrote: in a process of its own, with limits, without our environment.

This keeps honest mistakes (endless loops, runaway memory, stray files) from doing harm. It is not a
prison for hostile code, which is why running answers has to be asked for (`--run-code`).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

# The child limits itself before it reads the program, so no code runs between fork and exec.
_CHILD = """
import resource, sys
limits = dict(CPU={seconds}, AS=512 << 20, FSIZE=1 << 20, NOFILE=16, NPROC=0, CORE=0)
for name, limit in limits.items():
    try:
        resource.setrlimit(getattr(resource, "RLIMIT_" + name), (limit, limit))
    except (AttributeError, ValueError, OSError):
        pass  # not every system has, or lets one set, every limit
program = sys.stdin.read()
exec(compile(program, "answer", "exec"), {{"__name__": "answer"}})
"""


def run(program: str, seconds: int = 5) -> str | None:
    """None when the program ended well, else the last line it said, or that it took too long."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            ended = subprocess.run(
                [sys.executable, "-I", "-S", "-c", _CHILD.format(seconds=seconds)],
                input=program,
                capture_output=True,
                cwd=folder,
                encoding="utf-8",
                errors="replace",
                env={},
                timeout=seconds + 2,
            )
        except subprocess.TimeoutExpired:
            return f"took more than {seconds} s"
    if ended.returncode == 0:
        return None
    if ended.returncode < 0:
        return f"was stopped by signal {-ended.returncode} (limit of {seconds} s of CPU, or of memory)"
    lines = ended.stderr.strip().splitlines()
    return lines[-1][:200] if lines else f"exit status {ended.returncode}"
