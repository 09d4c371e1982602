// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

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

// Otherwise each list of a large cluster would be in memory as a whole, and twice if it is indented, as for curl.
func TestNewAPIGroup_StreamsLists(t *testing.T) {
	serializer := newAPIGroup().NegotiatedSerializer
	info, found := runtime.SerializerInfoForMediaType(serializer.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !found {
		t.Fatal("SupportedMediaTypes lacks JSON")
	}
	for name, tt := range map[string]struct {
		serializer runtime.Serializer
		items      int
		atOnce     bool
	}{
		"plain":                {info.Serializer, 1000, false},
		"pretty, a short list": {info.PrettySerializer, prettyItems, true},
		"pretty, a long list":  {info.PrettySerializer, prettyItems + 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			list := &v1alpha1.ConfigDependencyList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
			for i := range tt.items {
				list.Items = append(list.Items, v1alpha1.ConfigDependency{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("deployment.", i)}})
			}
			var w writes
			if err := serializer.EncoderForVersion(tt.serializer, v1alpha1.SchemeGroupVersion).Encode(list, &w); err != nil {
				t.Fatal(err)
			}
			if atOnce := w.longest == len(w.content); atOnce != tt.atOnce || !atOnce && w.longest > 4<<10 {
				t.Errorf("%d of %d bytes were written in one write", w.longest, len(w.content))
			}
			if pretty := bytes.Contains(w.content, []byte("\n  ")); pretty != tt.atOnce {
				t.Errorf("the list is indented: %v", pretty)
			}
			var decoded v1alpha1.ConfigDependencyList
			if err := json.Unmarshal(w.content, &decoded); err != nil {
				t.Fatal(err)
			}
			list.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "ConfigDependencyList"}
			if !apiequality.Semantic.DeepEqual(&decoded, list) {
				t.Error("the decoded list differs from the encoded one")
			}
		})
	}
}
