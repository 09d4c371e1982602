// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/configdep/configdep/pkg/dependency/dependencytest"
	"github.com/configdep/configdep/pkg/policy"
)

// The reader returns what client-go would have read, reduced, however the answer is split into
// pieces.
func TestListsAreThoseOfTheClient(t *testing.T) { withSeeds(t, 1, listsAreThoseOfTheClient) }

func listsAreThoseOfTheClient(t *testing.T, r *rand.Rand) {
	t.Helper()
	text := func() string {
		return pick(r, "", "k", "value", "\x00\xff", strings.Repeat("long ", 100), strings.Repeat("x", r.Intn(200<<10)))
	}
	randomMeta := func(i int) metav1.ObjectMeta {
		m := metav1.ObjectMeta{
			Namespace: pick(r, "shop", "other"), Name: fmt.Sprint("s-", i), UID: "u", ResourceVersion: fmt.Sprint(r.Intn(1000)),
			CreationTimestamp: metav1.Unix(int64(r.Intn(1e9)), 0),
		}
		if r.Intn(2) == 0 {
			m.Annotations = map[string]string{pick(r, policy.IgnoreAnnotation, policy.MatchAnnotation, "other"): pick(r, "true", "false")}
			m.ManagedFields = []metav1.ManagedFieldsEntry{{Time: new(metav1.Unix(int64(r.Intn(2e9)), 0)), FieldsV1: metav1.NewFieldsV1(pick(r, `{"f:data":{}}`, `{}`))}}
		}
		return m
	}
	data := func() map[string][]byte {
		out := map[string][]byte{}
		for range r.Intn(4) {
			out[pick(r, "a", "b", "c.d", "long-"+strings.Repeat("k", 200))] = []byte(text())
		}
		return out
	}
	for range 100 {
		meta := metav1.ListMeta{ResourceVersion: fmt.Sprint(r.Intn(1000)), RemainingItemCount: new(int64(3))}
		secrets, maps, workloads := &corev1.SecretList{ListMeta: meta}, &corev1.ConfigMapList{ListMeta: meta}, &appsv1.DeploymentList{ListMeta: meta}
		for i := range r.Intn(5) {
			secrets.Items = append(secrets.Items, corev1.Secret{ObjectMeta: randomMeta(i), Data: data(), Type: pick(r, "", corev1.SecretTypeTLS), Immutable: new(true)})
			m := corev1.ConfigMap{ObjectMeta: randomMeta(i), BinaryData: data(), Immutable: new(false)}
			for k, v := range data() {
				if m.Data == nil {
					m.Data = map[string]string{}
				}
				delete(m.BinaryData, k)
				m.Data[k] = strings.ToValidUTF8(string(v), "?")
			}
			maps.Items = append(maps.Items, m)
			w := *webDeployment()
			w.ObjectMeta = randomMeta(i)
			w.Spec.Template.Labels = map[string]string{"note": strings.ToValidUTF8(text(), "?")}
			workloads.Items = append(workloads.Items, w)
		}
		checkList(t, r, "secrets", secrets)
		checkList(t, r, "configmaps", maps)
		checkList(t, r, "deployments", workloads)
	}
}

func checkList(t *testing.T, r *rand.Rand, resource string, typed runtime.Object) {
	t.Helper()
	s, raw := streamOf(t, resource), inProtobuf(t, typed)
	var answer io.Reader = bytes.NewReader(raw)
	switch r.Intn(4) {
	case 0:
		answer = iotest.HalfReader(answer)
	case 1:
		answer = iotest.DataErrReader(answer)
	case 2:
		if len(raw) < 10_000 { // it is slow
			answer = iotest.OneByteReader(answer)
		}
	}
	got, err := readList(answer, s)
	if err != nil {
		t.Fatal(err)
	}
	var want []*object
	if err := meta.EachListItem(typed, func(o runtime.Object) error {
		m, read := o.(metav1.Object), s.read
		if _, is := s.part.(sourcePart); is {
			read = func(metav1.Object) (any, error) {
				return dependencytest.Source(testDigester(), o, everything.Dialects.ReadSource(m.GetAnnotations())), nil
			}
		}
		reduced, err := reduced(m, read)
		want = append(want, reduced)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var items []*object
	for i := range got.Items {
		items = append(items, got.Items[i].Object.(*object))
	}
	// Times are in the zone of the process that reads them.
	sameTime := cmp.Comparer(func(a, b metav1.Time) bool { return a.Equal(&b) })
	unexported := cmp.Exporter(func(reflect.Type) bool { return true })
	if diff := cmp.Diff(want, items, unexported, sameTime, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%s (-client +wire):\n%s", resource, diff)
	}
	wantMeta, _ := meta.ListAccessor(typed)
	if got.ResourceVersion != wantMeta.GetResourceVersion() {
		t.Errorf("%s: metadata of the list = %+v", resource, got.ListMeta)
	}
}

// A page is not accepted as a complete list, because missing objects would be considered deleted.
func TestListsInPages(t *testing.T) {
	page := &corev1.SecretList{ListMeta: metav1.ListMeta{ResourceVersion: "42", Continue: "token"}, Items: []corev1.Secret{*secretWith("a")}}
	list, err := readList(bytes.NewReader(inProtobuf(t, page)), streamOf(t, "secrets"))
	if err == nil || !strings.Contains(err.Error(), "SecretList came in pages") {
		t.Errorf("list = %v, error = %v; want an error about pages", list, err)
	}
}

// An incomplete answer is an error: missing objects would be considered deleted.
func TestListsThatBreakOff(t *testing.T) {
	secrets := &corev1.SecretList{ListMeta: metav1.ListMeta{ResourceVersion: "42"}, Items: []corev1.Secret{*secretWith("a"), *secretWith("b")}}
	raw := inProtobuf(t, secrets)
	end := bytes.LastIndex(raw, []byte("more")) // the rest of the envelope is not needed
	for n := range end {
		if list, err := readList(bytes.NewReader(bytes.Clone(raw[:n])), streamOf(t, "secrets")); err == nil {
			t.Fatalf("%d of %d bytes: got a list of %d items, want an error", n, len(raw), len(list.Items))
		}
	}
	broken := errors.New("broken")
	if _, err := readList(io.MultiReader(bytes.NewReader(raw[:end]), iotest.ErrReader(broken)), streamOf(t, "secrets")); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

// Nothing of an answer is left in memory, neither in a buffer nor in one that was too
// small: answers contain more than the values that are digested, such as annotations.
func TestNothingIsLeftInTheWindow(t *testing.T) {
	w := &window{from: strings.NewReader(strings.Repeat(password, 1000)), buffer: make([]byte, 64)}
	buffers := [][]byte{w.buffer}
	for _, n := range []int{37, 37, 100, 5, 300, 17, 17, 1000, 900, 8000} {
		if _, err := w.take(n); err != nil && n != 8000 {
			t.Fatal(err)
		}
		if &buffers[len(buffers)-1][0] != &w.buffer[0] {
			buffers = append(buffers, w.buffer)
		}
	}
	if len(buffers) != 5 {
		t.Fatalf("got %d buffers", len(buffers))
	}
	w.clear()
	for _, buffer := range buffers {
		if len(bytes.Trim(buffer, "\x00")) > 0 {
			t.Errorf("a buffer of %d bytes is not overwritten", len(buffer))
		}
	}
}

// An object in a list is overwritten as soon as decoding succeeds or fails: the rest of the list may take long.
func TestItemsAreOverwritten(t *testing.T) {
	for name, raw := range map[string][]byte{
		"a workload": inner(t, workloadWith(password)),
		"no object":  []byte("\xff" + password),
	} {
		w := &window{from: bytes.NewReader(raw), buffer: make([]byte, len(raw)+10)}
		list := &metav1.List{}
		if err := readItem(w, streamOf(t, "pods"), list, 2, len(raw)); (err == nil) != (len(list.Items) == 1) {
			t.Errorf("%s: got %d items, error %v", name, len(list.Items), err)
		}
		if bytes.Contains(w.buffer, []byte(password)) {
			t.Errorf("%s: the buffer still holds the password", name)
		}
	}
}
