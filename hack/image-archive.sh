#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Makes archives of the images of server and agent without docker (make image-archive):
#
#   .cache/dist/configdep-apiserver_VERSION_OS_ARCH.image.tar
#   .cache/dist/configdep-agent_VERSION_OS_ARCH.image.tar
#
# "docker load", "ctr image import", "podman load" and "kind load image-archive" take them.
#
#   IMAGE, AGENT_IMAGE, VERSION   as in hack/image.sh
#   PLATFORM    such as linux/arm64                            this machine's architecture
#   BASE        the base image for the platform: an archive of "docker save", or the folder of an OCI layout; by default
#               none, but the few files that it would have
#   CA_CERTIFICATES   without BASE, the file with the CAs      /etc/ssl/certs/ca-certificates.crt, if there is one
#   DIST        where to                                       .cache/dist
#
# The images have the programs, the labels, the user and the entrypoints of the Dockerfile. The same commit, Go, BASE and
# CA_CERTIFICATES give the same bytes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { printf 'image-archive: %s\n' "$*" >&2; exit 1; }

version=${VERSION:-$(git describe --tags --always --dirty)}
image=${IMAGE:-configdep/configdep-apiserver:$version}
agent_image=$(hack/agent-image.sh "$image")
platform=${PLATFORM:-linux/$(go env GOARCH)}
[[ $platform =~ ^linux/[a-z0-9]+$ ]] || fail "PLATFORM=$platform is no platform of the images, such as linux/amd64"
certificates=${CA_CERTIFICATES:-/etc/ssl/certs/ca-certificates.crt}
[[ -z ${CA_CERTIFICATES:-} || -f $certificates ]] || fail "CA_CERTIFICATES=$certificates is no file"
dist=${DIST:-.cache/dist}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
# GNU's, or BSD's.
created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ 2>/dev/null || date -u -r "$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
revision=$(git rev-parse HEAD)
tool=$(hack/tools/build.sh image)

mkdir -p .cache "$dist"
tmp=$(mktemp -d .cache/image.XXXXXX)
trap 'rm -rf "$tmp"' EXIT

common=(
  -platform "$platform" -created "$created" -user 65532:65532
  -label "org.opencontainers.image.url=https://github.com/configdep/configdep"
  -label "org.opencontainers.image.source=https://github.com/configdep/configdep"
  -label "org.opencontainers.image.documentation=https://github.com/configdep/configdep/tree/main/docs"
  -label "org.opencontainers.image.licenses=Apache-2.0"
  -label "org.opencontainers.image.vendor=configdep"
  -label "org.opencontainers.image.version=$version"
  -label "org.opencontainers.image.revision=$revision"
  -label "org.opencontainers.image.created=$created"
)
files=()
if [[ ${BASE:-} ]]; then
  common+=(-base "$BASE")
else
  # What the base image of the Dockerfile has, as far as the programs need it.
  mkdir -p "$tmp/root/etc/ssl/certs"
  mkdir -m 1777 "$tmp/root/tmp"
  cat >"$tmp/root/etc/passwd" <<'END'
root:x:0:0:root:/root:/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin
nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin
END
  cat >"$tmp/root/etc/group" <<'END'
root:x:0:
nobody:x:65534:
nonroot:x:65532:
END
  echo "hosts: files dns" >"$tmp/root/etc/nsswitch.conf"
  if [[ -f $certificates ]]; then
    cp "$certificates" "$tmp/root/etc/ssl/certs/ca-certificates.crt"
  else
    printf 'image-archive: there is no %s, so the images have no CAs: requests by HTTPS need a CA file of their own\n' "$certificates" >&2
  fi
  common+=(-env "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" -env "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt")
  files+=("$tmp/root/=/")
fi

archive() { # name of the image, description, programs, of which the first is the entrypoint
  local name=$1 description=$2 program content=()
  shift 2
  GOOS=${platform%/*} GOARCH=${platform#*/} VERSION=$version hack/build.sh "$tmp/bin" "${@/#/./cmd/}"
  for program; do content+=("$tmp/bin/$program=/$program"); done
  local output=$dist/$1_${version}_${platform/\//_}.image.tar
  "$tool" -output "$output" -name "$name" "${common[@]}" -entrypoint "/$1" \
    -label "org.opencontainers.image.title=$1" -label "org.opencontainers.image.description=$description" \
    ${files[@]+"${files[@]}"} "${content[@]}"
  printf 'image-archive: %s in %s\n' "$name" "$output"
}
archive "$image" "Kubernetes API server that shows which workloads depend on which ConfigMaps and Secrets, and restarts them" configdep-apiserver
archive "$agent_image" "Keeps the files of an application equal to ConfigMaps and Secrets, and has it read them again" configdep-agent configdep-restarter
