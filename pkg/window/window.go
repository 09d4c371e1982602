// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package window says when restarts may begin.
//
// Windows are lists of times, as CronJobs have them: each opens when its schedule fires, in its time zone, and stays so for its duration. While a window of
// the kind Deny is open, nothing may begin. If there are windows of the kind Allow, one of them must be open.
package window

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	_ "time/tzdata" // images may have none

	"github.com/robfig/cron/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
	"sigs.k8s.io/yaml"
)

// The kinds of windows.
const (
	Allow = "Allow"
	Deny  = "Deny"
)

// Window is a window as users write it.
type Window struct {
	// Kind is Allow or Deny.
	Kind string `json:"kind"`
	// Schedule has the five fields of cron, as that of a CronJob: minute, hour, day, month and weekday.
	Schedule string `json:"schedule"`
	// Duration is for how long the window is open after the schedule has fired, such as 8h.
	Duration metav1.Duration `json:"duration"`
	// TimeZone is a name of the IANA database, such as Europe/Berlin; empty: UTC.
	TimeZone string `json:"timeZone,omitempty"`

	schedule cron.Schedule
}

// Windows are the windows of a workload; nil restricts nothing.
type Windows struct {
	list   []Window
	closed atomic.Pointer[closed]
}

// closed is a time in which nothing may begin, as it was found before.
type closed struct {
	from, until time.Time
	foreseeable bool
}

// The limits of windows.
const (
	most        = 8
	maxText     = 4096
	minDuration = time.Minute
	maxDuration = 366 * 24 * time.Hour
)

// parsed holds the last windows that were parsed, as those of a namespace are looked at for each of its workloads.
var parsed = lru.New(256)

type outcome struct {
	windows *Windows
	err     error
}

// Parse parses a list of windows in YAML.
func Parse(text string) (*Windows, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("must not have more than %d bytes", maxText)
	}
	if known, found := parsed.Get(text); found {
		o, _ := known.(outcome)
		return o.windows, o.err
	}
	var o outcome
	o.windows, o.err = parse(text)
	parsed.Add(strings.Clone(text), o)
	return o.windows, o.err
}

func parse(text string) (*Windows, error) {
	var out []Window
	if err := yaml.UnmarshalStrict([]byte(text), &out); err != nil || len(out) == 0 {
		mistake := ""
		if err != nil {
			if _, field, found := strings.Cut(err.Error(), "unknown field "); found {
				mistake = fmt.Sprintf("has the unknown field %.64s; ", field)
			}
		}
		return nil, errors.New(mistake + `must be a list such as [{kind: Allow, schedule: "0 22 * * 1-5", duration: 6h, timeZone: Europe/Berlin}]`)
	}
	return New(out)
}

// New returns windows, which must not be changed any more.
func New(list []Window) (*Windows, error) {
	if len(list) > most {
		return nil, fmt.Errorf("must not have more than %d windows", most)
	}
	for i := range list {
		if err := list[i].Complete(); err != nil {
			return nil, fmt.Errorf("window %d: %w", i+1, err)
		}
	}
	return &Windows{list: list}, nil
}

// Complete checks a window, and parses its schedule.
func (w *Window) Complete() error {
	zone, err := time.LoadLocation(cmp.Or(w.TimeZone, "UTC"))
	switch d := w.Duration.Duration; {
	case w.Kind != Allow && w.Kind != Deny:
		return fmt.Errorf("kind %q: must be %s or %s", w.Kind, Allow, Deny)
	case err != nil || w.TimeZone == "Local":
		return fmt.Errorf("timeZone %q: must be a name such as Europe/Berlin", w.TimeZone)
	case d < minDuration || d > maxDuration:
		return fmt.Errorf("duration %v: must be between %v and %v", d, minDuration, maxDuration)
	case len(strings.Fields(w.Schedule)) != 5 || strings.Contains(w.Schedule, "="):
		return fmt.Errorf("schedule %q: must have the five fields of cron: minute, hour, day, month and weekday", w.Schedule)
	}
	schedule, err := cron.ParseStandard(w.Schedule)
	if err != nil {
		return fmt.Errorf("schedule %q: %w", w.Schedule, err)
	}
	if s, is := schedule.(*cron.SpecSchedule); is {
		s.Location = zone
	}
	if schedule.Next(time.Unix(0, 0)).IsZero() {
		return fmt.Errorf("schedule %q: never fires", w.Schedule)
	}
	w.schedule = schedule
	return nil
}

// ends returns until when a window is open that is so at a time, as far as it is not opened again meanwhile; zero: it is not open.
func (w *Window) ends(at time.Time) time.Time {
	d := w.Duration.Duration
	if opened := w.schedule.Next(at.Add(-d)); !opened.IsZero() && !opened.After(at) {
		return opened.Add(d)
	}
	return time.Time{}
}

// State reports whether a window that is complete is open at a time, and until when that is certain; zero: for ever.
func (w *Window) State(at time.Time) (open bool, until time.Time) {
	if ends := w.ends(at); !ends.IsZero() {
		return true, ends
	}
	return false, w.schedule.Next(at)
}

// steps limits how far ahead Opens looks: windows of the kind Deny may follow each other for ever.
const steps = 32

// Opens returns from when on restarts may begin: the time itself, if that is so then. False: not in the foreseeable future; then the time is when to look
// again.
func (s *Windows) Opens(at time.Time) (opens time.Time, foreseeable bool) {
	if s == nil {
		return at, true
	}
	if c := s.closed.Load(); c != nil && !at.Before(c.from) && at.Before(c.until) {
		return c.until, c.foreseeable
	}
	c := closed{from: at, until: at}
	for range steps {
		next, open := s.look(c.until)
		if c.foreseeable = open; open || next.IsZero() {
			break
		}
		c.until = next
	}
	if !c.foreseeable {
		c.until = at.Add(time.Hour)
	}
	if c.until.After(at) {
		s.closed.Store(&c)
	}
	return c.until, c.foreseeable
}

// look reports whether restarts may begin at a time, and otherwise when to look again; zero: never.
func (s *Windows) look(at time.Time) (again time.Time, open bool) {
	allowed, only := false, false
	var next time.Time // that one of the kind Allow opens
	for i := range s.list {
		w := &s.list[i]
		ends := w.ends(at)
		if w.Kind == Deny {
			if !ends.IsZero() {
				return ends, false
			}
			continue
		}
		only = true
		if allowed = allowed || !ends.IsZero(); allowed {
			continue
		}
		if opens := w.schedule.Next(at); next.IsZero() || !opens.IsZero() && opens.Before(next) {
			next = opens
		}
	}
	return next, allowed || !only
}
