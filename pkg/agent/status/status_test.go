// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	want := &Report{State: Failed, Message: "check: exit code 1", Sources: []Source{{"ConfigMap", "shop", "web", "u1", "7"}, {"Secret", "shop", "gone", "", ""}}}
	value, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(string(value))
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	many := strings.TrimSuffix(strings.Repeat(`{"kind":"ConfigMap"},`, MaxSources+1), ",")
	for name, tt := range map[string]struct{ value, want string }{
		"no JSON":          {"Applied", "is not the JSON of a report"},
		"nothing":          {"", "is not the JSON of a report"},
		"another type":     {`{"state":1}`, "is not the JSON of a report"},
		"no state":         {`{}`, "has a state that is none of Applied, Applying, Incomplete and Failed"},
		"another state":    {`{"state":"Unreadable"}`, "has a state that is none of Applied, Applying, Incomplete and Failed"},
		"too many sources": {`{"state":"Applied","sources":[` + many + `]}`, "names more than 500 sources"},
		"a long uid":       {`{"state":"Applied","sources":[{"kind":"ConfigMap","uid":"` + strings.Repeat("x", maxUID+1) + `"}]}`, "has a uid of more than 64 bytes"},
		"a long message":   {`{"state":"Failed","message":"` + strings.Repeat("x", MaxMessage+1) + `"}`, "has a message of more than 1024 bytes"},
		"too long":         {`{"state":"Applied"` + strings.Repeat(" ", maxBytes) + "}", "must not have more than 262144 bytes"},
	} {
		if r, err := Parse(tt.value); err == nil || err.Error() != tt.want {
			t.Errorf("%s: %v, %v; want %s", name, r, err, tt.want)
		}
	}
}
