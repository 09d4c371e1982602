package policy

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/dependency"
)

var update = flag.Bool("update", false, "write the golden files")

// What is sent for a rollout: our annotations alone, and the preconditions.
func TestRolloutPatch(t *testing.T) {
	patch, err := RolloutPatch("0f1e2d3c", "417", "v1.aabbccdd.0011", LastReload{
		// The record has seconds, as times in the API have; what restarts the pods has more,
		// and is in UTC wherever the server runs.
		Time:        metav1.NewTime(time.Date(2026, 2, 3, 4, 5, 6, 789_000_000, time.FixedZone("", 3600))),
		Trigger:     TriggerRequest,
		RequestedBy: "ada",
		Reason:      `rotated "by hand" <now>`,
	})
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := json.Indent(&got, patch, "", "  "); err != nil {
		t.Fatal(err)
	}
	got.WriteByte('\n')
	const path = "testdata/rollout-patch.golden.json"
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (write it with -update, and read it)", err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("patch (-want +got):\n%s", diff)
	}
}

// Two requests within one second are two restarts: the template must differ.
func TestTwoRequestsInOneSecondDiffer(t *testing.T) {
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	var patches []string
	for _, now := range []time.Time{at, at.Add(time.Millisecond)} {
		patch, err := RolloutPatch("u", "1", "h", LastReload{Time: metav1.NewTime(now)})
		if err != nil {
			t.Fatal(err)
		}
		patches = append(patches, string(patch))
	}
	if patches[0] == patches[1] {
		t.Error("the patches are equal")
	}
}

// What a rollout records is what every replica reads back.
func TestLastReloadIsReadBack(t *testing.T) {
	want := LastReload{Time: metav1.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC), Trigger: "Secret/db", RequestedBy: "ada", Reason: "why not"}
	patch, err := RolloutPatch("u", "1", "h", want)
	if err != nil {
		t.Fatal(err)
	}
	var sent struct {
		Metadata struct{ Annotations map[string]string }
		Spec     struct {
			Template struct {
				Metadata struct{ Annotations map[string]string }
			}
		}
	}
	if err := json.Unmarshal(patch, &sent); err != nil {
		t.Fatal(err)
	}
	w := &dependency.Workload{Annotations: sent.Metadata.Annotations, TemplateAnnotations: sent.Spec.Template.Metadata.Annotations}
	got := LastReloadOf(w)
	if got == nil {
		t.Fatal("nothing is read back")
	}
	if !got.Time.Equal(&want.Time) {
		t.Errorf("time %v, want %v", got.Time, want.Time)
	}
	got.Time = want.Time // in another zone
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if got := AppliedHash(w); got != "h" {
		t.Errorf("applied hash %q", got)
	}
	for key := range sent.Spec.Template.Metadata.Annotations {
		if !strings.HasPrefix(key, "configdep.io/") {
			t.Errorf("the patch changes the annotation %s, which is not ours", key)
		}
	}
}

// The template is what the pods were made of; the workload's own annotation is the
// baseline of one that was never restarted.
func TestAppliedHash(t *testing.T) {
	annotations := func(hash string) map[string]string {
		if hash == "" {
			return nil
		}
		return map[string]string{ConfigHashAnnotation: hash}
	}
	for name, tt := range map[string]struct{ template, object, want string }{
		"not known":           {"", "", ""},
		"a baseline":          {"", "b", "b"},
		"a rollout":           {"a", "a", "a"},
		"the template counts": {"a", "b", "a"},
	} {
		w := &dependency.Workload{Annotations: annotations(tt.object), TemplateAnnotations: annotations(tt.template)}
		if got := AppliedHash(w); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// Flux reverts what managers with such names have set.
func TestFieldManagerIsNotTakenForKubectl(t *testing.T) {
	if strings.HasPrefix(FieldManager, "kubectl") {
		t.Errorf("field manager %q", FieldManager)
	}
}

// FuzzLastReload: whatever stands in the annotation, it is read as nothing or as a record
// that says the same when it is written and read again.
func FuzzLastReload(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `null`, `[]`, `x`, `{"time":null}`, `{"time":""}`, `{"time":0}`,
		`{"time":"2026-02-03T04:05:06Z"}`,
		`{"time":"2026-02-03T04:05:06.789+01:00","trigger":"Secret/db","requestedBy":"ada","reason":"r"}`,
		`{"time":"0001-01-01T00:00:00Z"}`, `{"time":"2026-02-03T04:05:06Z","reason":"\ud800"}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, annotation string) {
		read := func(value string) *LastReload {
			return LastReloadOf(&dependency.Workload{Annotations: map[string]string{LastReloadAnnotation: value}})
		}
		last := read(annotation)
		if last == nil {
			return
		}
		if last.Time.IsZero() {
			t.Error("a record without a time")
		}
		if year := last.Time.UTC().Year(); year < 0 || year > 9999 {
			return // no such time can be written in JSON; the API does not show it
		}
		written, err := json.Marshal(last)
		if err != nil {
			t.Fatal(err)
		}
		again := read(string(written))
		if again == nil {
			t.Fatalf("%s was written, and cannot be read", written)
		}
		// Times are written to the second.
		if again.Time.Unix() != last.Time.Unix() {
			t.Errorf("time %v, then %v", last.Time, again.Time)
		}
		again.Time = last.Time
		if diff := cmp.Diff(last, again); diff != "" {
			t.Errorf("read again (-first +then):\n%s", diff)
		}
	})
}
