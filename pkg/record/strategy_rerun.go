// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/dependency"
)

// Rerun runs what has no rollout again: it starts a Job of a CronJob, or replaces a Job by one of the same name. No annotation
// asks for it: it is that of workloads that are Traits.Reruns.
//
// A Job of a CronJob is created before the patch that records it. Its name follows from the record that the patch replaces, so
// that no second one is created if the patch fails.
//
// A Job is replaced in steps, after the patch that records it. All that they need to know is in the objects:
//
//  1. The Job names its copy, in RecreatingAnnotation.
//  2. The copy is created, suspended, which proves that admission and quotas accept it. CopyAnnotation says of what it is one.
//  3. The copy is verified. It gets the record of the Job, and says, with a seal, that the Job is to be deleted.
//  4. The Job is deleted, and the new one is created from the copy. ReplacesAnnotation says what it replaces.
//  5. The copy is deleted.
var Rerun Strategy = rerun{}

type rerun struct{}

// The annotations of Jobs that are replaced.
const (
	// CopyAnnotation is on a suspended copy of a Job: a Copy, in JSON.
	CopyAnnotation = Prefix + "copy-of"
	// ReplacesAnnotation is on a Job that has replaced another one: the UID of that.
	ReplacesAnnotation = Prefix + "replaces"
	// CopyLabelsAnnotation is on a suspended copy of a Job: the labels of the Job, in JSON. The copy does not have them, because
	// controllers that select Jobs by labels, such as Kueue, would resume it.
	CopyLabelsAnnotation = Prefix + "copy-labels"
)

// Name implements Strategy.
func (rerun) Name() string { return "rerun" }

// NamesPods implements Strategy.
func (rerun) NamesPods() bool { return false }

// MarksTemplate implements Strategy.
func (rerun) MarksTemplate() bool { return false }

// Describe implements Strategy.
func (rerun) Describe(caveat string) Description {
	return Description{What: "run", Done: "is being started again", Would: "would be started again", Caveat: caveat}
}

// UnderWay implements Strategy.
func (rerun) UnderWay(w *dependency.Workload) bool {
	if !w.Reruns || w.Recurring {
		return false
	}
	_, is := CopyOf(w)
	return is || w.Marks.Recreating != ""
}

// Progress implements Strategy.
func (rerun) Progress() Progress {
	return Progress{
		Reason:  ReasonReplacing,
		Message: "The Job is being replaced. It is deleted once a suspended copy of it exists, from which it is created again.",
		Already: "the Job is already being replaced",
		While:   "the Job was being replaced",
		Waits:   "The next run will be started later",
		Step:    "Replacing the Job",
	}
}

func (rerun) begin(w *dependency.Workload, _ *Restart, out *restartPatch) {
	if !w.Recurring {
		out.workload[RecreatingAnnotation] = CopyName(w.Name, w.UID)
	}
}

// Copy is what the suspended copy of a Job says about the Job.
type Copy struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// Generation is that of the specification that was copied.
	Generation int64 `json:"generation"`
	// Suspend is the value of spec.suspend of the Job.
	Suspend *bool `json:"suspend,omitempty"`
	// Deleting: the copy has all that the Job is created from, and the Job is to be deleted, or has been.
	Deleting bool `json:"deleting,omitempty"`
	// Creating: the Job is to be created again, or has been. It is created once: one that is gone may have run, and been removed.
	Creating bool `json:"creating,omitempty"`
	// Seal proves that configdep has verified this copy; empty: it has not yet.
	Seal string `json:"seal,omitempty"`
}

// Sealed returns the text with a seal for the copy with a UID. The seal is an HMAC with a key that only the replicas have, of the text
// and the UID. The UID is enough to say which content was verified: no client can create another Job with it, and a copy whose
// specification has been changed since it was created is not used. So the seal need not cover the content, which another version of the
// API server may return with other defaults.
func (c Copy) Sealed(d *dependency.Digester, namespace string, uid types.UID) Copy {
	c.Seal = ""
	seal := d.Derive(strings.Join([]string{"the copy of a Job", namespace, string(uid), c.Text()}, "\x00"))
	c.Seal = hex.EncodeToString(seal[:])
	return c
}

// IsSealed reports whether the seal is valid for the copy with a UID.
func (c Copy) IsSealed(d *dependency.Digester, namespace string, uid types.UID) bool {
	return hmac.Equal([]byte(c.Seal), []byte(c.Sealed(d, namespace, uid).Seal))
}

// maxCopy is longer than any CopyAnnotation that is written, in bytes.
const maxCopy = 1 << 10

// CopyOf returns which Job a workload is a copy of. It ignores an annotation that configdep has not written.
func CopyOf(w *dependency.Workload) (of Copy, is bool) {
	if !w.Reruns || w.Recurring {
		return Copy{}, false
	}
	return ParseCopy(w.Name, w.Annotations[CopyAnnotation])
}

// ParseCopy parses the annotation of a copy with a name.
func ParseCopy(name, value string) (of Copy, is bool) {
	if value == "" || len(value) > maxCopy || json.Unmarshal([]byte(value), &of) != nil || of.UID == "" || name != CopyName(of.Name, of.UID) {
		return Copy{}, false
	}
	return of, true
}

// Text returns the value of CopyAnnotation.
func (c Copy) Text() string { return mustJSON(c) }

// maxJobName is the maximum length of the name of a Job, which is also the value of a label of its pods.
const maxJobName = 63

// CopyName returns the name of the copy of a Job.
func CopyName(name string, uid types.UID) string { return derivedName(name, "-copy-", string(uid)) }

// RunName returns the name of the Job that is started from a CronJob to run with some content. It differs for each record
// that it replaces, so that content that comes back is run again.
func RunName(w *dependency.Workload, present Record) string {
	m := &w.Marks
	return derivedName(w.Name, "-", string(w.UID), cmp.Or(m.Hash, m.TemplateHash), m.Sources, m.LastReload, present.Hash)
}

// derivedName returns a name for a Job, derived from that of another object and from what it stands for.
func derivedName(name, separator string, of ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(of, "\x00")))
	suffix := separator + hex.EncodeToString(sum[:5])
	if most := maxJobName - len(suffix); len(name) > most {
		name = strings.TrimRight(name[:most], "-.")
	}
	return name + suffix
}
