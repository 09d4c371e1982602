// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// repeat joins so many terms, each of which has its number.
func repeat(n int, format, separator string) string {
	terms := make([]string, n)
	for i := range terms {
		terms[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(terms, separator)
}

// Selectors cost work for each object, so lists and watches refuse large ones, and say why.
func TestSelectors_AreBounded(t *testing.T) {
	c := synced(t, workload("a", nil))
	for name, tt := range map[string]struct {
		fields, labels string
		refused        string // a part of the message
	}{
		"the longest value":            {fields: "metadata.name=" + strings.Repeat("x", 317)},
		"a longer value":               {fields: "metadata.name=" + strings.Repeat("x", 318), refused: `"metadata.name" has a value of 318 bytes, which cannot match: at most 317`},
		"a longer value to differ":     {fields: "state!=" + strings.Repeat("x", 800<<10), refused: "at most 317"},
		"as many fields as may be":     {fields: repeat(32, "state!=x%d", ",")},
		"one field more":               {fields: repeat(33, "state!=x%d", ","), refused: "33 requirements; at most 32"},
		"as many labels as may be":     {labels: "a in (" + repeat(1023, "v%d", ",") + ")"},
		"one value of a label more":    {labels: "a in (" + repeat(1024, "v%d", ",") + ")", refused: "1025 requirements and values; at most 1024"},
		"one value of a label to lack": {labels: "a notin (" + repeat(1024, "v%d", ",") + ")", refused: "at most 1024"},
		"one label more":               {labels: repeat(1025, "l%d", ","), refused: "at most 1024"},
	} {
		byField, err := fields.ParseSelector(tt.fields)
		if err != nil {
			t.Fatal(err)
		}
		byLabel, err := labels.Parse(tt.labels)
		if err != nil {
			t.Fatal(err)
		}
		options := &metainternalversion.ListOptions{FieldSelector: byField, LabelSelector: byLabel}
		check := func(verb string, err error) {
			if tt.refused == "" && err != nil || tt.refused != "" && (!apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), tt.refused) || len(err.Error()) > 200) {
				t.Errorf("%s: %s: %v", name, verb, err)
			}
		}
		_, err = c.rest.List(in(""), options)
		check("list", err)
		w, err := c.rest.Watch(in(""), options)
		if check("watch", err); err == nil {
			w.Stop()
			for range w.ResultChan() { // until it has ended
			}
		}
	}
}

// What an object shows of a field is looked up once for all requirements.
func TestSelectors_LookUpEachFieldOnce(t *testing.T) {
	looked := map[string]int{}
	r := resource
	r.Field = func(o *corev1.ConfigMap, field string) func(string) bool {
		looked[field]++
		return resource.Field(o, field)
	}
	selector, err := fields.ParseSelector("state!=a,metadata.name!=b,state!=c,metadata.name=x,state!=d")
	if err != nil {
		t.Fatal(err)
	}
	m, err := newMatcher(&r, nil, selector)
	if err != nil {
		t.Fatal(err)
	}
	clear(looked)
	o := &corev1.ConfigMap{}
	o.Name = "x"
	if !m.matches(o) || looked["state"] != 1 || looked["metadata.name"] != 1 {
		t.Errorf("looked up: %v", looked)
	}
	o.Name = "b"
	if m.matches(o) {
		t.Error("one that the selector rules out matches")
	}
}
