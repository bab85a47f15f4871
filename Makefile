# SPDX-License-Identifier: Apache-2.0 OR MIT
# Entry points. Recipes are short; the work is done in scripts/, tests/, bench/ and cargo.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
SECONDS_TO_RUN ?= 10
N ?= 200
SECONDS ?= 60
MINUTES ?= 120

# Cargo builds elsewhere if CARGO_TARGET_DIR says so.
TARGET := $(or $(CARGO_TARGET_DIR),target)
BINARY := $(TARGET)/release/deburr

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

.PHONY: setup
setup: ## install what building needs and this machine lacks
	@scripts/setup

.PHONY: build
build: ## compile target/release/deburr
	$(CARGO) build --release --locked

.PHONY: run
run: setup build ## set up, build, then diagnose this host for 10 s (as root if it can)
	@scripts/run $(BINARY) -d $(SECONDS_TO_RUN)

.PHONY: test
test: ## set up, then run the tests, those that need root included; of the longest ones a third
	@scripts/setup --lab
	@scripts/setup --vm || echo 'setup: without these, what needs a virtual machine is skipped'
	@scripts/test

.PHONY: test-all
test-all: ## the same, with all of the longest tests (an hour and a half)
	@DEBURR_ALL=1 $(MAKE) test

.PHONY: vm-matrix
vm-matrix: build ## let deburr find four faults in Debian's kernels from 5.10 on, and turn levers and unload modules there, in virtual machines (minutes)
	@scripts/setup --vm
	@tests/vm/matrix --binary $(BINARY)
	@tests/vm/levers --binary $(BINARY)
	@tests/vm/module --binary $(BINARY)

.PHONY: lint
lint: ## check formatting, clippy and the format of the BPF sources
	@scripts/setup --dev
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	clang-format --dry-run --Werror $$(git ls-files '*.bpf.c' 'crates/bpf/*.h')
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --target-dir $(TARGET) --manifest-path fuzz/Cargo.toml --bins --locked -- -D warnings

.PHONY: bench
bench: build ## measure what observing costs, beside other tools (root); writes docs/overhead.md
	@scripts/setup --bench
	@scripts/run scripts/listed bench/overhead --binary $(BINARY)

.PHONY: oracle
oracle: build ## hold deburr against perf's trace in N=200 random runs, and a quarter as many of block IO and of sleeps (root, an hour); writes docs/accuracy*.md
	@scripts/setup --bench --lab
	@scripts/run tests/oracle/oracle --binary $(BINARY) --seconds 6 --runs $(N) --document docs/accuracy.md
	@scripts/run tests/oracle/blocks --binary $(BINARY) --runs $$(($(N) / 4)) --document docs/accuracy-io.md
	@scripts/run tests/oracle/sleeps --binary $(BINARY) --runs $$(($(N) / 4)) --document docs/accuracy-sleeps.md

.PHONY: fuzz
fuzz: ## look for bytes that the readers of foreign files do not bear, SECONDS=60 for each
	@scripts/setup --lab
	@scripts/fuzz --seconds $(SECONDS)

.PHONY: soak
soak: build ## record for MINUTES=120 beside storms of processes, cgroups, mounts and IO (root)
	@scripts/setup --lab
	@scripts/run scripts/listed tests/soak/soak --binary $(BINARY) --minutes $(MINUTES)

.PHONY: rates
rates: ## simulate 2000 experiments of each kind, and write how often they are judged wrongly to docs/method.md
	@scripts/setup
	SIMULATIONS=2000 $(CARGO) test --release --locked -p deburr-core --lib -- prove::monte_carlo --nocapture --test-threads=1

.PHONY: sizes
sizes: ## read recordings of 100 MB of each kind, and print the time and memory that takes (minutes)
	@scripts/setup
	SIZES_MB=100 $(CARGO) test --release --locked -p deburr --test it -- sizes:: --nocapture --test-threads=1

.PHONY: deny
deny: ## check licences, duplicates, sources and known faults of all libraries; needs network, and minutes the first time
	@scripts/deny

.PHONY: docs
docs: ## write the generated documents and golden files anew; read the diff before you commit it
	UPDATE=1 $(CARGO) test -q --workspace --locked --lib --bins --test it --no-fail-fast

.PHONY: hooks
hooks: ## let git check formatting before each commit
	git config core.hooksPath hooks

.PHONY: install
install: build ## copy the binary, manual page and shell completions below PREFIX
	@scripts/install $(BINARY) "$(DESTDIR)$(PREFIX)"
