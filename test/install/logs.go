// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Texts that no replica may ever log, whatever tests do to it.
var neverLogged = []string{
	"WARNING: DATA RACE",
	"Observed a panic",
	"panic:",
	"fatal error:",
	"isn't an metav1.Status", // an error of the storage that becomes a 500
}

// CheckLogs returns an error that quotes lines which no replica may ever log.
func (i *Installation) CheckLogs() error {
	logs, err := filepath.Glob(filepath.Join(i.dir, "*.log"))
	if err != nil || len(logs) < len(i.Replicas) {
		return fmt.Errorf("finding the logs of the replicas: %d found (%w)", len(logs), err)
	}
	var found []error
	for _, log := range logs {
		content, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		lines := strings.Split(string(content), "\n")
		for i, line := range lines {
			for _, never := range neverLogged {
				if strings.Contains(line, never) {
					excerpt := strings.Join(lines[i:min(len(lines), i+40)], "\n")
					found = append(found, fmt.Errorf("%s has a line with %q:\n%s", filepath.Base(log), never, excerpt))
				}
			}
		}
	}
	return errors.Join(found...)
}
