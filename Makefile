# Everything is built and tested with this one toolchain; go fetches it.
export GOTOOLCHAIN = go1.27.3
GOLANGCI = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
OPA      = go tool opa
SCHEMAS  = policies/sluice/schemas
LDFLAGS  = -X main.commit=$(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)

.DEFAULT_GOAL := help
.PHONY: help build demo test deps policy check lint fuzz bench soak

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "%-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/gateway
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/gateway ./cmd/gateway

demo: build ## the main job on this machine, nothing installed (ARGS=--check to exit with a verdict)
	@bin/gateway demo $(ARGS)

test: deps policy ## install what the tests need and run everything
	CGO_ENABLED=1 go test -race -timeout 20m ./...

deps: ## install redis-server, gcc and a second WebSocket client where they are missing
	@deploy/test-deps.sh

policy: ## Rego: strict check with the input schema, format, tests with coverage
	$(OPA) check --strict --schema $(SCHEMAS) policies policy_test
	$(OPA) fmt --fail --list policies policy_test
	$(OPA) test --timeout 60s policies policy_test
	$(OPA) test --timeout 60s --coverage --threshold 100 policies policy_test > /dev/null

check: policy lint ## everything that judges the source without running it
	go vet ./...
	go mod verify

lint:
	go run $(GOLANGCI) run ./...

fuzz: ## every fuzz target for FUZZTIME (30s)
	@deploy/fuzz.sh $(or $(FUZZTIME),30s)

bench: ## the stated sizes, as ratios measured side by side in one run
	go test -run '^$$' -bench . -benchmem ./internal/pdp ./internal/snapshot ./internal/proxy ./cmd/gateway

soak: deps ## 2,000 channels and everything that happens to them, for SOAK (10m), and peers that are gone: nothing may be lost, and nothing grow
	SOAK=$(or $(SOAK),10m) go test -tags soak -parallel 4 -run '^Test(APeerThatIsGoneWithoutAWordIsFound|Soak)$$' -v -timeout 24h ./cmd/gateway
