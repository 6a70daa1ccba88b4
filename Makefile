# From a fresh machine with Python and make: `make demo`. See `make help`.

PYTHON ?=
JOBS ?= auto
ARGS ?=

CANDIDATES := python3.14 python3.13 python3.12 python3.11 python3
# A folder that was moved gets a new stamp, for a virtual environment does not survive a move.
STAMP := .venv/.installed-$(shell pwd | cksum | cut -d ' ' -f 1)
PY := .venv/bin/python
NODE_MODULES := examples/javascript/node_modules/.package-lock.json
PIP := $(PY) -m pip --disable-pip-version-check

# The tests start many processes, which would each compile all sources.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-all mutants check bench soak stubs lock python clean
.DEFAULT_GOAL := help

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /  make \1	/p' $(MAKEFILE_LIST) | expand -t 18

demo: $(STAMP) ## a thousand phones for some days: masks, ads, counts and malicious phones, and a report
	.venv/bin/reticent demo $(ARGS)

test: $(STAMP) ## the fast tests: two and a half minutes on two cores
	$(PY) -m pytest -n $(JOBS) --dist worksteal -m "not slow" $(ARGS)

test-all: $(STAMP) $(NODE_MODULES) ## all tests
	$(PY) -m pytest -n $(JOBS) --dist worksteal -m "not alone" $(ARGS)
	$(PY) -m pytest -m alone $(ARGS) || [ $$? -eq 5 ] # none is selected

mutants: $(STAMP) ## try every mutant of tests/mutants, some minutes; ARGS="--changed-since REV" tries those of a change
	$(PY) -m tests.mutants $(ARGS)

check: $(STAMP) .stubs/.installed ## lint, format, types, import contracts, and whether the generated code matches protos/
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy
	.venv/bin/lint-imports
	@rm -rf build/stubs && mkdir -p build/stubs
	@$(call GENERATE,build/stubs)
	@diff -r -x __init__.py -x __pycache__ build/stubs/reticent/v1 core/reticent/v1 || \
		{ echo "core/reticent/v1 does not match protos/: run 'make stubs'" >&2; exit 1; }

bench: $(STAMP) ## times, as ratios to what they are compared with
	$(PY) -m benchmarks $(ARGS)

soak: $(STAMP) ## a thousand contributions a second for 20 minutes on PostgreSQL, while servers are killed
	$(PY) -m benchmarks.soak $(ARGS)

stubs: .stubs/.installed ## generate the code in core/reticent/v1 from protos/
	$(call GENERATE,core)

lock: .lock/bin/uv ## solve the locks anew from pyproject.toml and protos/requirements.in
	.lock/bin/uv --quiet pip compile pyproject.toml --all-extras --universal --python-version 3.11 \
		--fork-strategy fewest --only-binary :all: --generate-hashes --no-header --upgrade \
		--output-file requirements.lock
	.lock/bin/uv --quiet pip compile protos/requirements.in --universal --python-version 3.11 \
		--only-binary :all: --generate-hashes --no-header --upgrade --output-file protos/requirements.lock

python: ## print the interpreter for .venv
	@WANTED="$(PYTHON)" sh -c "$$FIND_PYTHON"

clean: ## remove all that the targets made
	rm -rf .venv .lock .stubs build dist demo examples/javascript/node_modules .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Tries each interpreter by running it: a shim may exist and not answer. Prints the first that
# works, or one sentence that tells what to install.
define FIND_PYTHON
case "$$(uname -s) $$(uname -m)" in
    "Linux x86_64" | "Linux aarch64" | "Darwin arm64") ;;
    *)
        echo "Reticent runs on Linux (x86_64, aarch64) and Apple silicon: this is $$(uname -s) $$(uname -m)." >&2
        exit 1 ;;
esac
without_venv=
for python in $${WANTED:-$(CANDIDATES)}; do
    version=$$("$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
    case "$$version" in 3.11 | 3.12 | 3.13 | 3.14) ;; *) continue ;; esac
    if "$$python" -c 'import venv, ensurepip' 2>/dev/null; then
        echo "$$python"
        exit 0
    fi
    without_venv="$${without_venv:-$$version}"
done
if [ -n "$$without_venv" ]; then
    echo "Python $$without_venv has no venv. On Debian and Ubuntu, install it with 'sudo apt-get install python$$without_venv-venv'." >&2
elif [ -n "$$WANTED" ]; then
    echo "PYTHON=$$WANTED is not Python 3.11, 3.12, 3.13 or 3.14: name one that is." >&2
else
    echo "Reticent needs Python 3.11, 3.12, 3.13 or 3.14, and none is found: install one, or name it with PYTHON=." >&2
fi
exit 1
endef
export FIND_PYTHON

$(NODE_MODULES): examples/javascript/package-lock.json
	@if command -v npm >/dev/null; then \
		npm ci --silent --ignore-scripts --prefix examples/javascript && touch $@; \
	else \
		echo "No npm: the example in JavaScript is not tested" >&2; \
	fi

# Written with the oldest tools that know all the interpreters above, since generated code refuses runtimes older than
# itself, and an app that embeds a phone may hold back its own.
PROTOS := $(wildcard protos/reticent/v1/*.proto)
GENERATE = PATH="$(CURDIR)/.stubs/bin:$$PATH" .stubs/bin/python -m grpc_tools.protoc -Iprotos \
	--python_out=$(1) --grpc_python_out=$(1) --mypy_out=quiet:$(1) --mypy_grpc_out=quiet:$(1) $(PROTOS)

.stubs/.installed: protos/requirements.lock
	@python=$$(WANTED="$(PYTHON)" sh -c "$$FIND_PYTHON") && "$$python" -m venv --clear .stubs
	.stubs/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes --only-binary :all: \
		--requirement protos/requirements.lock
	@touch $@

# `sh -c` runs the search in a shell of its own, so that `exit` ends only the search.
.lock/bin/python:
	@python=$$(WANTED="$(PYTHON)" sh -c "$$FIND_PYTHON") && "$$python" -m venv --clear .lock

.lock/bin/uv: .lock/bin/python
	.lock/bin/python -m pip --disable-pip-version-check --quiet install --only-binary :all: uv

# Without a stamp (new, moved or half made) the environment is made anew.
$(STAMP): requirements.lock pyproject.toml
	@if ! { [ -e $@ ] && $(PY) -c ''; } 2>/dev/null; then \
		python=$$(WANTED="$(PYTHON)" sh -c "$$FIND_PYTHON") && \
		echo "Making .venv with $$python" && rm -f .venv/.installed-* && "$$python" -m venv --clear .venv; \
	fi
	$(PIP) --quiet install --require-hashes --only-binary :all: --requirement requirements.lock
	$(PIP) --quiet install --no-build-isolation --no-deps --editable .
	@touch $@
