// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// writes remembers how long the longest write was.
type writes struct {
	content []byte
	longest int
}

func (w *writes) Write(p []byte) (int, error) {
	w.content = append(w.content, p...)
	w.longest = max(w.longest, len(p))
	return len(p), nil
}

// Otherwise each list of a large cluster would be in memory as a whole.
func TestNewAPIGroup_StreamsLists(t *testing.T) {
	serializer := newAPIGroup().NegotiatedSerializer
	info, found := runtime.SerializerInfoForMediaType(serializer.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !found {
		t.Fatal("SupportedMediaTypes lacks JSON")
	}
	list := &v1alpha1.ConfigDependencyList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for i := range 1000 {
		list.Items = append(list.Items, v1alpha1.ConfigDependency{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("deployment.", i)}})
	}
	var w writes
	if err := serializer.EncoderForVersion(info.Serializer, v1alpha1.SchemeGroupVersion).Encode(list, &w); err != nil {
		t.Fatal(err)
	}
	if w.longest > 4<<10 {
		t.Errorf("%d of %d bytes were written in one write", w.longest, len(w.content))
	}
	var decoded v1alpha1.ConfigDependencyList
	if err := json.Unmarshal(w.content, &decoded); err != nil {
		t.Fatal(err)
	}
	list.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "ConfigDependencyList"}
	if !apiequality.Semantic.DeepEqual(&decoded, list) {
		t.Error("the decoded list differs from the encoded one")
	}
}

// Otherwise a client that may create a Reload, and nothing else, can use up the memory of the server with a few kilobytes.
func TestNewAPIGroup_RefusesAliases(t *testing.T) {
	const reload = "apiVersion: configdep.io/v1alpha1\nkind: Reload\n"
	nested := reload + "z: [" + strings.Repeat("0,", 2000) + "0]\na0: &a0 " + strings.Repeat("x", 4<<10) + "\n" // plain values, or the library refuses so many aliases
	for i := range 4 {
		nested += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 14), ","))
	}
	for name, tt := range map[string]struct{ body, reason, err string }{
		"none":                    {reload + "spec: {reason: by hand}\n", "by hand", ""},
		"an anchor alone":         {reload + "spec: {reason: &a by hand}\n", "by hand", ""},
		"their characters":        {reload + "spec: {reason: '&a *a'}\n# &b *b\n", "&a *a", ""},
		"in a block":              {reload + "spec:\n  reason: >-\n    &a\n    *a\n", "&a *a", ""},
		"of a scalar":             {reload + "spec: {reason: &a by hand}\nx: *a\n", "", errAlias.Error()},
		"merged":                  {reload + "x: &a {reason: by hand}\nspec: {<<: *a}\n", "", errAlias.Error()},
		"as a key":                {reload + "x: &a reason\nspec: {*a : by hand}\n", "", errAlias.Error()},
		"of lists of aliases":     {nested, "", errAlias.Error()},
		"in UTF-16":               {"\xff\xfe" + strings.Join(strings.Split("x: &a y\nz: *a\n", ""), "\x00") + "\x00", "", errAlias.Error()},
		"of an anchor not closed": {reload + "x: &a [*a\n", "", "yaml: "},
	} {
		for _, media := range []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML} {
			info, found := runtime.SerializerInfoForMediaType(newAPIGroup().NegotiatedSerializer.SupportedMediaTypes(), media)
			if !found {
				t.Fatalf("no %s", media)
			}
			for mode, serializer := range map[string]runtime.Serializer{"ignore": info.Serializer, "warn": info.StrictSerializer} {
				t.Run(name+" as "+media+" "+mode, func(t *testing.T) {
					var got v1alpha1.Reload
					_, _, err := serializer.Decode([]byte(tt.body), nil, &got)
					if tt.err == "" && (err != nil || got.Spec.Reason != tt.reason) {
						t.Errorf("the reason is %q, %v", got.Spec.Reason, err)
					}
					if tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
						t.Errorf("the error is %.200v, want %q", err, tt.err)
					}
				})
			}
		}
	}
}

// What is not refused has no aliases for the library that converts it either, which is another one: they would make JSON
// that is much longer.
func FuzzRefuseAliases(f *testing.F) {
	for _, seed := range []string{"a: &a x\nb: *a\n", "- &a\n- '*a'\n", "a: |\n  &a\n  *a\n", "%TAG ! tag:x\n---\n&a x: \"*a\"\n", "? &a [x]\n: '*'\n", "a: &*a b*\n", "{&a : *a}", "# &a\n'*': x#\n"} {
		f.Add([]byte(seed))
	}
	const long = 1 << 10
	f.Fuzz(func(t *testing.T, document []byte) {
		// Each anchor is that of a long scalar.
		document = regexp.MustCompile(`&\w+ `).ReplaceAllFunc(document, func(anchor []byte) []byte {
			return append(slices.Clip(anchor), bytes.Repeat([]byte("x"), long)...)
		})
		if refuseAliases(document) != nil {
			return
		}
		if converted, err := yaml.YAMLToJSON(document); err == nil && bytes.Count(converted, bytes.Repeat([]byte("x"), long)) > bytes.Count(document, bytes.Repeat([]byte("x"), long)) {
			t.Errorf("an alias is expanded: %q", document)
		}
	})
}
