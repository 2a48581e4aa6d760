# The commands of the README. Each sets up `.venv` by itself.
PYTHON ?= python3
VENV := .venv
DEMO ?= demo
INSTALLED := $(VENV)/.installed
DOCUMENTED := $(VENV)/.documented
RELEASABLE := $(VENV)/.releasable
DIST ?= dist
export BIGTRK_TESTDATA ?= $(realpath ../shared)

.PHONY: demo test check types tests docs install release
install: $(INSTALLED)

# torch first, by exact version: an open range would fetch gigabytes of CUDA on a CPU machine.
# The wheels of acts need glibc 2.34: tests of ACTS are skipped without.
$(INSTALLED): pyproject.toml constraints.txt
	@echo "Installing torch and bigtrk's requirements into $(VENV): this takes minutes"
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --upgrade pip
	$(VENV)/bin/python -m pip install --quiet torch==2.13.0 -c constraints.txt
	$(VENV)/bin/python -m pip install --quiet -e '.[dev]' -c constraints.txt
	$(VENV)/bin/python -m pip install --quiet -e '.[acts]' -c constraints.txt || true
	touch $@

$(DOCUMENTED): $(INSTALLED)
	$(VENV)/bin/python -m pip install --quiet -e '.[docs]' -c constraints.txt
	touch $@

$(RELEASABLE): $(INSTALLED)
	$(VENV)/bin/python -m pip install --quiet -e '.[release]' -c constraints.txt
	touch $@

demo: $(INSTALLED)
	rm -rf "$(DEMO)"
	$(VENV)/bin/bigtrk demo "$(DEMO)" $(if $(PARTICLES),--particles $(PARTICLES)) $(if $(SEED),--seed $(SEED))

# What a contributor waits for; `make check` runs the slow tests, too. mypy keeps one core busy for a
# minute and more: tests run beside it.
test: SELECTED := -m 'not slow'
test check: $(INSTALLED)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(MAKE) --no-print-directory --jobs 2 types tests SELECTED="$(SELECTED)"

types: $(INSTALLED)
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

# The jobs of this make are nothing to those that tests start. Compiled modules are kept, whatever
# the environment says: tests start a hundred processes, each of which would compile them again.
tests: $(INSTALLED)
	MAKEFLAGS= PYTHONDONTWRITEBYTECODE= $(VENV)/bin/python -m pytest -n 3 --dist loadscope --no-loadscope-reorder $(SELECTED)

# A link or an anchor that leads nowhere ends it; mkdocs overlooks both when told to be --quiet.
docs: $(DOCUMENTED)
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m mkdocs build --strict

# The wheel and the sdist, and the wheel tried in a new environment that has no compiler.
release: $(RELEASABLE)
	PYTHON=$(PYTHON) scripts/release/release.sh $(DIST)
