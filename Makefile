# make run | install | build | dist | test | test-long | test-times | coverage | check | e2e | bench | bench-list | soak | peers | native | engine-native | fuzz | fault | goldens | docs | seedling | hooks | clean

# npm installs the package's native binaries; its scripts must not download or compile others.
export NODE_LLAMA_CPP_SKIP_DOWNLOAD := true

SOURCES := $(sort $(shell find sidecar engine bench test -name .cache -prune -o -name '*.ts' -print 2>/dev/null))
TESTS := $(filter %.test.ts,$(SOURCES))
# Tests that fork engines or sidecars, load models or pack the package; that parse bodies of 16 MiB; that simulate hours of traffic
# or of overload. All others are unit tests.
SLOW := test/contract/% test/deploy/package.% test/docs/commands.% test/integration/% test/fault/% \
	test/support/test-process.% test/sidecar/admission/fairness.% test/sidecar/admission/classes.% test/engine/grammar/mask-memory.% \
	test/sidecar/contracts/long-cases.% test/sidecar/admission/simulated-patience.% test/bench/admission/simulate.%
# Tests that need Debian's packages: only `make e2e` runs them.
E2E_TESTS := $(patsubst %.ts,dist/%.js,$(filter test/e2e/%.e2e.ts,$(SOURCES)))
UNIT_TESTS := $(patsubst %.ts,dist/%.js,$(filter-out $(SLOW),$(TESTS)))

.PHONY: run dist test test-long test-times coverage check e2e bench bench-list soak peers native engine-native engine-source fuzz fault goldens docs seedling clean hooks build product install lint

run: product
	@echo 'make run: starts the sidecar' >&2
	@exec node dist/sidecar/cli.js serve

# What a release consists of, in dist/release: the npm package, its SBOM, the image for a CPU where this host can build it (unless
# IMAGE=no), and checksums.
RELEASE := dist/release
IMAGE := yes
dist: build
	@rm -rf $(RELEASE); mkdir -p $(RELEASE)
	@node .ci/package.mjs $(RELEASE) && node .ci/sbom.cjs $(RELEASE)/package $(RELEASE)/sbom.cdx.json && rm -r $(RELEASE)/package
	@test $(IMAGE) = no || node dist/test/e2e/dist-image.js $(RELEASE)
	@cd $(RELEASE) && sha256sum -- * > SHA256SUMS && cat SHA256SUMS

# By default tap loads its TypeScript plugin into each test file, which takes half a second. package.json removes the plugin;
# `tap build` applies that.
TAP_BUILT := node_modules/.tap-built

RUN_TESTS := node dist/test/support/run-tests.js

test: build $(TAP_BUILT)
	@echo 'make test: runs all tests; takes five to ten minutes on two cores' >&2
	@$(RUN_TESTS)

# All cases and many rounds where `make test` runs the short form of a promise. A release needs it; 40 minutes on 2 cores.
test-long: build $(TAP_BUILT)
	@TEST_LONG=1 $(RUN_TESTS) --timeout=3600
	@$(MAKE) --no-print-directory fuzz fault

# Where the time of `make test` goes, as a table. Some files: make test-times TIMED=dist/test/fault/cold.test.js
test-times: build $(TAP_BUILT)
	@$(RUN_TESTS) --table $(TIMED)

coverage: build $(TAP_BUILT)
	@npx --no tap --reporter=terse

# Runs the unit tests whose code has changed since they passed, by what they import; `make test` runs all. Lints what has changed since
# the last time; `make lint` lints all, since a rule that knows types may also find something in a file that uses a changed one.
check: install build $(TAP_BUILT)
	@npm run --silent lint:changed
	@$(RUN_TESTS) --changed $(UNIT_TESTS)

# Real proxies, a real browser, llama-server, Prometheus' own checker. Installs them if run as root, otherwise lists the missing
# packages; builds llama-server and the native addon where they were not built.
# Runs one file at a time, since some measure and a browser uses both cores. A single one: make e2e
# E2E_TESTS=dist/test/e2e/browser.e2e.js
e2e: build
	@node dist/test/e2e/packages.js
	@$(MAKE) --no-print-directory peers
	@test -d $(BUILT_NATIVE) || $(MAKE) --no-print-directory engine-native
	@$(RUN_TESTS) --timeout=2400 --jobs=1 $(E2E_TESTS)

$(TAP_BUILT): package.json | build
	@npx --no tap build && touch $@

lint: install
	npm run --silent lint

# Runs each bench whose result is not of the present code; goes on where an earlier run was ended. What is due, and how long it
# takes: make bench-list. Some of it: make bench BENCH='^engine/'. As one round, from a commit on: make bench BENCH='--since COMMIT'
# On another machine than the rest of the round: make bench BENCH=--any-machine
bench: build peers
	@node dist/bench/run/cli.js $(BENCH)

bench-list: build
	@node dist/bench/run/cli.js --list $(BENCH)

# Half an hour under load with an engine killed every 3 minutes; writes bench/results/soak.md. Shorter: make soak MINUTES=2
soak: build
	@node dist/bench/soak/soak.js $(or $(MINUTES),30) $(or $(KILL_EVERY_S),180)

# Builds llama.cpp's own server and benches from the source that the adapter uses, for the benches that compare with them.
# Needs git, cmake, ninja and a C++ compiler; 5 to 10 minutes on 2 cores. CMake's options: make peers PEER_OPTIONS=-DGGML_CUDA=ON
PEERS := bench/.cache/peers
peers: $(PEERS)/build/bin/llama-server

$(PEERS)/build/bin/llama-server: node_modules/node-llama-cpp/llama/gitRelease.bundle
	rm -rf $(PEERS); mkdir -p $(PEERS)
	git clone --quiet $< $(PEERS)/src
	cmake -S $(PEERS)/src -B $(PEERS)/build -G Ninja -DCMAKE_BUILD_TYPE=Release -DLLAMA_CURL=OFF \
	  -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF $(PEER_OPTIONS)
	ninja -C $(PEERS)/build llama-server llama-batched-bench

node_modules/node-llama-cpp/llama/gitRelease.bundle: | install

# Compiles engine/native into the binaries of engine/native/bin, for x64 and arm64; commit them. Needs Debian's g++ and
# g++-aarch64-linux-gnu; 5 minutes on 2 cores. A test compares the sources with what the binaries were made from.
native: build
	node dist/engine/native/cli.js build

# Builds llama.cpp for this machine's instruction set or GPU, from the package's source. node-llama-cpp then prefers it to its
# prebuilt one. Undone by: npx node-llama-cpp source clear
# OpenMP is off: it would keep compute threads for each thread that ever decodes; engine/native has one set for all.
ADDED := node_modules/node-llama-cpp/llama
BUILT_NATIVE := $(ADDED)/localBuilds
engine-native: engine-source
	npx --no node-llama-cpp source download --gpu $(or $(GPU),false)

engine-source: build
	node dist/engine/native/cli.js apply $(ADDED)

# 100,000 random bodies, a tenth of them over HTTP. TAP_TIMEOUT is raised, since tap's own limit is meant to find hangs.
fuzz: build
	@TAP_TIMEOUT=3600 node dist/test/sidecar/contracts/fuzz.test.js 90000
	@TAP_TIMEOUT=3600 node dist/test/contract/fuzz.test.js 10000

# 200 sidecars killed under load on one spool, 5,000 rounds of processes that compete for one lock, and 500 connections that
# read nothing for each kind of answer; `make test` has 3, 60 and 1.
fault: build
	@TAP_TIMEOUT=3600 node dist/test/fault/lock-claims.test.js 5000
	@TAP_TIMEOUT=3600 node dist/test/fault/spool-killed.test.js 200
	@TAP_TIMEOUT=3600 node dist/test/fault/unread-answers.test.js 500

# Records llama-server's renderings of the bundled templates (RA_LLAMA_SERVER names a binary other than that of `make peers`),
# and its greedy reply for each architecture family.
goldens: build
	@node dist/test/goldens/record.js
	@node dist/test/goldens/record-replies.js

docs: build
	npm run --silent docs
	@npx prettier --log-level warn --write docs

# Trains the bundled model again: hours on 2 cores, and not part of any other target. See bench/seedling/README.md. Training
# is not bit for bit reproducible between machines, so neither is the file.
SEEDLING := bench/seedling
TRAINED := $(SEEDLING)/.trained
PYTHON := /usr/bin/python3
SEEDLING_TOKENS := 36000000
# Numbers of examples: the whole mix, long inputs, the first part, the last part. Training repeats them to reach its tokens.
SEEDLING_EXAMPLES := 90000 3000 60000 36000
# The model, and the folder for its loss curve and for the reference that a test compares with.
SEEDLING_FILE := engine/assets/seedling.gguf
SEEDLING_INTO := $(SEEDLING)
seedling: build
	@$(PYTHON) -c 'import numpy, torch' 2>/dev/null || { echo 'make seedling needs $(PYTHON) with torch and numpy, and a fast BLAS:'; \
	  echo '  apt-get install --no-install-recommends python3-torch python3-numpy libopenblas0-pthread'; exit 1; }
	node dist/$(SEEDLING)/build.js $(TRAINED)/data $(SEEDLING_EXAMPLES)
	@echo 'training: tail -f $(TRAINED)/loss.tsv'
	@test -s $(TRAINED)/loss.tsv || printf 'step\ttokens\tbatch_loss\tlabel_loss\trate\ttokens_a_second\n' > $(TRAINED)/loss.tsv
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(PYTHON) $(SEEDLING)/training/train.py $(TRAINED)/data $(TRAINED) --tokens $(SEEDLING_TOKENS) >> $(TRAINED)/loss.tsv
	$(PYTHON) $(SEEDLING)/training/export.py $(TRAINED)/data $(TRAINED)
	rm -f $(TRAINED)/calibration.json
	node dist/$(SEEDLING)/export.js $(TRAINED)/data $(TRAINED) $(TRAINED)/raw.gguf
	node dist/$(SEEDLING)/held-out.js $(TRAINED)/calibration.jsonl 400 22
	node dist/bench/decisions/calibrate.js $(TRAINED)/raw.gguf $(TRAINED)/calibration.jsonl $(TRAINED)/calibration.json
	node dist/$(SEEDLING)/export.js $(TRAINED)/data $(TRAINED) $(SEEDLING_FILE)
	cp $(TRAINED)/reference.json $(TRAINED)/loss.tsv $(SEEDLING_INTO)/
	npx prettier --log-level warn --write $(SEEDLING_INTO)/reference.json
	node dist/$(SEEDLING)/held-out.js $(SEEDLING_INTO)/held-out.jsonl 400

# Makes git use .githooks in this clone. Undone by: git config --unset core.hooksPath
hooks:
	git config core.hooksPath .githooks

clean:
	rm -rf dist .tap coverage

# Compiles what has changed, and checks the types of all. Nothing runs if nothing has changed.
build: install
	@node .ci/build.mjs

# The sidecar and the engine alone, without a check of types.
product: install
	@node .ci/build.mjs product

# Installs again only if the lock's content or Node's ABI has changed since the last install, and then without the GPU backends that
# this host cannot use. To add one: make install GPU=cuda (or vulkan, all). Of what is compiled here none is installed.
GPU_BACKENDS = $(or $(GPU),auto)
engine-native engine-source: GPU_BACKENDS = auto
install:
	@node .ci/install.mjs $(GPU_BACKENDS)
