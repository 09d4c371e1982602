// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/dependency/dependencytest"
	"github.com/configdep/configdep/pkg/judge"
)

// at returns the time of a second of an example, which begins with second 1; 0: the zero time.
func at(second float64) time.Time {
	if second == 0 {
		return time.Time{}
	}
	return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(second * float64(time.Second)))
}

const namespace = "default"

var digester = dependency.NewDigester(make([]byte, dependency.KeySize))

// period returns a period with content, of which each letter is the value of a key: a, b and so on; a blank: without the key.
func period(content string, written, after, before float64) dependency.Period {
	data := map[string]string{}
	for i, value := range content {
		if value != ' ' {
			data[string(rune('a'+i))] = string(value)
		}
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "s"}, Data: data}
	return dependency.Period{
		Source: dependencytest.Source(digester, object, dependency.SourceMarks{}), Written: at(written), After: at(after), Before: at(before),
	}
}

func absent(after, before float64) dependency.Period {
	return dependency.Period{After: at(after), Before: at(before)}
}

func unseen(after, before float64) dependency.Period {
	return dependency.Period{Unknown: true, After: at(after), Before: at(before)}
}

// seen returns a period whose beginning came by an event.
func seen(content string, written float64) dependency.Period {
	return period(content, written, written+0.5, written+0.5)
}

func TestJudge_Container(t *testing.T) {
	env := dependency.Use{Type: dependency.Env, Container: "app", Keys: []string{"a"}}
	files := dependency.Use{Type: dependency.Volume, Container: "app"}
	other := dependency.Use{Type: dependency.Env, Container: "other", Keys: []string{"b"}}
	first := period("1", 10, 0, 0)
	made := period("1", 100, 0, 0)
	made.Created = metav1.NewTime(at(100))
	started := func(second float64) dependency.PodContainer {
		return dependency.PodContainer{Name: "app", Started: at(second)}
	}
	restarted := func(second float64) dependency.PodContainer {
		return dependency.PodContainer{Name: "app", Started: at(second), Restarts: 1}
	}
	for name, tt := range map[string]struct {
		uses      []dependency.Use // an environment by default
		required  []string
		periods   []dependency.Period
		created   float64
		hash      string // that of the current content is h
		told      string // the hash for which it was told to restart in place, when no container had restarted; +: another restart was unfinished
		container dependency.PodContainer
		beside    dependency.PodContainer
		recorded  *judge.Recorded
		template  float64
		revision  string // that of the current template is r
		want      string
	}{
		"started long after the last write":  {periods: []dependency.Period{first}, created: 50, container: started(51), want: "Current StartedAfter"},
		"started long before a change":       {periods: []dependency.Period{first, seen("2", 100)}, created: 50, container: started(51), want: "Stale StartedBefore"},
		"waiting":                            {periods: []dependency.Period{first}, created: 50, container: dependency.PodContainer{Name: "app", Waiting: "CrashLoopBackOff"}, want: "NotStarted CrashLoopBackOff"},
		"there and back":                     {periods: []dependency.Period{first, seen("2", 100), seen("1", 200)}, created: 50, container: started(51), want: "Current SameContent"},
		"started between there and back":     {periods: []dependency.Period{first, seen("2", 100), seen("1", 200)}, created: 150, container: started(151), want: "Stale StartedBefore"},
		"a change of a key that is not read": {periods: []dependency.Period{period("11", 10, 0, 0), seen("12", 100)}, created: 50, container: started(51), want: "Current SameContent"},

		"started after the second in which all was created": {periods: []dependency.Period{made}, created: 100, container: started(101), want: "Current StartedAfter"},
		"started in it, and it may have been written twice": {periods: []dependency.Period{made}, created: 100, container: started(100), want: "Unknown WrittenSinceStart"},

		// The margins, to the second.
		"restarted 5 s after the second of a change":             {periods: []dependency.Period{first, seen("2", 100)}, created: 50, container: restarted(106), want: "Current StartedAfter"},
		"restarted less after a change":                          {periods: []dependency.Period{first, seen("2", 100)}, created: 50, container: restarted(105), want: "Unknown ClockMargin, doubt"},
		"restarted 6 s before a change":                          {periods: []dependency.Period{first, seen("2", 100)}, created: 50, container: restarted(94), want: "Unknown ClockMargin, doubt"},
		"restarted more before a change":                         {periods: []dependency.Period{first, seen("2", 100)}, created: 50, container: restarted(93), want: "Stale StartedBefore"},
		"files, restarted 2 min after the second of a change":    {uses: []dependency.Use{files}, periods: []dependency.Period{first, seen("2", 100)}, created: 50, container: restarted(221), want: "Current StartedAfter"},
		"files, restarted less after a change":                   {uses: []dependency.Use{files}, periods: []dependency.Period{first, seen("2", 100)}, created: 50, container: restarted(220), want: "Unknown ClockMargin, doubt"},
		"files of a pod that is younger than the change":         {uses: []dependency.Use{files}, periods: []dependency.Period{first, seen("2", 100)}, created: 101, container: started(102), want: "Current StartedAfter"},
		"restarted soon after a removal":                         {periods: []dependency.Period{period("11", 10, 0, 0), period("2", 0, 100, 100)}, created: 50, container: restarted(105), want: "Unknown ClockMargin, doubt"},
		"restarted long after a removal":                         {periods: []dependency.Period{period("11", 10, 0, 0), period("2", 0, 100, 100)}, created: 50, container: restarted(106), want: "Current StartedAfter"},
		"created soon after a removal":                           {periods: []dependency.Period{period("11", 10, 0, 0), period("2", 0, 100, 100)}, created: 105, container: started(108), want: "Unknown ClockMargin, doubt"},
		"created long after a removal":                           {periods: []dependency.Period{period("11", 10, 0, 0), period("2", 0, 100, 100)}, created: 106, container: started(109), want: "Current StartedAfter"},
		"restarted soon before a removal":                        {periods: []dependency.Period{period("11", 10, 0, 0), period("2", 0, 100, 100)}, created: 50, container: restarted(89), want: "Unknown ClockMargin, doubt"},
		"restarted long before a removal":                        {periods: []dependency.Period{period("11", 10, 0, 0), period("2", 0, 100, 100)}, created: 50, container: restarted(88), want: "Stale StartedBefore"},
		"the node's clock is 5 s behind":                         {periods: []dependency.Period{first, seen("2", 100)}, created: 50, container: started(45), want: "Stale StartedBefore"},
		"the node's clock is further behind":                     {periods: []dependency.Period{first, seen("2", 100)}, created: 50, container: started(44), want: "Unknown NodeClock"},
		"the node's clock is ahead":                              {periods: []dependency.Period{first, seen("2", 100)}, created: 50, container: started(1006), want: "Unknown NodeClock"},
		"the node's clock is wrong, after the last change":       {periods: []dependency.Period{first, seen("2", 100)}, created: 150, container: started(44), want: "Current StartedAfter"},
		"a container whose last start its kubelet has forgotten": {periods: []dependency.Period{first, seen("2", 100)}, created: 50, container: restarted(0), want: "Unknown NodeClock"},

		// Content and template in one second.
		"a release":                                  {periods: []dependency.Period{first, seen("2", 100)}, template: 100, created: 100, container: started(101), want: "Current StartedAfter"},
		"a release, started in the same second":      {periods: []dependency.Period{first, seen("2", 100)}, template: 100, created: 100, container: started(100), want: "Unknown ClockMargin, doubt"},
		"a release, with a template of before":       {periods: []dependency.Period{first, seen("2", 100)}, template: 90, created: 100, container: started(101), want: "Unknown ClockMargin, doubt"},
		"a release, with a restart":                  {periods: []dependency.Period{first, seen("2", 100)}, template: 100, created: 100, container: restarted(101), want: "Unknown ClockMargin, doubt"},
		"a release, and a pod of an older template":  {periods: []dependency.Period{first, seen("2", 100)}, template: 100, created: 100, revision: "q", container: started(101), want: "Unknown ClockMargin, doubt"},
		"a release in the second before a change":    {periods: []dependency.Period{first, seen("2", 101)}, template: 100, created: 100, container: started(101), want: "Unknown ClockMargin, doubt"},
		"created for the content in the same second": {periods: []dependency.Period{first, seen("2", 100)}, template: 99, created: 100, hash: "h", container: started(101), want: "Current CreatedFor"},

		// Pods that were created for the current content.
		"written since, before configdep read it": {periods: []dependency.Period{period("1", 100, 0, 0)}, created: 50, container: started(51), want: "Unknown WrittenSinceStart"},
		"created for it, and written since":       {periods: []dependency.Period{period("1", 100, 0, 0)}, created: 50, hash: "h", container: started(51), want: "Current CreatedFor"},
		"created when there was other content, for what is there again": {
			periods: []dependency.Period{period("2", 10, 0, 0), seen("1", 100)}, created: 50, hash: "h", container: started(51), want: "Stale StartedBefore",
		},
		"created for the absence of what it has read meanwhile": {
			periods: []dependency.Period{first, seen("2", 60), absent(100, 100)}, created: 50, hash: "h", container: started(51), want: "Stale StartedBefore",
		},
		"created for the absence of what it has read just before": {
			required: []string{"a"}, periods: []dependency.Period{first, seen("2", 100), absent(200, 200)}, created: 100, hash: "h", container: started(101),
			want: "Unknown ClockMargin, doubt",
		},
		"created for it, and restarted while there was other content": {
			periods: []dependency.Period{first, seen("2", 100), seen("1", 200)}, created: 50, hash: "h", container: restarted(150), want: "Stale StartedBefore",
		},
		"restarted in place for it":                         {uses: []dependency.Use{files}, periods: []dependency.Period{first, seen("2", 100)}, created: 50, told: "h", container: restarted(103), want: "Current CreatedFor"},
		"told during another restart, and started after it": {periods: []dependency.Period{first, seen("2", 100)}, created: 50, told: "h+", container: restarted(103), want: "Current CreatedFor"},
		"told during another restart, which it reports":     {periods: []dependency.Period{first, seen("2", 100)}, created: 50, told: "h+", container: restarted(101), want: "Unknown ClockMargin, doubt"},
		"told of other content":                             {uses: []dependency.Use{files}, periods: []dependency.Period{first, seen("2", 100)}, created: 50, told: "g", container: restarted(103), want: "Unknown ClockMargin, doubt"},
		"told, and not restarted yet":                       {periods: []dependency.Period{first, seen("2", 100)}, created: 50, told: "h", container: started(51), want: "Stale StartedBefore"},
		"restarted in place for it, and again":              {periods: []dependency.Period{first, seen("2", 100)}, created: 50, told: "h", container: dependency.PodContainer{Name: "app", Started: at(103), Restarts: 2}, want: "Current CreatedFor"},
		"restarted in place for it, and while it differed":  {periods: []dependency.Period{first, seen("2", 100), seen("3", 105), seen("2", 110)}, created: 50, told: "h", container: dependency.PodContainer{Name: "app", Started: at(107), Restarts: 2}, want: "Unknown ClockMargin, doubt"},
		"restarted in place when there was the same before": {periods: []dependency.Period{period("2", 10, 0, 0), seen("1", 80), seen("2", 100)}, created: 50, told: "h", container: restarted(90), want: "Stale StartedBefore"},
		"created for recorded content that is current": {
			periods: []dependency.Period{period("1", 100, 0, 0)}, created: 50, hash: "g", container: started(51), recorded: &judge.Recorded{Same: true, For: "g", At: at(40)}, want: "Current CreatedFor",
		},

		// Records.
		"recorded after it started":                         {periods: []dependency.Period{period("1", 100, 0, 0)}, created: 50, container: started(51), recorded: &judge.Recorded{Same: true, Proven: true, At: at(80)}, want: "Current Recorded"},
		"recorded before it started":                        {periods: []dependency.Period{period("1", 100, 0, 0)}, created: 50, container: started(51), recorded: &judge.Recorded{Same: true, At: at(44)}, want: "Current Recorded"},
		"adopted soon before it started":                    {periods: []dependency.Period{period("1", 100, 0, 0)}, created: 50, container: started(51), recorded: &judge.Recorded{Same: true, At: at(45)}, want: "Unknown WrittenSinceStart"},
		"adopted after it started":                          {periods: []dependency.Period{period("1", 100, 0, 0)}, created: 50, container: started(51), recorded: &judge.Recorded{Same: true, At: at(80)}, want: "Unknown WrittenSinceStart"},
		"recorded for other pods":                           {periods: []dependency.Period{period("1", 100, 0, 0)}, created: 50, hash: "f", container: started(51), recorded: &judge.Recorded{Same: true, Proven: true, At: at(80), For: "g"}, want: "Unknown WrittenSinceStart, doubt"},
		"it differs from what was recorded":                 {periods: []dependency.Period{period("1", 100, 0, 0)}, created: 50, container: started(51), recorded: &judge.Recorded{Proven: true, At: at(58)}, want: "Stale RecordDiffers"},
		"it differs from what was recorded when it started": {periods: []dependency.Period{period("1", 100, 0, 0)}, created: 50, container: started(51), recorded: &judge.Recorded{Proven: true, At: at(57)}, want: "Unknown WrittenSinceStart, doubt"},
		"it differs from what was adopted":                  {periods: []dependency.Period{period("1", 100, 0, 0)}, created: 50, container: started(51), recorded: &judge.Recorded{At: at(80)}, want: "Unknown WrittenSinceStart, doubt"},
		"it differs from what was recorded for other pods":  {periods: []dependency.Period{period("1", 100, 0, 0)}, created: 50, hash: "f", container: started(51), recorded: &judge.Recorded{Proven: true, At: at(80), For: "g"}, want: "Unknown WrittenSinceStart, doubt"},
		"a recorded key differs that another container reads": {
			uses: []dependency.Use{env, other}, periods: []dependency.Period{period("12", 100, 0, 0)}, created: 50, container: started(51),
			recorded: &judge.Recorded{Proven: true, At: at(80)}, want: "Unknown WrittenSinceStart, doubt",
		},
		"recorded, but there was other content when configdep started": {
			periods: []dependency.Period{period("2", 100, 0, 0), seen("1", 200)}, created: 50, container: started(51), recorded: &judge.Recorded{Same: true, Proven: true, At: at(40)},
			want: "Unknown WrittenSinceStart, doubt",
		},
		"recorded before a gap in which it started": {
			periods: []dependency.Period{first, unseen(50, 200), period("1", 150, 50, 200)}, created: 100, container: started(101), recorded: &judge.Recorded{Same: true, Proven: true, At: at(40)},
			want: "Unknown WrittenSinceStart",
		},
		"recorded after a gap in which it started": {
			periods: []dependency.Period{first, unseen(50, 200), period("1", 150, 50, 200)}, created: 100, container: started(101), recorded: &judge.Recorded{Same: true, Proven: true, At: at(300)},
			want: "Current Recorded",
		},
		"recorded before what has been forgotten": {
			periods: []dependency.Period{seen("1", 200), seen("2", 300), seen("1", 400)}, created: 100, container: started(101), recorded: &judge.Recorded{Same: true, Proven: true, At: at(40)},
			want: "Unknown WrittenSinceStart",
		},

		// What a container requires, and others do not.
		"a key is missing that another container requires": {
			uses: []dependency.Use{{Type: dependency.EnvFrom, Container: "app"}, other}, required: []string{"b"}, periods: []dependency.Period{period("11", 10, 0, 0), period("1", 0, 100, 100)},
			created: 50, container: started(51), want: "Stale StartedBefore",
		},
		"a required key is missing": {
			uses: []dependency.Use{env}, required: []string{"a"}, periods: []dependency.Period{first, period(" 1", 0, 100, 100)}, created: 50, container: started(51), want: "Current StartedAfter",
		},
		"it has always been missing": {periods: []dependency.Period{absent(0, 0)}, created: 50, container: started(51), want: "Unknown SourceMissing"},
		"its absence is content": {
			uses:    []dependency.Use{{Type: dependency.Env, Container: "app", Keys: []string{"a"}, Optional: true}},
			periods: []dependency.Period{absent(0, 0), seen("1", 100)}, created: 50, container: started(51), want: "Stale StartedBefore",
		},
		"volumes keep files while a required key is missing": {
			uses:     []dependency.Use{{Type: dependency.Volume, Container: "app", Keys: []string{"a"}}},
			required: []string{"a"}, periods: []dependency.Period{first, period(" 1", 0, 100, 100), seen("2", 600)}, created: 50, container: restarted(400), want: "Stale StartedBefore",
		},
		"a source was missing when configdep started, which it must have read": {
			periods: []dependency.Period{absent(0, 0), seen("1", 100)}, created: 50, container: started(51), want: "Unknown WrittenSinceStart",
		},
		"a source was deleted unseen, and perhaps changed before": {
			periods: []dependency.Period{first, unseen(50, 200), absent(50, 200)}, created: 60, container: started(61), want: "Unknown SourceMissing",
		},

		// An init container whose start its kubelet has forgotten.
		"a change before the others started": {
			periods: []dependency.Period{first, seen("2", 100)}, created: 50, container: dependency.PodContainer{Name: "app", Role: dependency.InitContainer},
			beside: dependency.PodContainer{Name: "beside", Started: at(200)}, want: "Unknown ClockMargin, doubt",
		},
		"a change after the others started": {
			periods: []dependency.Period{first, seen("2", 100)}, created: 50, container: dependency.PodContainer{Name: "app", Role: dependency.InitContainer},
			beside: dependency.PodContainer{Name: "beside", Started: at(60)}, want: "Stale StartedBefore",
		},
	} {
		t.Run(name, func(t *testing.T) {
			uses := tt.uses
			if uses == nil {
				uses = []dependency.Use{env}
			}
			j := judge.New(judge.Facts{
				Now: at(1000), Complete: at(900), Hash: "h", Revision: "r", Released: at(tt.template), Sources: []judge.Source{{
					Reference: dependency.Reference{Kind: dependency.ConfigMap, Name: "s", Uses: uses, RequiredKeys: tt.required}, Periods: tt.periods, Recorded: tt.recorded,
				}},
			})
			p := &dependency.Pod{Created: at(tt.created), Hash: tt.hash, Revision: tt.revision, Containers: []dependency.PodContainer{tt.container}}
			if tt.told != "" {
				p.InPlace = &dependency.PodInPlace{For: strings.TrimSuffix(tt.told, "+"), Unfinished: strings.HasSuffix(tt.told, "+"), At: at(101), Restarts: map[string]int32{"app": 0}}
			}
			if tt.beside.Name != "" {
				p.Containers = append(p.Containers, tt.beside)
			}
			v := j.Pod(p, nil)
			got := fmt.Sprint(v.State, " ", v.Reason)
			if v.Doubt {
				got += ", doubt"
			}
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// What a container has not read changed when its content was last the same, and not at an earlier change there and back.
// A pod template may have many containers that all read all of a large source.
func TestJudge_ManyContainersOfALargeSource(t *testing.T) {
	large := func(value string, from float64) dependency.Period {
		data := map[string]string{"a": value}
		for i := range 4000 {
			data[fmt.Sprint("key-", i)] = ""
		}
		p := period("", from, 0, 0)
		p.Source = dependencytest.Source(dependency.NewDigester(make([]byte, 32)), &corev1.ConfigMap{Data: data}, dependency.SourceMarks{})
		return p
	}
	f := judge.Facts{Now: at(1000), Sources: []judge.Source{{Periods: []dependency.Period{large("1", 10), large("2", 100)}}}}
	for i := range 500 {
		f.Sources[0].Uses = append(f.Sources[0].Uses, dependency.Use{Type: dependency.EnvFrom, Container: fmt.Sprint("app-", i)})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	judge.New(f)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 10<<20 { // what one of them reads takes 0.2 MB
		t.Errorf("judging takes %d MB", n>>20)
	}
}

func TestJudge_SinceTheLastChange(t *testing.T) {
	reference := dependency.Reference{Kind: dependency.ConfigMap, Name: "s", Uses: []dependency.Use{{Type: dependency.Env, Container: "app", Keys: []string{"a"}}}}
	j := judge.New(judge.Facts{Now: at(1000), Complete: at(5), Sources: []judge.Source{{
		Reference: reference, Periods: []dependency.Period{period("1", 10, 0, 0), seen("2", 100), seen("1", 200), seen("3", 500), seen("4", 600)},
	}}})
	v := j.Pod(&dependency.Pod{Created: at(50), Containers: []dependency.PodContainer{{Name: "app", Started: at(51)}}}, nil)
	if v.State != judge.Stale || !v.Since.Equal(at(500)) {
		t.Errorf("got %s since %v, want Stale since %v", v.State, v.Since, at(500))
	}
}
