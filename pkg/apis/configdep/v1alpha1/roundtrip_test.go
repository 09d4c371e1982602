// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"math/rand"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/test/seeds"
)

// Any value stays the same when it is encoded as JSON and decoded again, and when it is copied.
func TestRoundTrips(t *testing.T) { seeds.Each(t, 1, roundTrips) }

func roundTrips(t *testing.T, seed uint64) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	codecs := serializer.NewCodecFactory(scheme)
	filler := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, pointersToTimes), rand.NewSource(int64(seed)), codecs)
	roundtrip.RoundTripExternalTypesWithoutProtobuf(t, scheme, codecs, filler, nil)

	// The test must not pass with empty values: each of our fields must have been set once.
	set := map[string]bool{}
	for _, o := range []any{&v1alpha1.ConfigDependencyList{}, &v1alpha1.Reload{}, &v1alpha1.Approval{}, &v1alpha1.ConfigDependencyPods{}} {
		for range 2000 {
			filler.Fill(o)
			fieldsSet(reflect.ValueOf(o).Elem(), set)
		}
	}
	for field, once := range set {
		if !once {
			t.Errorf("%s was never set", field)
		}
	}
	if len(set) < 60 {
		t.Errorf("only %d fields were found", len(set))
	}
}

// pointersToTimes sets fields that the filler otherwise leaves nil, because Time fills itself.
func pointersToTimes(serializer.CodecFactory) []any {
	return []any{func(t **metav1.Time, c randfill.Continue) {
		*t = nil
		if c.Bool() {
			*t = &metav1.Time{}
			c.Fill(*t)
		}
	}}
}

// fieldsSet records for each field of our types whether it was set.
func fieldsSet(v reflect.Value, set map[string]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			fieldsSet(v.Elem(), set)
		}
	case reflect.Slice:
		for i := range v.Len() {
			fieldsSet(v.Index(i), set)
		}
	case reflect.Struct:
		if !strings.HasSuffix(v.Type().PkgPath(), "configdep/v1alpha1") {
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).Type == reflect.TypeFor[metav1.TypeMeta]() {
				continue // a field of the serializer
			}
			name := v.Type().Name() + "." + v.Type().Field(i).Name
			set[name] = set[name] || !v.Field(i).IsZero()
			fieldsSet(v.Field(i), set)
		}
	}
}
