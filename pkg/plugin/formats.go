// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
)

// formats are the output formats of findings.
var formats = map[string]func(io.Writer, *manifests, []finding) error{"text": asText, "json": asJSON, "sarif": asSARIF, "junit": asJUnit}

func asText(w io.Writer, m *manifests, findings []finding) error {
	for _, f := range findings {
		if _, err := fmt.Fprintf(w, "%s:%d: %s in namespace %s: %s (%s)\n", safe(f.File), f.Line, safe(f.Workload), safe(f.Namespace), safe(f.Message), f.Rule); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s in %s.\n", counted(len(findings), "finding"), counted(len(m.objects), "manifest"))
	return err
}

func asJSON(w io.Writer, _ *manifests, findings []finding) error {
	if findings == nil {
		findings = []finding{}
	}
	return indented(w, findings)
}

func indented(w io.Writer, of any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(of)
}

// object is a JSON object.
type object = map[string]any

// asSARIF writes SARIF 2.1.0 (https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html), which code hosts read.
func asSARIF(w io.Writer, _ *manifests, findings []finding) error {
	known, results := []object{}, []object{}
	for _, r := range rules {
		known = append(known, object{"id": r.id, "shortDescription": object{"text": r.text}})
	}
	for _, f := range findings {
		level := "error"
		if f.Rule == "SuspiciousAnnotation" {
			level = "warning"
		}
		results = append(results, object{
			"ruleId": f.Rule, "level": level, "message": object{"text": f.Workload + ": " + f.Message},
			"locations": []object{{"physicalLocation": object{"artifactLocation": object{"uri": (&url.URL{Path: filepath.ToSlash(f.File)}).String()}, "region": object{"startLine": max(1, f.Line)}}}},
		})
	}
	driver := object{"name": "configdep", "informationUri": "https://github.com/configdep/configdep", "rules": known}
	return indented(w, object{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
		"runs": []object{{"tool": object{"driver": driver}, "results": results}},
	})
}

type testSuite struct {
	XMLName  xml.Name   `xml:"testsuite"`
	Name     string     `xml:"name,attr"`
	Tests    int        `xml:"tests,attr"`
	Failures int        `xml:"failures,attr"`
	Cases    []testCase `xml:"testcase"`
}

type testCase struct {
	Name    string       `xml:"name,attr"`
	Class   string       `xml:"classname,attr"`
	Failure *testFailure `xml:"failure"`
}

type testFailure struct {
	Type    string `xml:"type,attr"`
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// asJUnit writes one test case for each finding, and one that passes if there is none.
func asJUnit(w io.Writer, _ *manifests, findings []finding) error {
	suite := testSuite{Name: "configdep check", Tests: max(1, len(findings)), Failures: len(findings)}
	for _, f := range findings {
		suite.Cases = append(suite.Cases, testCase{f.Workload + " " + f.Rule, f.Namespace, &testFailure{f.Rule, f.Message, fmt.Sprintf("%s:%d", f.File, f.Line)}})
	}
	if len(findings) == 0 {
		suite.Cases = []testCase{{Name: "manifests", Class: "configdep"}}
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
