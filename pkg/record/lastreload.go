// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"slices"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/configdep/configdep/pkg/dependency"
)

// Triggers of restarts besides the names of sources.
const (
	TriggerRequest = "Request" // a user requested it
	TriggerUnknown = "Unknown" // content has changed, and the record does not tell of which source
)

// LastReload describes a restart. Its JSON is the value of LastReloadAnnotation.
type LastReload struct {
	Time    metav1.MicroTime `json:"time"`
	Trigger string           `json:"trigger,omitempty"`
	// Others are the other sources that had changed; Any stands for any.
	Others      []string `json:"others,omitempty"`
	RequestedBy string   `json:"requestedBy,omitempty"`
	Reason      string   `json:"reason,omitempty"`
	// Automatic is the time of the last automatic restart, and Streak is how many of
	// these followed each other closely, which makes the next one wait longer.
	Automatic *metav1.MicroTime `json:"automatic,omitempty"`
	Streak    int               `json:"streak,omitempty"`
	// Evicted: the pods were evicted or restarted in place, and the template was not changed.
	Evicted bool `json:"evicted,omitempty"`
}

// LastReloadOf returns the workload's record of its last restart, or nil. An invalid value,
// which another client may have written, counts as none.
func LastReloadOf(w *dependency.Workload) *LastReload { return lastReloadFrom(w.Marks.LastReload) }

// Texts of a LastReload are shown, logged and kept, so they are bounded however long another client has made them. The
// longest that are written are within these bounds.
const (
	maxLastReload     = 8 << 10 // of the whole, in bytes
	maxLastReloadText = 256     // of the name of a user and of a reason, in characters
	// maxTrigger is for the kind and the name, or glob, of a source, in bytes.
	maxTrigger = len(dependency.SecretProviderClass) + 1 + validation.DNS1123SubdomainMaxLength
)

func lastReloadFrom(value string) *LastReload {
	var last LastReload
	if len(value) > maxLastReload || json.Unmarshal([]byte(value), &last) != nil || last.Time.IsZero() {
		return nil
	}
	if len(last.Trigger) > maxTrigger {
		last.Trigger = TriggerUnknown
	}
	if len(last.Others) > maxOthers {
		last.Others = []string{Any}
	}
	last.RequestedBy, last.Reason = cut(last.RequestedBy), cut(last.Reason)
	return &last
}

// cut returns the first characters of a text, as many as a LastReload may have.
func cut(text string) string {
	if utf8.RuneCountInString(text) <= maxLastReloadText {
		return text
	}
	return string([]rune(text)[:maxLastReloadText-1]) + "…"
}

// NewRequestedReload returns the record of a restart on request.
func NewRequestedReload(previous *LastReload, now time.Time, user, reason string) LastReload {
	last := LastReload{Time: metav1.NewMicroTime(now), Trigger: TriggerRequest, RequestedBy: cut(user), Reason: cut(reason)}
	if previous != nil {
		last.Automatic, last.Streak = previous.Automatic, previous.Streak
	}
	return last
}

// NewAutomaticReload returns the record of an automatic restart.
func NewAutomaticReload(previous *LastReload, now time.Time, minInterval time.Duration, trigger string) LastReload {
	at := metav1.NewMicroTime(now)
	last := LastReload{Time: at, Trigger: trigger, Automatic: &at, Streak: 1}
	if before, known := previous.automatic(now); known && now.Before(before.Add(2*Interval(minInterval, previous.Streak))) {
		last.Streak = previous.Streak + 1
	}
	return last
}

// automatic returns the time of the last automatic restart, if it is known. Clocks
// differ, but a time in the far future is invalid.
func (l *LastReload) automatic(now time.Time) (at time.Time, known bool) {
	if l == nil || l.Automatic == nil || l.Automatic.After(now.Add(maxInterval)) {
		return time.Time{}, false
	}
	return l.Automatic.Time, true
}

// maxInterval bounds the back-off, unless the policy asks for more.
const maxInterval = time.Hour

// Interval returns how long to wait after the last of a streak of automatic restarts: the
// minimum, doubled for each that followed closely.
func Interval(minimum time.Duration, streak int) time.Duration {
	wait := minimum
	// Any client can write the annotation, so the streak may be any number.
	for i := 1; i < streak && 0 < wait && wait < maxInterval; i++ {
		wait *= 2
	}
	return max(minimum, min(wait, maxInterval))
}

// NotBefore returns the earliest time of the next automatic restart.
func NotBefore(last *LastReload, minimum time.Duration, now time.Time) time.Time {
	at, known := last.automatic(now)
	if !known {
		return time.Time{}
	}
	return at.Add(Interval(minimum, last.Streak))
}

// Any stands for any source in LastReload.Others.
const Any = "*"

// maxOthers limits LastReload.Others.
const maxOthers = 16

// WithOthers returns the record with the sources that had changed, the trigger first.
func (l LastReload) WithOthers(changed []Changed) LastReload {
	if l.Others = nil; len(changed) > maxOthers+1 {
		l.Others = []string{Any}
		return l
	}
	for i := 1; i < len(changed); i++ {
		l.Others = append(l.Others, string(changed[i].Kind)+"/"+changed[i].Name)
	}
	return l
}

// Because reports whether the restart was because of a source, as far as is known.
func (l *LastReload) Because(id string) bool {
	return l.Trigger == id || l.Trigger == TriggerRequest || l.Trigger == TriggerUnknown || slices.Contains(l.Others, id) || slices.Contains(l.Others, Any)
}

// Text returns the value of LastReloadAnnotation.
func (l *LastReload) Text() string { return mustJSON(l) }
