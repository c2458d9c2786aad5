PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests and benchmarks start hundreds of processes: without bytecode each would compile the house anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup node browser java nginx check test test-heavy demo demo-full docs bench-plans bench-joint bench-histories bench-intervals bench-central bench-sigma bench-evidence bench-questions bench-field bench-client bench-server bench-kills bench-kills-postgresql bench-restarts bench-house bench-scale bench-costs soak clean

setup: $(VENV)/ready

$(VENV)/ready: pyproject.toml client_sdk/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable ./client_sdk --editable '.[dev]'
	touch $@

# The second reader of tests/vectors runs in Node. Where it is neither there nor to be had, its tests are skipped.
node:
	@command -v node >/dev/null || { apt-get update -qq && apt-get install -qq -y nodejs; } >/dev/null 2>&1 \
		|| echo "there is no node, and none could be installed: tests/vectors/test_node.py is skipped"

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest --doctest-modules protocol client_sdk aggregator simulations benchmarks demo

# At the lowest priority, as all that the tests start: else a fold, which gives way, would wait for the tests themselves.
test: setup node
	nice -n 19 $(BIN)/pytest tests -m "not heavy" --numprocesses 2 --dist loadfile --junitxml=build/test.xml

# The page is tried in a browser. Where none is there, nor to be had, its tests are skipped.
browser:
	@command -v chromium >/dev/null || { apt-get update -qq && apt-get install -qq -y chromium; } >/dev/null 2>&1 \
		|| echo "there is no chromium, and none could be installed: tests/browser is skipped"

# The fold on Spark needs Java. Where none is there, nor to be had, its tests on a cluster are skipped.
java:
	@command -v java >/dev/null || { apt-get update -qq && apt-get install -qq -y openjdk-17-jre-headless; } >/dev/null 2>&1 \
		|| echo "there is no java, and none could be installed: tests/spark/test_cluster.py is skipped"

# The proxy of the operator's guide is tried in nginx. Where it is neither there nor to be had, its tests are skipped.
nginx:
	@PATH=$$PATH:/usr/sbin; command -v nginx >/dev/null \
		|| { apt-get update -qq && RUNLEVEL=1 apt-get install -qq -y nginx-light; } >/dev/null 2>&1 \
		|| echo "there is no nginx, and none could be installed: tests/aggregator/test_nginx.py is skipped"

test-heavy: setup browser java nginx
	$(BIN)/pytest tests -m heavy --numprocesses 2 --dist loadfile --junitxml=build/test-heavy.xml

# The demo needs a third of what development does; where that is there, it is used.
$(VENV)/demo: pyproject.toml client_sdk/pyproject.toml constraints.txt
	@test -e $(VENV)/ready || echo "Installing into $(VENV): less than a minute on most networks"
	@test -e $(VENV)/ready || { $(PYTHON) -m venv $(VENV) && $(BIN)/pip install --quiet --no-compile --editable ./client_sdk --editable '.[demo]'; }
	@touch $@

demo: $(VENV)/demo
	$(BIN)/python -m demo

demo-full: $(VENV)/demo
	$(BIN)/python -m demo --full

docs: setup
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --builder html docs build/docs
	@echo build/docs/index.html

bench-plans: setup
	$(BIN)/python -m benchmarks plans

bench-histories: setup
	$(BIN)/python -m benchmarks histories

# The measures of intervals and the smoother, which take as long again; they go into the same file.
bench-intervals: setup
	$(BIN)/python -m benchmarks histories coverage.intervals histories.smoother

bench-joint: setup
	$(BIN)/python -m benchmarks joint

bench-central: setup
	$(BIN)/python -m benchmarks central

# The largest study of sigma-counting, which alone takes minutes.
bench-sigma: setup
	$(BIN)/python -m benchmarks sigma

bench-evidence: setup
	$(BIN)/python -m benchmarks evidence

bench-questions: setup
	$(BIN)/python -m benchmarks questions

bench-field: setup
	$(BIN)/python -m benchmarks field

bench-client: setup
	$(BIN)/python -m benchmarks client

bench-house: setup
	$(BIN)/python -m benchmarks house

bench-server: setup
	$(BIN)/python -m benchmarks server

bench-kills: setup
	$(BIN)/python -m benchmarks kills server.kills_on_sqlite

# The others of kills, into the same file: each ends within ten minutes.
bench-kills-postgresql: setup
	$(BIN)/python -m benchmarks kills server.kills_on_postgresql

bench-restarts: setup
	$(BIN)/python -m benchmarks kills server.restarts

bench-scale: setup java
	$(BIN)/python -m benchmarks scale

# What `changeling-sim capacity` multiplies, beside what bench-scale measures.
bench-costs: setup java
	$(BIN)/python -m benchmarks costs

soak: setup
	$(BIN)/python -m benchmarks soak

clean:
	rm -rf $(VENV) build dist
