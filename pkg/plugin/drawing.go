// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// Lengths are in pixels. page.js has some of them, too.
const (
	rowHeight  = 26
	boxHeight  = 20
	laneWidth  = 8
	charWidth  = 7.3 // of a monospaced font of 12 pixels, at most
	margin     = 12
	headHeight = 40
)

// longest is how many characters of a label are shown.
const longest = 42

//go:embed graph
var graphFiles embed.FS

// drawings write SVG, and HTML with the same SVG. What comes from the cluster is escaped by html/template; the syntax of the
// SVG is valid in HTML and in XML.
var drawings = template.Must(template.ParseFS(graphFiles, "graph/*.tmpl"))

// drawing is a picture with places: workloads in the left column, sources in the right one.
type drawing struct {
	Title, At, Summary        string
	Width, Height, Top        int
	Nodes                     []spot // from top to bottom, workloads first
	Edges                     []curve
	Counts                    []count
	Workloads, Sources, Stale int
	CSS                       template.CSS
	PageCSS                   template.CSS
	JS                        template.JS
	CSP                       template.HTMLAttr
}

// spot is a node where it is drawn.
type spot struct {
	X, Y, Width, NoteX, Lane              int // Lane is 0 for a node without one
	Class, Label, Kind, Name, State, Note string
	node                                  int
}

// curve is an edge between spots.
type curve struct {
	From, To         int
	Path, Class, Use string
}

// count is how many workloads are in a state.
type count struct {
	State, Class string
	Count        int
}

func svg(w io.Writer, of *picture) error {
	d := draw(of)
	for _, c := range d.Counts {
		d.Summary += fmt.Sprintf("%d %s, ", c.Count, c.State)
	}
	d.Summary += counted(d.Sources, "source")
	if d.Stale > 0 {
		d.Summary += "; a dashed line: pods have old content"
	}
	d.Width = max(d.Width, 2*margin+int(charWidth*float64(max(len(d.Summary), cells(d.Title)*7/6)))) // the title is larger
	return drawings.ExecuteTemplate(w, "svg.tmpl", d)
}

func html(w io.Writer, of *picture) error {
	d := draw(of)
	d.PageCSS, d.JS = d.CSS+template.CSS(graphFile("page.css")), template.JS(graphFile("page.js"))
	d.CSS, d.At = "", of.at.UTC().Format("2006-01-02 15:04 MST")
	d.Top, d.Height = headHeight-margin, d.Height-headHeight+margin // the page has a head of its own
	d.CSP = template.HTMLAttr(fmt.Sprintf(`content="default-src 'none'; base-uri 'none'; form-action 'none'; style-src %s; script-src %s"`,
		hashed(string(d.PageCSS)), hashed(string(d.JS))))
	return drawings.ExecuteTemplate(w, "page.tmpl", d)
}

func graphFile(name string) string {
	text, _ := graphFiles.ReadFile("graph/" + name) // it is embedded
	return string(text)
}

// hashed returns a text of the page as its Content-Security-Policy names it.
func hashed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// draw places the nodes and edges of a picture.
func draw(of *picture) *drawing {
	d := &drawing{Title: safe(of.title), CSS: template.CSS(graphFile("graph.css"))}
	users := make([]int, len(of.nodes))
	for _, e := range of.edges {
		users[e.to]++
		if e.stale {
			d.Stale++
		}
	}
	counts := map[string]*count{}
	for _, n := range of.nodes {
		if n.source {
			d.Sources++
			continue
		}
		d.Workloads++
		if counts[n.state] == nil {
			counts[n.state] = &count{State: n.state, Class: n.class}
		}
		counts[n.state].Count++
	}
	for _, state := range slices.Sorted(maps.Keys(counts)) {
		d.Counts = append(d.Counts, *counts[state])
	}

	order, ys, height := layOut(of)
	at := make([]int, len(of.nodes)) // the spot of each node
	width := [2]int{150, 150}        // of the columns
	for i, n := range order {
		at[n] = i
		p := newSpot(&of.nodes[n], users[n])
		p.Y, p.node = headHeight+ys[n], n
		d.Nodes = append(d.Nodes, p)
		c := column(&of.nodes[n])
		width[c] = max(width[c], p.Width)
	}
	used := d.lanes(of, at, users)
	left, right := margin+width[0], margin+width[0]+90+used*laneWidth
	for i := range d.Nodes {
		p := &d.Nodes[i]
		p.X, p.Width = margin, width[column(&of.nodes[p.node])]
		p.NoteX = p.Width - 8
		if of.nodes[p.node].source {
			p.X = right
		}
		if p.Lane > 0 {
			p.Lane = right - 45 - (p.Lane-1)*laneWidth
		}
	}
	for _, e := range of.edges {
		c := curve{From: at[e.from], To: at[e.to], Use: e.label, Class: "edge"}
		if e.stale {
			c.Class += " stale"
		}
		from, to := &d.Nodes[c.From], &d.Nodes[c.To]
		c.Path = path(left, from.Y+boxHeight/2, right, to.Y+boxHeight/2, to.Lane)
		d.Edges = append(d.Edges, c)
	}
	d.Width, d.Height = right+width[1]+margin, headHeight+height+margin
	return d
}

func column(n *node) int {
	if n.source {
		return 1
	}
	return 0
}

func newSpot(n *node, users int) spot {
	p := spot{Class: n.class, Label: n.label, State: n.state, Note: n.state}
	if n.source && n.class != "source" {
		p.Class = "source " + n.class
	}
	if n.source && p.Note == "" {
		p.Note = counted(users, "workload")
	}
	label := shorten(n.label)
	slash := strings.LastIndex(label, "/") + 1
	p.Kind, p.Name = label[:slash], label[slash:]
	p.Width = 30 + int(charWidth*float64(cells(label)+len(p.Note)))
	return p
}

// path returns how an edge is drawn: a curve, or by way of a lane.
func path(x1, y1, x2, y2, lane int) string {
	if lane == 0 {
		middle := (x1 + x2) / 2
		return fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x1, y1, middle, y1, middle, y2, x2, y2)
	}
	r := max(-6, min(6, (y2-y1)/2)) // of the corners; up or down
	side := max(r, -r)
	return fmt.Sprintf("M%d %dH%dQ%d %d %d %dV%dQ%d %d %d %dH%d", x1, y1, lane-side, lane, y1, lane, y1+r, y2-r, lane, y2, lane+side, y2, x2)
}

// cells returns how wide a text is, in characters of a monospaced font.
func cells(text string) (n int) {
	for _, r := range text {
		n++
		if r > unicode.MaxLatin1 { // perhaps wide
			n++
		}
	}
	return n
}

// shorten takes characters from the middle of a label that is too long.
func shorten(label string) string {
	runes := []rune(label)
	for cut := 0; cells(label) > longest && cut < len(runes); cut++ {
		half := (len(runes) - cut) / 2
		label = string(runes[:half]) + "…" + string(runes[len(runes)-half:])
	}
	return label
}
