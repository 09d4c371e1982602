# Needs Go, git, make and bash; everything else is built from source. All that is built,
# cached or run is below .cache.
#
# "make <target> NAME=value" sets NAME for whatever the target runs.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

module := github.com/configdep/configdep
bin := .cache/bin
# Programs, tests and the control plane have the same settings, so that common packages are compiled once.
# Only the race detector needs cgo, and compiles all of them again.
go_flags := -trimpath -tags grpcnotrace
go_build := CGO_ENABLED=0 go build $(go_flags)

# Nothing but the version of configdep itself is stamped. The generic API server takes
# that of k8s.io/component-base for the version of Kubernetes.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
ldflags = -X $(module)/pkg/version.version=$(VERSION)

# Tests with a control plane wait more than they compute, so that two packages run at once even on one core.
cores := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
TEST_PACKAGES_AT_ONCE ?= $(shell echo $$(($(cores) > 3 ? $(cores) / 2 : 2)))
TEST_TIMEOUT ?= 20m
# More flags of go test: TEST_FLAGS="-run TestX -v".
TEST_FLAGS ?=
# Whether it is an error if this machine cannot run a node: required or optional.
E2E_NODE ?= required
# How long each part of "make soak" takes, the seed with which it begins (by default any), and the
# parts (by default all).
SOAK_DURATION ?= 30m
SOAK_SEED ?=
SOAK_PARTS ?=
# The race detector needs a C compiler, without which go turns cgo off.
race = $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)
tell_race = $(if $(race),:,echo "make: CGO_ENABLED is 0, or there is no C compiler, so the tests run without the race detector" >&2)
build_monitoring = cd test/monitoring && $(go_build) -o "$(CURDIR)/$(bin)/" .
go_test = CGO_ENABLED=0 go test $(go_flags) -vet=off -p $(TEST_PACKAGES_AT_ONCE) -timeout $(TEST_TIMEOUT) $(TEST_FLAGS)
go_test_race = go test $(race) $(go_flags) -vet=off -p $(TEST_PACKAGES_AT_ONCE) -timeout $(TEST_TIMEOUT) $(TEST_FLAGS)

# The tiers of tests: units need no control plane; integration does, in most packages; extended takes long, and
# few changes can break it.
units := ./pkg/... ./cmd/... ./test/simulation
integration = $(shell go list ./test/... | grep -vE '/test/(extended/|(simulation|e2e|node)$$)')
extended := ./test/extended/...
# Where goroutines share memory.
concurrent := ./pkg/agent/... ./pkg/apiserver/... ./pkg/certificate ./pkg/controller ./pkg/follow ./pkg/ingest ./pkg/listener ./pkg/notify/... ./pkg/registry/... ./pkg/strategy

##@ Use

.PHONY: help
help: ## Show this help
	@awk 'BEGIN { FS = ":.*## "; print "Usage: make <target> [NAME=value ...]" } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: prerequisites ## Run the tour (docs/getting-started.md) on a cluster of its own; it stays up until Ctrl-C, or ends with DEMO_EXIT=1
	@hack/demo.sh

.PHONY: deploy
deploy: ## Install into the cluster of the current kubectl context: IMAGE=..., and KUBECTL, WAIT, TIMEOUT (see hack/deploy.sh)
	@hack/deploy.sh

.PHONY: undeploy
undeploy: ## Remove what deploy has installed: KUBECTL, TIMEOUT (see hack/undeploy.sh)
	@hack/undeploy.sh

##@ Build

.PHONY: build
build: prerequisites ## Build the programs into .cache/bin, with VERSION from git
	@mkdir -p $(bin)
	$(go_build) -ldflags "$(ldflags)" -o $(bin)/ ./cmd/...

.PHONY: image
image: ## Build the container images of server, agent and plugin by docker: IMAGE, VERSION, PLATFORMS, PUSH (see hack/image.sh)
	@VERSION="$(VERSION)" hack/image.sh

.PHONY: image-archive
image-archive: prerequisites ## Make archives of these images without docker: IMAGE, VERSION, PLATFORM (see hack/image-archive.sh)
	@VERSION="$(VERSION)" hack/image-archive.sh

.PHONY: release
release: ## Make what a release consists of in .cache/dist: VERSION, IMAGE, PLATFORMS (see hack/release.sh)
	@VERSION="$(VERSION)" hack/release.sh

.PHONY: release-prepare
release-prepare: ## Write VERSION into CHANGELOG.md and examples, before the commit that gets its tag (see hack/release-prepare.sh)
	@VERSION="$(VERSION)" hack/release-prepare.sh

.PHONY: chart
chart: prerequisites ## Package the Helm charts into .cache/dist: VERSION, IMAGE
	@VERSION="$(VERSION)" hack/package-chart.sh

.PHONY: clean
clean: ## Remove .cache: what is built, with the control plane of the tests
	rm -rf .cache

##@ Develop

.PHONY: test
test: test-unit test-integration ## Run the tests that say whether the program works, in minutes: TEST_FLAGS, TEST_TIMEOUT

.PHONY: test-unit
test-unit: prerequisites ## Run the unit tests and the simulation alone: TEST_FLAGS
	@# What tests run is built before them, so that no time limit of a test includes a build.
	@hack/tools/build.sh helm >/dev/null
	$(go_test) $(units)

.PHONY: test-integration
test-integration: prerequisites ## Run the tests with a real control plane alone: TEST_FLAGS
	@hack/controlplane/build.sh >/dev/null
	@hack/tools/build.sh helm >/dev/null
	@$(build_monitoring)
	$(go_test) $(integration)

.PHONY: test-kubernetes
test-kubernetes: prerequisites ## Run the tests that install and use the server on another Kubernetes: KUBERNETES_VERSION=v1.35.4, TEST_FLAGS
	@hack/controlplane/build.sh >/dev/null
	@hack/tools/build.sh helm >/dev/null
	$(go_test) -count 1 ./test/integration ./test/extended/lifecycle

.PHONY: test-oldest
test-oldest: export KUBERNETES_VERSION := v1.34.4
test-oldest: test-kubernetes ## The same on the oldest Kubernetes that is supported: TEST_FLAGS

.PHONY: test-race
test-race: prerequisites ## Run the unit tests of concurrent packages with the race detector: TEST_FLAGS
	@$(tell_race)
	$(go_test_race) $(concurrent)

.PHONY: test-all
test-all: TEST_TIMEOUT := $(if $(filter file,$(origin TEST_TIMEOUT)),60m,$(TEST_TIMEOUT))
test-all: build ## Run all tests with the race detector, many random ones, and vulncheck; takes hours: TEST_FLAGS
	@hack/controlplane/build.sh >/dev/null
	@hack/tools/build.sh helm image sbom vuln >/dev/null
	@$(tell_race)
	@$(build_monitoring)
	SEEDS_FACTOR=10 $(go_test_race) -tags grpcnotrace,extended $(units) $(integration) $(extended)
	@hack/govulncheck.sh

.PHONY: e2e-node
e2e-node: prerequisites ## Run the tests on a real node, which need Linux and root (see hack/node/test.sh): E2E_NODE=optional, TEST_FLAGS
	@E2E_NODE="$(E2E_NODE)" TEST_FLAGS="$(TEST_FLAGS)" TEST_TIMEOUT="$(TEST_TIMEOUT)" hack/node/test.sh

.PHONY: soak
soak: prerequisites ## Play everything that is random with new seeds, at length (see hack/soak.sh): SOAK_DURATION of each part, SOAK_SEED, SOAK_PARTS
	@$(tell_race)
	@RACE="$(race)" TEST_FLAGS="$(TEST_FLAGS)" SOAK_DURATION="$(SOAK_DURATION)" SOAK_SEED="$(SOAK_SEED)" hack/soak.sh $(SOAK_PARTS)

.PHONY: bench
bench: prerequisites ## Measure the server on a cluster of its own (see test/bench)
	@$(go_build) -o $(bin)/bench ./test/bench
	@$(bin)/bench

.PHONY: verify
verify: ## Check that everything is generated, tidy, formatted and without findings, as CI does
	@hack/verify.sh

.PHONY: generate
generate: prerequisites ## Generate deep copies, OpenAPI, clientset, listers, informers and the CustomResourceDefinition from the API types
	hack/generate.sh

.PHONY: manifests
manifests: prerequisites ## Render the kustomize bases from the Helm charts
	hack/render.sh

.PHONY: tidy
tidy: prerequisites ## Tidy and align all go.mod and go.sum files, and format the code
	hack/tidy.sh

.PHONY: lint
lint: prerequisites ## Run golangci-lint alone
	hack/golangci-lint.sh run

.PHONY: vulncheck
vulncheck: prerequisites ## Look for known vulnerabilities alone: GOVULNDB, GOVULNCHECK (see hack/govulncheck.sh)
	@hack/govulncheck.sh

.PHONY: prerequisites
prerequisites:
	@hack/prerequisites.sh
