# Two commands do all the set-up: `make serve` and `make test`. Both create .venv themselves.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
JOBS   ?= 4
# Tests start hundreds of processes, which wait for each other more than they work, and need not compile each module again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help serve test test-long test-faults test-hosts fuzz lint format guide pictures demo release bench-match bench-http bench-rivals bench-scale bench-growth bench-client bench-console mcp-packages axe-package host-packages clean

# A virtual environment knows its own path: one that was moved or copied here runs, and installs into, another folder.
LEFT := $(shell test $(VENV) = .venv -a ! -L $(VENV) && case "$$(sed -n 's/^command = //p' $(VENV)/pyvenv.cfg 2> /dev/null)" in \
  ("") ;; (*" $$(pwd -P)/$(VENV)") test -e $(BIN)/python || echo python ;; (*) echo folder ;; esac)
ifneq ($(LEFT),)
$(info $(VENV) was made in another folder, or by a Python that is gone; it is made anew)
IGNORED := $(shell rm -rf $(VENV)/bin $(VENV)/include $(VENV)/lib $(VENV)/lib64 $(VENV)/pyvenv.cfg $(VENV)/.[a-z]*)
endif

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(BIN)/governance: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; say which one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.dev: $(BIN)/governance
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@

MCP := $(VENV)/mcp/node_modules/@modelcontextprotocol
MCP_PACKAGES := @modelcontextprotocol/sdk@1.32.2 @modelcontextprotocol/server-everything@2026.8.31

$(MCP)/server-everything/package.json: | $(BIN)/governance
	npm install --no-audit --no-fund --silent --prefix $(VENV)/mcp $(MCP_PACKAGES)

HOST_PACKAGES := @anthropic-ai/claude-code@2.1.332 @openai/codex@0.171.0 @google/gemini-cli@0.61.0 @github/copilot@1.0.102

host-packages: | $(BIN)/governance  ## the agent hosts from npm that tests run with their hooks (800 MB)
	npm install --no-audit --no-fund --silent --prefix $(VENV)/hosts $(HOST_PACKAGES)

mcp-packages: $(MCP)/server-everything/package.json  ## the client and server of MCP from npm that tests use

axe-package: | $(BIN)/governance  ## axe-core from npm, by which browser tests look for what not everybody can use
	npm install --no-audit --no-fund --silent --prefix $(VENV)/axe axe-core@4.14.1

serve: $(BIN)/governance  ## run the service with its embedded default (ARGS="--port 8701" passes flags)
	$(BIN)/governance serve $(ARGS)

demo: $(BIN)/governance  ## post a day of agent events to the running service and print the decisions
	$(BIN)/governance demo $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev  ## let ruff format and mend the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

guide: $(VENV)/.dev  ## make the reference of the guide from the tables in the code
	$(BIN)/python -m api.guide.reference

pictures: $(VENV)/.dev  ## take the pictures of the console in the README and the guide (needs a Chromium)
	KEEP_PICTURES=1 $(BIN)/pytest tests/browser/test_pictures.py

test: lint  ## lint, strict types, all tests (ARGS="-k approvals" narrows)
	$(BIN)/pytest -n $(JOBS) --dist worksteal $(ARGS)

test-long: $(VENV)/.dev  ## all tests, those that draw their inputs with many times as many
	LONG=1 $(BIN)/pytest -n $(JOBS) --dist worksteal $(ARGS)

$(VENV)/.fuzz: $(VENV)/.dev
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	@touch $@

fuzz: $(VENV)/.fuzz  ## give odd bytes to everything that reads, by coverage (ARGS="--seconds 3600 shell sql")
	$(BIN)/python -m tests.fuzz $(ARGS)

test-faults: $(VENV)/.fuzz  ## fifty kill -9 under load of service and database; a disk failing at every step; fuzzing (an hour)
	$(BIN)/python -m tests.fuzz --seconds 600
	KILL_ROUNDS=50 EVERY_STEP=1 $(BIN)/pytest -s tests/faults/test_kill_events.py tests/faults/test_disk_faults.py \
	  tests/faults/test_disk_recovery.py tests/faults/test_kill_client.py $(ARGS)

test-hosts: $(VENV)/.dev host-packages  ## real agent hosts with their hooks, their models played by a stand-in
	$(BIN)/pytest -m hosts $(ARGS)

bench-match: $(VENV)/.bench  ## matching speed against the plain scan and other engines
	$(BIN)/python -m tests.bench.match $(ARGS)

bench-http: $(VENV)/.bench  ## the service under load against a bare ASGI app
	$(BIN)/python -m tests.bench.http $(ARGS)

bench-rivals: $(VENV)/.bench  ## the service beside other servers, which it installs below a temporary folder
	$(BIN)/python -m tests.bench.rivals $(ARGS)

bench-scale: $(VENV)/.bench  ## one, two and four nodes on one PostgreSQL some milliseconds away
	$(BIN)/python -m tests.bench.scale $(ARGS)

bench-client: $(VENV)/.dev  ## what the Python client costs beside bare httpx
	$(BIN)/python -m tests.bench.client $(ARGS)

bench-console: $(VENV)/.bench  ## what people of the console wait for, in a real Chromium
	$(BIN)/python -m tests.bench.console $(ARGS)

bench-growth: $(VENV)/.bench  ## what history costs on PostgreSQL (ARGS="--events 200000 --copies 49" for ten million)
	$(BIN)/python -m tests.bench.growth $(ARGS)

release: $(BIN)/governance  ## dist/: wheel, sdist, requirements with hashes, software bill of materials
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[release]'
	rm -rf dist build
	$(BIN)/python -m build --outdir dist
	$(BIN)/pip-compile --quiet --generate-hashes --no-header --no-emit-index-url --no-emit-find-links \
	  --no-emit-trusted-host --strip-extras --allow-unsafe --output-file dist/requirements.txt pyproject.toml
	$(BIN)/pip-compile --quiet --generate-hashes --no-header --no-emit-index-url --no-emit-find-links \
	  --no-emit-trusted-host --strip-extras --allow-unsafe --extra otel --constraint dist/requirements.txt \
	  --output-file dist/requirements-otel.txt pyproject.toml
	$(PYTHON) -m venv build/installed
	build/installed/bin/pip install --quiet --disable-pip-version-check --require-hashes -r dist/requirements.txt
	build/installed/bin/pip install --quiet --disable-pip-version-check --no-deps dist/*.whl
	build/installed/bin/pip uninstall --quiet --yes pip setuptools
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --spec-version 1.6 \
	  --output-file dist/sbom.cdx.json build/installed/bin/python

clean:  ## remove what the other targets made, but not ./data
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
