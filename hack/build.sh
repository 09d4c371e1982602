#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Builds programs as they are released. The image and "make release" both call this, so that
# they hold the same bytes; the same source and the Go of the Dockerfile give them again, in
# any folder.
#
#   VERSION=v0.1.0 hack/build.sh DIRECTORY ./cmd/configdep-apiserver ...
#
#   VERSION         what --version says                 required
#   GOOS, GOARCH    the platform to build for           this one
#
# It needs nothing but Go and bash: where the image is built there is not even git.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { printf 'build: %s\n' "$*" >&2; exit 1; }
(($# >= 2)) || fail "usage: VERSION=v0.1.0 hack/build.sh DIRECTORY PACKAGE..."
[[ ${VERSION:-} =~ ^[A-Za-z0-9][A-Za-z0-9._+-]*$ ]] || fail "VERSION=${VERSION:-} is no version"
out=$1
shift

# How modules are fetched is the builder's own business; no other settings count.
for name in GOPROXY GONOPROXY GOSUMDB GONOSUMDB GOPRIVATE GOINSECURE GOMODCACHE GOCACHE GOTOOLCHAIN; do
  value=$(go env "$name")
  export "$name=$value"
done
unset GOFLAGS GOEXPERIMENT GOFIPS140
export GOENV=off GOWORK=off CGO_ENABLED=0 GOAMD64=v1 GOARM64=v8.0 GOPPC64=power8

# The pages on which gRPC traces its requests (golang.org/x/net/trace), which nothing serves, hold templates, for which
# the linker keeps every exported method: a quarter of the program.
#
# There is no -X for k8s.io/component-base/version: the generic API server takes that for the
# version of Kubernetes, and turns features off.
mkdir -p "$out"
exec go build -mod=readonly -trimpath -buildvcs=false -tags grpcnotrace \
  -ldflags "-s -w -X github.com/configdep/configdep/pkg/version.version=$VERSION" \
  -o "$out/" "$@"
