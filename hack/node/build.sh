#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Builds what a real node runs and prints the folder of its programs: kubelet, kube-proxy, containerd
# with its shim and ctr, runc, and three CNI plugins.
#
# The versions are those of the go.mod files beside this script; kubelet and kube-proxy are of the module
# of the control plane. The result is cached under .cache/node/<key>, where the key changes with them, so
# that it is built once. Root is not needed; a C compiler is, for runc, and the package libseccomp-dev of
# Debian, which is downloaded and unpacked, not installed. Progress goes to standard error; standard
# output is the folder alone.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
kubernetes=$root/hack/controlplane/kubernetes

say() { printf 'node: %s\n' "$*" >&2; }

command -v go >/dev/null || { say "go is not installed; see https://go.dev/doc/install"; exit 1; }
[[ $(go env GOOS) == linux ]] || { say "nodes run on Linux only"; exit 1; }

key=$({ cat "$here"/*/go.mod "$kubernetes/go.mod" "$here/build.sh"; go env GOOS GOARCH GOVERSION; } | git hash-object --stdin)
out=$root/.cache/node/${key:0:12}
if [[ -f $out/complete ]]; then
  echo "$out"
  exit 0
fi

read -ra compiler <<<"$(go env CC)"
command -v "${compiler[0]}" >/dev/null || { say "runc needs a C compiler, and ${compiler[0]} is not installed"; exit 1; }
if ! seccomp=$(cd "$root" && go run ./hack/node/unpack libseccomp-dev); then
  say "runc needs the package libseccomp-dev: the reason is above"
  exit 1
fi
library=("$seccomp"/usr/lib/*/libseccomp.a)

# Built aside and moved into place, so that an interrupted build leaves nothing half done and two builds at
# once do no harm.
mkdir -p "$root/.cache/node"
tmp=$(mktemp -d "$root/.cache/node/building.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

version() { go list -m -f '{{.Version}}' "$1"; } # of a module

# The flags are those of hack/controlplane/build.sh, with which it shares what is compiled.
build() { # module, binary, package, ldflags, tags
  local started=$SECONDS
  say "$2: building (minutes the first time, as nothing is in the Go cache yet) ..."
  (
    cd "$1"
    export GOFLAGS=-mod=readonly CGO_ENABLED=${cgo:-0}
    go build -buildvcs=false -trimpath -tags "grpcnotrace ${5:-}" -ldflags "-s -w ${4:-}" -o "$tmp/$2" "$3"
  )
  say "$2: done in $((SECONDS - started)) s"
}

kubernetes_version=$(cd "$kubernetes" && version k8s.io/kubernetes)
minor=${kubernetes_version#v1.}
minor=${minor%%.*}
# Without these the binaries call themselves v0.0.0, and clients fail to parse that.
v=k8s.io/component-base/version
kubernetes_ldflags="-X $v.gitVersion=$kubernetes_version -X $v.gitMajor=1 -X $v.gitMinor=$minor -X $v.gitTreeState=clean"
containerd_version=$(cd "$here/containerd" && version github.com/containerd/containerd/v2)
containerd_ldflags="-X github.com/containerd/containerd/v2/version.Version=$containerd_version"

say "building a node of Kubernetes $kubernetes_version, once; it is cached in .cache/node"
for plugin in main/bridge main/loopback ipam/host-local; do
  build "$here/cni" "${plugin#*/}" "github.com/containernetworking/plugins/plugins/$plugin"
done
# The library is named here, so that pkg-config need not be installed, which would not find it either.
cgo=1 PKG_CONFIG=true CGO_CFLAGS="-O2 -g -I$seccomp/usr/include" CGO_LDFLAGS=${library[0]} \
  build "$here/runc" runc github.com/opencontainers/runc "" "seccomp netgo osusergo urfave_cli_no_docs"
for program in containerd containerd-shim-runc-v2 ctr; do
  build "$here/containerd" "$program" "github.com/containerd/containerd/v2/cmd/$program" "$containerd_ldflags" urfave_cli_no_docs
done
for program in kubelet kube-proxy; do
  build "$kubernetes" "$program" "k8s.io/kubernetes/cmd/$program" "$kubernetes_ldflags"
done
touch "$tmp/complete"

[[ -e $out ]] || mv "$tmp" "$out" # unless another process was faster
trap - EXIT
rm -rf "$tmp"
echo "$out"
