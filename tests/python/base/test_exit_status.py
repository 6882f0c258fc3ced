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
        ("raise SystemExit(8)", 8),
        ("raise SystemExit", 0),
        ("raise type('Mine', (SystemExit,), {})(9)", 9),
    ],
)
def test_what_the_script_asks_for(last, status):
    line = [sys.executable, "-c", SCRIPT.format(last=last)]
    done = subprocess.run(line, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == (f"status {status}\n", status)


def test_a_code_can_be_read_and_set_as_before():
    script = """
from tofu import exit_status
exit_status.remember()
error = SystemExit(3)
assert (error.code, error.args) == (3, (3,))
error.code = "text"
assert error.code == "text"
del error.code
assert error.code is None
assert SystemExit.code.__doc__ == "exception code"
"""
    subprocess.run([sys.executable, "-c", script], check=True)
