// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package graph tests the page of "kubectl configdep graph -o html" in Chromium.
package graph

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/plugin"
)

// page returns the page of workloads in states that take turns. Each uses a few sources that those beside it use, too, and one that
// all use.
func page(t *testing.T, workloads int) []byte {
	t.Helper()
	states := []v1alpha1.State{v1alpha1.StateInSync, v1alpha1.StateInSync, v1alpha1.StateInSync, v1alpha1.StateInSync, v1alpha1.StateStale,
		v1alpha1.StateInSync, v1alpha1.StateRollingOut, v1alpha1.StateInSync, v1alpha1.StateUnknown, v1alpha1.StateFailed}
	teams := []string{"checkout", "catalogue", "billing", "search", "identity", "shipping", "reports"}
	roles := []string{"api", "worker", "web", "cron", "gateway"}
	list := v1alpha1.ConfigDependencyList{}
	list.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("ConfigDependencyList"))
	for i := range workloads {
		team := fmt.Sprintf("%s-%d", teams[i/4%len(teams)], i/28)
		o := v1alpha1.ConfigDependency{}
		o.Namespace, o.Name = "shop", fmt.Sprintf("deployment.%s-%s-%d", team, roles[i%len(roles)], i)
		o.Spec.WorkloadRef = v1alpha1.WorkloadReference{APIVersion: "apps/v1", Kind: "Deployment", Name: o.Name[len("deployment."):]}
		o.Status.State = states[i*7%len(states)]
		use := func(kind v1alpha1.SourceKind, name string, as v1alpha1.UsageType) {
			s := v1alpha1.SourceStatus{Kind: kind, Name: name}
			if o.Status.State == v1alpha1.StateStale && as == v1alpha1.UsageEnv {
				s.StalePods = 1
			}
			present := o.Status.State != v1alpha1.StateFailed || as != v1alpha1.UsageVolume
			s.Present = &present
			o.Spec.Sources = append(o.Spec.Sources, v1alpha1.Source{Kind: kind, Name: name, Usages: []v1alpha1.Usage{{Type: as}}})
			o.Status.Sources = append(o.Status.Sources, s)
		}
		use(v1alpha1.SourceConfigMap, "ca-bundle", v1alpha1.UsageProjected)
		use(v1alpha1.SourceSecret, team+"-db", v1alpha1.UsageEnv)
		if i%3 == 0 {
			use(v1alpha1.SourceConfigMap, team+"-settings", v1alpha1.UsageEnvFrom)
		}
		if i%10 == 7 {
			use(v1alpha1.SourceSecret, o.Spec.WorkloadRef.Name+"-tls", v1alpha1.UsageVolume)
		}
		if i%100 == 0 {
			use(v1alpha1.SourceConfigMap, "far-apart", v1alpha1.UsageEnvFrom)
		}
		if i == workloads-1 {
			use(v1alpha1.SourceSecret, hostileName, v1alpha1.UsageEnv)
		}
		list.Items = append(list.Items, o)
	}
	body, err := json.Marshal(&list)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	}))
	defer server.Close()
	var out bytes.Buffer
	c := plugin.New(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &out})
	c.SetArgs([]string{"graph", "-o", "html", "-n", "shop", "--server", server.URL})
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// served serves a page, and notes what else is asked for.
type served struct {
	url  string
	lock sync.Mutex
	all  []string
}

func serve(t *testing.T, page []byte) *served {
	t.Helper()
	s := &served{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.lock.Lock()
		defer s.lock.Unlock()
		s.all = append(s.all, r.URL.Path)
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write(page)
	}))
	t.Cleanup(server.Close)
	s.url = server.URL + "/page"
	return s
}

func (b *browser) open(url string) time.Duration {
	b.Helper()
	before := time.Now()
	b.call("Page.enable", nil, nil)
	b.call("Page.navigate", map[string]any{"url": url}, nil)
	eval[any](b, `new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', () => done()))`)
	eval[any](b, painted)
	return time.Since(before)
}

// Bounds are ten times what users are promised, for a machine that does other things meanwhile.
const (
	firstPicture = 30 * time.Second
	answer       = 2 * time.Second
)

// hostileName is the name of a source that one workload refers to.
const hostileName = "</title></svg><script>window.hostile = true</script><img src=/image onerror=hostile=true>\u202e"

func TestPage(t *testing.T) {
	const workloads = 2000
	s := serve(t, page(t, workloads))
	b := newBrowser(t)
	b.window(1280, 800)
	if took := b.open(s.url); took > firstPicture {
		t.Errorf("the first picture took %v", took)
	} else {
		t.Logf("the first picture of %d workloads took %v", workloads, took)
	}
	if got := b.shown(); got != "2000 workloads, 1203 sources" {
		t.Errorf("it shows %s", got)
	}
	b.screenshot("2000")

	t.Run("it draws as Go does", func(t *testing.T) {
		b := b.in(t)
		if wrong := eval[[]string](b, `edges.filter(e => path(e) !== e.home).map(e => e.home + ' is ' + path(e)).slice(0, 3)`); len(wrong) > 0 {
			t.Errorf("%q", wrong)
		}
	})

	t.Run("search", func(t *testing.T) {
		b := b.in(t)
		for query, want := range map[string]string{
			"a":                    "2000 of 2000 workloads, 1203 of 1203 sources",
			"stale":                "200 of 2000 workloads, 268 of 1203 sources",
			"state=stale":          "200 of 2000 workloads, 268 of 1203 sources",
			"STATE=Stale billing-": "28 of 2000 workloads, 37 of 1203 sources",
			"state=missing":        "200 of 2000 workloads, 200 of 1203 sources",
			"secret/billing-0-db":  "4 of 2000 workloads, 1 of 1203 sources",
			"deployment/shipping-": "284 of 2000 workloads, 172 of 1203 sources",
			"state=billing":        "0 of 2000 workloads, 0 of 1203 sources",
			"no such name":         "0 of 2000 workloads, 0 of 1203 sources",
			"hostile":              "1 of 2000 workloads, 1 of 1203 sources",
			"":                     "2000 workloads, 1203 sources",
		} {
			took := time.Duration(eval[float64](b, fmt.Sprintf(`(async () => {
				const begin = performance.now();
				scrollTo(0, 5000);
				search.value = %q;
				search.dispatchEvent(new Event('input'));
				await %s;
				return performance.now() - begin;
			})()`, query, painted)) * float64(time.Millisecond))
			if got := b.shown(); got != want {
				t.Errorf("%q shows %s, want %s", query, got, want)
			}
			if wrong := eval[string](b, misplaced); wrong != "" {
				t.Errorf("%q: %s", query, wrong)
			}
			if took > answer {
				t.Errorf("%q took %v", query, took)
			}
			t.Logf("%q took %v", query, took)
		}
	})

	t.Run("a state", func(t *testing.T) {
		b := b.in(t)
		for _, want := range []string{"200 of 2000 workloads", "2000 workloads"} {
			eval[any](b, `document.querySelector('[data-state=RollingOut]').click()`)
			if got, _, _ := strings.Cut(b.shown(), ","); got != want {
				t.Errorf("it shows %s, want %s", got, want)
			}
		}
	})

	t.Run("keyboard", func(t *testing.T) {
		b := b.in(t)
		for _, step := range []struct{ key, focus, shown string }{
			{"/", "search", "2000 workloads, 1203 sources"},
			{"billing-0-", "search", "4 of 2000 workloads, 3 of 1203 sources"},
			{"ArrowDown", "deployment/billing-0-gateway-9, InSync", "4 of 2000 workloads, 3 of 1203 sources"},
			{"j", "deployment/billing-0-api-10, InSync", "4 of 2000 workloads, 3 of 1203 sources"},
			{"ArrowDown", "deployment/billing-0-cron-8, RollingOut", "4 of 2000 workloads, 3 of 1203 sources"},
			{"k", "deployment/billing-0-api-10, InSync", "4 of 2000 workloads, 3 of 1203 sources"},
			{"Enter", "deployment/billing-0-api-10, InSync", "1 of 2000 workloads, 2 of 1203 sources"},
			{"l", "Secret/billing-0-db", "1 of 2000 workloads, 2 of 1203 sources"},
			{"ArrowDown", "ConfigMap/ca-bundle", "1 of 2000 workloads, 2 of 1203 sources"},
			{"Enter", "ConfigMap/ca-bundle", "2000 of 2000 workloads, 1 of 1203 sources"},
			{"Escape", "ConfigMap/ca-bundle", "2000 workloads, 1203 sources"},
			{"/", "search", "2000 workloads, 1203 sources"},
		} {
			if len(step.key) > 1 && strings.ToLower(step.key) == step.key {
				b.call("Input.insertText", map[string]any{"text": step.key}, nil)
			} else {
				b.press(step.key)
			}
			focus := eval[string](b, `document.activeElement.id || document.activeElement.querySelector('title').textContent`)
			if shown := b.shown(); focus != step.focus || shown != step.shown {
				t.Errorf("after %s, the focus is on %s, and it shows %s; want %s and %s", step.key, focus, shown, step.focus, step.shown)
			}
			if box := eval[[]float64](b, `(r => [r.top, r.bottom])(document.activeElement.getBoundingClientRect())`); box[0] < 0 || box[1] > 800 {
				t.Errorf("after %s, %s is not in sight: %v", step.key, focus, box)
			}
		}
	})

	t.Run("what is connected", func(t *testing.T) {
		b := b.in(t)
		eval[any](b, `isolate(nodes.find(n => n.name === 'ConfigMap/ca-bundle'))`)
		b.screenshot("isolated")
		eval[any](b, painted) // after it was scrolled to
		if drawn := eval[int](b, `at.edges.filter(e => e.el.isConnected).length`); drawn != workloads {
			t.Errorf("%d edges are drawn", drawn)
		}
		if got := eval[string](b, `about.innerText`); !strings.Contains(got, "Connected with 2000 workloads") || !strings.Contains(got, "and 1950 more") {
			t.Errorf("it says %s", got)
		}
		eval[any](b, `about.querySelector('button').click()`)
		if got := b.shown(); !strings.HasPrefix(got, "1 of 2000 workloads") {
			t.Errorf("it shows %s", got)
		}
		b.press("Escape")
		eval[any](b, `select(nodes.find(n => n.name === 'ConfigMap/ca-bundle'))`)
		b.press("h")
		if far := eval[float64](b, `Math.abs(at.y - nodes.find(n => n.name === 'ConfigMap/ca-bundle').y)`); far > 26 {
			t.Errorf("the workload is %v away", far)
		}
		// Sources are in another order than before.
		eval[any](b, `search.value = 'shipping-'; find(); select(nodes.filter(n => n.on && n.source).reduce((a, b) => a.y < b.y ? a : b))`)
		want := eval[[]string](b, `nodes.filter(n => n.on && n.source).sort((a, b) => a.y - b.y).map(n => n.name)`)
		var got []string
		for range want {
			got = append(got, eval[string](b, `at.name`))
			b.press("j")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("j leads from source to source (-want +got):\n%s", diff)
		}
		eval[any](b, `search.value = 'no such name'; find()`)
		if got := eval[string](b, `about.innerText + at`); got != "null" {
			t.Errorf("without a selection, it says %s", got)
		}
		b.press("Escape")
	})

	t.Run("wherever one looks", func(t *testing.T) {
		b := b.in(t)
		for _, part := range []string{"document.documentElement.scrollHeight / 3", "nodes.find(n => n.name === 'ConfigMap/far-apart').home", "1e9", "0"} {
			eval[any](b, `scrollTo(0, `+part+`)`)
			eval[any](b, painted)
			missing := eval[[]string](b, `nodes.filter(n => {
				const y = n.y + svg.getBoundingClientRect().top;
				return y > 0 && y < innerHeight && (!n.el.isConnected || !n.edges.some(e => e.el.isConnected));
			}).map(n => n.name)`)
			if count := eval[int](b, `svg.querySelectorAll('.node').length`); len(missing) > 0 || count > 500 {
				t.Errorf("at %s, %d nodes are in the document, and these are missing, or edges to them: %q", part, count, missing)
			}
		}
	})

	t.Run("dark and light", func(t *testing.T) {
		b := b.in(t)
		for mode, want := range map[string]string{"dark": "rgb(13, 17, 23) rgb(240, 246, 252)", "light": "rgb(255, 255, 255) rgb(31, 35, 40)"} {
			b.media("prefers-color-scheme", mode)
			if got := eval[string](b, `getComputedStyle(document.body).backgroundColor + ' ' + getComputedStyle(svg.querySelector('.node text')).fill`); got != want {
				t.Errorf("%s: %s, want %s", mode, got, want)
			}
			b.screenshot(mode)
		}
	})

	t.Run("a phone", func(t *testing.T) {
		b := b.in(t)
		b.window(390, 844)
		defer b.window(1280, 800)
		eval[any](b, `select(nodes[0])`)
		b.screenshot("phone")
		for _, id := range []string{"search", "about"} {
			box := eval[[]float64](b, `(r => [r.left, r.right, r.top, r.bottom])(document.getElementById('`+id+`').getBoundingClientRect())`)
			if box[0] < 0 || box[1] > 390 || box[2] < 0 || box[3] > 844 {
				t.Errorf("%s is not in sight: %v", id, box)
			}
		}
	})

	// The policy forbids what a mistake in the escaping would let a name do.
	t.Run("no request and no other script", func(t *testing.T) {
		b := b.in(t)
		if got := eval[string](b, `fetch('/fetched').then(() => 'fetched', () => 'refused')`); got != "refused" {
			t.Errorf("a request is %s", got)
		}
		eval[any](b, `(async () => {
			const script = document.createElement('script'), image = document.createElement('img');
			script.textContent = 'window.hostile = true';
			image.src = '/image';
			document.body.append(script, image);
			await `+painted+`;
		})()`)
		if eval[bool](b, `'hostile' in window`) {
			t.Error("another script runs")
		}
		if got := eval[int](b, `performance.getEntriesByType('resource').filter(e => e.responseStatus).length`); got > 0 {
			t.Errorf("%d resources were loaded", got)
		}
		s.lock.Lock()
		defer s.lock.Unlock()
		if len(s.all) != 1 {
			t.Errorf("it asked for %q", s.all)
		}
	})
}

// misplaced is an expression that says what is not in the picture, or overlaps something else.
const misplaced = `(() => {
	const { y, height } = svg.viewBox.baseVal, below = [0, 0];
	let last = 0;
	for (const n of nodes.filter(n => n.on).sort((a, b) => a.y - b.y)) {
		if (n.y < y || n.y + box > y + height || n.y < below[+n.source]) return n.name + ' is at ' + n.y + ' of ' + height;
		below[+n.source] = n.y + row;
		const users = n.edges.filter(e => e.from.on), middle = users.reduce((sum, e) => sum + e.from.y, 0) / users.length;
		if (n.source && middle < last - 1) return n.name + ' is below sources whose users are below its own';
		if (n.source) last = middle;
	}
	return scrollY ? 'it begins at ' + scrollY : '';
})()`

// shown returns what the page says about how much it shows.
func (b *browser) shown() string {
	b.Helper()
	return eval[string](b, `shown.textContent`)
}

// in returns the browser for a subtest.
func (b *browser) in(t *testing.T) *browser {
	t.Helper()
	b.T = t
	return b
}
