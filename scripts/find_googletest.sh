#!/usr/bin/env bash
# Makes sure that CMake finds GoogleTest. If it does not, installs GoogleTest as root on Debian
# or Ubuntu; otherwise says in one sentence how to get it. $1: the cmake to use.
set -euo pipefail

cmake=${1:?usage: find_googletest.sh CMAKE}

probe=$(mktemp -d)
trap 'rm -rf "$probe"' EXIT

has_googletest() {
  printf '%s\n' 'cmake_minimum_required(VERSION 3.18)' 'project(probe CXX)' \
    'find_package(GTest REQUIRED)' >"$probe/CMakeLists.txt"
  "$cmake" -S "$probe" -B "$probe/build" >/dev/null 2>&1
}

if has_googletest; then
  exit 0
fi
if [[ $(id -u) -eq 0 ]] && command -v apt-get >/dev/null; then
  echo "installing libgtest-dev" >&2
  apt-get update -qq >&2
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq libgtest-dev >&2
  exit 0
fi
echo "GoogleTest, which the C++ tests need, was not found:" \
  "install it with 'sudo apt-get install libgtest-dev', then run make again." >&2
exit 1
