#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Builds a real control plane from Go modules and prints the folder of its binaries:
# etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl and kwok.
#
# The versions are those of the go.mod files beside this script; the result is cached
# under .cache/controlplane/<key>, where the key changes with them, so that it is built
# once. Where KUBEBUILDER_ASSETS holds a binary of the same name, that one is used.
# Progress goes to standard error; standard output is the folder alone.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
assets=${KUBEBUILDER_ASSETS:-}

say() { printf 'control plane: %s\n' "$*" >&2; }

if [[ -n $assets ]]; then
  [[ -d $assets ]] || { say "KUBEBUILDER_ASSETS is not a folder: $assets"; exit 1; }
  assets=$(cd "$assets" && pwd) # links to what it holds must not depend on where this was called
fi

command -v go >/dev/null || { say "go is not installed; see https://go.dev/doc/install"; exit 1; }

key=$({ cat "$here"/*/go.mod "$here/build.sh"; go env GOOS GOARCH GOVERSION; echo "$assets"; } | git hash-object --stdin)
out=$root/.cache/controlplane/${key:0:12}
if [[ -f $out/complete ]]; then
  echo "$out"
  exit 0
fi

# Built aside and moved into place, so that an interrupted build leaves nothing half done
# and two builds at once do no harm.
mkdir -p "$root/.cache/controlplane"
tmp=$(mktemp -d "$root/.cache/controlplane/building.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

kubernetes_version=$(cd "$here/kubernetes" && go list -m -f '{{.Version}}' k8s.io/kubernetes)
minor=${kubernetes_version#v1.}
minor=${minor%%.*}
# Without these the binaries call themselves v0.0.0, and clients fail to parse that.
v=k8s.io/component-base/version
kubernetes_ldflags="-s -w -X $v.gitVersion=$kubernetes_version -X $v.gitMajor=1 -X $v.gitMinor=$minor -X $v.gitTreeState=clean"

build() { # module, binary, package, ldflags
  local started=$SECONDS
  if [[ -n $assets && -x $assets/$2 ]]; then
    say "$2: taken from KUBEBUILDER_ASSETS"
    ln -s "$assets/$2" "$tmp/$2"
    return
  fi
  say "$2: building (minutes the first time, as nothing is in the Go cache yet) ..."
  (cd "$here/$1" && GOFLAGS=-mod=readonly CGO_ENABLED=0 go build -buildvcs=false -trimpath -ldflags "$4" -o "$tmp/$2" "$3")
  say "$2: done in $((SECONDS - started)) s"
}

say "building Kubernetes $kubernetes_version, once; it is cached in .cache/controlplane"
build etcd etcd go.etcd.io/etcd/server/v3 "-s -w"
build kubernetes kubectl k8s.io/kubernetes/cmd/kubectl "$kubernetes_ldflags"
build kubernetes kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver "$kubernetes_ldflags"
build kubernetes kube-controller-manager k8s.io/kubernetes/cmd/kube-controller-manager "$kubernetes_ldflags"
build kubernetes kube-scheduler k8s.io/kubernetes/cmd/kube-scheduler "$kubernetes_ldflags"
build kwok kwok sigs.k8s.io/kwok/cmd/kwok "-s -w"
touch "$tmp/complete"

mv -T "$tmp" "$out" 2>/dev/null || [[ -f $out/complete ]] # another process was faster
trap - EXIT
rm -rf "$tmp"
echo "$out"
