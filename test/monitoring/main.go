// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// The command monitoring prints, as JSON, the metrics and labels that the expressions in the files of the chart use,
// according to the parser of Prometheus. A test in test/integration compares them with the metrics of a running server.
// The command has its own module, so that Prometheus is not a dependency of configdep.
//
//	go run . ../../artifacts/charts/configdep/files
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "monitoring:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: monitoring DIRECTORY")
	}
	uses, err := read(os.Args[1])
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(uses)
}

// read returns the metrics that the rules and the dashboard in a folder use.
func read(dir string) ([]use, error) {
	rules, err := readRules(filepath.Join(dir, "prometheusrule.yaml"))
	if err != nil {
		return nil, err
	}
	board, err := readDashboard(filepath.Join(dir, "dashboard.json"))
	if err != nil {
		return nil, err
	}
	all := []use{}
	for _, r := range rules {
		uses, err := analyze("alert "+r.Alert, r.Expr, fromAnnotations(r))
		if err != nil {
			return nil, err
		}
		all = append(all, uses...)
	}
	for _, e := range board.expressions() {
		uses, err := analyze(e.where, substitute(e.expression), e.labels)
		if err != nil {
			return nil, err
		}
		all = append(all, uses...)
	}
	return all, nil
}
