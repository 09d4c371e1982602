// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/test/seeds"
)

var update = flag.Bool("update", false, "write the golden files again")

// using returns the ConfigDependency of a Deployment that uses Secrets.
func using(namespace, name string, state v1alpha1.State, secrets ...string) *v1alpha1.ConfigDependency {
	o := &v1alpha1.ConfigDependency{}
	o.Namespace, o.Name = namespace, "deployment."+name
	o.Spec.WorkloadRef = v1alpha1.WorkloadReference{Kind: "Deployment", Name: name}
	o.Status.State = state
	for _, secret := range secrets {
		o.Spec.Sources = append(o.Spec.Sources, v1alpha1.Source{Kind: v1alpha1.SourceSecret, Name: secret, Usages: []v1alpha1.Usage{{Type: v1alpha1.UsageEnv}}})
		o.Status.Sources = append(o.Status.Sources, v1alpha1.SourceStatus{Kind: v1alpha1.SourceSecret, Name: secret})
	}
	return o
}

const hostile = "</title></text></script><script>alert(1)</script>&\"'\u202e\n\x00\xff]]>"

func TestGraph_Golden(t *testing.T) {
	web, tool := using("shop", "web", v1alpha1.StateStale, "db", "tls", "optional"), using("shop", "tool", v1alpha1.StateInSync)
	web.Status.Sources[0].StalePods = 1
	absent := false
	web.Status.Sources[1].Present, web.Status.Sources[2].Present = &absent, &absent
	web.Spec.Sources[2].Optional = true
	of := newPicture([]*v1alpha1.ConfigDependency{using("shop", "api", v1alpha1.StateInSync, "db"), tool, web})
	of.title = "Namespace shop"
	for format, draw := range graphs {
		if format == "html" {
			continue // the same SVG, in a page that others tests are about
		}
		t.Run(format, func(t *testing.T) {
			var got bytes.Buffer
			if err := draw(&got, of); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", "graph."+format)
			if *update {
				if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Names have their namespace if there are several, and only then.
func TestGraph_Namespaces(t *testing.T) {
	of := newPicture([]*v1alpha1.ConfigDependency{using("a", "web", v1alpha1.StateInSync, "db"), using("b", "web", v1alpha1.StateInSync, "db")})
	var got []string
	for _, n := range of.nodes {
		got = append(got, n.label)
	}
	if diff := cmp.Diff([]string{"a/deployment/web", "a/Secret/db", "b/deployment/web", "b/Secret/db"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Names are text: they add no element and no attribute, and no character that reorders what is beside it.
func TestGraph_HostileNames(t *testing.T) {
	of := newPicture([]*v1alpha1.ConfigDependency{using(hostile, hostile, v1alpha1.StateInSync, hostile), using("b", hostile, v1alpha1.StateInSync)})
	of.title = hostile
	plain := newPicture([]*v1alpha1.ConfigDependency{using("a", "a", v1alpha1.StateInSync, "a"), using("b", "b", v1alpha1.StateInSync)})

	if got, want := elements(t, drawn(t, svg, of)), elements(t, drawn(t, svg, plain)); !cmp.Equal(want, got) {
		t.Errorf("elements (-want +got):\n%s", cmp.Diff(want, got))
	}
	got, want := drawn(t, html, of), drawn(t, html, plain)
	for _, tag := range []string{"<", "<script", "</script", "<title", "</title", "'", `"`} {
		if got, want := strings.Count(got, tag), strings.Count(want, tag); got != want {
			t.Errorf("the page has %d %s, want %d", got, tag, want)
		}
	}
	if i := strings.IndexAny(got, "\u202e\x00"); i >= 0 {
		t.Errorf("the page has %q", got[max(0, i-20):i+3])
	}
	if want := `&lt;script&gt;alert(1)&lt;/script&gt;&amp;&#34;&#39;\u202e\u000a\u0000`; !strings.Contains(got, want) {
		t.Errorf("the page lacks %s", want)
	}
}

// The page may load nothing, and run only its own script.
func TestGraph_Page(t *testing.T) {
	of := newPicture([]*v1alpha1.ConfigDependency{using("shop", "web", v1alpha1.StateInSync, "db")})
	of.at = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	page := drawn(t, html, of)
	for tag, directive := range map[string]string{"style": "style-src", "script": "script-src"} {
		found := regexp.MustCompile(`(?s)<`+tag+`>(.*?)</`+tag+`>`).FindAllStringSubmatch(page, -1)
		if len(found) != 1 {
			t.Fatalf("%d elements %s", len(found), tag)
		}
		if want := directive + " " + hashed(found[0][1]); !strings.Contains(page, want) {
			t.Errorf("the policy lacks %s", want)
		}
	}
	for _, want := range []string{`content="default-src 'none'; `, "2026-01-02 03:04 UTC"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	// The SVG's head is cut off.
	d := draw(of)
	if want := fmt.Sprintf(`viewBox="0 %d %d %d"`, headHeight-margin, d.Width, d.Height-headHeight+margin); !strings.Contains(page, want) {
		t.Errorf("the page lacks %s", want)
	}
	if found := regexp.MustCompile(` (style|on\w+)=|https?:`).FindString(strings.ReplaceAll(page, `xmlns="http://www.w3.org/2000/svg"`, "")); found != "" {
		t.Errorf("the page has %s", found)
	}
}

// Every state has a color, in light and dark, and what the script knows of lengths is what Go does.
func TestGraph_Files(t *testing.T) {
	light, dark, _ := strings.Cut(graphFile("graph.css"), "@media")
	for _, state := range v1alpha1.States {
		class := strings.ToLower(string(state))
		if _, known := fills[class]; !known {
			t.Errorf("no fill for %s", state)
		}
		if state == v1alpha1.StateUnknown { // gray, as anything else
			continue
		}
		for _, css := range []string{light, dark} {
			for _, selector := range []string{"." + class + " .bar", "." + class + " .note"} {
				if !strings.Contains(css, selector) {
					t.Errorf("graph.css lacks %s", selector)
				}
			}
		}
	}
	if want := fmt.Sprintf("const row = %d, box = %d, first = %d;", rowHeight, boxHeight, margin); !strings.Contains(graphFile("page.js"), want) {
		t.Errorf("page.js lacks %s", want)
	}
}

func TestLayout(t *testing.T) {
	seeds.Each(t, 100, func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		var some []*v1alpha1.ConfigDependency
		for namespace := range 1 + r.IntN(3) {
			for i := range 1 + r.IntN(60) {
				secrets := []string{fmt.Sprint("few", r.IntN(40))}
				for s := range 30 {
					if r.IntN(1+s) == 0 {
						secrets = append(secrets, fmt.Sprint("many", s))
					}
				}
				some = append(some, using(fmt.Sprint(namespace), fmt.Sprint(i), v1alpha1.StateInSync, secrets[:r.IntN(len(secrets)+1)]...))
			}
		}
		of := newPicture(some)
		d := draw(of)
		if !cmp.Equal(draw(of), d, cmp.AllowUnexported(spot{})) {
			t.Error("it is drawn differently again")
		}
		if len(d.Nodes) != len(of.nodes) || len(d.Edges) != len(of.edges) {
			t.Fatalf("%d nodes and %d edges, want %d and %d", len(d.Nodes), len(d.Edges), len(of.nodes), len(of.edges))
		}
		apart(t, d)
		connected(t, d)
		lanesApart(t, d)
		// Namespaces share nothing, and remain in order.
		namespaces := map[int][]string{} // of each column
		for _, p := range d.Nodes {
			if strings.Count(p.Label, "/") == 2 {
				namespaces[p.X] = append(namespaces[p.X], p.Label[:1])
			}
		}
		for _, column := range namespaces {
			if !slices.IsSorted(column) {
				t.Errorf("namespaces are mixed: %v", column)
			}
		}
	})
}

// apart checks that nodes are within the picture and do not overlap.
func apart(t *testing.T, d *drawing) {
	t.Helper()
	bottom := map[int]int{} // of each column
	for i, p := range d.Nodes {
		if p.Y < headHeight || p.Y < bottom[p.X] || p.Y+boxHeight > d.Height || p.X+p.Width > d.Width {
			t.Errorf("node %d (%+v) overlaps another, or is outside of %dx%d", i, p, d.Width, d.Height)
		}
		bottom[p.X] = p.Y + rowHeight
		if text := 12 + charWidth*float64(cells(p.Kind+p.Name)+2+len(p.Note)); int(text) > p.Width {
			t.Errorf("node %d (%+v) is too narrow for its text", i, p)
		}
	}
}

// connected checks that edges begin and end at their nodes.
func connected(t *testing.T, d *drawing) {
	t.Helper()
	for _, e := range d.Edges {
		from, to := d.Nodes[e.From], d.Nodes[e.To]
		begin := fmt.Sprintf("M%d %d", from.X+from.Width, from.Y+boxHeight/2)
		end := fmt.Sprintf(" %dH%d", to.Y+boxHeight/2, to.X)
		if to.Lane == 0 {
			end = fmt.Sprintf(" %d %d", to.X, to.Y+boxHeight/2)
		}
		if !strings.HasPrefix(e.Path, begin) || !strings.HasSuffix(e.Path, end) || from.X >= to.X {
			t.Errorf("the path %s does not lead from %+v to %+v", e.Path, from, to)
		}
		if to.Lane != 0 && (to.Lane < from.X+from.Width+20 || to.Lane > to.X-20) {
			t.Errorf("the lane of %+v is not between the columns", to)
		}
	}
}

// lanesApart checks that no two sources have the same lane at the same height, unless there are too many.
func lanesApart(t *testing.T, d *drawing) {
	t.Helper()
	top, bottom, used := map[int]int{}, map[int]int{}, map[int]bool{}
	users := map[int]int{}
	for _, e := range d.Edges {
		y := d.Nodes[e.From].Y
		if users[e.To] == 0 {
			top[e.To], bottom[e.To] = d.Nodes[e.To].Y, d.Nodes[e.To].Y
		}
		users[e.To]++
		top[e.To], bottom[e.To] = min(top[e.To], y), max(bottom[e.To], y)
		used[d.Nodes[e.To].Lane] = true
	}
	for a := range users {
		if (users[a] > crowd) != (d.Nodes[a].Lane > 0) {
			t.Errorf("%+v has %d users", d.Nodes[a], users[a])
		}
		for b := range users {
			if a < b && d.Nodes[a].Lane > 0 && d.Nodes[a].Lane == d.Nodes[b].Lane && top[a] <= bottom[b] && top[b] <= bottom[a] && len(used) < maxLanes {
				t.Errorf("%+v and %+v have the same lane", d.Nodes[a], d.Nodes[b])
			}
		}
	}
}

// Workloads that share a source of few are together, although they share others with many.
func TestLayout_BringsTogether(t *testing.T) {
	var some []*v1alpha1.ConfigDependency
	for i := range 120 {
		some = append(some, using("shop", fmt.Sprintf("w%03d", i), v1alpha1.StateInSync, "ca", fmt.Sprint("many", i%4), fmt.Sprint("few", i*7%30)))
	}
	d := draw(newPicture(some))
	top, bottom := map[int]int{}, map[int]int{}
	for _, e := range d.Edges {
		y := d.Nodes[e.From].Y
		if top[e.To] == 0 {
			top[e.To] = y
		}
		top[e.To], bottom[e.To] = min(top[e.To], y), max(bottom[e.To], y)
	}
	for s := range top {
		if p := d.Nodes[s]; strings.HasPrefix(p.Name, "few") && (bottom[s]-top[s] > 4*rowHeight || p.Y < top[s] || p.Y > bottom[s]) {
			t.Errorf("%s at %d has its users from %d to %d", p.Label, p.Y, top[s], bottom[s])
		}
	}
}

// What is connected with several is beside the middle of them.
func TestLayout_Centers(t *testing.T) {
	for name, some := range map[string][]*v1alpha1.ConfigDependency{
		"sources":   {using("shop", "0", "", "a", "b", "c"), using("shop", "1", "", "a", "b", "c"), using("shop", "2", "", "a", "b", "c"), using("shop", "3", "", "a", "b", "c"), using("shop", "4", "", "a", "b", "c")},
		"workloads": {using("shop", "0", "", "a", "b", "c", "d", "e"), using("shop", "1", "", "a", "b", "c", "d", "e"), using("shop", "2", "", "a", "b", "c", "d", "e")},
	} {
		t.Run(name, func(t *testing.T) {
			ys := map[int][]int{} // of each column
			for _, p := range draw(newPicture(some)).Nodes {
				ys[p.X] = append(ys[p.X], p.Y)
			}
			for _, column := range ys {
				if middle := column[len(column)/2]; middle != headHeight+2*rowHeight {
					t.Errorf("a column is at %v", column)
				}
			}
		})
	}
}

func TestShorten(t *testing.T) {
	for label, want := range map[string]string{
		"deployment/web":               "deployment/web",
		strings.Repeat("a", longest):   strings.Repeat("a", longest),
		strings.Repeat("ab", longest):  strings.Repeat("ab", 10) + "…" + strings.Repeat("ab", 10),
		strings.Repeat("漢", longest/2): strings.Repeat("漢", longest/2),
		strings.Repeat("漢", longest):   strings.Repeat("漢", 10) + "…" + strings.Repeat("漢", 10),
	} {
		if got := shorten(label); got != want || cells(got) > longest {
			t.Errorf("shorten(%q) = %q, want %q", label, got, want)
		}
	}
}

func drawn(t *testing.T, draw func(io.Writer, *picture) error, of *picture) string {
	t.Helper()
	var b bytes.Buffer
	if err := draw(&b, of); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// elements returns the elements of an XML document, with the names of their attributes.
func elements(t *testing.T, document string) (out []string) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(document))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("%v in %s", err, document)
		}
		if start, ok := token.(xml.StartElement); ok {
			text := start.Name.Local
			for _, a := range start.Attr {
				text += " " + a.Name.Local
			}
			out = append(out, text)
		}
	}
}
