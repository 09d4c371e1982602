// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package fields

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Limits on what an annotation may ask for.
const (
	// MaxAssignments is how many fields may be set.
	MaxAssignments = 32
	maxLine        = 1024 // bytes
	maxSteps       = 4
)

// SourceKind is the kind of the object that a value comes from.
type SourceKind string

// The kinds of sources.
const (
	ConfigMap SourceKind = "ConfigMap"
	Secret    SourceKind = "Secret"
)

// Assignment is one line of the annotation: a field, and the key of a source that it gets its value from.
type Assignment struct {
	Path Path
	Kind SourceKind
	// Name is that of the source, in the namespace of the object, and Key is one of its keys.
	Name, Key string
	// Steps decode the value of the key, one after the other.
	Steps []Step
}

// String returns the assignment as Parse reads it.
func (a *Assignment) String() string {
	var line strings.Builder
	fmt.Fprintf(&line, "%s = %s/%s#%s", a.Path, strings.ToLower(string(a.Kind)), a.Name, a.Key)
	for i := range a.Steps {
		line.WriteString(" | " + a.Steps[i].String())
	}
	return line.String()
}

// Parse reads the value of the annotation: one assignment in each line,
//
//	spec.storage.s3.accessKey = secret/bucket#accessKey
//	spec.env[name=KEY].value  = secret/bucket#BucketInfo | json .spec.secretS3.accessKeyID
//
// Empty lines, and those that begin with #, are left out. The error names the line.
func Parse(value string) ([]Assignment, error) {
	var all []Assignment
	for n, line := range strings.Split(value, "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		if len(all) == MaxAssignments {
			return nil, fmt.Errorf("more than %d fields are named", MaxAssignments)
		}
		a, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
		for i := range all {
			if overlap(all[i].Path, a.Path) {
				return nil, fmt.Errorf("line %d: %s is set twice: by %s as well", n+1, a.Path, all[i].Path)
			}
		}
		all = append(all, a)
	}
	if all == nil {
		return nil, errors.New("no field is named: a line must be FIELD = SOURCE, as in spec.accessKey = secret/bucket#accessKey")
	}
	return all, nil
}

func parseLine(line string) (a Assignment, err error) {
	if len(line) > maxLine {
		return a, fmt.Errorf("must not have more than %d bytes", maxLine)
	}
	path, rest, err := parsePath(line)
	if err != nil {
		return a, err
	}
	rest, found := strings.CutPrefix(strings.TrimSpace(rest), "=")
	if !found {
		return a, errors.New("must be FIELD = SOURCE, as in spec.accessKey = secret/bucket#accessKey")
	}
	parts := strings.Split(rest, "|")
	a.Path = path
	if err := a.parseSource(strings.TrimSpace(parts[0])); err != nil {
		return a, err
	}
	if len(parts) > 1+maxSteps {
		return a, fmt.Errorf("must not have more than %d decoding steps", maxSteps)
	}
	for _, part := range parts[1:] {
		step, err := parseStep(strings.TrimSpace(part))
		if err != nil {
			return a, err
		}
		a.Steps = append(a.Steps, step)
	}
	return a, nil
}

// keys matches the keys of ConfigMaps and Secrets.
var keys = regexp.MustCompile(`^[-._a-zA-Z0-9]+$`)

func (a *Assignment) parseSource(source string) error {
	kind, rest, _ := strings.Cut(source, "/")
	name, key, _ := strings.Cut(rest, "#")
	switch kind {
	case "secret":
		a.Kind = Secret
	case "configmap":
		a.Kind = ConfigMap
	default:
		return fmt.Errorf("a source must be secret/NAME#KEY or configmap/NAME#KEY, got %q", shorten(source))
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Errorf("%q is not the name of a %s", shorten(name), a.Kind)
	}
	if len(key) > validation.DNS1123SubdomainMaxLength || !keys.MatchString(key) {
		return fmt.Errorf("%q is not a key of a %s: a source must be %s/NAME#KEY", shorten(key), a.Kind, kind)
	}
	a.Name, a.Key = name, key
	return nil
}

// shorten keeps a message readable.
func shorten(text string) string {
	const most = 64
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
