# Two commands do everything; CMake presets do the work behind them.
.DEFAULT_GOAL := help
.PHONY: help setup train test fuzz chaos tidy coverage bfbench install wheel clean
export NP ARGS PRESETS LEVEL MINUTES SEED CMAKE_ARGS PREFIX WHEELS

help: ## List the targets
	@echo 'make train    set up, build, and train on Fashion-MNIST over 2 ranks'
	@echo '              make train NP=4 ARGS="--algorithm atc --epochs 2"'
	@echo 'make test     set up, build, and run every test suite'
	@echo '              make test PRESETS=release    one of: release debug tsan asan'
	@echo '              make test LEVEL=long         also what takes long and is rarely useful'
	@echo 'make fuzz     set up, build, and look for inputs that break a parser, for an hour'
	@echo '              make fuzz MINUTES=10'
	@echo 'make chaos    set up, build, and train while ranks are killed, stopped and started again'
	@echo '              make chaos MINUTES=5 SEED=7'
	@echo 'make tidy     set up, and run clang-tidy over all C++'
	@echo 'make coverage set up, build, and write down which lines the tests reach'
	@echo 'make bfbench  set up, build, and measure beside other libraries: bfbench ops'
	@echo '              make bfbench ARGS="--json ops.json"'
	@echo '              make bfbench ARGS="train --models resnet18"'
	@echo 'make install  set up, build, and install the C++ package below PREFIX (/usr/local)'
	@echo 'make wheel    set up, build, and write the Python package as a wheel: build/wheels'
	@echo 'make setup    install what is missing, and nothing more'
	@echo 'make clean    remove build/ (the virtual environment stays)'
	@echo
	@echo 'Variables: BLUEFOG_VENV, BLUEFOG_TORCH_ROOT, MPI_HOME, CMAKE_ARGS; see docs/building.md.'

setup:
	@cmake/setup/install.sh requirements.txt test-requirements.txt

train:
	@cmake/setup/train.sh

test:
	@cmake/setup/test.sh

fuzz:
	@cmake/setup/fuzz.sh

chaos:
	@cmake/setup/chaos.sh

tidy:
	@cmake/setup/tidy.sh

coverage:
	@cmake/setup/coverage.sh

bfbench:
	@cmake/setup/bfbench.sh

install:
	@cmake/setup/package.sh

wheel:
	@cmake/setup/wheel.sh

clean:
	rm -rf build
