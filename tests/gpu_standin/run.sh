#!/usr/bin/env bash
# Runs the tests of this folder with MXNet's wheel for GPUs, in an environment of their own,
# on libraries that stand in for CUDA's (build_libraries.py). Arguments go to pytest. Where the
# wheel cannot be downloaded, says that and succeeds.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly build=$(realpath "${BUILD:-build}") base=$(realpath "${VENV:-.venv}")
readonly own=$build/gpu_standin
readonly python=$own/venv/bin/python
readonly patience=900  # seconds

if [[ ! -e $own/.installed ]]; then
  mkdir -p "$own"
  "$base/bin/python" -m venv "$own/venv"
  # 500 MB.
  if ! timeout "$patience" "$python" -m pip --disable-pip-version-check -q download --no-deps \
      -d "$own/wheel" 'mxnet-cu112==1.9.1' >"$own/download.log" 2>&1; then
    rm -rf "$own/wheel"
    echo "skipped: the wheel mxnet-cu112 1.9.1 cannot be downloaded (see $own/download.log)"
    echo "stand-in for GPUs: the wheel mxnet-cu112 1.9.1 cannot be downloaded" >>"$build/not_run"
    exit 0
  fi
  "$python" -m pip --disable-pip-version-check -q install "$own"/wheel/*.whl 'numpy<1.24' \
    'click>=8.1' 'jinja2>=3.1' 'rich>=13' 'scikit-learn>=1.3,<1.8' 'pytest>=8' 'pytest-timeout>=2.3'
  rm -r "$own/wheel"
  touch "$own/.installed"
fi

# The package as installed, with this environment's MXNet.
site=$("$base/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["platlib"])')
mkdir -p "$own/package/tofu" "$own/kernels"
ln -sfn "$PWD"/python/tofu/* "$own/package/tofu/"
ln -sfn "$PWD/tdl" "$own/package/tofu/tdl"
ln -sfn "$site"/tofu/*.so "$own/package/tofu/"
cp python/tofu-switch.pth "$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')"

libmxnet=$("$python" -c 'import importlib.util as u; print(u.find_spec("mxnet").submodule_search_locations[0])')/libmxnet.so
"$python" tests/gpu_standin/build_libraries.py "$libmxnet" "$own/libraries"

export LD_LIBRARY_PATH=$own/libraries PYTHONPATH=$own/package OMP_NUM_THREADS=1
export FAKE_CXX=${CXX:-c++} FAKE_KERNELS=$own/kernels FAKE_INCLUDE=$PWD/tests/cpp
exec "$python" -m pytest tests/gpu_standin "$@"
