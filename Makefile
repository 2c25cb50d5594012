# The entry points. Each target calls scripts; those that build or test install what they need.

BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
OUT ?= bench/results
PG ?= 15
TOOLKIT ?=

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: ## install the packages that building and testing need, where they are missing
	@scripts/setup.sh test

build: ## build everything into build/
	@scripts/build.sh "$(BUILD)"

all: build ## the same: pgxn install calls it, then install, both with PG_CONFIG=

demo: ## build, then show one story: molecules in a PostgreSQL table in GPU memory, searched there by SQL, a C program and Python; then two processes swap models
	@scripts/demo.sh "$(BUILD)"

demo-cluster: ## build, then show tables spread over three servers and their GPUs, behind a fourth one
	@scripts/demo-cluster.sh "$(BUILD)"

check-fast: ## under a minute: light lint, unit tests, driver conformance on the software GPU
	@scripts/check.sh fast "$(BUILD)"

check: ## lint and every test that needs no GPU, slow ones left out
	@scripts/check.sh full "$(BUILD)"

check-all: ## check, and sanitizers, clang, fuzzers, valgrind, slow tests, spelling, shell, libraries beside the last release, packages
	@scripts/check.sh all "$(BUILD)"

check-gpu: ## on a machine with an NVIDIA GPU: the tests on its driver, recorded under OUT=; SUITES= some of them, as postgres
	@OUT="$(OUT)" scripts/check-gpu.sh "$(BUILD)"

bench: ## measure and record under OUT=bench/results; BENCHES= some, as bench/bench.sh has them
	@OUT="$(OUT)" bench/bench.sh "$(BUILD)"

pictures: ## draw the documentation's pictures: from records, by Matplotlib, and from docs/pictures/*.dot, by Graphviz
	@bench/plots.py
	@for f in docs/pictures/*.dot; do dot -Tsvg "$$f" -o "$${f%.dot}.svg"; done

install: ## install under DESTDIR= PREFIX=, and gstore_fdw for the PostgreSQL of PG_CONFIG= (none: without it)
	@PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" scripts/install.sh "$(BUILD)"

uninstall: ## remove what make install has written, by the list that it keeps in the build folder
	@scripts/uninstall.sh "$(BUILD)"

dist: ## make an archive of the sources, with PGXN's META.json
	@packaging/dist.sh "$(BUILD)"

deb: ## make Debian packages under BUILD/deb; TOOLKIT= a folder with bin/nvcc, PG=15
	@PG="$(PG)" TOOLKIT="$(TOOLKIT)" packaging/deb.sh "$(BUILD)"

wheel: build ## make a wheel of the Python package under BUILD/wheel; needs nvcc
	@packaging/wheel.py "$(BUILD)"

check-install: ## in a fresh Debian 12 (root, debootstrap): install the packages, use all of it, purge them
	@packaging/check-install.sh "$(BUILD)"

fmt: ## format the C files with clang-format
	@scripts/sources.sh '*.c' '*.h' | xargs clang-format -i

lint: ## check the tree against the house rules
	@scripts/build.sh "$(BUILD)"
	@scripts/lint.sh "$(BUILD)"

clean: ## remove the build folders
	rm -rf "$(BUILD)" "$(BUILD)"-*

.PHONY: help setup build all demo demo-cluster check-fast check check-all check-gpu bench pictures install uninstall dist deb wheel check-install fmt lint clean
