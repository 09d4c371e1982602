#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Provides a real control plane and prints the folder of its binaries: etcd, kube-apiserver,
# kube-controller-manager, kube-scheduler, kubectl and kwok.
#
# The versions are those of the go.mod files beside this script. Official binaries of Kubernetes and
# etcd are downloaded and verified against the published checksums. Where that is not possible, and
# for kwok, the binaries are built from Go modules. The result is cached under
# .cache/controlplane/<key>, where the key changes with the versions.
#
#   CONTROL_PLANE=build      build everything; download nothing
#   KUBERNETES_VERSION       another version of Kubernetes, such as v1.34.4
#   KUBEBUILDER_ASSETS       a folder; its binaries of the same names are used instead
#   KUBERNETES_DOWNLOADS     where releases of Kubernetes are       https://dl.k8s.io
#   ETCD_DOWNLOADS           where releases of etcd are             https://github.com/etcd-io/etcd/releases/download
#
# Progress goes to standard error; standard output is the folder alone.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
assets=${KUBEBUILDER_ASSETS:-}
kubernetes=(kube-apiserver kube-controller-manager kube-scheduler kubectl)
programs=(etcd "${kubernetes[@]}" kwok)

say() { printf 'control plane: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
# hack/demo.sh shows steps by a function of its own.
declare -F progress >/dev/null || progress() { :; }

case ${CONTROL_PLANE:-} in
  "" | build) ;;
  *) fail "CONTROL_PLANE=$CONTROL_PLANE: must be build, or empty for official binaries where possible" ;;
esac
if [[ $assets ]]; then
  [[ -d $assets ]] || fail "KUBEBUILDER_ASSETS is not a folder: $assets"
  assets=$(cd "$assets" && pwd) # links to its files must not depend on where this was called
fi
command -v go >/dev/null || fail "go is not installed; see https://go.dev/doc/install"

key=$({ cat "$here"/*/go.mod "$here/build.sh"; go env GOOS GOARCH GOVERSION; echo "$assets ${CONTROL_PLANE:-} ${KUBERNETES_VERSION:-}"; } | git hash-object --stdin)
out=$root/.cache/controlplane/${key:0:12}
# missing prints those of the named binaries that a folder lacks.
missing() { local dir=$1 n; shift; for n; do [[ -x $dir/$n ]] || echo "$n"; done; }
if [[ -f $out/complete && ! $(missing "$out" "${programs[@]}") ]]; then
  echo "$out"
  exit 0
fi
rm -rf "$out" # its links lead nowhere by now

# Made aside and moved into place, so that an interrupted run leaves nothing incomplete, and two
# runs at once do no harm.
mkdir -p "$root/.cache/controlplane"
tmp=$(mktemp -d "$root/.cache/controlplane/building.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

version() { (cd "$here/$1" && go list -m -f '{{.Version}}' "$2"); }
kubernetes_version=${KUBERNETES_VERSION:-$(version kubernetes k8s.io/kubernetes)}
etcd_version=$(version etcd go.etcd.io/etcd/server/v3)
platform=$(go env GOOS)/$(go env GOARCH)

for name in "${programs[@]}"; do
  if [[ $assets && -f $assets/$name && -x $assets/$name ]]; then
    say "$name: taken from KUBEBUILDER_ASSETS"
    ln -s "$assets/$name" "$tmp/$name"
  elif [[ $assets && -e $assets/$name ]]; then
    fail "$assets/$name is no executable file"
  fi
done

# fetch downloads a URL to a file. It tries three times, and gives up a try without a connection
# within five seconds, or with less than 100 KB/s for fifteen: then it is sooner built. It runs in a process of its own,
# which is curl in the end, so that killing it ends the transfer.
fetch() { # url, file
  exec curl --fail --silent --show-error --location --proto-redir =https --connect-timeout 5 --speed-limit 100000 --speed-time 15 \
    --retry 2 --retry-delay 1 --retry-all-errors --output "$2" "$1"
}

# verify ends everything if a file does not have its published checksum: such a file must neither be
# used nor be replaced silently.
verify() { # file, checksum, where the checksum is from
  local sum
  sum=$(sha256sum <"$1" 2>/dev/null || shasum -a 256 <"$1")
  [[ ${sum%% *} == "$2" ]] || fail "the checksum of $(basename "$1") is ${sum%% *}, and $3 says $2. Try again, or set CONTROL_PLANE=build."
}

# checksum prints a checksum file. It is small: without an answer within five seconds there is no download.
checksum() { curl --fail --silent --show-error --location --proto-redir =https --max-time 5 "$1"; }

download_kubernetes() {
  local base=${KUBERNETES_DOWNLOADS:-https://dl.k8s.io}/$kubernetes_version/bin/$platform name sum pids=() pid
  local -A sums
  for name; do
    sum=$(checksum "$base/$name.sha256") || return 1
    sums[$name]=${sum%% *}
  done
  say "downloading Kubernetes $kubernetes_version from $base ..."
  for name; do
    fetch "$base/$name" "$tmp/$name.part" & pids+=($!)
  done
  for pid in "${pids[@]}"; do
    wait "$pid" || { kill "${pids[@]}" 2>/dev/null || :; wait; rm -f "$tmp"/*.part; return 1; }
  done
  for name; do
    verify "$tmp/$name.part" "${sums[$name]}" "$base/$name.sha256"
    chmod 755 "$tmp/$name.part" || return 1
    mv "$tmp/$name.part" "$tmp/$name" || return 1
  done
}

download_etcd() {
  local base=${ETCD_DOWNLOADS:-https://github.com/etcd-io/etcd/releases/download}/$etcd_version
  local archive=etcd-$etcd_version-${platform/\//-} sums sum
  sums=$(checksum "$base/SHA256SUMS") || return 1
  sum=$(awk -v f="$archive.tar.gz" '$2 == f { print $1 }' <<<"$sums")
  [[ $sum ]] || { say "$base has no $archive.tar.gz"; return 1; }
  say "downloading etcd $etcd_version from $base ..."
  (fetch "$base/$archive.tar.gz" "$tmp/$archive.tar.gz.part") || { rm -f "$tmp"/*.part; return 1; }
  verify "$tmp/$archive.tar.gz.part" "$sum" "$base/SHA256SUMS"
  local code=0
  tar -xzf "$tmp/$archive.tar.gz.part" -C "$tmp" "$archive/etcd" && mv "$tmp/$archive/etcd" "$tmp/etcd" || code=1
  rm -rf "${tmp:?}/$archive" "$tmp/$archive.tar.gz.part"
  return "$code"
}

# build builds the programs of a module, with the flags of "make build", so that common packages are compiled once.
build() { # folder of the module, ldflags, package of each program
  local started=$SECONDS
  (cd "$1" && GOFLAGS=-mod=readonly CGO_ENABLED=0 go build -buildvcs=false -trimpath -tags grpcnotrace -ldflags "$2" -o "$tmp/" "${@:3}")
  say "built in $((SECONDS - started)) s"
}

# other_kubernetes writes a module that requires KUBERNETES_VERSION, and prints its folder. The module of Kubernetes
# replaces others by folders of its own, which are published as v0.
other_kubernetes() { # package of each program
  local mod
  mod=$(go mod download -json "k8s.io/kubernetes@$kubernetes_version" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
  mkdir "$tmp/module"
  cd "$tmp/module"
  {
    printf 'module kubernetes\n\nrequire k8s.io/kubernetes %s\n' "$kubernetes_version"
    sed -n "/^go /p; s,^\t\(.*\) => ./staging/.*,replace \1 => \1 v0.${kubernetes_version#v1.},p" "$mod"
  } >go.mod
  go get "${@/%/@$kubernetes_version}" && pwd
}

# Without these the binaries call themselves v0.0.0, and clients fail to parse that.
v=k8s.io/component-base/version
minor=${kubernetes_version#v1.}
kubernetes_ldflags="-s -w -X $v.gitVersion=$kubernetes_version -X $v.gitMajor=1 -X $v.gitMinor=${minor%%.*} -X $v.gitTreeState=clean"

# provide downloads what is missing, or builds it.
provide() { # name, version, command that downloads, binaries
  local left
  mapfile -t left < <(missing "$tmp" "${@:4}")
  ((${#left[@]} > 0)) || return 1
  if [[ ${CONTROL_PLANE:-} == build ]]; then
    say "building $1 $2: ${left[*]} ..."
  elif ! command -v curl >/dev/null; then
    say "building $1 $2, because curl is not installed: ${left[*]} ..."
  elif "$3" "${left[@]}"; then
    return 1
  else
    say "building $1 $2, because it could not be downloaded: ${left[*]} ..."
  fi
}

progress 2 "providing Kubernetes"
if provide Kubernetes "$kubernetes_version" download_kubernetes "${kubernetes[@]}"; then
  mapfile -t packages < <(missing "$tmp" "${kubernetes[@]}" | sed 's,^,k8s.io/kubernetes/cmd/,')
  module=$here/kubernetes
  [[ ! ${KUBERNETES_VERSION:-} ]] || module=$(other_kubernetes "${packages[@]}")
  build "$module" "$kubernetes_ldflags" "${packages[@]}"
  rm -rf "$tmp/module"
fi
progress 3 "providing etcd"
if provide etcd "$etcd_version" download_etcd etcd; then
  build "$here/etcd" "-s -w" go.etcd.io/etcd/server/v3
  mv "$tmp/server" "$tmp/etcd"
fi
progress 4 "building kwok"
if [[ $(missing "$tmp" kwok) ]]; then
  say "building kwok $(version kwok sigs.k8s.io/kwok) ..."
  build "$here/kwok" "-s -w" sigs.k8s.io/kwok/cmd/kwok
fi
mapfile -t left < <(missing "$tmp" "${programs[@]}")
((${#left[@]} == 0)) || fail "not provided: ${left[*]}"
touch "$tmp/complete"

[[ -e $out ]] || mv "$tmp" "$out" # unless another process was faster
trap - EXIT
rm -rf "$tmp"
echo "$out"
