// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/configdep/configdep/pkg/agent/fileset"
	"github.com/configdep/configdep/pkg/agent/source"
)

// sourceFlag is a flag for sources, which may be given again and again. Its value is a name, a selector or a path, and options after
// semicolons: "shop/tls;optional;dir=tls;key=tls.crt:server.pem".
type sourceFlag struct {
	sources  *[]source.Spec
	kind     source.Kind
	selector bool
}

func (f *sourceFlag) Type() string   { return "source" }
func (f *sourceFlag) String() string { return "" }

// Set parses the value.
func (f *sourceFlag) Set(text string) error {
	parts := strings.Split(text, ";")
	s := source.Spec{Kind: f.kind}
	var err error
	switch what := strings.TrimSpace(parts[0]); {
	case f.kind == source.Volume:
		if !filepath.IsAbs(what) {
			return fmt.Errorf("path %q must be absolute", what)
		}
		s.Name = filepath.Clean(what)
	case f.selector:
		if s.Selector, err = labels.Parse(what); err != nil {
			return err
		}
		if s.Selector.Empty() {
			return errors.New("an empty selector would match everything: name a label")
		}
	default:
		namespace, name, both := strings.Cut(what, "/")
		if !both {
			namespace, name = "", what
		} else if errs := validation.IsDNS1123Label(namespace); len(errs) != 0 {
			return fmt.Errorf("namespace %q: %s", namespace, strings.Join(errs, "; "))
		}
		if errs := validation.IsDNS1123Subdomain(name); len(errs) != 0 {
			return fmt.Errorf("name %q: %s", name, strings.Join(errs, "; "))
		}
		s.Namespace, s.Name = namespace, name
	}
	for _, part := range parts[1:] {
		if err := f.option(&s, strings.TrimSpace(part)); err != nil {
			return err
		}
	}
	switch {
	case s.Env && (s.Dir != "" || s.DirAnnotation != "" || s.Mode != 0 || s.Gunzip || s.Substitute != nil):
		return errors.New("env makes variables, so dir, dir-annotation, mode, gunzip and substitute have no meaning beside it")
	case s.Env && f.kind == source.Volume:
		return errors.New("env is for ConfigMaps and Secrets")
	}
	*f.sources = append(*f.sources, s)
	return nil
}

// option parses an option of a source.
func (f *sourceFlag) option(s *source.Spec, text string) error {
	name, value, has := strings.Cut(text, "=")
	switch name {
	case "optional":
		if has {
			return errors.New("optional has no value")
		}
		s.Optional = true
	case "dir":
		if f.kind == source.Volume && (strings.Contains(value, "{namespace}") || strings.Contains(value, "{name}")) {
			return errors.New("dir: {namespace} and {name} stand for those of ConfigMaps and Secrets: a volume has neither")
		}
		s.Dir = value // Config knows what it is below
	case "dir-annotation":
		if f.kind == source.Volume {
			return errors.New("volumes have no annotations")
		}
		if errs := validation.IsQualifiedName(strings.ToLower(value)); len(errs) != 0 { // as of annotations
			return fmt.Errorf("dir-annotation %q: %s", value, strings.Join(errs, "; "))
		}
		s.DirAnnotation = value
	case "namespace":
		if !f.selector {
			return errors.New("namespace is for selectors: give a name as NAMESPACE/NAME")
		}
		if errs := validation.IsDNS1123Label(value); len(errs) != 0 {
			return fmt.Errorf("namespace %q: %s", value, strings.Join(errs, "; "))
		}
		s.Namespace = value
	case "key":
		key, path, renamed := strings.Cut(value, ":")
		if !renamed {
			path = key
		}
		if key == "" {
			return errors.New("key: it must be KEY or KEY:PATH")
		}
		if err := fileset.CheckPath(path); err != nil {
			return fmt.Errorf("key %q: %w", key, err)
		}
		s.Keys = append(s.Keys, source.Key{Key: key, Path: path})
	case "mode":
		mode, err := parseMode(value)
		if err != nil {
			return err
		}
		s.Mode = mode
	case "gunzip":
		if has {
			return errors.New("gunzip has no value")
		}
		s.Gunzip = true
	case "substitute":
		s.Substitute = strings.Split(value, ",")
		for _, variable := range s.Substitute {
			if !variableName.MatchString(variable) {
				return fmt.Errorf("substitute=%s: it must name environment variables, as in substitute=POD_NAME,POD_IP", value)
			}
			if _, set := os.LookupEnv(variable); !set {
				return fmt.Errorf("substitute: the environment variable %s is not set", variable)
			}
		}
	case "env":
		s.Env, s.EnvPrefix = true, value
	default:
		return fmt.Errorf("option %q is unknown: there are optional, dir=, dir-annotation=, namespace=, key=, mode=, gunzip, substitute= and env", name)
	}
	return nil
}

// variableName matches the names of environment variables that content can refer to.
var variableName = regexp.MustCompile(`^[A-Za-z0-9_]+$`)

// parseMode parses permissions in octal digits.
func parseMode(text string) (fs.FileMode, error) {
	mode, err := strconv.ParseUint(text, 8, 32)
	if err != nil || mode == 0 || mode > 0o777 {
		return 0, fmt.Errorf("mode %q: it must be octal digits from 0001 to 0775, as in 0440", text)
	}
	if mode&0o400 == 0 {
		return 0, fmt.Errorf("mode %q: the owner must be allowed to read", text)
	}
	if mode&0o002 != 0 {
		return 0, fmt.Errorf("mode %q: all users would be allowed to write the files", text)
	}
	return fs.FileMode(mode), nil
}
