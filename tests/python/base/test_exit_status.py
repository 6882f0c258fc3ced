"""The exit status that a script asks for, before the process ends."""

import subprocess
import sys

import pytest

SCRIPT = """
import atexit, os, sys
from tofu import exit_status
exit_status.remember()
exit_status.remember()
script = exit_status.Script()
atexit.register(lambda: print("status", script.status()))
def leave():
    sys.exit(7)
try:
    sys.exit(4)
except SystemExit:
    pass
{last}
"""


@pytest.mark.parametrize(
    ("last", "status"),
    [
        ("", 0),
        ("sys.exit()", 0),
        ("sys.exit(6)", 6),
        ("leave()", 7),
        ("exit(5)", 5),
        ("quit(3)", 3),
        ("sys.exit('bad')", 1),
    ],
)
def test_what_the_script_asks_for(last, status):
    line = [sys.executable, "-c", SCRIPT.format(last=last)]
    done = subprocess.run(line, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == (f"status {status}\n", status)
