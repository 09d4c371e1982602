#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Generates everything that is generated and checked in: deep copies, OpenAPI, the clientset, listers and
# informers, and the CustomResourceDefinition. The generators' versions are those of hack/tools/codegen/go.mod.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

module=$(go list -m)
types=$module/pkg/apis/configdep/v1alpha1
policies=$module/pkg/apis/policy/v1alpha1
# A template, because Helm never upgrades what is in the folder crds of a chart. The annotation helm.sh/resource-policy keeps
# the definition, and with it all policies, when the release is uninstalled or renamed.
definitions=artifacts/charts/configdep-policies/templates
header=hack/boilerplate.go.txt
# With the settings of "make build", so that what both need is compiled once.
tool() { CGO_ENABLED=0 GOFLAGS="$(go env GOFLAGS) -trimpath" go tool -modfile=hack/tools/codegen/go.mod "$@"; }

find pkg -name 'zz_generated.*.go' -delete
rm -rf pkg/generated/{clientset,listers,informers} "$definitions"/policy.configdep.io_*.yaml

tool deepcopy-gen --go-header-file "$header" --output-file zz_generated.deepcopy.go "$types" "$policies"
tool controller-gen crd paths="$policies" output:crd:dir="$definitions"

# The packages of apimachinery are input as well, because the document needs the
# definitions of the types that ours refer to; their model names are their own.
apimachinery=(
  k8s.io/apimachinery/pkg/apis/meta/v1
  k8s.io/apimachinery/pkg/runtime
  k8s.io/apimachinery/pkg/version
)
readonly_packages=()
for p in "${apimachinery[@]}"; do readonly_packages+=(--readonly-pkg "$p"); done
mkdir -p pkg/generated/openapi
tool openapi-gen --go-header-file "$header" --output-file zz_generated.openapi.go \
  --output-dir pkg/generated/openapi --output-pkg "$module/pkg/generated/openapi" \
  --output-model-name-file zz_generated.model_name.go \
  --report-filename hack/api-rule-violations.txt \
  "${readonly_packages[@]}" "$types" "${apimachinery[@]}"

tool client-gen --go-header-file "$header" --clientset-name versioned \
  --input-base "$module/pkg/apis" --input configdep/v1alpha1 \
  --output-dir pkg/generated/clientset --output-pkg "$module/pkg/generated/clientset" \
  --fake-clientset=false
tool lister-gen --go-header-file "$header" \
  --output-dir pkg/generated/listers --output-pkg "$module/pkg/generated/listers" "$types"
tool informer-gen --go-header-file "$header" --single-directory \
  --versioned-clientset-package "$module/pkg/generated/clientset/versioned" \
  --listers-package "$module/pkg/generated/listers" \
  --output-dir pkg/generated/informers --output-pkg "$module/pkg/generated/informers" "$types"

find pkg -path '*/generated/*.go' -print0 -o -name 'zz_generated.*.go' -print0 | xargs -0 gofmt -s -w
