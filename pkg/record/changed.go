// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"slices"
	"strings"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
)

// Changed is a source for whose content a workload is restarted.
type Changed struct {
	Kind dependency.SourceKind
	Name string
	// Digest stands for its content; empty: it is gone.
	Digest string
	// Containers are the containers that read it.
	Containers []string
}

// container returns the container that reads the source; if none does, or only init containers, the first of the
// workload.
func (c *Changed) container(w *dependency.Workload) string {
	for _, name := range w.Containers {
		if slices.Contains(c.Containers, name) {
			return name
		}
	}
	if len(w.Containers) == 0 {
		return ""
	}
	return w.Containers[0]
}

// reloadedFrom is the value of the annotation LastReloadedFrom. Its fields are those of Reloader.
type reloadedFrom struct {
	Type          string   `json:"type"`
	Name          string   `json:"name"`
	Namespace     string   `json:"namespace"`
	Hash          string   `json:"hash"`
	ContainerRefs []string `json:"containerRefs"`
	ObservedAt    int64    `json:"observedAt"`
}

func (c *Changed) reloadedFrom(w *dependency.Workload, at time.Time) string {
	return mustJSON(reloadedFrom{
		Type: strings.ToUpper(string(c.Kind)), Name: c.Name, Namespace: w.Namespace, Hash: c.Digest,
		ContainerRefs: []string{c.container(w)}, ObservedAt: at.Unix(),
	})
}
