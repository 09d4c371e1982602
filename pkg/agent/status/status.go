// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package status is what is known to both sides of a pod's annotations: what a config agent tells about itself, which the server reads, and
// the annotation that tells a restarter to act. It imports nothing of either.
package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

const (
	// Annotation is the annotation of the pod. Its value is a Report, as JSON.
	Annotation = "configdep.io/agent-status"
	// Label is the label of pods with an agent that reports, with the value LabelValue: the server watches only these.
	Label = "configdep.io/agent"
	// LabelValue is the value of Label.
	LabelValue = "true"
	// RestartAnnotation tells the restarter of a pod to restart all containers in place, whenever it gets another value.
	RestartAnnotation = "configdep.io/restart"
)

const (
	// MaxSources is how many objects a report may name. An agent with more of them reports its state alone.
	MaxSources = 500
	// MaxMessage is how long a message may be, in bytes.
	MaxMessage = 1024
	// maxUID is how long the UID of an object may be, in bytes. Those of Kubernetes have 36.
	maxUID = 64
	// maxBytes is how long a report may be: an object may have no more in all annotations.
	maxBytes = 256 << 10
)

// Report is what an agent tells about itself. It has nothing of the content: the versions of the sources tell which content it is.
type Report struct {
	State State `json:"state"`
	// Message says why content is not applied, or which objects of selectors are left out.
	Message string `json:"message,omitempty"`
	// Sources are the objects whose content is applied.
	Sources []Source `json:"sources,omitempty"`
}

// State is whether the application works with the content of its sources.
type State string

// The states.
const (
	Applied    State = "Applied"
	Applying   State = "Applying"   // something newer
	Incomplete State = "Incomplete" // required sources are missing, or cannot be read
	Failed     State = "Failed"     // a check, a reload or a probe failed
)

// Source is an object. It has no uid if it does not exist.
type Source struct {
	Kind            string `json:"kind"`
	Namespace       string `json:"namespace"`
	Name            string `json:"name"`
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// Parse parses the value of Annotation. Every client that may write the pod may have written it. The error says what is wrong.
func Parse(value string) (*Report, error) {
	if len(value) > maxBytes {
		return nil, fmt.Errorf("must not have more than %d bytes", maxBytes)
	}
	var r Report
	if err := json.Unmarshal([]byte(value), &r); err != nil {
		return nil, errors.New("is not the JSON of a report")
	}
	switch r.State {
	case Applied, Applying, Incomplete, Failed:
	default:
		return nil, fmt.Errorf("has a state that is none of %s, %s, %s and %s", Applied, Applying, Incomplete, Failed)
	}
	if len(r.Sources) > MaxSources {
		return nil, fmt.Errorf("names more than %d sources", MaxSources)
	}
	if slices.ContainsFunc(r.Sources, func(s Source) bool { return len(s.UID) > maxUID }) {
		return nil, fmt.Errorf("has a uid of more than %d bytes", maxUID)
	}
	if len(r.Message) > MaxMessage {
		return nil, fmt.Errorf("has a message of more than %d bytes", MaxMessage)
	}
	return &r, nil
}
