// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

const (
	// ChangedPlaceholder stands, in the body of a reload, for the paths of the files that have changed, as a JSON array.
	ChangedPlaceholder = "{changed}"
	// MaxChanged is how many paths are told.
	MaxChanged = 1000
	// maxChangedBytes is how long the array may be.
	maxChangedBytes = 64 << 10
)

type changedKey struct{}

// WithChanged returns a context for actions that tell which files have changed. The function is called when they need it. It returns nil
// if they are too many.
func WithChanged(ctx context.Context, changed func() ([]string, error)) context.Context {
	return context.WithValue(ctx, changedKey{}, changed)
}

// ExpandChanged puts the paths of the files that have changed in the place of ChangedPlaceholder: a JSON array, or null if they are too many.
func ExpandChanged(ctx context.Context, text string) (string, error) {
	if !strings.Contains(text, ChangedPlaceholder) {
		return text, nil
	}
	var paths []string
	if changed, has := ctx.Value(changedKey{}).(func() ([]string, error)); has {
		var err error
		if paths, err = changed(); err != nil {
			return "", fmt.Errorf("which files have changed: %w", err)
		}
	}
	var array bytes.Buffer
	e := json.NewEncoder(&array)
	e.SetEscapeHTML(false)
	if err := e.Encode(paths); err != nil {
		return "", err
	}
	value := strings.TrimSpace(array.String())
	if len(paths) > MaxChanged || len(value) > maxChangedBytes {
		value = "null"
	}
	return strings.ReplaceAll(text, ChangedPlaceholder, value), nil
}
