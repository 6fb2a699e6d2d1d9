# Everything from a fresh clone: rustup's Rust and gcc are there, the rest is installed by `make deps`.

CARGO ?= cargo
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
FUZZ_TARGETS := reader segment tables report elf text records import unwind
.PHONY: help deps test-deps build install demo test fuzz fuzz-build fuzz-deps bench bench-sustain bench-curves bench-parts soak lint clean need-cargo need-root

# Debian packages to build (libbpf's own sources come with its crate), and with workloads.
PACKAGES := make pkg-config libelf-dev zlib1g-dev clang g++
# And to test: `zstd -t`, pgrep, what the recorder opens, debug information of all kinds, JIT code, a debuginfod server, a
# large C++ library, `go tool pprof`, setcap, perf, a browser, speedscope, file systems on devices.
TEST_PACKAGES := zstd procps strace binutils dwz xz-utils nodejs debuginfod nlohmann-json3-dev golang-go libcap2-bin linux-perf curl chromium \
	chromium-driver python3-minimal e2fsprogs btrfs-progs musl-tools

# Frame pointers, in leaf functions too: stacks are whole however they are walked.
DEMO_FLAGS := -O2 -pthread -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer -ffile-prefix-map=$(CURDIR)=profiler

# What a demo or a test needs beside packages. HOME and PATH keep rustup's cargo in reach of root.
AS_ROOT = sudo --preserve-env=HOME env "PATH=$$PATH" make

help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

deps: need-cargo ## Install what is missing of the Debian packages needed to build (as root; otherwise say what)
	@missing=(); \
	for package in $(PACKAGES); do \
		[[ $$(dpkg-query -W -f '$${Status}' "$$package" 2>/dev/null || true) == 'install ok installed' ]] \
			|| missing+=("$$package"); \
	done; \
	if (( $${#missing[@]} == 0 )); then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then \
		echo "These Debian packages, or what your system calls them, may be missing: $${missing[*]}"; exit 0; \
	fi; \
	if (( $$(id -u) != 0 )); then \
		echo "Missing: $${missing[*]}. Install them first:" >&2; \
		echo "    sudo apt-get install $${missing[*]}" >&2; exit 1; \
	fi; \
	echo "Installing: $${missing[*]}"; \
	apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$${missing[@]}"

test-deps: need-cargo ## The same of those that tests need too
	@$(MAKE) --no-print-directory deps PACKAGES="$(PACKAGES) $(TEST_PACKAGES)"

build: deps ## Build target/release/profiler
	$(CARGO) build --release --locked

demo: what = demo
demo: need-root deps ## Record a small workload, show where its time went, leave demo.bprof, demo.folded, demo.svg, demo.html (as root)
	$(CARGO) build --release --locked
	@mkdir -p target/demo
	g++ -std=c++17 $(DEMO_FLAGS) -o target/demo/burn tests/workloads/burn.cpp
	g++ -std=c++17 $(DEMO_FLAGS) -g -o target/demo/inline tests/workloads/inline.cpp
	gcc $(DEMO_FLAGS) -o target/demo/storm tests/workloads/storm.c
	gcc $(DEMO_FLAGS) -o target/demo/quick tests/workloads/quick.c
	target/release/profiler record -o demo.bprof -F 499 -- sh tests/workloads/demo.sh target/demo
	target/release/profiler report --folded -o demo.folded demo.bprof
	target/release/profiler report --flamegraph demo.svg demo.bprof
	target/release/profiler report --html demo.html demo.bprof
	target/release/profiler report --top 15 demo.bprof
	@if [[ -n "$${SUDO_UID:-}" ]]; then chown -R "$$SUDO_UID:$${SUDO_GID:-$$SUDO_UID}" demo.* target; fi
	@echo
	@echo "demo.bprof   the capture:            target/release/profiler report --standard demo.bprof | less"
	@echo "demo.folded  folded stacks:          for inferno-flamegraph, flamegraph.pl, speedscope ..."
	@echo "demo.svg     the flame graph of it:  open it in a browser"
	@echo "demo.html    the same over time:     open it in a browser"

test: what = test
test: need-root test-deps ## Run all tests, those that record for real included (as root)
	$(CARGO) test --locked --no-fail-fast

soak: what = soak
soak: need-root test-deps ## Record the whole machine amid all that makes recorders leak or lose: SOAK_SECONDS=600 (as root)
	$(CARGO) test --locked --test root -- --ignored --nocapture soak

# Seconds for each target.
SECS ?= 60
# Rust checks memory itself, and without a sanitizer the one toolchain there is will do: `SANITIZER=address` needs a nightly one,
# or RUSTC_BOOTSTRAP=1.
SANITIZER ?= none
CARGO_FUZZ = $(CARGO) fuzz build --fuzz-dir tests/fuzz --target-dir target/fuzz -s $(SANITIZER)
FUZZ_BIN = target/fuzz/$$(rustc -vV | sed -n 's/^host: //p')/release

fuzz-deps: deps
	@command -v cargo-fuzz >/dev/null || { \
		echo "Installing cargo-fuzz 0.13 from crates.io"; $(CARGO) install cargo-fuzz --version ^0.13 --locked; }

fuzz-build: fuzz-deps
	$(CARGO_FUZZ)

fuzz: fuzz-build ## Feed hostile input to all that reads any: SECS=60 for each target, two at a time
	@mkdir -p target/fuzz/artifacts
	@one() { \
		corpus=target/fuzz/corpus/$$1; mkdir -p "$$corpus"; \
		$(FUZZ_BIN)/$$1 -max_total_time=$(SECS) -timeout=20 -rss_limit_mb=2048 -malloc_limit_mb=1024 -max_len=16384 \
			-print_final_stats=1 -artifact_prefix=target/fuzz/artifacts/$$1- \
			"$$corpus" tests/fuzz/seeds/$$1 >target/fuzz/$$1.log 2>&1 \
			&& echo "$$1: $$(awk '/number_of_executed_units/{print $$2}' target/fuzz/$$1.log) inputs, no finding" \
			|| { tail -n 60 target/fuzz/$$1.log; grep -a -A 2 -E 'panicked at|ERROR: libFuzzer' target/fuzz/$$1.log; \
				echo "$$1: FAILED, see target/fuzz/artifacts" >&2; exit 1; }; \
	}; export -f one; printf '%s\n' $(FUZZ_TARGETS) | xargs -P 2 -I {} bash -euo pipefail -c 'one {}'

# Options of the benchmarks, as ARGS='--rounds 10': `make bench ARGS=--help` lists them.
ARGS ?=
# Says nothing of what is compiled; the options of a benchmark come after its own `--`.
BENCH = $(CARGO) bench --locked -q --bench

bench: what = bench
bench: need-root deps ## Compare with perf record, side by side: some 25 minutes, leaves bench.json (as root)
	@command -v perf >/dev/null || echo "perf is not installed (Debian: linux-perf): only our own side is measured" >&2
	$(BENCH) compare -- --output bench.json $(ARGS)
	@if [[ -n "$${SUDO_UID:-}" ]]; then chown -R "$$SUDO_UID:$${SUDO_GID:-$$SUDO_UID}" bench.json target; fi

bench-sustain: deps ## 64 simulated CPUs at 1,000 Hz: is it kept up with? 7 minutes, leaves bench-sustain.json
	$(BENCH) sustain -- --output bench-sustain.json $(ARGS)

bench-curves: deps ## How reports grow with samples, stacks, processes, mappings: leaves bench-curves.json
	$(BENCH) curves -- --output bench-curves.json $(ARGS)

bench-parts: deps ## Time encoding, decoding, interning, look-ups, folding, symbols by themselves
	$(BENCH) capture --bench timeline --bench report --bench symbolize

# Where `make install` puts things: below DESTDIR, which is empty unless a package is made.
PREFIX ?= /usr/local
DESTDIR ?=
PROGRAM := target/release/profiler
SHARE = $(DESTDIR)$(PREFIX)/share

install: ## Install what `make build` built, with completions and man pages (PREFIX=/usr/local, DESTDIR=)
	@[[ -x $(PROGRAM) ]] || { echo "$(PROGRAM) is not there: run make build first (not as root)." >&2; exit 1; }
	install -D -m 0755 -s $(PROGRAM) "$(DESTDIR)$(PREFIX)/bin/profiler"
	install -d "$(SHARE)/man/man1" "$(SHARE)/bash-completion/completions" "$(SHARE)/zsh/site-functions" \
		"$(SHARE)/fish/vendor_completions.d"
	$(PROGRAM) man "$(SHARE)/man/man1"
	$(PROGRAM) completions bash >"$(SHARE)/bash-completion/completions/profiler"
	$(PROGRAM) completions zsh >"$(SHARE)/zsh/site-functions/_profiler"
	$(PROGRAM) completions fish >"$(SHARE)/fish/vendor_completions.d/profiler.fish"

lint: deps ## Check format and lints, with and without the recording half
	$(CARGO) fmt --check
	$(CARGO) fmt --check --manifest-path tests/fuzz/Cargo.toml
	$(CARGO) clippy --locked --all-targets -- -D warnings
	$(CARGO) clippy --locked --all-targets --no-default-features -- -D warnings

clean: ## Remove what was built and what demo and benchmarks left
	$(CARGO) clean
	rm -f demo.bprof demo.bprof.old demo.folded demo.svg demo.html bench.json bench-sustain.json bench-curves.json

need-cargo:
	@command -v $(CARGO) >/dev/null || { \
		echo "cargo is not in PATH. Install Rust from https://rustup.rs, then run make again." >&2; exit 1; }

need-root: need-cargo
	@if (( $$(id -u) != 0 )); then \
		$(MAKE) --no-print-directory deps || true; \
		echo 'make $(what) records with eBPF and needs root:' >&2; \
		echo '    $(AS_ROOT) $(what)' >&2; exit 1; \
	fi
	@[[ -r /sys/kernel/btf/vmlinux ]] || { \
		echo "This kernel has no BTF (/sys/kernel/btf/vmlinux): recording needs CONFIG_DEBUG_INFO_BTF=y." >&2; exit 1; }
