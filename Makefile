# The short commands. The build itself is CMake: `cmake --list-presets` shows what there is.
JOBS ?= $(shell nproc)
# The build goes through these presets.
TEST_PRESET := dev
DEMO_PRESET := release

# ccache then finds a file again that was compiled in another folder: install.consumer builds the library a second time. The debug
# information names the first folder.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1

.DEFAULT_GOAL := help
.PHONY: help demo test build format format-check lint bench dist clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

demo: ## build the tool, show which precision real tensors can bear and write a report (under 10 minutes from a bare machine)
	scripts/setup.sh demo
	cmake --preset $(DEMO_PRESET)
	cmake --build --preset $(DEMO_PRESET) -j $(JOBS)
	scripts/demo.sh

build: ## build the preset dev: library, tool, tests, benchmarks
	scripts/setup.sh test
	cmake --preset $(TEST_PRESET)
	cmake --build --preset $(TEST_PRESET) -j $(JOBS)

test: build ## build and run all tests but the slow ones (.ci/run dist)
	ctest --test-dir build/$(TEST_PRESET) --output-on-failure --no-tests=error -LE slow -j $(JOBS) --output-junit tests.xml
	python3 -B tests/skips/check_skips.py build/$(TEST_PRESET) build/$(TEST_PRESET)/tests.xml --complete

format: ## format all C++ and C files in place
	scripts/format.sh

format-check: ## fail where `make format` would change something
	scripts/format.sh --check

lint: ## run clang-tidy and cppcheck on the host code of src/, include/ and tools/
	scripts/lint.sh

bench: build ## build and run the benchmarks
	scripts/bench.sh build/$(TEST_PRESET)/bench

dist: ## build the release archive build/dist/quatt-VERSION-linux-MACHINE.tar.gz (the same bytes in any folder)
	scripts/setup.sh demo
	JOBS=$(JOBS) scripts/dist.sh

clean: ## remove everything that was built
	rm -rf build
