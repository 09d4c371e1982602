// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/configdep/configdep/pkg/dependency"
)

// Record is what a workload remembers of the content of its sources. It is evidence about containers that are older than what the servers have seen,
// and it marks what was adopted when the workload opted in.
type Record struct {
	// Hash is the hash of all of the content; empty: there is no record.
	Hash string
	// At is when it was made, by the clock of a server.
	At time.Time
	// For is the hash on the pods that it is about: those of the template that was written with it; empty: it is about all pods.
	For string
	// Scope identifies the declarations that say which sources count.
	Scope string
	// Sources has an entry for each source, by its ID. Nil: another client has removed them, or has written something else.
	Sources map[string]Entry
}

// Entry is what is recorded of one source.
type Entry struct {
	// Content is SCOPE.DIGEST: which keys count and how containers see them, and a digest of their content.
	Content string
	// Adopted is when the content was adopted, without knowing that the pods run with it; zero: the pods that the record is about do.
	Adopted time.Time
}

// record is the JSON of a Record, but for its hash. An entry is CONTENT, or CONTENT@SECONDS if it was adopted.
type record struct {
	At      time.Time         `json:"at,omitzero"`
	For     string            `json:"for,omitempty"`
	Scope   string            `json:"scope,omitempty"`
	Sources map[string]string `json:"sources"`
}

// Of returns the record of a workload.
func Of(w *dependency.Workload) Record {
	return recordFrom(w.Marks.Hash, w.Marks.Sources)
}

const (
	// MaxHash is longer than any hash that is recorded. Other clients can write longer ones, and hashes are shown.
	MaxHash = 128
	// invalidHash takes the place of a longer hash. As one of another key, it can be compared with none.
	invalidHash = "invalid"
)

func recordFrom(hash, sources string) Record {
	r := Record{Hash: hash}
	if len(hash) > MaxHash {
		r.Hash = invalidHash
	}
	var read record
	if json.Unmarshal([]byte(sources), &read) != nil || read.Sources == nil || len(read.For) > MaxHash || len(read.Scope) > MaxHash {
		return r
	}
	if read.At = read.At.UTC(); read.At.Year() < 0 || read.At.Year() > 9999 { // it could not be written
		return r
	}
	r.At, r.For, r.Scope, r.Sources = read.At, read.For, read.Scope, make(map[string]Entry, len(read.Sources))
	for id, text := range read.Sources {
		content, adopted, is := strings.Cut(text, "@")
		e := Entry{Content: content}
		if seconds, err := strconv.ParseInt(adopted, 10, 64); is && err == nil {
			e.Adopted = time.Unix(seconds, 0)
		}
		r.Sources[id] = e
	}
	return r
}

// Text returns the value of AppliedSourcesAnnotation.
func (r *Record) Text() string {
	out := record{r.At.UTC(), r.For, r.Scope, make(map[string]string, len(r.Sources))}
	for id, e := range r.Sources {
		text := e.Content
		if !e.Adopted.IsZero() {
			text += "@" + strconv.FormatInt(e.Adopted.Unix(), 10)
		}
		out.Sources[id] = text
	}
	return mustJSON(out)
}

// AdoptedBy returns an upper bound of when an entry was adopted, which is recorded in seconds.
func (r *Record) AdoptedBy(e *Entry) time.Time {
	if r.At.Truncate(time.Second).Equal(e.Adopted) {
		return r.At
	}
	return e.Adopted.Add(time.Second)
}

// AsAdopted returns the record with each entry adopted at a time: it is not known which pods run with the content.
func (r Record) AsAdopted(at time.Time) Record {
	sources := make(map[string]Entry, len(r.Sources))
	for id, e := range r.Sources {
		sources[id] = Entry{e.Content, at}
	}
	r.Sources = sources
	return r
}
