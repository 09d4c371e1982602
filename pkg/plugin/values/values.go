// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package values converts values of the chart of Stakater Reloader to values of configdep's chart. A comment at the beginning of its output lists each
// value that is not converted, with the reason.
package values

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// maxInput limits the input, in bytes. Values are in a Secret, which is smaller.
const maxInput = 1 << 20

// Options are what the values do not say.
type Options struct {
	// Namespace is that of Reloader's release; needed if it watches only some namespaces.
	Namespace string
	// Observe sets reload.observe, for a time in which both run.
	Observe bool
	// Jobs sets reload.jobs, unless the values leave out both CronJobs and Jobs.
	Jobs bool
}

// Convert reads values of Reloader's chart, as YAML, and writes those of configdep's. It writes nothing if there is an error.
func Convert(in io.Reader, out io.Writer, o Options) error {
	text, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	if err != nil {
		return fmt.Errorf("reading the values: %w", err)
	}
	if len(text) > maxInput {
		return fmt.Errorf("reading the values: there are more than %d bytes", maxInput)
	}
	if len(bytes.TrimSpace(text)) == 0 { // of "helm get values" that failed; without values, it prints null
		return errors.New("reading the values: there are none")
	}
	values, err := parse(text)
	if err != nil {
		return fmt.Errorf("reading the values: %w", err)
	}
	converted, err := convert(values, o)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(out, converted); err != nil {
		return errors.Join(errors.New("writing the values"), err)
	}
	return nil
}

// parse reads values, which are one document.
func parse(text []byte) (values map[string]any, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document yaml.Node
	if err := decoder.Decode(&document); err != nil {
		return nil, err
	}
	keepDates(&document)
	if err := document.Decode(&values); err != nil {
		return nil, err
	}
	var more any
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("there must be one document, not several separated by ---")
	}
	return values, nil
}

// keepDates leaves dates as they are written, as helm does, for which they are texts.
func keepDates(n *yaml.Node) {
	if n.Tag == "!!timestamp" {
		n.Tag = "!!str"
	}
	for _, inner := range n.Content {
		keepDates(inner)
	}
}
