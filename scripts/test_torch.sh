#!/usr/bin/env bash
# Runs the tests of PyTorch's front end in an environment of its own, in build/torch: MXNet and
# torch need different NumPys. tofu is this folder's, with the extension that make built.
# TORCH_BUILD=cpu: only a CPU build of torch, of the newest version that has one here.
# TORCH_VERSION=2.9: that version instead of the latest known to work, in an environment of its own,
# and a sample of the tests. Arguments are pytest's.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${BUILD:-build} venv=${VENV:-.venv}
version=${TORCH_VERSION:-}
environment=${TORCH_VENV:-$build/torch/env$version} site=$build/torch/site$version
tests=(tests/python/torch)
torch='torch>=2.9,<2.15'
if [[ -n $version ]]; then
  torch="torch==$version.*"
  tests=(tests/python/torch/test_{module_trace,new_sizes,safety}.py)
fi
needs=("$torch" numpy click jinja2 rich pytest pytest-timeout pytest-xdist 'transformers>=4.57,<5.25' accelerate
  expecttest)

skip() {
  echo "make test-torch: $1; the tests of PyTorch's front end were not run" >&2
  mkdir -p "$build" && echo "PyTorch's front end: $1" >>"$build/not_run"  # for .ci/run
  exit 0
}

has_cpu_build() {  # whether pip would install this torch without NVIDIA's packages
  "${pip[@]}" install --dry-run --report - "$1" 2>/dev/null | "$venv/bin/python" -c '
import json, sys
names = [package["metadata"]["name"] for package in json.load(sys.stdin)["install"]]
sys.exit(any(name.startswith("nvidia-") for name in names))' 2>/dev/null
}

"$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
  skip "torch 2.9 needs Python 3.10"

if [[ ! -e $environment/.torch ]]; then
  "$venv/bin/python" -m venv "$environment"
  pip=("$environment/bin/python" -m pip --disable-pip-version-check -q)
  if [[ ${TORCH_BUILD:-} == cpu ]]; then
    minors=(2.{14..9})
    [[ -z $version ]] || minors=("$version")
    needs[0]=
    for minor in "${minors[@]}"; do
      if has_cpu_build "torch==$minor.*"; then
        needs[0]="torch==$minor.*"
        break
      fi
    done
    [[ -n ${needs[0]} ]] || skip "no CPU build of $torch can be installed here"
  fi
  echo "installing ${needs[0]}"
  "${pip[@]}" install "${needs[@]}" || skip "${needs[0]} cannot be installed here"
  touch "$environment/.torch"
fi

rm -rf "$site"
mkdir -p "$site/tofu"
ln -s "$PWD"/python/tofu/* "$PWD/tdl" "$site/tofu"
ln -s "$("$venv/bin/python" -c 'from tofu import _core; print(_core.__file__)')" "$site/tofu"
export PYTHONPATH=$PWD/$site OMP_NUM_THREADS=1
[[ $site != /* ]] || export PYTHONPATH=$site
[[ $# != 0 ]] || set -- "${tests[@]}"
exec "$environment/bin/python" -m pytest "$@"
