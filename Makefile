# What one can do here. Each target calls what CONTRIBUTING.md describes; nothing is defined here alone.

.PHONY: help tour test race servers docs bench long ci modules release

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s%s\n", $$1, $$2 }' Makefile

tour: ## take turns with a lock, and elect a leader; no server
	go run ./examples/tour

test: ## the library; no server, no network
	go test ./...

race: ## the same with the race detector, on one thread: .ci/steps says why
	GORACE=atexit_sleep_ms=10 go test -race -cpu=1 -shuffle=on -timeout 20m ./...

servers: ## on real servers: at MONGODB_URI, of a mongod on PATH, or in Docker
	go test ./integration/... ./bench/...

docs: ## that the documents say what the code does: links, code, tests that they name
	go test ./docs ./internal/table

bench: ## measure the table of bench/README.md again: a quarter of an hour
	go run ./bench/report -readme bench/README.md

modules: ## that the modules are tidy, and what others get when they import them
	.ci/modules

ci: ## what each commit must pass: 25 minutes, on Debian with Docker
	.ci/run

long: ## what takes hours: large worlds, mutants, the nemesis
	.ci/long

release: ## the files of a release, as a snapshot in dist/; needs Docker
	.ci/release
