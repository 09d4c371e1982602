#!/usr/bin/env bash
# Installs the server into the cluster of the current kubectl context, or updates it:
#
#   IMAGE=... hack/deploy.sh        (make deploy IMAGE=...)
#
#   IMAGE     the server's image                             required
#   KUBECTL   the kubectl to use                             kubectl
#   WAIT      false: do not wait for anything to be ready    true
#   TIMEOUT   how long each wait may take                    180s
#
# The serving certificate lives in Secret configdep-serving-cert (tls.crt, tls.key, ca.crt).
# It is made here if there is none, and left alone otherwise, so it may as well come from
# cert-manager. One that was made here is valid for a year; to renew it, delete the Secret
# and deploy again. It comes with a new CA, so the API does not answer until the kubelets
# have brought the new files to the pods, about a minute later.
#
# The order matters. An APIService without a backend makes discovery fail in part, for
# every client, so it comes once the server is ready.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

kubectl=${KUBECTL:-kubectl}
wait=${WAIT:-true}
timeout=${TIMEOUT:-180s}
image=${IMAGE:-}
namespace=configdep-system
name=configdep-apiserver
secret=configdep-serving-cert
apiservice=v1alpha1.configdep.io

say() { printf 'deploy: %s\n' "$*"; }
fail() { printf 'deploy: %s\n' "$*" >&2; exit 1; }

[[ -n $image ]] || fail "IMAGE is not set; for example: make deploy IMAGE=example.com/configdep-apiserver:v0.1.0"
[[ $image =~ ^[A-Za-z0-9][A-Za-z0-9._:/@-]*$ ]] || fail "IMAGE=$image is not the name of an image"
[[ $wait == true || $wait == false ]] || fail "WAIT=$wait is neither true nor false"

# Holds a private key for a moment. It is inside the tree because kustomize wants the
# path from an overlay to its base to be relative.
umask 077
mkdir -p .cache
tmp=$(mktemp -d .cache/deploy.XXXXXX)
trap 'rm -rf "$tmp"' EXIT

found=$("$kubectl" get namespace "$namespace" --ignore-not-found -o name)
if [[ -z $found ]]; then
  "$kubectl" apply -f artifacts/base/namespace.yaml
fi

found=$("$kubectl" -n "$namespace" get secret "$secret" --ignore-not-found -o name)
if [[ -z $found ]]; then
  command -v go >/dev/null || fail "go is needed to make a serving certificate; install it, or make Secret $namespace/$secret (tls.crt, tls.key, ca.crt) yourself"
  say "making a serving certificate, as there is no Secret $namespace/$secret"
  go run ./hack/gencert -dns "$name.$namespace.svc,$name.$namespace.svc.cluster.local" -out "$tmp/cert"
  "$kubectl" -n "$namespace" create secret generic "$secret" --type=kubernetes.io/tls \
    --from-file="$tmp/cert/tls.crt" --from-file="$tmp/cert/tls.key" --from-file="$tmp/cert/ca.crt"
  rm -r "$tmp/cert"
else
  say "keeping the serving certificate in Secret $namespace/$secret"
fi
# As it is in the Secret, so in the APIService: base64.
ca=$("$kubectl" -n "$namespace" get secret "$secret" -o 'jsonpath={.data.ca\.crt}')
[[ -n $ca ]] || fail "Secret $namespace/$secret has no ca.crt, and without the CA kube-apiserver cannot trust the server"

# Two overlays: all of it, and all but the APIService.
mkdir "$tmp/all" "$tmp/server"
cat >"$tmp/all/kustomization.yaml" <<EOF
resources: [../../../artifacts/base]
patches:
- patch: |
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: $name, namespace: $namespace}
    spec: {template: {spec: {containers: [{name: $name, image: "$image"}]}}}
- patch: |
    apiVersion: apiregistration.k8s.io/v1
    kind: APIService
    metadata: {name: $apiservice}
    spec: {caBundle: "$ca"}
EOF
cat >"$tmp/server/kustomization.yaml" <<EOF
resources: [../all]
patches:
- patch: |
    apiVersion: apiregistration.k8s.io/v1
    kind: APIService
    metadata: {name: $apiservice}
    \$patch: delete
EOF

say "applying everything but the APIService, with image $image"
"$kubectl" apply -k "$tmp/server"
if [[ $wait == true ]]; then
  say "waiting for the server to be ready, at most $timeout"
  if ! "$kubectl" -n "$namespace" rollout status "deployment/$name" --timeout="$timeout"; then
    "$kubectl" -n "$namespace" get pods -o wide >&2 || true
    fail "the server is not ready, so the APIService was left as it is; see: $kubectl -n $namespace describe pods; $kubectl -n $namespace logs deployment/$name"
  fi
fi

say "applying the APIService, which opens the API"
"$kubectl" apply -k "$tmp/all" | sed '/ unchanged$/d'
if [[ $wait == true ]]; then
  say "waiting for the API to be available, at most $timeout"
  if ! "$kubectl" wait --for=condition=Available "apiservice/$apiservice" --timeout="$timeout"; then
    "$kubectl" get apiservice "$apiservice" -o 'jsonpath={range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}' >&2 || true
    fail "kube-apiserver does not reach the server; the reason is above"
  fi
  say "done; try: $kubectl get configdependencies -A"
else
  say "done, without waiting"
fi
