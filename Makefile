# make help lists the targets. Needs Python 3.11 or newer, git and make; everything else goes into .venv.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?=
UV ?= uv
BIN := .venv/bin
INSTALLED := .venv/.installed
OLDEST := .venv-oldest/.installed
NEWEST := .venv-newest/.installed
OLDEST_VERSIONS = $(shell sed -nE 's/^ *"(jax|numpyro)>=([0-9.]+).*/\1==\2.*/p' pyproject.toml)
CHAPTERS = $(wildcard book/*.ipynb)

# The kernels and tools of .venv, whatever the user's own Jupyter and pytest are set to.
export JUPYTER_PREFER_ENV_PATH := 1
export PATH := $(CURDIR)/$(BIN):$(PATH)

# Every program that a chapter compiles, large or small, is compiled once for make test and for make book.
# The key is the program itself and the version of XLA. Not for make bench, which times compilation too.
test book notebooks: export JAX_COMPILATION_CACHE_DIR := $(CURDIR)/.jax_cache
test book notebooks: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS := 0
# Little is computed there, and much compiled: with less optimisation, in a third of the time.
test book notebooks: export XLA_FLAGS := --xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0
# Of each operation the lines of the program that it comes from, which no test reads, are a part of the tracing time.
test book notebooks: export JAX_TRACEBACK_IN_LOCATIONS_LIMIT := 0
# The threads of OpenBLAS wait for more by spinning, on the cores that the other worker needs.
test test-oldest test-newest book notebooks: export OPENBLAS_NUM_THREADS := 1
# Of a program that it finds there jaxlib 0.10.1 says, wrongly, that it was made for another machine.
test book notebooks: export TF_CPP_MIN_LOG_LEVEL := 3
# One chapter may read what another is still writing: JAX says so, and compiles.
test book notebooks: export PYTHONWARNINGS := ignore:Error reading persistent compilation cache entry

.PHONY: help book preview pdf test lint notebooks bench lab browser-test linkcheck test-wheel test-oldest test-newest \
  lock clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | while IFS=$$'\t' read -r target what; \
	  do printf '  make %-13s %s\n' "$$target" "$$what"; done

book: $(INSTALLED)  ## execute every chapter and build _build/html/index.html
	@rm -rf _build
	jupyter-book build . -W -n --keep-going
	@echo "The book: file://$(CURDIR)/_build/html/index.html"

preview: $(INSTALLED)  ## the pages with the outputs that are committed, nothing executed: _build/preview
	@mkdir -p _build/preview
	@sed 's/execute_notebooks: force/execute_notebooks: "off"/' _config.yml > _build/preview/_config.yml
	PYTHONPATH=.:book/_extensions jupyter-book build . -W -n --keep-going --config _build/preview/_config.yml --path-output _build/preview
	@echo "The book: file://$(CURDIR)/_build/preview/_build/html/index.html"

pdf: $(INSTALLED)  ## print the pages that make book built as _build/pdf/laplace-book.pdf (needs Chromium)
	python -m tools.pdf

test: $(INSTALLED)  ## unit tests, doctests and every chapter's outputs
	python -m pytest

lint: $(INSTALLED)  ## ruff (check and format, chapters included), mypy and spelling
	ruff check .
	ruff format --check .
	mypy
	codespell

notebooks: $(INSTALLED)  ## format and execute every chapter, write its outputs back, normalised
	ruff format -q $(CHAPTERS)
	python -m tools.notebooks $(CHAPTERS)

bench: $(INSTALLED)  ## time this package beside its peers
	python -m benchmarks

lab: $(INSTALLED)  ## open the chapters in JupyterLab
	jupyter lab book

browser-test: $(INSTALLED)  ## open every built page in Chromium, network off
	python -m pytest $$(grep -l 'mark\.browser' -r tests --include="test_*.py") -m browser --dist loadgroup

linkcheck: $(INSTALLED)  ## follow every link of the book to another site (needs the network)
	jupyter-book build . --builder linkcheck

test-wheel: $(INSTALLED)  ## every chapter with what a student has: the wheel[sparse] and Jupyter, outside this folder
	rm -rf .venv-wheel dist
	python -m hatchling build -t wheel
	$(call environment,.venv-wheel)
	.venv-wheel/bin/python -m pip install -q --disable-pip-version-check "$$(echo dist/*.whl)[sparse]" jupyter
	.venv-wheel/bin/python -P tools/outside.py $(CHAPTERS)

test-oldest: $(OLDEST)  ## unit tests with the oldest jax and numpyro that pyproject.toml names
	.venv-oldest/bin/python -m pytest tests laplacebook --ignore tests/book --ignore tests/test_packaging.py

test-newest: $(NEWEST)  ## unit tests with the newest jax and numpyro that the newest Python here can have
	.venv-newest/bin/python -m pytest tests laplacebook --ignore tests/book --ignore tests/test_packaging.py

lock:  ## write requirements.lock again from pyproject.toml
	@command -v $(UV) >/dev/null || { echo "make lock needs uv: pip install uv" >&2; exit 1; }
	$(UV) pip compile -q --universal --fork-strategy fewest --python-version 3.11 --all-extras \
	  --generate-hashes --no-emit-index-url --no-header pyproject.toml -o requirements.lock

clean:  ## remove what make made, the environments included
	rm -rf .venv .venv-oldest .venv-newest .venv-wheel _build dist .jax_cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# $(call environment,folder): keeps one that works, else makes it with the first Python that can. Deletes nothing.
define environment
@$(1)/bin/python -m pip --version >/dev/null 2>&1 && exit; \
for python in $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11); do \
  $$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
  echo "$(1): made with $$($$python --version)"; exec $$python -m venv $(1); \
done; \
echo "This book needs Python 3.11 or newer with venv and ensurepip (Debian: python3-venv), and found none." \
  "Install one, or name it: make PYTHON=/path/to/python3" >&2; exit 1
endef

$(INSTALLED): requirements.lock pyproject.toml
	$(call environment,.venv)
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# The lock without jax and numpyro, which take the lowest version that pyproject.toml allows, and without what needs another jax.
$(OLDEST): requirements.lock pyproject.toml
	$(call environment,.venv-oldest)
	sed -nE '/^(jax|jaxlib|numpyro|flax|orbax-[a-z]*)==/!s/^([a-z][^ ]*==[^ ]+( ; [^\\]*)?) *\\?$$/\1/p' requirements.lock > .venv-oldest/lock.txt
	.venv-oldest/bin/python -m pip install -q --disable-pip-version-check -c .venv-oldest/lock.txt \
	  $(OLDEST_VERSIONS) -e '.[test]'
	@touch $@

# Without the lock. JAX has long left Python 3.11.
$(NEWEST): PYTHON := $(or $(PYTHON),python3.14 python3.13 python3.12 python3)
$(NEWEST): pyproject.toml
	$(call environment,.venv-newest)
	.venv-newest/bin/python -m pip install -q --disable-pip-version-check --upgrade -e '.[test]'
	@touch $@
