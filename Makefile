# Everything is a script in scripts/ or a go command; this file only names
# them. ARGS, PKG, FUZZTIME, COUNT and BENCH are passed on.

.DEFAULT_GOAL := help
.PHONY: help test check proof generate lint format bench compare demo doctor fuzz ptx

help: ## list the targets
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

test: ## the tests, in a few minutes; PKG=./core/... narrows them
	@scripts/test $(PKG)

check: ## the rest: linter, other systems, the tests of dev/ and tools/, servers, a browser
	@scripts/test --check

proof: ## long tests at their whole bounds: fences, mutants, planted races, lock order
	@scripts/test --proof

generate: ## write the generated pages, boards and manifests
	@go test ./telemetry/metrics -run TestGoldenExposition -update >/dev/null
	@go -C dev generate ./...
	@go -C tools/kubernetes run ./generate

lint: ## golangci-lint
	@scripts/tool golangci-lint run $(ARGS) ./...
	@cd dev && ../scripts/tool golangci-lint run $(ARGS) ./...

format: ## format the Go files in place
	@scripts/tool golangci-lint fmt ./... ./dev/... ./tools/...

bench: ## run the benchmarks and print the ratios; BENCH=regexp COUNT=n PKG=...
	@scripts/bench

compare: ## compare two files that "make bench" kept: OLD=a NEW=b
	@scripts/tool benchstat $(OLD) $(NEW)

demo: ## run the demo; ARGS="--for 5s --json"
	@go run ./cmd/fencepost demo $(ARGS)

doctor: ## say what this machine has and what is missing; ARGS="--device=cuda"
	@go run ./cmd/fencepost doctor $(ARGS)

fuzz: ## run every fuzz target for FUZZTIME (10s) each
	@scripts/fuzz

ptx: ## generate the PTX from the CUDA sources, with nvcc; ARGS=--check compares
	@scripts/ptx $(ARGS)
