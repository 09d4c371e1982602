// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Reloader-values converts values of the chart of Stakater Reloader to values of configdep's chart:
//
//	helm get values reloader -n reloader -o yaml | go run ./hack/reloader-values >configdep-values.yaml
//
// A comment at the beginning of its output lists each value that is not converted, with the reason.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"go.yaml.in/yaml/v3"
)

// maxInput limits the input, in bytes. Values are in a Secret, which is smaller.
const maxInput = 1 << 20

type options struct {
	// namespace is that of Reloader's release.
	namespace string
	// observe sets reload.observe, for a time in which both run.
	observe bool
	// jobs sets reload.jobs, unless the values leave out both CronJobs and Jobs.
	jobs bool
}

func main() {
	var o options
	flag.StringVar(&o.namespace, "namespace", "", "the namespace of Reloader's release; needed if it watches only some namespaces (reloader.watchGlobally: false)")
	flag.BoolVar(&o.observe, "observe", false, "set reload.observe, so that configdep only shows what it would restart, beside Reloader")
	flag.BoolVar(&o.jobs, "jobs", true, "set reload.jobs, which grants rights to create and delete Jobs, so that CronJobs and Jobs are run again as by Reloader; not if the values ignore both")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "usage: %s [FLAGS] <reloader-values.yaml >configdep-values.yaml\n", os.Args[0])
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(os.Stdin, os.Stdout, flag.Args(), o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run writes nothing if there is an error.
func run(in io.Reader, out io.Writer, args []string, o options) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q: values are read from the standard input", args[0])
	}
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
