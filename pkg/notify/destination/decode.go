// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package destination

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	strictjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// decode decodes the content of the file.
func decode(content []byte) (*Notifications, []error) {
	if documents(string(content)) > 1 {
		return nil, []error{errors.New("must have one YAML document")}
	}
	asJSON, err := yaml.YAMLToJSONStrict(content)
	if err != nil {
		return nil, []error{errors.New(yamlProblem(err))}
	}
	file := &Notifications{}
	unknown, err := strictjson.UnmarshalStrict(asJSON, file)
	if err != nil {
		return nil, []error{errors.New(jsonProblem(err))}
	}
	var errs []error
	if file.APIVersion != APIVersion {
		errs = append(errs, errors.New("apiVersion: must be "+APIVersion))
	}
	if file.Kind != Kind {
		errs = append(errs, errors.New("kind: must be "+Kind))
	}
	for _, err := range unknown {
		errs = append(errs, errors.New(unknownField(err)))
	}
	if n := len(file.Destinations); n == 0 || n > maxDestinations {
		errs = append(errs, fmt.Errorf("destinations: must have 1 to %d elements", maxDestinations))
	}
	return file, errs
}

var separator = regexp.MustCompile(`(?m)^---(\s|$)`)

// documents returns the number of YAML documents that have content. The decoder would read only the first one.
func documents(text string) (n int) {
	for _, document := range separator.Split(text, -1) {
		for line := range strings.Lines(document) {
			if line = strings.TrimSpace(line); line != "" && line != "..." && !strings.HasPrefix(line, "#") {
				n++
				break
			}
		}
	}
	return n
}

var (
	// A mistake that the parser describes without quoting the file.
	syntax = regexp.MustCompile(`^yaml: (line \d+: [a-z ,'\[\]{}-]+)$`)
	twice  = regexp.MustCompile(`(line \d+: key "[A-Za-z]{1,32}") already set in map`)
)

// yamlProblem describes an error of the YAML decoder. Some of them quote what is in the file.
func yamlProblem(err error) string {
	const problem = "must be valid YAML"
	if found := twice.FindStringSubmatch(err.Error()); found != nil {
		return problem + ": " + found[1] + " is there twice"
	}
	if found := syntax.FindStringSubmatch(err.Error()); found != nil {
		return problem + ": " + found[1]
	}
	return problem
}

// jsonProblem describes an error of the JSON decoder.
func jsonProblem(err error) string {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return "must be a YAML mapping"
	}
	names := map[reflect.Kind]string{reflect.String: "a string", reflect.Slice: "a list", reflect.Struct: "a mapping"}
	problem := "must be " + names[wrong.Type.Kind()]
	if wrong.Field == "" {
		return problem
	}
	return wrong.Field + ": " + problem
}

var quotedField = regexp.MustCompile(`^unknown field "([A-Za-z0-9_.-]+(?:\[\d+\])?(?:\.[A-Za-z0-9_-]+)?)"$`)

// unknownField describes an error about an unknown field. Its name is left out unless it looks like one.
func unknownField(err error) string {
	name, known := "", fieldsOf(reflect.TypeFor[Notifications]())
	if found := quotedField.FindStringSubmatch(err.Error()); found != nil {
		name = found[1] + ": "
	}
	if strings.Contains(err.Error(), "destinations[") {
		known = fieldsOf(reflect.TypeFor[Destination]())
	}
	return name + "unknown field: must be one of " + strings.Join(known, ", ")
}

// fieldsOf returns the names of the fields of a struct in JSON, with those of embedded ones.
func fieldsOf(t reflect.Type) (names []string) {
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous {
			names = append(names, fieldsOf(field.Type)...)
			continue
		}
		names = append(names, name)
	}
	return names
}
