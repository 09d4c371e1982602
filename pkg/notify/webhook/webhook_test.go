// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/configdep/configdep/pkg/metrics"
	"github.com/configdep/configdep/pkg/notify"
)

func TestNew_ExplainsMistakesWithoutSecrets(t *testing.T) {
	const (
		urls   = "url: must be https://HOST/PATH or http://HOST/PATH, at most 4096 bytes, without spaces and line ends"
		names  = "name: must be a DNS label: at most 63 lower case letters, digits and hyphens"
		sample = `template: fails for a sample of the event Restarted: .Nope is no field: must be one of .Cluster, .What, .Kind, .Namespace, .Name, .UID, .Trigger, .SourceKind, .SourceName, .RequestedBy, .Message, .Time`
		whats  = "must be one of Restarted, ContentChanged, FieldsSet, WouldRestart, RestartFailed, RestartConflicted, RestartWaits, LookUpFailed, RecordFailed, Reverted, SwitchedOff, Approval, PodsFailing, PodRestarting, PodRestarted, " +
			"InvalidAnnotation, TooManyPatterns, StrategyNotAllowed, TooManySources, SourceMissing, FieldsNotAllowed, FieldConflict, FieldsRefused"
		keys    = "key: must have 1 to 4096 bytes; without a key, nothing is signed"
		proxies = "proxy: must be http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT, at most 4096 bytes, without spaces and line ends"
		sources = "source: must be a URI reference, such as /configdep, at most 1024 bytes"
	)
	for name, tt := range map[string]struct {
		change func(*Config)
		want   []string
	}{
		"no name":            {func(c *Config) { c.Name = "" }, []string{names}},
		"a URL as name":      {func(c *Config) { c.Name = c.URL }, []string{names}},
		"no URL":             {func(c *Config) { c.URL = "" }, []string{urls}},
		"another scheme":     {func(c *Config) { c.URL = "ftp://chat.example.com/s3cret" }, []string{urls}},
		"no host":            {func(c *Config) { c.URL = "https:///s3cret" }, []string{urls}},
		"an invalid escape":  {func(c *Config) { c.URL = "https://chat.example.com/s3cret%zz" }, []string{urls}},
		"a long URL":         {func(c *Config) { c.URL += strings.Repeat("x", maxURL) }, []string{urls}},
		"no format":          {func(c *Config) { c.Format = "" }, []string{"format: must be one of gchat, generic, slack, teams, text"}},
		"an empty key":       {func(c *Config) { c.Key = []byte{} }, []string{keys}},
		"a long key":         {func(c *Config) { c.Key = make([]byte, maxKey+1) }, []string{keys}},
		"a key for slack":    {func(c *Config) { c.Format = Slack }, []string{"key: requires the format generic: the format slack has no signature"}},
		"a source for slack": {func(c *Config) { c.Format, c.Key, c.Source = Slack, nil, "/x" }, []string{"source: requires the format generic: the format slack has no source"}},
		"an invalid source":  {func(c *Config) { c.Source = "https://s3cret%zz" }, []string{sources}},
		"a long source":      {func(c *Config) { c.Source = strings.Repeat("x", maxSource+1) }, []string{sources}},
		"a template":         {func(c *Config) { c.Template = "x" }, []string{"template: requires a format other than generic, which has no text"}},
		"an unknown event":   {func(c *Config) { c.Events = []notify.What{"Restarted", "s3cret"} }, []string{"events[1]: " + whats}},
		"a pattern":          {func(c *Config) { c.Namespaces = []string{"shop", "s3cret-*"} }, []string{"namespaces[1]: must be the name of a namespace; patterns are not supported"}},
		"a negative time":    {func(c *Config) { c.Timeout = -1 }, []string{"timeout: must be positive, or zero for the default, 10s"}},
		"a proxy for files":  {func(c *Config) { c.Proxy = "ftp://s3cret-user:s3cret-password@proxy.example.com" }, []string{proxies}},
		"an invalid proxy":   {func(c *Config) { c.Proxy = "http://s3cret-user:s3cret%zz@proxy.example.com" }, []string{proxies}},
		"a long proxy":       {func(c *Config) { c.Proxy = "http://proxy.example.com/" + strings.Repeat("x", maxURL) }, []string{proxies}},
		"a proxy for another transport": {func(c *Config) { c.Proxy, c.Transport = "http://proxy.example.com", statuses(200) },
			[]string{"proxy: requires the default transport"}},
		"several at once": {func(c *Config) { c.Name, c.URL, c.Format, c.Timeout = "", "", "x", -1 },
			[]string{names, urls, "format: must be one of gchat, generic, slack, teams, text", "timeout: must be positive, or zero for the default, 10s"}},
		"an invalid template": {func(c *Config) { c.Format, c.Key, c.Template = Teams, nil, "{{" },
			[]string{"template: must be a Go text/template with built-in functions only: template: message:1: unclosed action"}},
		"a template that ends": {func(c *Config) { c.Format, c.Key, c.Template = Teams, nil, "{{.Nope}}" }, []string{sample}},
	} {
		t.Run(name, func(t *testing.T) {
			c := Config{Name: "oncall", URL: secretURL, Format: Generic, Key: []byte(secretKey)}
			tt.change(&c)
			var got []string
			for _, err := range c.Validate() {
				got = append(got, err.Error())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			_, err := New(c)
			if err == nil {
				t.Fatal("New returned no error")
			}
			noSecrets(t, strings.NewReplacer("https://HOST/PATH", "", "https://HOST:PORT", "").Replace(err.Error()))
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error = %q, want %q in it", err, want)
				}
			}
		})
	}
}

// Each destination has a series for each result from the start, or the first loss would be no increase.
func TestNew_CountsFromZero(t *testing.T) {
	mustNew(t, Config{Name: "fresh"})
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if labels := m.GetLabel(); f.GetName() == "configdep_notifications_total" && labels[0].GetValue() == "fresh" {
				got[labels[1].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	want := map[string]float64{"delivered": 0, "queue_full": 0, "invalid": 0, "rejected": 0, "failed": 0, "shutdown": 0}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
}

func TestNotify_Filters(t *testing.T) {
	event := func(what notify.What, namespace string) notify.Event {
		e := restarted("web")
		e.What, e.Workload.Namespace = what, namespace
		return e
	}
	events := []notify.Event{
		event(notify.Restarted, "shop"), event(notify.RestartFailed, "shop"), event(notify.Restarted, "shop-2"), event(notify.SwitchedOff, "bank"),
	}
	for name, tt := range map[string]struct {
		whats      []notify.What
		namespaces []string
		want       []int
	}{
		"all":              {nil, nil, []int{0, 1, 2, 3}},
		"some events":      {[]notify.What{notify.Restarted, notify.SwitchedOff}, nil, []int{0, 2, 3}},
		"one namespace":    {nil, []string{"shop"}, []int{0, 1}},
		"some namespaces":  {nil, []string{"shop", "bank"}, []int{0, 1, 3}},
		"both":             {[]notify.What{notify.RestartFailed}, []string{"shop"}, []int{1}},
		"none that is met": {[]notify.What{notify.RestartFailed}, []string{"bank"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			counted := counting(t)
			s := mustNew(t, Config{Events: tt.whats, Namespaces: tt.namespaces})
			for _, e := range events {
				s.Notify(e)
			}
			var want []notify.Event
			for _, i := range tt.want {
				want = append(want, events[i])
			}
			if diff := cmp.Diff(want, s.queue.events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]int{}, counted()); diff != "" { // others are not lost
				t.Errorf("counted (-want +got):\n%s", diff)
			}
		})
	}
}

// Texts of annotations end up in messages; they must not fill the queue.
func TestNotify_ClipsLongTexts(t *testing.T) {
	s := mustNew(t, Config{})
	e := restarted("web")
	e.Message, e.Trigger, e.RequestedBy = strings.Repeat("é", 5000), strings.Repeat("t", 5000), strings.Repeat("u", 5000)
	s.Notify(e)
	got := s.queue.events[0]
	// An é has two bytes and the ellipsis three, so that one byte is left.
	if want := strings.Repeat("é", (maxMessage-3)/2) + "…"; got.Message != want {
		t.Errorf("message has %d bytes and ends with %q, want %d", len(got.Message), got.Message[len(got.Message)-5:], len(want))
	}
	if want := strings.Repeat("t", maxTrigger-3) + "…"; got.Trigger != want {
		t.Errorf("trigger has %d bytes, want %d", len(got.Trigger), len(want))
	}
	if want := strings.Repeat("u", maxUser-3) + "…"; got.RequestedBy != want {
		t.Errorf("the name of the user has %d bytes, want %d", len(got.RequestedBy), len(want))
	}
}

// A destination that does not answer must not delay restarts: the queue is bounded, and what does not fit is counted.
func TestNotify_NeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, log := logs(t)
		counted := counting(t)
		s := mustNew(t, Config{Transport: hanging()})
		begin := time.Now()
		running := start(ctx, t, s)
		s.Notify(restarted("first")) // the worker takes it
		synctest.Wait()
		for range maxQueued + 7 {
			s.Notify(restarted("web"))
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("Notify blocked for %v", took)
		}
		if diff := cmp.Diff(map[string]int{metrics.NotificationQueueFull: 7}, counted()); diff != "" {
			t.Errorf("counted (-want +got):\n%s", diff)
		}
		running.stop()
		if diff := cmp.Diff(map[string]int{metrics.NotificationQueueFull: 7, metrics.NotificationShutdown: maxQueued + 1}, counted()); diff != "" {
			t.Errorf("counted (-want +got):\n%s", diff)
		}
		if got := strings.Count(log(), "Lost events"); got == 0 {
			t.Errorf("the log does not report the lost events:\n%s", log())
		}
	})
}
