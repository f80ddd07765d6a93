# The front door. Every target creates the environment it needs: there is no step before it.
PYTHON ?= python3
BIN := .venv/bin
ENV := .venv/.complete

.PHONY: run test quick lint bench fuzz soak vectors lock format clean

run: $(ENV)  ## a cluster that is broken on purpose and loses nothing; ARGS=--exit ends by itself
	$(BIN)/quorate demo $(ARGS)

test: $(ENV)  ## everything, with the minutes of each part
	$(BIN)/python tools/run_parts.py pure processes interop zookeeper spark fuzz simulation

quick: $(ENV)  ## the pure tests alone
	$(BIN)/python tools/run_parts.py pure

lint: $(ENV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(ENV)  ## both sides in one run, as ratios
	$(BIN)/python -m bench

fuzz: $(ENV)  ## the fuzzers for ten minutes and from a new seed, and property tests with new draws
	QUORATE_FUZZ_SECONDS=600 QUORATE_FUZZ_SEED=$$(date +%s) QUORATE_DRAWS=new \
		$(BIN)/python tools/run_parts.py properties fuzz

soak: $(ENV)  ## the simulation part of `make test`, but for half an hour and from a new seed
	QUORATE_SIMULATION_SECONDS=$${SECONDS_TO_SOAK:-1800} QUORATE_SIMULATION_SEED=$$(date +%s) \
		QUORATE_DRAWS=new $(BIN)/python tools/run_parts.py simulation

vectors: $(ENV)  ## after a change of declarations: confirms and writes the vectors again; needs Java and Maven
	$(BIN)/python tools/make_vectors.py

format: $(ENV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: $(ENV)  ## after a change of dependencies in pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --all-extras --no-header --no-annotate \
		--python-version 3.11 --upgrade pyproject.toml --output-file requirements.lock
	$(BIN)/uv pip compile --quiet --generate-hashes --no-header --no-annotate --python-version 3.11 --upgrade \
		requirements-spark-4.0.in --output-file requirements-spark-4.0.lock

$(ENV): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q src  # once, and not in every process that a test starts
	touch $@

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
