# A fresh machine needs Python 3.11 or later, make and git; everything else goes into .venv.

PYTHON ?= python3
JOBS ?= 2
PYTEST_ARGS ?=
BASE ?=
HOUSE_ARGS ?=
REPLAY_ARGS ?=
SHARED ?= ../shared
MEASURED ?= $(SHARED)/facts/measured.json

BIN := .venv/bin
# Modules are compiled by who imports them: most of torch, triton and jax never are.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
CORE := .venv/.core
STAMP := .venv/.installed
LINKS := build/link/weft/__init__.py

# Byte code is kept: without it each of the hundreds of processes that the tests start compiles
# numpy, scipy or torch anew, and each worker every test.
unexport PYTHONDONTWRITEBYTECODE

# The browser of some tests is fetched while weft is installed.
MAKEFLAGS += --jobs=2

.DEFAULT_GOAL := help
.PHONY: bench browser calibration clean damaged demo dev dist docs gaps grade help house libraries lint mutants repeatable replay shared sweep test types

help: ## show this list
	@echo "make TARGET, where TARGET is one of"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1:\2/p' Makefile | while IFS=: read -r name text; do \
		printf '  %-10s %s\n' "$$name" "$$text"; done

demo: $(CORE) ## see weft work, from a topology to a checked program
	@sh docs/demo.sh $(BIN)/weft

test: $(STAMP) browser ## run the whole test suite (PYTEST_ARGS='-k name', JOBS=2)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(PYTEST_ARGS)

browser: # a headless Chromium for tests/browser, if this machine lets us have one
	@sh tests/browser/install.sh

bench: $(STAMP) ## measure weft itself
	$(BIN)/python tests/bench/start.py
	$(BIN)/python tests/bench/served.py
	$(BIN)/python tests/bench/tune_times.py
	$(BIN)/python tests/bench/run.py
	$(BIN)/python tests/bench/passes.py
	$(BIN)/python tests/bench/compile_speed.py
	$(BIN)/python tests/bench/program_time.py
	$(BIN)/python tests/bench/with_sketch.py
	$(BIN)/python tests/bench/scale.py
	$(BIN)/python tests/bench/published.py
	$(BIN)/python tests/bench/failures.py
	$(BIN)/python tests/bench/loop.py
	$(BIN)/python tests/bench/report_sizes.py

shared: $(STAMP) ## test the readers on files of other tools, which are in SHARED=../shared
	WEFT_SHARED=$(SHARED) $(BIN)/python -m pytest -m shared $(PYTEST_ARGS)

grade: $(STAMP) ## compare results with published ones
	$(BIN)/python tests/grade/run.py
	$(BIN)/python tests/grade/whole_job.py
	$(BIN)/python tests/grade/in_network_table.py
	$(BIN)/python tests/grade/in_network.py
	$(BIN)/python tests/grade/switch_plans.py

calibration: $(STAMP) ## program times beside published ones (MEASURED=file.json)
	$(BIN)/python tests/grade/calibration.py $(MEASURED) --left-out

libraries: $(STAMP) ## tune libraries for six machines, and judge them (an hour)
	$(BIN)/python tests/grade/libraries.py

gaps: $(STAMP) ## known gaps of programs and schedules over their bounds: before, now, why
	$(BIN)/python tests/grade/gaps.py

sweep: $(STAMP) ## compile every proved schedule in every form and execute the XML; many random examples
	$(BIN)/python tests/grade/xml_sweep.py
	$(BIN)/python tests/grade/emission.py
	$(BIN)/python tests/grade/packing_sweep.py
	$(BIN)/python tests/grade/taccl_sweep.py
	$(BIN)/python tests/grade/dask_sweep.py
	$(BIN)/python tests/grade/merged_sweep.py
	$(BIN)/python tests/grade/switch_sweep.py
	$(BIN)/python tests/grade/cast_sweep.py
	$(BIN)/python tests/grade/certificates_sweep.py
	$(BIN)/python tests/grade/certificates_sweep.py waves
	$(BIN)/python tests/grade/solver_deaths.py
	$(BIN)/python tests/grade/fuzz_readers.py
	$(BIN)/python tests/grade/fuzz_guards.py
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --hypothesis-profile thorough -m hypothesis

mutants: $(STAMP) ## mutate correct programs at random; those that the checker accepts must execute correctly
	$(BIN)/python tests/grade/mutation_sweep.py

damaged: $(STAMP) ## search 40 damaged machines: values over bounds, allreduce against its halves; more effort against less, up to 1 % and 0.5 µs
	$(BIN)/python tests/grade/damaged.py
	$(BIN)/python tests/grade/more_effort.py

repeatable: $(STAMP) ## ask 60 questions at three efforts, idle and busy: the answers must be equal
	$(BIN)/python tests/grade/repeatable.py

house: $(STAMP) ## figures of the structure (BASE=revision to compare, HOUSE_ARGS='--walks --cpu')
	$(BIN)/python tests/house/figures.py $(if $(BASE),--base $(BASE)) $(HOUSE_ARGS)

replay: $(STAMP) ## run whole commands with BASE=HEAD and with this tree, and compare all bytes
	$(BIN)/python tests/replay/replay.py $(or $(BASE),HEAD) --jobs $(JOBS) $(REPLAY_ARGS)

lint: $(STAMP) ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## mypy, strict
	$(BIN)/mypy

docs: $(STAMP) ## the documentation as a site in build/site, links checked
	$(BIN)/python -m mkdocs --quiet build --strict

dist: $(STAMP) ## build wheel and sdist, and compare them with what git tracks
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/python tests/packaging/compare_dist.py dist

dev: $(STAMP) ## make .venv and install weft into it, editable

clean: ## remove what was built, except .venv
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

# weft and what it needs to run. hatchling first and no build isolation: so the build backend is
# under the lock as well. `touch` comes last, so an interrupted install is started again.
$(CORE): pyproject.toml constraints.txt hatch_build.py | $(LINKS)
	$(PYTHON) -m venv .venv
	$(PIP) hatchling
	$(PIP) --no-build-isolation --editable .
	touch $@

# All that tests need as well, such as torch and JAX.
$(STAMP): $(CORE)
	$(PIP) --no-build-isolation --editable '.[dev]'
	-$(BIN)/python -m compileall -q dsl synth backends $(LINKS)
	-$(BIN)/weft doctor --warm
	touch $@

# The editable install points here; after `rm -rf build` only the links are missing.
$(LINKS):
	$(PYTHON) hatch_build.py
