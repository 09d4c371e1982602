// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"go.yaml.in/yaml/v3"
)

// prometheusRule has the fields of the Prometheus operator's kind that our rule uses. Its spec is a rule file of
// Prometheus.
type prometheusRule struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   struct {
		Name   string            `yaml:"name"`
		Labels map[string]string `yaml:"labels"`
	} `yaml:"metadata"`
	Spec yaml.Node `yaml:"spec"`
}

func readRules(file string) ([]rulefmt.Rule, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var rule prometheusRule
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	if err := decoder.Decode(&rule); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if rule.APIVersion != "monitoring.coreos.com/v1" || rule.Kind != "PrometheusRule" || rule.Metadata.Name == "" {
		return nil, fmt.Errorf("%s: want a named PrometheusRule; got %s %s %q", file, rule.APIVersion, rule.Kind, rule.Metadata.Name)
	}
	spec, err := yaml.Marshal(&rule.Spec)
	if err != nil {
		return nil, err
	}
	// The same checks as promtool check rules: expressions, templates, durations, unknown fields.
	groups, problems := rulefmt.Parse(spec, false, model.UTF8Validation, language, slog.Default())
	if len(problems) > 0 {
		return nil, fmt.Errorf("%s: %w", file, errors.Join(problems...))
	}
	rules := []rulefmt.Rule{}
	for _, g := range groups.Groups {
		rules = append(rules, g.Rules...)
	}
	return rules, nil
}

var labelOfTemplate = regexp.MustCompile(`\$labels\.([a-zA-Z_]+)`)

// fromAnnotations returns the labels that the annotations of an alert use.
func fromAnnotations(r rulefmt.Rule) (labels []string) {
	for _, text := range r.Annotations {
		for _, found := range labelOfTemplate.FindAllStringSubmatch(text, -1) {
			labels = append(labels, found[1])
		}
	}
	slices.Sort(labels)
	return slices.Compact(labels)
}
