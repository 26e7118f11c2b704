# Two commands do everything on a fresh Debian 12 machine: `make run` and `make test`.
PORT ?= 8000
ARGS ?=
JOBS ?= $(shell nproc)
# With a GPU and nvcc here, the build has the kernels; PRESET=cuda asks for them anyhow, PRESET=release does without.
PRESET ?= $(shell command -v nvcc >/dev/null && [ -e /dev/nvidia0 ] && echo cuda || echo release)
ROSE  = build/$(PRESET)/bin/rose

.PHONY: help run build test check quick dist oracle evaluate fuzz tsan clean

help:            ## this list
	@grep -E '^[a-z]+: .*##|^[a-z]+:  *##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## */  make \1\t/' | expand -t 20

run: build       ## set up, build, serve the embedded model:  make run PORT=8000 ARGS="--max-context 2048"
	@exec $(ROSE) serve --port $(PORT) $(ARGS)

build:           ## set up and build the optimised binary: build/release/bin/rose, or build/cuda/bin/rose (PRESET=cuda)
	@tools/setup
	@tools/build $(PRESET) rose

test:            ## set up, build, and run every test that needs no GPU
	@tools/setup --tests
	@tools/check

quick:           ## format, generated code and include rules, under 30 seconds
	@tools/check --quick

check: test      ## the same as test

tsan:            ## engine and server tests under ThreadSanitizer
	@tools/setup --tests
	@tools/build tsan engine_test device_test parallel_test server_test
	@for t in engine device parallel server; do build/tsan/tests/$${t}_test --gtest_brief=1 || exit 1; done

dist: build      ## dist/rose: a folder that runs on Debian 12 and Ubuntu 24.04 with nothing installed
	@tools/dist $(PRESET)

oracle:          ## compare logits with transformers, live (installs PyTorch into build/oracle_venv)
	@tools/oracle/run

evaluate: build  ## ask the embedded model its held-out questions through the server
	@tools/setup --tests
	@ROSE_BINARY=$(ROSE) tools/evaluate $(ARGS)

fuzz:            ## build the libFuzzer programs with clang and run each for SECONDS (default 30)
	@tools/setup --tests
	@tools/fuzz $(or $(SECONDS),30)

clean:           ## remove build/ and dist/
	rm -rf build dist
