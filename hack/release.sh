#!/usr/bin/env bash
# Copyright The configdep Authors
# SPDX-License-Identifier: Apache-2.0

# Makes everything that a release consists of, in .cache/dist/VERSION (make release VERSION=v0.1.0):
#
#   COMMAND_VERSION_OS_ARCH.tar.gz        each command, for each platform on which it makes sense
#   COMMAND_VERSION_OS_ARCH.cdx.json      what it is built from (a CycloneDX SBOM)
#   kubectl-configdep_VERSION.yaml        the manifest by which krew installs the plugin
#   configdep-install_VERSION.yaml        the manifests of artifacts/base with the image of the version
#   configdep-install-before-1.36_VERSION.yaml   without what needs Kubernetes 1.36
#   configdep-policies_VERSION.yaml       the manifests of artifacts/policies
#   configdep-VERSION.tgz                 the Helm chart, with that image
#   configdep-policies-VERSION.tgz        the Helm chart of the policies
#   configdep-image_VERSION.env           what the images are called and built from, for "make image"
#   SHA256SUMS                            the checksums of all of them
#   SHA256SUMS.sig                        the signature of those
#
#   VERSION    such as v0.1.0, from a clean checkout of that tag with the Go of the Dockerfile;
#              anything else is a snapshot, from whatever is there
#   IMAGE      the image that is installed, without a tag   ghcr.io/configdep/configdep
#   AGENT_IMAGE  that of the agent                          configdep-agent beside IMAGE
#   IMAGE_DIGEST, AGENT_IMAGE_DIGEST   of the images that "make image" has pushed (sha256:...), by which they are
#              installed; a release that is signed has to name them
#   BUILD_IMAGE, BASE_IMAGE   the base images by digest; a release has to name them (see the Dockerfile)
#   SIGNING_KEY  signs the checksums: the file of a private key of SSH, or of a public one whose
#              private key the agent has; it has to be one of RELEASE_SIGNERS. A release needs it, or
#              "none", which makes the same files without a signature, to compare them
#   RELEASE_SIGNERS  who may sign; for a release it is      hack/release-signers
#   PLATFORMS  only these, such as "linux/amd64"; a release that is signed has    all
#   DIST       where to                                     .cache/dist/VERSION
#
# A release that is signed is refused if it calls something with a known vulnerability, or if no
# database of those can be reached (hack/govulncheck.sh).
#
# The same commit gives the same bytes, whenever and in whichever folder: times are those of
# the commit (SOURCE_DATE_EPOCH), and archives know no owner and no order but that of names.
# The images are built by "make image", and hold the same programs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

say() { printf 'release: %s\n' "$*"; }
fail() { printf 'release: %s\n' "$*" >&2; exit 1; }

hack/prerequisites.sh
version=${VERSION:-}
image=${IMAGE:-ghcr.io/configdep/configdep}
[[ $version =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ ]] || fail "VERSION=$version is no version; for example: make release VERSION=v0.1.0"
[[ $image =~ ^[A-Za-z0-9][A-Za-z0-9._:/-]*$ && ${image##*/} != *:* ]] || fail "IMAGE=$image is not the name of an image without a tag"
[[ $(tar --version 2>/dev/null) == *"GNU tar"* ]] || fail "GNU tar is needed, as others cannot be told times and owners"
if command -v sha256sum >/dev/null; then sha256=(sha256sum); else sha256=(shasum -a 256); fi
agent_image=$(hack/image-beside.sh configdep-agent "$image" "${AGENT_IMAGE:-}")
[[ $agent_image =~ ^[A-Za-z0-9][A-Za-z0-9._:/-]*$ && ${agent_image##*/} != *:* ]] || fail "AGENT_IMAGE=$agent_image is not the name of an image without a tag"
for name in IMAGE_DIGEST AGENT_IMAGE_DIGEST; do
  [[ -z ${!name:-} || ${!name} =~ ^sha256:[0-9a-f]{64}$ ]] || fail "$name=${!name} is no digest (sha256:...)"
done
key=${SIGNING_KEY:-none}
signers=${RELEASE_SIGNERS:-hack/release-signers}

go_version=$(hack/go-version.sh)
if [[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.[0-9]+)?$ ]]; then
  hack/release-check.sh "$version"
  [[ $(go env GOVERSION) == "go$go_version" ]] ||
    fail "a release is made with go$go_version, like the image, and this is $(go env GOVERSION); let go fetch it: export GOTOOLCHAIN=go$go_version"
  release=true
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
  [[ ${SIGNING_KEY:-} ]] || fail "a release is signed: SIGNING_KEY names the key; SIGNING_KEY=none makes the same files unsigned, to compare them with a release"
  if [[ $key != none ]]; then
    for name in IMAGE_DIGEST AGENT_IMAGE_DIGEST; do
      [[ ${!name:-} ]] || fail "$name is not set: a release installs its images by digest, so they are pushed first (hack/image.sh)"
    done
    for name in PLATFORMS GOVULNDB RELEASE_SIGNERS; do
      [[ -z ${!name:-} ]] || fail "$name is not for a release that is signed: it has all platforms, and is checked by what users know"
    done
  fi
else
  release=false
  say "$version is no release, but a snapshot of what is there"
fi

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022

dist=${DIST:-.cache/dist/$version}
# It is replaced as a whole.
[[ ! -d $dist || -f $dist/SHA256SUMS || -z $(ls -A "$dist") ]] || fail "DIST=$dist holds something else than a release"
mkdir -p .cache "$(dirname "$dist")"
tmp=$(mktemp -d .cache/release.XXXXXX)
trap 'rm -rf "$root/$tmp"' EXIT
mkdir "$tmp/dist"

# The name in signatures that keeps one for another purpose from being taken for that of a release.
namespace=configdep-release
sign() { # file
  rm -f "$1.sig"
  ssh-keygen -q -Y sign -f "$key" -n "$namespace" "$1" 2>"$tmp/log" </dev/null || { cat "$tmp/log" >&2; fail "the key $key does not sign"; }
  # As docs/install.md tells users to verify it.
  local signer
  # shellcheck disable=SC2015 # it fails if either does
  signer=$(ssh-keygen -Y find-principals -f "$signers" -s "$1.sig" 2>/dev/null | head -n 1) &&
    ssh-keygen -q -Y verify -f "$signers" -I "$signer" -n "$namespace" -s "$1.sig" <"$1" >/dev/null 2>"$tmp/log" ||
    fail "the key $key is not in $signers, so users could not verify what it signs"
}
if [[ $key == none ]]; then
  say "NOT SIGNED: this is for comparison, and not to be published"
else
  command -v ssh-keygen >/dev/null || fail "ssh-keygen of OpenSSH is needed to sign"
  # Tried before anything that takes long.
  echo "$version" >"$tmp/probe"
  sign "$tmp/probe"
  if [[ $release == true ]]; then
    GOVULNCHECK_OS=linux GOVULNCHECK=required hack/govulncheck.sh ./cmd/...
  fi
fi

# Where a command makes sense. The server and the agent run in a cluster, whose nodes of use here are Linux
# ones; those of the base image without 32 bits. What people run on their own machines is
# built for these too.
platforms() {
  case $1 in
    configdep-apiserver | configdep-agent | configdep-restarter) echo linux/{amd64,arm64,ppc64le,s390x} ;;
    *) echo linux/{amd64,arm64,ppc64le,s390x} darwin/{amd64,arm64} windows/{amd64,arm64} ;;
  esac
}
archive() {
  tar --create --format=ustar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -- "$@" | gzip -9 -n
}
wanted() { [[ -z ${PLATFORMS:-} || " $PLATFORMS " == *" $1 "* ]]; }

# An SBOM of a binary, with the licenses of the modules that its build has used.
cyclonedx=$(hack/tools/build.sh sbom)
sbom() { # binary, output
  # Offline: it would ask for the module of the version that is just being made. It runs "go mod
  # download" where there is no go.sum, so Go would verify the modules by the checksum database, and
  # offline that works only if an earlier command left its answers in the module cache. The build of
  # the binary has verified them by go.sum, and the tool compares them with the checksums in it.
  CI=true GOPROXY=off GOSUMDB=off "$cyclonedx" bin -json -noserial -notimestamp -std -licenses -version "$version" \
    -output "$tmp/sbom" "$1" 2>"$tmp/log" || { cat "$tmp/log" >&2; fail "no SBOM of $1"; }
  # It only warns of a module that it cannot find (without colors, as CI is set). Those two are in
  # no module cache.
  if grep "can't resolve module license" "$tmp/log" | grep -vE ' module=(github.com/configdep/configdep|std)@' >&2; then
    fail "the SBOM of $1 lacks licenses"
  fi
  # It names itself with its own checksums, which are those of this machine's platform.
  sed '1,/^    "component": {/{/^        "hashes": \[/,/^        \],/d}' "$tmp/sbom" >"$2"
}

built=0
for dir in cmd/*/; do
  command=$(basename "$dir")
  for platform in $(platforms "$command"); do
    wanted "$platform" || continue
    os=${platform%/*} arch=${platform#*/}
    name=${command}_${version}_${os}_${arch}
    say "$name"
    stage=$tmp/$name
    GOOS=$os GOARCH=$arch VERSION=$version hack/build.sh "$stage" "./$dir"
    binary=$command
    [[ $os != windows ]] || binary=$command.exe
    sbom "$stage/$binary" "$tmp/dist/$name.cdx.json"
    cp LICENSE README.md "$stage/"
    chmod 755 "$stage/$binary"
    chmod 644 "$stage/LICENSE" "$stage/README.md"
    (cd "$tmp" && archive "$name") >"$tmp/dist/$name.tar.gz"
    built=$((built + 1))
  done
done
((built > 0)) || fail "nothing is built for PLATFORMS=${PLATFORMS:-}"

say "the manifest for krew"
{
  cat <<END
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: configdep
spec:
  version: $version
  homepage: https://github.com/configdep/configdep
  shortDescription: Show what runs with old ConfigMaps and Secrets
  description: |
    Shows which workloads run with old content of ConfigMaps and Secrets, why, and what a
    change would restart. Reloads workloads, waits in pipelines, and checks manifests.
    The command report needs no installation in the cluster.
  platforms:
END
  for platform in $(platforms kubectl-configdep); do
    wanted "$platform" || continue
    name=kubectl-configdep_${version}_${platform//\//_} binary=kubectl-configdep
    [[ $platform != windows/* ]] || binary=kubectl-configdep.exe
    sum=$("${sha256[@]}" <"$tmp/dist/$name.tar.gz")
    cat <<END
  - selector:
      matchLabels: {os: ${platform%/*}, arch: ${platform#*/}}
    uri: https://github.com/configdep/configdep/releases/download/$version/$name.tar.gz
    sha256: ${sum%% *}
    files:
    - {from: "$name/*", to: "."}
    bin: $binary
END
  done
} >"$tmp/dist/kubectl-configdep_$version.yaml"

say "the manifests"
installed=$image:$version${IMAGE_DIGEST:+@$IMAGE_DIGEST}
{ cat artifacts/base/namespace.yaml; sed "1d; s|ghcr.io/configdep/configdep:unreleased|$installed|" artifacts/base/configdep.yaml; } >"$tmp/dist/configdep-install-before-1.36_$version.yaml"
cat "$tmp/dist/configdep-install-before-1.36_$version.yaml" <(sed 1d artifacts/base/annotations.yaml) >"$tmp/dist/configdep-install_$version.yaml"
grep -qF "image: \"$installed\"" "$tmp/dist/configdep-install_$version.yaml" || fail "the manifests do not name the image $installed"
sed 1d artifacts/policies/policies.yaml >"$tmp/dist/configdep-policies_$version.yaml"

say "the Helm charts"
mkdir "$tmp/packed"
VERSION=$version IMAGE=$image AGENT_IMAGE=$agent_image DIST=$tmp/packed hack/package-chart.sh
for package in "$tmp"/packed/*.tgz; do
  # Packed again, because helm notes the time.
  rm -rf "$tmp/chart"
  mkdir "$tmp/chart"
  tar --extract --gzip --file="$package" --directory="$tmp/chart"
  chmod -R u=rwX,go=rX "$tmp/chart"
  # shellcheck disable=SC2035 # what archive is given are no options
  (cd "$tmp/chart" && archive *) >"$tmp/dist/$(basename "$package")"
done

{
  printf '%s\n' "VERSION=$version" "IMAGE=$image" "AGENT_IMAGE=$agent_image"
  for name in IMAGE_DIGEST AGENT_IMAGE_DIGEST BUILD_IMAGE BASE_IMAGE; do [[ -z ${!name:-} ]] || echo "$name=${!name}"; done
} >"$tmp/dist/configdep-image_$version.env"

(cd "$tmp/dist" && "${sha256[@]}" -- * >../SHA256SUMS)
mv "$tmp/SHA256SUMS" "$tmp/dist/"
[[ $key == none ]] || sign "$tmp/dist/SHA256SUMS"
rm -rf "$dist"
mv "$tmp/dist" "$dist"
say "done: $dist"
# shellcheck disable=SC2012 # it is for people
ls -l "$dist" | sed 1d
