# Two commands, each enough on a fresh machine with Python, pip and make:
#   make conformance   run the suite against the installed tensorizer and safetensors
#   make test          lint, types, and the tests of the plugin and the suite

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The oldest versions that pyproject.toml admits, laid over the environment: the tests of the plugin run on them too.
OLDEST := .venv-oldest
ON_OLDEST := $(addprefix tests/process/test_,marker.py parity.py runs.py) \
    $(addprefix tests/suite/,report test_collect.py test_fuzzing.py test_overrides.py test_run.py test_search.py) \
    $(addprefix tests/strategies/test_,health.py modules.py tensors.py) tests/fuzz/test_search.py \
    tests/engines tests/storage tests/test_accelerator_guard.py tests/test_plugin.py \
    -k "not elsewhere and not spawn"
WORKERS ?= 2
ARGS ?=

# Keep bytecode, whatever the environment says: each clean process would else compile the same sources anew.
export PYTHONDONTWRITEBYTECODE =

.PHONY: conformance test lint test-oldest bench lock clean

conformance: $(VENV)/installed
	$(BIN)/pytest --tensorizer-conformance -n $(WORKERS) $(ARGS)

test: lint $(VENV)/installed
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)
	$(MAKE) test-oldest

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test-oldest: $(OLDEST)/installed
	PYTHONPATH=$(CURDIR)/$(OLDEST) $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ON_OLDEST) $(ARGS)

bench: $(VENV)/installed
	for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

# An environment that a killed run left half-made has no such file, and is made anew.
$(VENV)/installed: requirements.lock pyproject.toml
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

$(OLDEST)/installed: requirements-oldest.lock $(VENV)/installed
	rm -rf $(OLDEST)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(OLDEST) -r requirements-oldest.lock
	touch $@

# Pin what this environment has. Run it in one that was made from pyproject.toml with `torch==2.13.0` first.
lock:
	$(BIN)/python -m pip freeze --all --exclude-editable | grep -v ^pip== | sed "s/+cpu//" > requirements.lock

clean:
	rm -rf $(VENV) $(OLDEST) build dist *.egg-info
