// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"time"

	"github.com/configdep/configdep/pkg/dependency"
)

// Source is what is known about a source that counts for a workload.
type Source struct {
	// Reference has the uses that count.
	dependency.Reference

	// Periods are the periods of the source, in order.
	Periods []dependency.Period
	// Mounted returns what a pod has mounted of the source, if it is a SecretProviderClass.
	Mounted func(*dependency.Pod) dependency.Mounted
	// Recorded is what the record of the workload says about the source; nil: nothing that can be compared.
	Recorded *Recorded
	// New: the workload has a record without this source, so pods of an older template may not read it.
	New bool
	// Unhashed: its content is not part of Facts.Hash.
	Unhashed bool
	// Brought: the driver of a SecretProviderClass may delete it with the last pod, and create it again with the next one.
	Brought bool
}

// Recorded is what a record says about a source.
type Recorded struct {
	// Same: the recorded content is the current one.
	Same bool
	// At is when it was recorded, by configdep's clock.
	At time.Time
	// Proven: at that time, all pods ran with this content. Otherwise, only pods that were started later do.
	Proven bool
	// For is the hash on the pods that the record is about; empty: it is about all pods.
	For string
	// Hash is the hash of the content that was recorded, of all sources.
	Hash string
}

// Facts are what is known about a workload, besides its pods, at one time.
type Facts struct {
	Now time.Time
	// Complete is the time, by configdep's clock, from which it has read everything.
	Complete time.Time
	// Hash is the hash of the current content.
	Hash string
	// Revision is the label of pods with the current template; empty: it is not known.
	Revision string
	// Released is an upper bound, by the API server's clock, on when a client that may also have written content wrote the pod template; zero:
	// configdep wrote it.
	Released time.Time
	Sources  []Source
	// Containers are the names of the containers of the current template; nil: they are not known.
	Containers []string
	// LiveFiles: a container need not be restarted to read mounted files, unless it mounts a part of the volume (subPath).
	LiveFiles bool
	// SeenFiles: its owner has not said whether a container has to be restarted to read mounted files.
	SeenFiles bool
}
