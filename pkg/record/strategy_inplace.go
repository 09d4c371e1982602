// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/types"

	"github.com/configdep/configdep/pkg/agent/status"
	"github.com/configdep/configdep/pkg/dependency"
)

// InPlace lets the restarter of each pod restart all its containers, one pod after the other, and changes no template. The controller tells
// the pods, and only those of workloads that have opted in. What cannot be restarted in place is restarted by a rollout.
//
// Everything that the next leader has to know is in objects: RecreatingAnnotation of the workload names the pods that are left, and each
// pod says which restart it was told of, and how often its containers had been restarted by then.
var InPlace Strategy = inPlace{}

// The annotations of pods that are restarted in place.
const (
	// RestartAnnotation tells the restarter of a pod to restart it.
	RestartAnnotation = status.RestartAnnotation
	// RestartingAnnotation describes the state of the pod when it was told (a Told).
	RestartingAnnotation = Prefix + "restarting"
)

type inPlace struct{}

// Name implements Strategy.
func (inPlace) Name() string { return "in-place" }

// NamesPods implements Strategy.
func (inPlace) NamesPods() bool { return true }

// MarksTemplate implements Strategy.
func (inPlace) MarksTemplate() bool { return false }

// Describe implements Strategy. The caveats of rollouts do not apply.
func (inPlace) Describe(string) Description {
	return Description{What: "pods", Done: "are being restarted in place, one by one", Would: "would be restarted in place, one by one"}
}

// UnderWay implements Strategy. The list of Recreate does not begin like a JSON object.
func (inPlace) UnderWay(w *dependency.Workload) bool {
	return strings.HasPrefix(w.Marks.Recreating, "{") && !w.Reruns
}

// Progress implements Strategy.
func (inPlace) Progress() Progress {
	return Progress{
		Reason:  ReasonRestartingInPlace,
		Message: "Pods are restarted in place one by one, " + AsAllowed,
		Already: "the pods are already being restarted in place, one by one",
		While:   "pods were being restarted in place",
		Waits:   "The next pod will be restarted in place later",
		Step:    "Restarting the pods in place",
	}
}

// AsAllowed says how pods are restarted in place, and where it is told why one is not.
const AsAllowed = "as maxUnavailable and PodDisruptionBudgets allow. If that takes long, the event ConfigRestartWaiting says why."

func (inPlace) begin(w *dependency.Workload, r *Restart, out *restartPatch) {
	out.last.Evicted = true
	pods := PodsInPlace{ID: restartID(w, &out.last), Began: out.last.Time.UTC(), Left: podIDsOf(r.Pods)}
	pods.Total = len(pods.Left)
	out.workload[RecreatingAnnotation] = pods.Text()
}

// restartID identifies a restart. The patch that begins it is bound to the version of the workload, so no other one has the same ID.
func restartID(w *dependency.Workload, last *LastReload) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{string(w.UID), w.ResourceVersion, last.Text()}, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// PodsInPlace are the pods that RecreatingAnnotation names while they are restarted in place.
type PodsInPlace struct {
	// ID identifies the restart, and Began is when it began; zero: another client has removed it.
	ID    string
	Began time.Time
	// Left are the IDs of the pods that have not been restarted, in order, and Total is how many there were at the beginning.
	Left  []string
	Total int
	// Failed says in a sentence which pod has not come back; empty: none.
	Failed string
	// Refused says in a sentence why no pod can be told to restart; empty: one could be told last, or it is not known yet.
	Refused string
}

// podsInPlace is the JSON of PodsInPlace.
type podsInPlace struct {
	ID      string    `json:"restart"`
	Began   time.Time `json:"began,omitzero"`
	Left    string    `json:"pods"`
	Total   int       `json:"total"`
	Failed  string    `json:"failed,omitempty"`
	Refused string    `json:"refused,omitempty"`
}

// Text returns the value of RecreatingAnnotation.
func (p *PodsInPlace) Text() string {
	return mustJSON(podsInPlace{p.ID, p.Began, strings.Join(p.Left, ","), p.Total, p.Failed, p.Refused})
}

// PodsInPlaceOf returns the pods of a workload that are restarted in place. Valid reports whether the value of the annotation has our
// format; if not, it is unknown which pods are left.
func PodsInPlaceOf(w *dependency.Workload) (p PodsInPlace, valid bool) {
	var read podsInPlace
	if json.Unmarshal([]byte(w.Marks.Recreating), &read) != nil || !isRestartID(read.ID) {
		return PodsInPlace{}, false
	}
	p = PodsInPlace{ID: read.ID, Began: read.Began, Total: read.Total, Failed: CutBytes(read.Failed, maxFailed), Refused: CutBytes(read.Refused, maxRefused)}
	if read.Left != "" {
		p.Left = strings.Split(read.Left, ",")
	}
	if p.Total < len(p.Left) || p.Total > MaxPods || !slices.IsSorted(p.Left) || slices.ContainsFunc(p.Left, func(id string) bool { return !podIDs.MatchString(id) }) {
		return PodsInPlace{}, false
	}
	return p, true
}

// isRestartID reports whether restartID may have returned an ID.
func isRestartID(id string) bool {
	raw, err := hex.DecodeString(id)
	return err == nil && len(raw) == 8
}

// Has reports whether a pod has yet to be restarted.
func (p *PodsInPlace) Has(uid types.UID) bool {
	_, found := slices.BinarySearch(p.Left, podID(uid))
	return found
}

// Keep returns the same restart with only those pods left that are given, and with what has failed or is refused.
func (p *PodsInPlace) Keep(left []types.UID, failed, refused string) PodsInPlace {
	return PodsInPlace{p.ID, p.Began, podIDsOf(left), p.Total, failed, refused}
}

// maxFailed is for the name of a pod and what is said about it, in bytes. What is written is never longer: it would differ from what is read.
const maxFailed = 512

// maxRefused is for the name of a pod and maxProblem, in bytes.
const maxRefused = MaxProblem + 512

// RefusedOf returns PodsInPlace.Refused for the answer of the API server about a pod.
func RefusedOf(pod string, answer error) string {
	text := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, answer.Error())
	return "Pod " + pod + " cannot be told to restart: " + strings.TrimSuffix(CutBytes(text, MaxProblem), ".") + "."
}

// ProgressPatch returns the JSON merge patch that records how far a restart is.
func (p *PodsInPlace) ProgressPatch(w *dependency.Workload) ([]byte, error) {
	return patch(w, object{RecreatingAnnotation: p.Text()}, nil)
}

// Progress says in a sentence how far a restart is.
func (p *PodsInPlace) Progress() string {
	return PodsHave(p.Total-len(p.Left), p.Total, "been restarted in place") + "."
}

// Halted says why a restart gets no further, how far it is, and when it goes on; empty: it gets further.
func (p *PodsInPlace) Halted() string {
	switch {
	case p.Failed != "":
		return p.Failed + " " + p.Progress() + " The restart goes on when this pod is ready or has been deleted, or when content changes again."
	case p.Refused != "":
		return p.Refused + " " + p.Progress() + " Telling the remaining pods is retried, with increasing delays."
	default:
		return ""
	}
}

// Halted says why a restart in place of a workload gets no further; empty: it does, or none is under way.
func Halted(w *dependency.Workload) string {
	pods, _ := PodsInPlaceOf(w)
	return pods.Halted()
}

// Told describes a pod at the time when it was told to restart in place. Its JSON is the value of RestartingAnnotation.
type Told struct {
	// Since is when it was told of this restart first, and Again when it was told last.
	Since time.Time `json:"since"`
	Again time.Time `json:"again"`
	// Hash is that of the content for which it is restarted.
	Hash string `json:"hash"`
	// Restarts are the restart counts of those of its containers that had ever run.
	Restarts map[string]int32 `json:"restarts"`
	// Unfinished: it had been told of another restart before, of which not all had been reported.
	Unfinished bool `json:"unfinished,omitempty"`
}

// ToldOf returns what the annotations of a pod say about a restart, and how often the pod was told of it; 0: it was not.
func ToldOf(annotations map[string]string, restart string) (t Told, times int) {
	value := annotations[RestartAnnotation]
	if id, _, _ := strings.Cut(value, "-"); id != restart || json.Unmarshal([]byte(annotations[RestartingAnnotation]), &t) != nil || t.Since.IsZero() {
		return Told{}, 0
	}
	if _, err := fmt.Sscanf(value, restart+"-%d", &times); err != nil {
		return t, 1
	}
	return t, max(1, times)
}

// Ahead reports whether a pod was told in the future: another leader's clock differs, or another client has written that.
func (t *Told) Ahead(now time.Time) bool { return t.Since.After(now) || t.Again.After(now) }

// Until returns the same with no time after now.
func (t *Told) Until(now time.Time) Told {
	earlier := func(at time.Time) time.Time {
		if at.After(now) {
			return now
		}
		return at
	}
	return Told{earlier(t.Since), earlier(t.Again), t.Hash, t.Restarts, t.Unfinished}
}

// ToldLast returns what the annotations of a pod say about the last restart of which it was told; false: it was told of none.
func ToldLast(annotations map[string]string) (t Told, told bool) {
	id, _, _ := strings.Cut(annotations[RestartAnnotation], "-")
	if !isRestartID(id) {
		return Told{}, false
	}
	t, times := ToldOf(annotations, id)
	return t, times > 0
}

// PodPatch returns the JSON merge patch that tells a pod to restart. Times is how often it has then been told.
func (t *Told) PodPatch(uid types.UID, resourceVersion, restart string, times int) []byte {
	value := restart
	if times > 1 { // the restarter acts on another value only
		value = fmt.Sprintf("%s-%d", restart, times)
	}
	return []byte(mustJSON(object{"metadata": object{
		"uid": uid, "resourceVersion": resourceVersion,
		"annotations": object{RestartAnnotation: value, RestartingAnnotation: mustJSON(t)},
	}}))
}
