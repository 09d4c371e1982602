// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package jsonpatch_test

import (
	"testing"

	"github.com/configdep/configdep/pkg/jsonpatch"
)

func TestMarshal(t *testing.T) {
	got, err := jsonpatch.Marshal([]jsonpatch.Operation{
		jsonpatch.Unchanged("7"),
		jsonpatch.Add("/metadata/annotations", struct{}{}),
		jsonpatch.Add(jsonpatch.Pointer("/metadata/annotations", "example.com/a~b"), ""),
		jsonpatch.Remove("/spec/x"),
	})
	want := `[{"op":"test","path":"/metadata/resourceVersion","value":"7"},{"op":"add","path":"/metadata/annotations","value":{}},` +
		`{"op":"add","path":"/metadata/annotations/example.com~1a~0b","value":""},{"op":"remove","path":"/spec/x"}]`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
	if got, err := jsonpatch.Marshal(nil); got != nil || err != nil {
		t.Errorf("patch without operations = %q, %v; want none", got, err)
	}
}
