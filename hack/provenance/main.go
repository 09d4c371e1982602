// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// The command provenance writes how an archive of a release was made, as an in-toto statement with the predicate SLSA
// Provenance v1. It says nothing that differs when the same commit is built again. What its fields mean is in
// docs/install.md, to which the type of the build leads.
//
//	provenance -version v0.1.0 -commit COMMIT -platform linux/amd64 ARCHIVE PROGRAM
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

const (
	repository = "https://github.com/configdep/configdep"
	buildType  = repository + "/blob/main/docs/install.md#provenance"
	builder    = repository + "/blob/main/CONTRIBUTING.md#releases"
)

// statement is an in-toto statement: https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md.
type statement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     predicate  `json:"predicate"`
}

// predicate is that of https://slsa.dev/spec/v1.0/provenance.
type predicate struct {
	BuildDefinition struct {
		BuildType            string            `json:"buildType"`
		ExternalParameters   map[string]string `json:"externalParameters"`
		InternalParameters   map[string]string `json:"internalParameters"`
		ResolvedDependencies []resource        `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	} `json:"runDetails"`
}

// resource is a ResourceDescriptor of in-toto.
type resource struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

func main() {
	version := flag.String("version", "", "the version that is released")
	commit := flag.String("commit", "", "the commit of that version; empty: what is built is of none")
	platform := flag.String("platform", "", "the operating system and the architecture")
	flag.Parse()
	if err := run(os.Stdout, *version, *commit, *platform, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "provenance:", err)
		os.Exit(1)
	}
}

func run(to io.Writer, version, commit, platform string, files []string) error {
	if len(files) != 2 || version == "" || platform == "" {
		return errors.New("a version, a platform, an archive and the program in it are needed")
	}
	archive, program := files[0], files[1]
	folder := strings.TrimSuffix(filepath.Base(archive), ".tar.gz")
	s := statement{Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1"}
	for _, subject := range [][2]string{{filepath.Base(archive), archive}, {folder + "/" + filepath.Base(program), program}} {
		digest, err := sha256Of(subject[1])
		if err != nil {
			return err
		}
		s.Subject = append(s.Subject, resource{Name: subject[0], Digest: map[string]string{"sha256": digest}})
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	build := &s.Predicate.BuildDefinition
	build.BuildType = buildType
	build.ExternalParameters = map[string]string{"package": info.Path, "platform": platform, "version": version}
	build.InternalParameters = settings(info)
	if commit != "" {
		build.ResolvedDependencies = append(build.ResolvedDependencies,
			resource{URI: "git+" + repository + "@refs/tags/" + version, Digest: map[string]string{"gitCommit": commit}})
	}
	build.ResolvedDependencies = append(build.ResolvedDependencies, resource{URI: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")})
	for _, m := range info.Deps {
		r, err := module(m)
		if err != nil {
			return err
		}
		build.ResolvedDependencies = append(build.ResolvedDependencies, r)
	}
	s.Predicate.RunDetails.Builder.ID = builder
	encoder := json.NewEncoder(to)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(s)
}

// settings returns how Go was told to build, but for what git says: that is of the folder, and not of a release.
func settings(info *debug.BuildInfo) map[string]string {
	all := map[string]string{}
	for _, s := range info.Settings {
		if !strings.HasPrefix(s.Key, "vcs") {
			all[s.Key] = s.Value
		}
	}
	return all
}

// module describes a module by the checksum that is in go.sum.
func module(m *debug.Module) (resource, error) {
	if m.Replace != nil {
		m = m.Replace
	}
	sum, found := strings.CutPrefix(m.Sum, "h1:")
	digest, err := base64.StdEncoding.DecodeString(sum)
	if err != nil || !found || len(digest) != sha256.Size {
		return resource{}, fmt.Errorf("the module %s has the checksum %q", m.Path, m.Sum)
	}
	return resource{URI: "pkg:golang/" + m.Path + "@" + m.Version, Digest: map[string]string{"dirHash": hex.EncodeToString(digest)}}, nil
}

func sha256Of(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	digest := sha256.Sum256(content)
	return hex.EncodeToString(digest[:]), nil
}
