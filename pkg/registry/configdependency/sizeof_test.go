// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package configdependency

import (
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// neverRendered are fields that no ConfigDependency has.
var neverRendered = map[string]bool{
	"TypeMeta": true, "ObjectMeta.GenerateName": true, "ObjectMeta.SelfLink": true, "ObjectMeta.Annotations": true,
	"ObjectMeta.Finalizers": true, "ObjectMeta.ManagedFields": true,
}

// fill gives every slice, map and pointer below a value an element.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i))
			}
		}
	default:
	}
}

// eachString calls f for every string below a value: its path, and a function that sets it.
func eachString(v reflect.Value, path string, f func(path string, set func(string))) {
	path = strings.TrimPrefix(path, ".")
	if neverRendered[path] {
		return
	}
	switch v.Kind() {
	case reflect.String:
		f(path, v.SetString)
	case reflect.Map:
		f(path+" (key)", func(s string) {
			v.Set(reflect.MakeMap(v.Type()))
			v.SetMapIndex(reflect.ValueOf(s), reflect.ValueOf(""))
		})
		f(path+" (value)", func(s string) {
			v.Set(reflect.MakeMap(v.Type()))
			v.SetMapIndex(reflect.ValueOf(""), reflect.ValueOf(s))
		})
	case reflect.Pointer:
		eachString(v.Elem(), path, f)
	case reflect.Slice:
		if v.Type() != reflect.TypeFor[metav1.FieldsV1]() {
			eachString(v.Index(0), path+"[]", f)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if t := v.Type().Field(i); t.IsExported() {
				eachString(v.Field(i), path+"."+t.Name, f)
			}
		}
	default:
	}
}

// The history of events is bounded by the sizes of its objects, so that a string that is not counted could take any amount
// of memory.
func TestSizeOf_CountsEveryString(t *testing.T) {
	const length = 1000
	o := &v1alpha1.ConfigDependency{}
	v := reflect.ValueOf(o).Elem()
	fill(v)
	var paths []string
	eachString(v, "", func(path string, set func(string)) {
		paths = append(paths, path)
		set("")
		before := sizeOf(o, nil)
		set(strings.Repeat("x", length))
		if got := sizeOf(o, nil) - before; got != length {
			t.Errorf("%s: a string of %d bytes counts as %d", path, length, got)
		}
		set("")
	})
	all := strings.Join(paths, "\n")
	for _, path := range []string{"ObjectMeta.Labels (value)", "Spec.Sources[].Usages[].Keys[]", "Status.RecordedHash", "Status.LastReload.Reason", "Status.Patterns[].Names[]"} {
		if !strings.Contains(all, path) {
			t.Errorf("%s is not among the strings of an object:\n%s", path, all)
		}
	}
}
