# Two commands are enough on a fresh machine with Python 3.11+ (and Java 17+, which is installed on Debian if missing):
#   make run    the demo: three PostgreSQL servers with live load, kuvasz, and a comparison of the lake with its sources
#   make test   the test suite
# Everything is installed into .venv of this folder; what the set-up does, and how long it took, is printed.

PYTHON := .venv/bin/python
MAP ?= config/map.yaml
# Processes that share the test files; each has servers and a Spark of its own: about 4 GB.
WORKERS ?= $(shell scripts/workers.sh)
# And those of unit tests, which only compute: as many as there are processors.
UNIT_WORKERS ?= $(shell scripts/workers.sh unit)
# A file's tests stay together, with what they share; files go to whoever is free, in the order of tests/conftest.py.
BY_FILE := --dist loadfile --no-loadscope-reorder
SHARED := -n $(WORKERS) $(BY_FILE)
# Whether `make test` ends with the lines that ran; nothing: no.
COVERAGE ?= 1

# Where it is set, as in many images, each of the hundreds of processes that tests start would compile all of kuvasz anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test test-unit test-all test-versions test-catalogs crash hostile mutations check setup-demo setup-docs setup-dev jars lock jar-lock audit sbom fuzz neglect soak soak-log go-back trino duckdb deploy-tools orchestrators bench bench-quick docs docs-serve pictures deb clean

help:
	@grep -E '^[a-z-]+:.*##' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## */\t/' | expand -t 16

setup-demo:
	@scripts/venv.sh demo
setup-docs:
	@scripts/venv.sh docs
setup-dev:
	@scripts/venv.sh dev

# The Iceberg and JDBC jars come once, before the first start, so that their download is seen and not taken for a hang.
jars:
	@home=$$(scripts/java.sh) && JAVA_HOME="$$home" scripts/jars.sh

run: setup-demo ## the demo, DEMO_SECONDS=60 long (Ctrl-C ends it earlier)
	@$(MAKE) --no-print-directory jars
	@home=$$(scripts/java.sh) && JAVA_HOME="$$home" exec $(PYTHON) -m kuvasz.demo --config $(MAP)

test: setup-dev ## the test suite without the slow tests, with the lines it ran; PYTEST_ARGS= adds options
	@$(MAKE) --no-print-directory jars
	@home=$$(scripts/java.sh) && JAVA_HOME="$$home" COVERAGE=$(COVERAGE) exec $(PYTHON) -m pytest -m "not slow" $(SHARED) $(PYTEST_ARGS)

test-all: setup-dev ## the whole test suite, with CRASHES=200 kills at random points, HISTORIES=2000 of schemas, PARKINGS=500; then test-versions
	@$(MAKE) --no-print-directory jars
	@scripts/deploy_tools.sh || echo "the tests of deploy/ that need what is missing are left out" >&2
	@scripts/orchestrators.sh || echo "the tests of tasks of what is missing are left out" >&2
	@home=$$(scripts/java.sh) && JAVA_HOME="$$home" CRASHES=$(or $(CRASHES),200) HISTORIES=$(or $(HISTORIES),2000) EXAMPLES=$(or $(EXAMPLES),10) \
		PARKINGS=$(or $(PARKINGS),500) $(PYTHON) -m pytest $(SHARED) $(PYTEST_ARGS)
	@$(MAKE) --no-print-directory test-versions

test-versions: setup-dev ## what needs a server, with each of POSTGRES="14 15 17" in the place of PostgreSQL 18
	@$(MAKE) --no-print-directory jars
	@home=$$(scripts/java.sh) && failed= && for version in $(or $(POSTGRES),14 15 17); do \
		echo "PostgreSQL $$version"; \
		JAVA_HOME="$$home" POSTGRES=$$version $(PYTHON) -m pytest -m "postgres and not slow" $(SHARED) $(PYTEST_ARGS) \
			tests/integration || failed="$$failed $$version"; \
	done; if [ -n "$$failed" ]; then echo "failed with PostgreSQL$$failed" >&2; exit 1; fi

test-catalogs: setup-dev ## the acceptance tests without the slow ones behind each of CATALOGS="postgres rest", which others have in SQLite
	@$(MAKE) --no-print-directory jars
	@home=$$(scripts/java.sh) && failed= && for catalog in $(or $(CATALOGS),postgres rest); do \
		echo "a catalog behind $$catalog"; \
		JAVA_HOME="$$home" CATALOG=$$catalog $(PYTHON) -m pytest -m "not slow" $(SHARED) $(PYTEST_ARGS) \
			tests/acceptance || failed="$$failed $$catalog"; \
	done; if [ -n "$$failed" ]; then echo "failed behind$$failed" >&2; exit 1; fi

fuzz: setup-dev ## random programs against the model for MINUTES=10, or those of SEED=1,2 again
	@$(MAKE) --no-print-directory jars
	@home=$$(scripts/java.sh) && JAVA_HOME="$$home" FUZZ=$(if $(SEED),seed=$(SEED),$(or $(MINUTES),10)) \
		exec $(PYTHON) -m pytest -q -s -k some_minutes $(PYTEST_ARGS) tests/integration/test_fuzz.py

neglect: setup-dev ## tables and tenants paused, renamed, unmapped, unpublished at random for MINUTES=10, or those of SEED=1,2 again
	@$(MAKE) --no-print-directory jars
	@home=$$(scripts/java.sh) && JAVA_HOME="$$home" NEGLECT=$(if $(SEED),seed=$(SEED),$(or $(MINUTES),10)) \
		exec $(PYTHON) -m pytest -q -s -k some_minutes $(PYTEST_ARGS) tests/integration/test_neglect.py tests/integration/test_neglect_tenants.py

crash: setup-dev ## POINTS=1000 kills at random points under load, behind each catalog in turn or CATALOG=rest, with LOG=1 with a staged log; interrupted, it goes on by its tally, build/crashes.json
	@$(MAKE) --no-print-directory jars
	@home=$$(scripts/java.sh) && JAVA_HOME="$$home" CRASHES=$(or $(POINTS),1000) CRASH_SEED=$(SEED) CRASH_LOG=$(or $(LOG),0) CRASH_CATALOG=$(CATALOG) \
		CRASH_TALLY=$(if $(SEED),,$(or $(TALLY),build/crashes$(if $(LOG),-log).json)) \
		exec $(PYTHON) -m pytest -q -s --maxfail=1 -k killed_at_random_points $(PYTEST_ARGS) tests/acceptance/test_crash_everything.py

hostile: setup-dev ## the lag of SOURCES=500, measured alone and beside 76 of them that are dead, silent, locked, garbled or forbidden
	@$(MAKE) --no-print-directory jars
	@home=$$(scripts/java.sh) && JAVA_HOME="$$home" SOURCES=$(or $(SOURCES),500) ROUNDS=$(or $(ROUNDS),3) \
		exec $(PYTHON) -m pytest -n 0 -q -s $(PYTEST_ARGS) tests/hostile/test_many_tenants.py

mutations: setup-dev ## each durable fact of continuity left out in turn: tests have to fail
	@$(MAKE) --no-print-directory jars
	@home=$$(scripts/java.sh) && JAVA_HOME="$$home" exec $(PYTHON) -m pytest -v $(PYTEST_ARGS) tests/mutations

test-unit: setup-dev ## the tests that need neither a server, Spark nor a process and look at what runs, with fewer examples
	@exec $(PYTHON) -m pytest -q -m "not slow and not postgres and not process and not text" --hypothesis-profile=quick \
		-n $(UNIT_WORKERS) $(BY_FILE) tests/unit $(PYTEST_ARGS)

soak: setup-dev ## load, faults, schema changes and maintenance at once for MINUTES=60; SEED= draws them as before
	@$(MAKE) --no-print-directory jars
	@home=$$(scripts/java.sh) && JAVA_HOME="$$home" SOAK_MINUTES=$(or $(MINUTES),60) SOAK_SEED=$(SEED) \
		exec $(PYTHON) -m pytest -q -s -k everything_at_once $(PYTEST_ARGS) tests/acceptance/test_soak.py

soak-log: setup-dev ## a cluster's log under load and mishaps for MINUTES=60: its objects and the coordinator's rows stay as few; SEED= draws them as before
	@$(MAKE) --no-print-directory jars
	@home=$$(scripts/java.sh) && JAVA_HOME="$$home" SOAK_LOG_MINUTES=$(or $(MINUTES),60) SOAK_SEED=$(SEED) \
		exec $(PYTHON) -m pytest -n 0 -q -s $(PYTEST_ARGS) tests/acceptance/test_log_soak.py

go-back: setup-dev ## the version before, BEFORE= or the last one of the history, goes on with a lake of this one, and this one after it
	@$(MAKE) --no-print-directory jars
	@home=$$(scripts/java.sh) && JAVA_HOME="$$home" BEFORE=$(BEFORE) exec $(PYTHON) -m pytest -n 0 -v $(PYTEST_ARGS) tests/acceptance/test_version_before.py

trino: setup-dev ## a real Trino, fetched once (540 MB; it needs Java 24), reads lakes and answers the questions of docs/about-the-lake.md
	@$(MAKE) --no-print-directory jars
	@scripts/trino.sh
	@home=$$(scripts/java.sh) && JAVA_HOME="$$home" exec $(PYTHON) -m pytest -n 0 -v $(PYTEST_ARGS) tests/integration/test_trino.py

duckdb: setup-dev ## a real DuckDB with its Iceberg extension, fetched once, reads tables by the SQL that kuvasz asof prints
	@$(MAKE) --no-print-directory jars
	@scripts/duckdb.sh
	@home=$$(scripts/java.sh) && JAVA_HOME="$$home" exec $(PYTHON) -m pytest -n 0 -v $(PYTEST_ARGS) tests/integration/test_asof.py -k all_types

deploy-tools: setup-dev ## promtool, helm, logrotate and the schemas of Kubernetes, fetched once into build/, try what deploy/ has
	@scripts/deploy_tools.sh
	@exec $(PYTHON) -m pytest -n 0 -q $(PYTEST_ARGS) tests/unit/deploy -k "promtool or helm or kubernetes or operator or alert or logrotate or rotated"

orchestrators: setup-dev ## a real Dagster and a real Airflow, installed once beside kuvasz, run the tasks of docs/howto.md
	@$(MAKE) --no-print-directory jars
	@scripts/orchestrators.sh
	@home=$$(scripts/java.sh) && JAVA_HOME="$$home" exec $(PYTHON) -m pytest -n 0 -v $(PYTEST_ARGS) tests/acceptance/test_tasks.py

check: setup-dev ## lint, format, types, import layers
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	.venv/bin/lint-imports

lock: setup-dev ## the newest versions that fit pyproject.toml, with hashes, into requirements/; KEEP=1 moves no more than it must
	@scripts/lock.sh $(if $(KEEP),keep)

jar-lock: setup-dev ## the jars of Spark, Iceberg and the drivers, with their digests, into requirements/jars.txt
	@home=$$(scripts/java.sh) && JAVA_HOME="$$home" $(PYTHON) -m kuvasz.lake.iceberg.prefetch --aws
	@$(PYTHON) -m supply.jar_files

audit: setup-dev ## known holes of all locked packages and jars: fails for one that requirements/accepted.toml does not have
	@$(PYTHON) -m supply.audit $(if $(OSV),--osv $(OSV))

sbom: setup-dev ## the bill of materials of image and wheel, CycloneDX in JSON, into dist/; SBOM= names another file
	@$(PYTHON) -m supply.sbom $(or $(SBOM),dist/kuvasz.cdx.json)

bench-quick: setup-dev ## ratios to bare COPY and pg_recvlogical, and visible lag, in under 3 minutes
	@$(MAKE) --no-print-directory jars
	@home=$$(scripts/java.sh) && JAVA_HOME="$$home" exec $(PYTHON) -m benchmarks quick $(BENCH_ARGS)

bench: setup-dev ## SCENARIOS= or all of them (benchmarks/README.md); BENCH_ARGS='--size full --runs 3'
	@$(MAKE) --no-print-directory jars
	@home=$$(scripts/java.sh) && JAVA_HOME="$$home" exec $(PYTHON) -m benchmarks $(SCENARIOS) $(BENCH_ARGS)

docs: setup-docs ## the site of the documentation, into build/site
	@NO_MKDOCS_2_WARNING=1 exec $(PYTHON) -m mkdocs build --strict

deb: ## a Debian package for the release of Debian that this runs on, into dist/
	@deploy/deb/build.sh dist

pictures: setup-dev ## the pictures of the pages in docs/images, by Chromium
	@PICTURES=docs exec $(PYTHON) -m pytest -n 0 -q -k pictures tests/acceptance/test_page.py

docs-serve: setup-docs ## the same at http://127.0.0.1:8001 while you write
	@NO_MKDOCS_2_WARNING=1 exec $(PYTHON) -m mkdocs serve --dev-addr 127.0.0.1:8001

clean: ## removes what the demo and the tools left in this folder, but not .venv
	rm -rf demo-data/eu demo-data/us demo-data/ap build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache benchmarks/out
	@if [ -e demo-lake/.kuvasz-demo ]; then rm -rf demo-lake; fi
