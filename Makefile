# PDPool: `make help` lists the targets. Tools are pinned in go.tools.mod and run
# through the Go tool chain; nothing but Go, make, git and a C compiler (for the
# race detector) is needed, and root on Linux for the cluster targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory

# One setting for everything but the race detector, so that nothing is compiled twice.
export CGO_ENABLED := 0

VERSION ?= v0.1.0-dev
LDFLAGS := -s -w -X main.version=$(VERSION)
COMMANDS := manager transfer-agent router enginesim kubectl-pdpool
BIN := bin
TOOL := go tool -modfile=go.tools.mod
DEVCLUSTER := hack/devcluster/devcluster.sh

# Pure packages start no goroutine; all others run under the race detector.
SERIAL := ./api/... ./engine ./kvlayout ./moriio/... ./pdpool ./router/policy ./test/docs ./transferagent/agentconfig ./transferagent/fault/... ./transferagent/kvproto ./transferagent/poolkey
# Only a package that hangs uses it up, also on a machine that is busy.
TESTTIME ?= 60m
FUZZTIME ?= 10s
EXPLORETIME ?= 10m

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: generate
generate: ## regenerate deepcopy code, CRD, RBAC, the chart's copies of them, and config/default
	$(TOOL) controller-gen object:headerFile=hack/gen/header.txt paths=./api/...
	$(TOOL) controller-gen crd:maxDescLen=1024 paths=./api/... output:crd:dir=config/crd/bases
	$(TOOL) controller-gen rbac:roleName=pdpool-manager paths=./controllers/... output:rbac:dir=config/rbac
	go run ./hack/chartcopy
	go run ./hack/apidocs
	go run ./hack/rulesdocs
	$(TOOL) helm template pdpool charts/pdpool --namespace pdpool-system > config/default/pdpool.yaml

# The linter caches its findings with the paths it first saw; a cache shared between
# clones would report those of another one, past the exclusions by path.
export GOLANGCI_LINT_CACHE := $(CURDIR)/$(BIN)/lint-cache

.PHONY: fmt
fmt: ## format the code
	$(TOOL) golangci-lint-kube-api-linter fmt

.PHONY: lint
lint: ## lint, import rules included
	$(TOOL) golangci-lint-kube-api-linter run ./...

.PHONY: tidy
tidy: ## check that go.mod is tidy
	go mod tidy -diff

.PHONY: chart-lint
chart-lint: ## lint the chart
	$(TOOL) helm lint charts/pdpool --strict

.PHONY: verify
verify: generate lint tidy chart-lint ## regenerate, lint and fail on any difference in the tree
	@changed=$$(git status --porcelain); \
	if [ -n "$$changed" ]; then echo "make verify: the tree differs from what is committed:"; echo "$$changed"; git --no-pager diff | head -100; exit 1; fi

.PHONY: test
test: ## run all tests that need no cluster (those of the API server bring their own)
	go vet ./...
	go test -timeout $(TESTTIME) -shuffle on $(SERIAL)
	assets=$$($(DEVCLUSTER) assets); export KUBEBUILDER_ASSETS=$$assets; \
	CGO_ENABLED=1 go test -timeout $(TESTTIME) -shuffle on -race $$(go list ./... | grep -v -F -x -f <(go list $(SERIAL)) | grep -v /test/e2e)
	cd hack/devcluster && go test ./...

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME
	hack/fuzz.sh $(FUZZTIME)

.PHONY: explore
explore: ## play properties and simulations with random seeds for EXPLORETIME
	hack/explore.sh $(EXPLORETIME)

.PHONY: bench
bench: build ## measure movers and router, beside vllm-router and smg where they are installed
	go test -run '^$$' -bench . ./kvlayout ./router
	$(BIN)/transfer-agent bench
	go run ./hack/routerbench --router $(BIN)/router

.PHONY: e2e
e2e: images $(BIN)/e2e.test ## run the end-to-end tests on the development cluster
	hack/e2e.sh

.PHONY: smoke
smoke: ## check what the development cluster promises (root on Linux)
	$(DEVCLUSTER) build >/dev/null
	hack/devcluster/smoke_test.sh

$(BIN)/e2e.test: FORCE
	go test -c -o $@ ./test/e2e

.PHONY: build
build: ## build the commands into bin/
	go build -ldflags "$(LDFLAGS)" -o $(BIN)/ $(addprefix ./cmd/,$(COMMANDS))

PLUGIN_DIR ?= $(HOME)/.local/bin

.PHONY: install-plugin
install-plugin: ## put kubectl pdpool and its completion into PLUGIN_DIR (~/.local/bin)
	mkdir -p "$(PLUGIN_DIR)"
	go build -ldflags "$(LDFLAGS)" -o "$(PLUGIN_DIR)/kubectl-pdpool" ./cmd/kubectl-pdpool
	printf '%s\n' '#!/bin/sh' '# kubectl asks this program how to complete kubectl pdpool.' 'exec "$$(dirname "$$0")/kubectl-pdpool" __complete "$$@"' >"$(PLUGIN_DIR)/kubectl_complete-pdpool"
	chmod 755 "$(PLUGIN_DIR)/kubectl_complete-pdpool"
	@case ":$$PATH:" in *":$(PLUGIN_DIR):"*) ;; *) echo "kubectl finds it once $(PLUGIN_DIR) is in PATH";; esac

.PHONY: images
images: build ## make the container images as archives in bin/images, without docker
	hack/images.sh $(BIN)

.PHONY: interop-vllm
interop-vllm: ## parse our command lines with the released vLLM's and SGLang's own parsers
	hack/interop-vllm.sh

.PHONY: demo
demo: ## bring up a cluster and show prefill/decode transfer end to end
	hack/demo.sh

.PHONY: demo-down
demo-down: ## remove everything that the demo made
	hack/demo-down.sh

FORCE:
