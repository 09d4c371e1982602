#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Installs the server into the cluster of the current kubectl context, or updates it:
#
#   IMAGE=... hack/deploy.sh        (make deploy IMAGE=...)
#
#   IMAGE     the server's image                             required
#   KUBECTL   the kubectl to use                             kubectl
#   WAIT      false: do not wait for anything to be ready    true
#   TIMEOUT   how long each wait may take                    180s
#
# The server registers its API when a replica is ready.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

kubectl=${KUBECTL:-kubectl}
wait=${WAIT:-true}
timeout=${TIMEOUT:-180s}
image=${IMAGE:-}
namespace=configdep-system
name=configdep-apiserver
apiservice=v1alpha1.configdep.io

say() { printf 'deploy: %s\n' "$*"; }
fail() { printf 'deploy: %s\n' "$*" >&2; exit 1; }

[[ -n $image ]] || fail "IMAGE is not set; for example: make deploy IMAGE=example.com/configdep-apiserver:v0.1.0"
[[ $image =~ ^[A-Za-z0-9][A-Za-z0-9._:/@-]*$ ]] || fail "IMAGE=$image is not the name of an image"
[[ $wait == true || $wait == false ]] || fail "WAIT=$wait is neither true nor false"

# Inside the tree, because kustomize wants the path from an overlay to its base to be relative.
mkdir -p .cache
tmp=$(mktemp -d .cache/deploy.XXXXXX)
trap 'rm -rf "$tmp"' EXIT

cat >"$tmp/kustomization.yaml" <<END
resources: [../../artifacts/base]
patches:
- patch: |
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: $name, namespace: $namespace}
    spec: {template: {spec: {containers: [{name: $name, image: "$image"}]}}}
END
if [[ $("$kubectl" get --raw /apis/admissionregistration.k8s.io/v1) != *'"mutatingadmissionpolicies"'* ]]; then
  say "without artifacts/base/annotations.yaml, which needs Kubernetes 1.36"
  cat >>"$tmp/kustomization.yaml" <<END
- target: {kind: MutatingAdmissionPolicy.*}
  patch: |
    apiVersion: admissionregistration.k8s.io/v1
    kind: MutatingAdmissionPolicy
    metadata: {name: any}
    \$patch: delete
END
fi

say "applying artifacts/base with image $image"
"$kubectl" apply -k "$tmp"
if [[ $wait == true ]]; then
  say "waiting for the server to be ready and to register its API, each at most $timeout"
  if ! "$kubectl" -n "$namespace" rollout status "deployment/$name" --timeout="$timeout"; then
    "$kubectl" -n "$namespace" get pods -o wide >&2 || true
    fail "the server is not ready; see: $kubectl -n $namespace describe pods; $kubectl -n $namespace logs deployment/$name"
  fi
  "$kubectl" wait --for=create "apiservice/$apiservice" --timeout="$timeout" ||
    fail "no replica has registered the API; see: $kubectl -n $namespace logs deployment/$name"
  if ! "$kubectl" wait --for=condition=Available "apiservice/$apiservice" --timeout="$timeout"; then
    "$kubectl" get apiservice "$apiservice" -o 'jsonpath={range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}' >&2 || true
    fail "kube-apiserver does not reach the server; the reason is above"
  fi
  say "done; try: $kubectl get configdependencies -A"
else
  say "done, without waiting"
fi
