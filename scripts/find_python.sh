#!/usr/bin/env bash
# Prints the path of a Python 3.9 to 3.11 that can create virtual environments and compile
# extension modules. If set, $PYTHON is the only candidate. As root on Debian or Ubuntu, installs
# what such a Python lacks; otherwise says in one sentence how to.
set -euo pipefail

usable() { # usable PYTHON CODE
  "$1" -c "$2" >/dev/null 2>&1
}

readonly version_fits='import sys; sys.exit(not (3, 9) <= sys.version_info < (3, 12))'
readonly makes_venvs='import ensurepip, venv'
readonly has_headers='
import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))'

found=
for candidate in ${PYTHON:-python3.11 python3.10 python3.9 python3 python}; do
  if usable "$candidate" "$version_fits"; then
    found=$("$candidate" -c 'import sys; print(sys.executable)')
    usable "$found" "$makes_venvs" && usable "$found" "$has_headers" && break
  fi
done

if [[ -z $found ]]; then
  echo "tofu needs Python 3.9, 3.10 or 3.11 (MXNet 1.9.1 runs on no other)${PYTHON:+, and $PYTHON is not one}:" \
    "install one, or name one with 'make PYTHON=/path/to/python3.11'." >&2
  exit 1
fi

if ! usable "$found" "$makes_venvs" || ! usable "$found" "$has_headers"; then
  name=python$("$found" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  if [[ $(id -u) -eq 0 && $found == /usr/bin/* ]] && command -v apt-get >/dev/null; then
    echo "installing $name-venv and $name-dev" >&2
    apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$name-venv" "$name-dev" >&2
  else
    echo "$found lacks the module venv or the header Python.h:" \
      "install them with 'sudo apt-get install $name-venv $name-dev', then run make again." >&2
    exit 1
  fi
fi

echo "$found"
