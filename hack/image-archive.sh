#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Makes archives of the images of server, agent and plugin without docker (make image-archive):
#
#   .cache/dist/configdep-apiserver_VERSION_OS_ARCH.image.tar
#   .cache/dist/configdep-agent_VERSION_OS_ARCH.image.tar
#   .cache/dist/kubectl-configdep_VERSION_OS_ARCH.image.tar
#
# "docker load", "ctr image import", "podman load" and "kind load image-archive" take them.
#
#   IMAGE, AGENT_IMAGE, VERSION   as in hack/image.sh
#   PLATFORM    such as linux/arm64                            this machine's architecture
#   CA_CERTIFICATES   the file with the CAs                    /etc/ssl/certs/ca-certificates.crt, if there is one
#   DIST        where to                                       .cache/dist
#
# The images have the programs, the labels, the user and the entrypoints of the Dockerfile, and the few files of its base
# image that the programs need. The same commit, Go and CA_CERTIFICATES give the same bytes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { printf 'image-archive: %s\n' "$*" >&2; exit 1; }

version=${VERSION:-$(git describe --tags --always --dirty)}
image=${IMAGE:-ghcr.io/configdep/configdep:$version}
agent_image=$(hack/image-beside.sh configdep-agent "$image" "${AGENT_IMAGE:-}")
platform=${PLATFORM:-linux/$(go env GOARCH)}
[[ $platform =~ ^linux/[a-z0-9]+$ ]] || fail "PLATFORM=$platform is no platform of the images, such as linux/amd64"
arch=${platform#linux/}
certificates=${CA_CERTIFICATES:-/etc/ssl/certs/ca-certificates.crt}
[[ -z ${CA_CERTIFICATES:-} || -f $certificates ]] || fail "CA_CERTIFICATES=$certificates is no file"
dist=${DIST:-.cache/dist}
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
# GNU's, or BSD's.
created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ 2>/dev/null || date -u -r "$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
revision=$(git rev-parse HEAD)
tool=$(hack/tools/build.sh image)

mkdir -p .cache "$dist"
tmp=$(mktemp -d .cache/image.XXXXXX)
trap 'rm -rf "$tmp"' EXIT

mkdir -p "$tmp/root/etc/ssl/certs"
mkdir -m 1777 "$tmp/root/tmp"
printf '%s\n' root:x:0:0:root:/root:/sbin/nologin nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin >"$tmp/root/etc/passwd"
printf '%s\n' root:x:0: nonroot:x:65532: >"$tmp/root/etc/group"
echo "hosts: files dns" >"$tmp/root/etc/nsswitch.conf"
if [[ -f $certificates ]]; then
  cp "$certificates" "$tmp/root/etc/ssl/certs/ca-certificates.crt"
else
  printf 'image-archive: there is no %s, so the images have no CAs: requests by HTTPS need a CA file of their own\n' "$certificates" >&2
fi

archive() { # name of the image, description, programs, of which the first is the entrypoint
  local name=$1 description=$2 program content=()
  shift 2
  GOOS=linux GOARCH=$arch VERSION=$version hack/build.sh "$tmp/bin" "${@/#/./cmd/}"
  for program; do content+=("$tmp/bin/$program=/$program"); done
  local output=$dist/$1_${version}_linux_$arch.image.tar
  local of=org.opencontainers.image repository=https://github.com/configdep/configdep
  "$tool" -output "$output" -name "$name" -arch "$arch" -user 65532:65532 -entrypoint "/$1" \
    -env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin -env SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    -label "$of.url=$repository" -label "$of.source=$repository" -label "$of.documentation=$repository/tree/main/docs" \
    -label "$of.licenses=Apache-2.0" -label "$of.vendor=configdep" -label "$of.version=$version" -label "$of.revision=$revision" \
    -label "$of.created=$created" -label "$of.title=$1" -label "$of.description=$description" "$tmp/root/=/" "${content[@]}"
  printf 'image-archive: %s in %s\n' "$name" "$output"
}
archive "$image" "Kubernetes API server that shows which workloads depend on which ConfigMaps and Secrets, and restarts them" configdep-apiserver
archive "$agent_image" "Keeps the files of an application equal to ConfigMaps and Secrets, and has it read them again" configdep-agent configdep-restarter
archive "$(hack/image-beside.sh kubectl-configdep "$image")" "Shows what runs with old content of ConfigMaps and Secrets, restarts it, and waits for it" kubectl-configdep
