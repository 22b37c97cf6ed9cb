# Everything runs in .venv, which the first target that needs it creates.
PYTHON ?= python3
BIN := .venv/bin
.DEFAULT_GOAL := help

.PHONY: help
help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

.venv/installed: pyproject.toml CMakeLists.txt $(wildcard plugins/*/*)
	@echo "== creating .venv and installing trtpost with TensorFlow and TensorRT for RTX (a minute or two)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@$(BIN)/python scripts/setup_gpu.py
	@touch $@

.PHONY: setup
setup: .venv/installed ## create .venv with everything that demo and test need

.PHONY: demo
demo: setup ## build two models from TensorFlow, segment a portrait and a 12-megapixel scene
	@$(BIN)/python scripts/demo.py

.PHONY: serve-demo
serve-demo: setup ## serve a bundle with a real Triton server on this machine, and ask it for a mask
	@$(BIN)/python scripts/serve_demo.py

.PHONY: test
test: setup ## run the tests
	@echo "== running the tests (a few minutes)"
	@$(BIN)/python -m pytest -n 2 --dist loadfile

.PHONY: test-skipped
test-skipped: setup ## run the tests that the last `make test` skipped, and no others; a skip is a failure
	@TRTPOST_STRICT=1 $(BIN)/python -m pytest -n 2 --dist loadfile --skipped

.PHONY: test-asan
test-asan: setup ## test the kernels under AddressSanitizer and UndefinedBehaviorSanitizer
	@echo "== building the kernel with sanitizers"
	@$(BIN)/cmake -S . -B build/asan -DTRTPOST_SANITIZE=ON -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python > build-asan.log 2>&1 \
	  && $(BIN)/cmake --build build/asan --parallel 2 >> build-asan.log 2>&1 || (cat build-asan.log; exit 1)
	@rm build-asan.log
	@TRTPOST_CPU_EXTENSION=build/asan/plugins/cpu ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	  LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" \
	  TRTPOST_HOST_FLAGS="-fsanitize=address,undefined -fno-sanitize-recover=undefined -g" \
	  $(BIN)/python -m pytest -n 2 --dist load tests/kernels/test_cpu.py tests/kernels/test_cuda.py tests/masks/test_png.py tests/photos/test_scale.py -k "not ptx"

.PHONY: plugins
plugins: setup ## compile the CUDA kernels to the PTX that the package carries
	@$(BIN)/python scripts/compile_cuda.py

.PHONY: test-standin
test-standin: setup ## test the GPU runtime on a stand-in GPU, with the real pycuda
	@echo "== building the stand-in GPU"
	@$(BIN)/python tests/standin/prepare.py
	@$(BIN)/python -m pytest -n 2 --dist loadfile tests/standin

.PHONY: bench
bench: setup ## logits to mask: ours against everything people use
	@$(BIN)/trtpost bench post

.PHONY: gpu-check
gpu-check: ## on a machine with an NVIDIA GPU: kernel, engine and rivals, into docs/gpu-check.md; by $(PYTHON), needs no setup
	@$(PYTHON) scripts/gpu_check.py

.PHONY: lint
lint: setup ## check style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python scripts/tensorrt_stubs.py
	@$(BIN)/mypy

.PHONY: models
models: setup ## train the scenes network again (a quarter of an hour on two cores)
	@$(BIN)/python models/train.py

.PHONY: clean
clean: ## remove .venv, the demo's files and caches
	rm -rf .venv demo build .pytest_cache .mypy_cache .ruff_cache .hypothesis models/downloads
