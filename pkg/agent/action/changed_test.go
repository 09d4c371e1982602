// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHTTP_TellsChanges(t *testing.T) {
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got = string(text)
	}))
	defer server.Close()
	many := func(n, length int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf("%0*d", length, i))
		}
		return out
	}
	none := errors.New("no such directory")
	for name, tt := range map[string]struct {
		body  string
		paths []string
		err   error
		want  string
	}{
		"paths":                {`{"files": {changed}}`, []string{"a", `b"<&>\`, "dir/ü"}, nil, `{"files": ["a","b\"<&>\\","dir/ü"]}`},
		"no paths":             {"{changed}", []string{}, nil, "[]"},
		"too many to know":     {"{changed}", nil, nil, "null"},
		"too many":             {"{changed}", many(MaxChanged+1, 4), nil, "null"},
		"as many as are told":  {"{changed}", many(MaxChanged, 4), nil, `["` + strings.Join(many(MaxChanged, 4), `","`) + `"]`},
		"as long as is told":   {"{changed}", []string{strings.Repeat("x", maxChangedBytes-4)}, nil, `["` + strings.Repeat("x", maxChangedBytes-4) + `"]`},
		"too long":             {"{changed}", []string{strings.Repeat("x", maxChangedBytes-3)}, nil, "null"},
		"twice":                {"{changed}{changed}", []string{"a"}, nil, `["a"]["a"]`},
		"not asked for":        {"{dir}", nil, none, "{dir}"},
		"it cannot be told":    {"{changed}", nil, none, ""},
		"paths with the words": {"{changed}", []string{"{changed}"}, nil, `["{changed}"]`},
	} {
		h := &HTTP{Method: http.MethodPost, URL: parse(t, server.URL), Body: tt.body, TellChanged: true, Timeout: limit}
		got = ""
		ctx := WithChanged(t.Context(), func() ([]string, error) { return tt.paths, tt.err })
		if err := h.Do(ctx); (err != nil) != (tt.want == "") || err != nil && !errors.Is(err, tt.err) {
			t.Errorf("%s: %v", name, err)
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
	// A probe, and what is no reload of an agent, tell nothing.
	h := &HTTP{Method: http.MethodPost, URL: parse(t, server.URL), Body: "{changed}", Timeout: limit}
	if err := h.Do(WithChanged(t.Context(), func() ([]string, error) { return nil, none })); err != nil || got != "{changed}" {
		t.Errorf("%s, %v", got, err)
	}
	if got, err := ExpandChanged(t.Context(), "{changed}"); err != nil || got != "null" {
		t.Errorf("without changes: %s, %v", got, err)
	}
}
