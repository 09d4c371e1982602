// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package dependency

import (
	"cmp"
	"hash/maphash"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// WorkloadKind is the kind of an object that creates pods, or of a pod without a
// controller.
type WorkloadKind string

// WorkloadKey names a workload in the cluster.
type WorkloadKey struct {
	Kind      WorkloadKind
	Namespace string
	Name      string
}

// ViewName is the name under which the workload is shown: its kind and name in lower
// case, as in deployment.web. The names of workloads are in lower case already.
func (k WorkloadKey) ViewName() string { return strings.ToLower(string(k.Kind)) + "." + k.Name }

// Workload is the part of a workload that is kept.
type Workload struct {
	WorkloadKey
	UID             types.UID
	ResourceVersion string
	Created         metav1.Time
	Labels          map[string]string
	// Annotations are the annotations by which users declare how the workload is
	// restarted, and TemplateAnnotations are those of its pod template.
	Annotations, TemplateAnnotations map[string]string
	// Foreign are the marks of other tools on the pod template; nil: there are none.
	Foreign *Foreign
	// Containers are the names of the first containers that are no init containers.
	Containers []string
	Absent     Absent
	Marks      Marks
	Traits
	Status
	InPlace
	References []Reference
	Fields     Fields
	// Owner is the workload of a custom resource that this one belongs to; nil: there is none.
	Owner *Owner
	// Borrows: its pods have the pod template of another object. TemplateOf is that object; nil: it is none that is read. The
	// references then are those of its template.
	Borrows    bool
	TemplateOf *WorkloadKey
	// Truncated: the pod template names more than References contains; see MaxSources and MaxUses.
	Truncated bool
	// Terminating: the workload is being deleted.
	Terminating bool
	// OptedIn: the annotations say that the workload is restarted automatically, or try to.
	OptedIn bool
	// PausedByRestart: an annotation says that a restart has paused the workload, which has to be resumed whether or not it is
	// restarted automatically by now.
	PausedByRestart bool
	// RecordDropped: another client has removed the record while the workload was opted in. Marks has it all the same.
	RecordDropped bool
	// Rewrites is how often this process saw another client remove the hash from the pod template and change nothing else of it but annotations, while the
	// workload was opted in: each time, the pods were restarted for nothing.
	Rewrites int

	// TemplateWritten is an upper bound of when the template changed, to the second: when a
	// client that sets it last wrote the object.
	TemplateWritten time.Time
	// TemplateSeen is when this process saw the template change. Zero: it has not.
	TemplateSeen time.Time
	// TemplateBy are the field managers that own fields of the template, at most maxManagers.
	TemplateBy []FieldManager
	// templateBy is the field manager that wrote the template last.
	templateBy FieldManager
	// template is the fingerprint of the pod template, and unannotated of the same without annotations, in this process.
	template, unannotated uint64
}

// Absent is what a workload and its pod template have none of, so that a patch has to add it.
type Absent struct {
	Annotations, TemplateAnnotations bool
	// Variables are the names of the Containers without environment variables.
	Variables []string
}

// Arrival is how an object was read.
type Arrival struct {
	// Live: it came as an event, so that nothing can have been missed.
	Live bool
	// Seen is when it was read; zero until everything has been read once.
	Seen time.Time
	// Since is when the last that was read before a list had been read.
	Since time.Time
}

// Released returns TemplateWritten if another client than configdep wrote the template last, which may have written content with it, or zero.
func (w *Workload) Released() time.Time {
	if w.templateBy == OwnFieldManager {
		return time.Time{}
	}
	return w.TemplateWritten
}

// After completes a workload with what was known before about the workload of that name, or nil.
func (w *Workload) After(previous *Workload, at Arrival) {
	w.TemplateSeen = at.Seen
	if previous == nil || previous.UID != w.UID {
		return
	}
	if previous.template == w.template {
		w.TemplateSeen = previous.TemplateSeen
		// A write of anything else of the object, such as our record, moves the time of its client, too.
		if !w.Recurring && w.template != 0 && !previous.TemplateWritten.After(w.TemplateWritten) {
			w.TemplateWritten, w.templateBy = previous.TemplateWritten, previous.templateBy
		}
	}
	if w.Rewrites = previous.Rewrites; previous.OptedIn && w.unannotated != 0 && previous.unannotated == w.unannotated && previous.Marks.TemplateHash != "" && w.Marks.TemplateHash == "" {
		w.Rewrites++
	}
	if previous.OptedIn && previous.Marks.Sources != "" && w.Marks.Sources == "" {
		w.RecordDropped = true
		before, now := &previous.Marks, &w.Marks
		now.Hash, now.Sources = before.Hash, before.Sources
		now.LastReload, now.Recreating = cmp.Or(now.LastReload, before.LastReload), cmp.Or(now.Recreating, before.Recreating)
		now.Approval = cmp.Or(now.Approval, before.Approval)
	}
}

// Opt notes whether the annotations of the workload and its namespace opt it in. One that has opted out keeps no record that another client has removed.
func (w *Workload) Opt(in bool) {
	w.OptedIn = in
	if !in && w.RecordDropped {
		w.RecordDropped, w.Marks.Hash, w.Marks.Sources, w.Marks.Recreating, w.Marks.Approval = false, "", "", "", ""
	}
}

// ParseVersion parses a resourceVersion, or the revision of a Deployment. Those of kube-apiserver are revisions
// of etcd; one that is not a number is as good as unknown, which is 0.
func ParseVersion(version string) uint64 {
	v, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0 // not the highest number, which comes with the error of one that is too high
	}
	return v
}

// MaxClockSkew is by how much the clocks of nodes, of the API server and of this server may differ without a
// comparison of times that clients have written being wrong.
const MaxClockSkew = 2 * time.Minute

// seed makes fingerprints cheap: they are compared in one process only.
var seed = maphash.MakeSeed()
