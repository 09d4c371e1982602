// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package jsonpatch_test

import (
	"encoding/json"
	"testing"

	"github.com/configdep/configdep/pkg/jsonpatch"
)

func TestOperations(t *testing.T) {
	got, err := json.Marshal([]jsonpatch.Operation{
		jsonpatch.Unchanged("7"),
		jsonpatch.Add("/metadata/annotations", struct{}{}),
		jsonpatch.Add("/metadata/annotations/a", ""),
		jsonpatch.Remove("/spec" + jsonpatch.Pointer("a/b~1c", "0")),
	})
	want := `[{"op":"test","path":"/metadata/resourceVersion","value":"7"},{"op":"add","path":"/metadata/annotations","value":{}},` +
		`{"op":"add","path":"/metadata/annotations/a","value":""},{"op":"remove","path":"/spec/a~1b~01c/0"}]`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
}
