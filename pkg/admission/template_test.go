// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
	"github.com/configdep/configdep/test/seeds"
)

// An env are the environment variables of a container.
type env []any

func plain(name, value string) object { return object{"name": name, "value": value} }

func fromSecret(name string) object {
	return object{"name": name, "valueFrom": object{"secretKeyRef": object{"name": "db", "key": "password"}}}
}

// of returns a Deployment with annotations, on itself and on its template, and with a container for each env; nil: it has
// none.
func of(annotations, template map[string]string, envs ...env) object {
	inJSON := func(annotations map[string]string) object {
		out := object{}
		for key, value := range annotations {
			out[key] = value
		}
		return out
	}
	var containers []any
	for i, e := range envs {
		c := object{"name": fmt.Sprint("c-", i), "image": "app:1", "inventedLater": []any{}}
		if e != nil {
			c["env"] = []any(e)
		}
		containers = append(containers, c)
	}
	return object{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": object{"name": "web", "annotations": inJSON(annotations)},
		"spec": object{"template": object{
			"metadata": object{"annotations": inJSON(template)},
			"spec":     object{"initContainers": []any{object{"name": "init", "env": []any{plain("STAKATER_DB_SECRET", "1")}}}, "containers": containers},
		}},
	}
}

// applied returns a workload after admission, with whatever the patch changes.
func (c *cluster) applied(t testing.TB, manager string, o, before object) object {
	t.Helper()
	response, raw := c.post(t, askedBy(t, manager, o, before)), encode(t, o)
	if response.Patch == nil {
		return parse(t, string(raw))
	}
	patch, err := jsonpatch.DecodePatch(response.Patch)
	if err == nil {
		raw, err = patch.Apply(raw)
	}
	if err != nil {
		t.Fatalf("error %v: cannot apply the patch %s to %s", err, response.Patch, encode(t, o))
	}
	return parse(t, string(raw))
}

// askedBy returns a request of a field manager.
func askedBy(t testing.TB, manager string, o, before object) *admissionv1.AdmissionRequest {
	t.Helper()
	r := asked(t, o, before)
	r.Options.Raw = encode(t, object{"fieldManager": manager})
	return r
}

func templateOf(o object) object { return o["spec"].(object)["template"].(object) }

// Our variables and the annotation that Reloader writes as well are restored whatever an owner does with them. If Reloader
// sets them, it has restarted the pods, which is recorded.
func TestAdmission_Variables(t *testing.T) {
	const db, config = "STAKATER_DB_SECRET", "STAKATER_CONFIG_CONFIGMAP"
	c := newCluster(t, secret("db", "password", "new"))
	a, b := plain("A", "a"), plain("B", "b")
	in := map[string]string{policy.ReloadAnnotation: "auto"}
	out := map[string]string{}
	recorded := map[string]string{policy.ReloadAnnotation: "auto", record.ConfigHashAnnotation: "v1.x.y"}
	withHash := func(pairs ...string) map[string]string {
		m := map[string]string{record.ConfigHashAnnotation: "v1.x.y"}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	hash, none := withHash(), map[string]string{}
	without := func(m map[string]string, keys ...string) map[string]string {
		m = maps.Clone(m)
		for _, key := range keys {
			delete(m, key)
		}
		return m
	}
	const from = "reloader.stakater.com/last-reloaded-from"
	var many env
	for i := range maxVariables + 1 {
		many = append(many, plain(fmt.Sprintf("STAKATER_%d_SECRET", i), "1"))
	}
	const restored, stamped, left = "restored", "stamped", "left"
	for name, tt := range map[string]struct {
		object, before object
		want           string // what is done about the template
		by             string // the field manager
	}{
		"a variable is dropped with the annotations":       {of(in, none, env{a}), of(recorded, hash, env{plain(db, "1"), a}), restored, ""},
		"a variable is dropped alone":                      {of(recorded, hash, env{a}), of(recorded, hash, env{plain(db, "1"), a}), restored, ""},
		"the last variable is dropped":                     {of(in, none, env{a}), of(recorded, hash, env{a, plain(db, "1")}), restored, ""},
		"a variable between others is dropped":             {of(in, none, env{a, b}), of(recorded, hash, env{a, plain(db, "1"), b}), restored, ""},
		"the only variable is dropped":                     {of(in, none, nil), of(recorded, hash, env{plain(db, "1")}), restored, ""},
		"a variable of the second container is dropped":    {of(in, none, env{a}, nil), of(recorded, hash, env{a}, env{plain(db, "1")}), restored, ""},
		"variables of two containers are dropped":          {of(in, none, env{a}, nil), of(recorded, hash, env{a, plain(db, "1"), plain(config, "1")}, env{plain(db, "1")}), restored, ""},
		"a variable without a value is dropped":            {of(in, none, env{a}), of(recorded, hash, env{a, object{"name": db}}), restored, ""},
		"a variable is moved":                              {of(recorded, hash, env{a, plain(db, "1")}), of(recorded, hash, env{plain(db, "1"), a}), restored, ""},
		"a variable is replaced by that of a copy":         {of(in, withHash(record.ConfigHashAnnotation, "v1.x.z"), env{plain(db, "0"), a}), of(recorded, hash, env{plain(db, "1"), a}), restored, ""},
		"a rollout is undone that removed a variable":      {of(in, none, env{plain(db, "0"), a}), of(recorded, hash, env{a}), restored, ""},
		"a rollout is undone that set the only variable":   {of(in, none, env{plain(db, "0")}), of(recorded, hash, nil), restored, ""},
		"what has reloaded is dropped":                     {of(recorded, hash, env{a}), of(recorded, withHash(from, "{}"), env{a}), restored, ""},
		"what has reloaded is dropped, with a variable":    {of(recorded, hash, env{a}), of(recorded, withHash(from, "{}"), env{a, plain(db, "1")}), restored, ""},
		"a rollout is undone that another source caused":   {of(in, map[string]string{from: "[]"}, env{a}), of(recorded, withHash(from, "{}"), env{a}), restored, ""},
		"a variable is dropped, with an invalid mode":      {of(map[string]string{policy.ReloadAnnotation: "?"}, none, env{a}), of(recorded, hash, env{plain(db, "1"), a}), restored, ""},
		"a variable is dropped, the record is on the pods": {of(in, none, env{a}), of(in, hash, env{plain(db, "1"), a}), restored, ""},

		"Reloader sets a variable":                                        {of(recorded, hash, env{plain(db, "2"), a}), of(recorded, hash, env{a}), stamped, "Reloader"},
		"Reloader sets a variable to another value":                       {of(recorded, hash, env{plain(db, "2"), a}), of(recorded, hash, env{plain(db, "1"), a}), stamped, "Reloader"},
		"Reloader sets what has reloaded":                                 {of(recorded, withHash(from, "{}"), env{a}), of(recorded, hash, env{a}), stamped, "Reloader"},
		"Reloader sets it to something else":                              {of(recorded, withHash(from, "[]"), env{a}), of(recorded, withHash(from, "{}"), env{a}), stamped, "Reloader"},
		"Reloader sets a variable of a workload that was never restarted": {of(recorded, none, env{plain(db, "1"), a}), of(recorded, none, env{a}), stamped, "Reloader"},

		"Reloader removes a variable":              {of(recorded, hash, env{a}), of(recorded, hash, env{plain(db, "1"), a}), stamped, "Reloader"},
		"Reloader changes nothing of the template": {of(in, hash, env{plain(db, "1"), a}), of(recorded, hash, env{plain(db, "1"), a}), restored, "Reloader"},
		"another client sets a variable":           {of(recorded, hash, env{plain(db, "2"), a}), of(recorded, hash, env{plain(db, "1"), a}), restored, "kubectl-edit"},

		"a variable from a Secret is dropped":             {of(in, none, env{a}), of(recorded, hash, env{a, fromSecret(db)}), stamped, ""},
		"a variable becomes one from a Secret":            {of(in, none, env{fromSecret(db)}), of(recorded, hash, env{plain(db, "1")}), stamped, ""},
		"a variable of a user is dropped":                 {of(in, none, env{a}), of(recorded, hash, env{a, plain("STAKATER_ACCOUNT", "1")}), stamped, ""},
		"a variable of a user is changed":                 {of(recorded, hash, env{plain("STAKATER_ACCOUNT", "2")}), of(recorded, hash, env{plain("STAKATER_ACCOUNT", "1")}), stamped, ""},
		"variables of users change places":                {of(in, none, env{b, a}), of(recorded, hash, env{a, b}), stamped, ""},
		"a variable is dropped, and one of a user":        {of(in, none, env{a}), of(recorded, hash, env{a, plain(db, "1"), b}), stamped, ""},
		"a variable is dropped, and a container is added": {of(in, none, env{a}, nil), of(recorded, hash, env{a, plain(db, "1")}), stamped, ""},
		"a variable is dropped with its container":        {of(in, none, env{a}), of(recorded, hash, env{a}, env{plain(db, "1")}), stamped, ""},
		"more variables are dropped than restarts set":    {of(in, none, env{a}), of(recorded, hash, append(env{a}, many...)), stamped, ""},
		"a variable is dropped before there is a record":  {of(in, none, env{a}), of(in, none, env{plain(db, "1"), a}), stamped, ""},

		"a variable is dropped from a workload that has not opted in": {of(out, none, env{a}), of(out, none, env{plain(db, "1"), a}), left, ""},
		"a variable is dropped with opting out":                       {of(out, none, env{a}), of(recorded, hash, env{plain(db, "1"), a}), left, ""},
		"a variable is dropped after opting out":                      {of(out, hash, env{a}), of(without(recorded, policy.ReloadAnnotation), hash, env{plain(db, "1"), a}), left, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.applied(t, tt.by, tt.object, tt.before)
			want := parse(t, string(encode(t, templateOf(tt.before))))
			switch tt.want {
			case left:
				want = parse(t, string(encode(t, templateOf(tt.object))))
			case stamped:
				want = parse(t, string(encode(t, templateOf(tt.object))))
				stamp := onTemplate(got)[record.ConfigHashAnnotation]
				if stamp == "" || stamp == hash[record.ConfigHashAnnotation] || stamp != onWorkload(got)[record.ConfigHashAnnotation] {
					t.Errorf("hash on the template = %q, on the workload %q; want that of the current content", stamp, onWorkload(got)[record.ConfigHashAnnotation])
				}
				want["metadata"].(object)["annotations"].(object)[record.ConfigHashAnnotation] = stamp
			}
			if diff := cmp.Diff(want, templateOf(got)); diff != "" {
				t.Errorf("template (-want +got):\n%s", diff)
			}
			if again := c.post(t, askedBy(t, tt.by, got, tt.before)); again.Patch != nil {
				t.Errorf("patch of a second request = %s, want none", again.Patch)
			}
		})
	}
}

// Pods of a paused Deployment start later, but its template is restored all the same.
func TestAdmission_VariablesOfAPausedDeployment(t *testing.T) {
	c := newCluster(t, secret("db", "password", "new"))
	recorded := map[string]string{policy.ReloadAnnotation: "auto", record.ConfigHashAnnotation: "v1.x.y"}
	before := of(recorded, map[string]string{record.ConfigHashAnnotation: "v1.x.y"}, env{plain("STAKATER_DB_SECRET", "1")})
	o := of(map[string]string{policy.ReloadAnnotation: "auto"}, nil, nil)
	for _, d := range []object{o, before} {
		d["spec"].(object)["paused"] = true
	}
	if diff := cmp.Diff(parse(t, string(encode(t, templateOf(before)))), templateOf(c.applied(t, "", o, before))); diff != "" {
		t.Errorf("template (-want +got):\n%s", diff)
	}
}

// drawn takes choices from a text.
type drawn struct{ text []byte }

// n returns a number below most.
func (d *drawn) n(most int) int {
	if len(d.text) == 0 {
		return 0
	}
	b := d.text[0]
	d.text = d.text[1:]
	return int(b) % most
}

func (d *drawn) variable() object {
	name := []string{"A", "B", "STAKATER_ACCOUNT", "STAKATER_DB_SECRET", "STAKATER_CONFIG_CONFIGMAP", "STAKATER_DB_SECRETPROVIDERCLASS"}[d.n(6)]
	switch d.n(6) {
	case 0:
		return fromSecret(name)
	case 1:
		return object{"name": name}
	default:
		return plain(name, fmt.Sprint(d.n(3)))
	}
}

func (d *drawn) env() env {
	var e env
	for range d.n(6) {
		e = append(e, d.variable())
	}
	return e
}

// rewritten returns variables with others of ours: some are dropped, some are added.
func (d *drawn) rewritten(e env) (out env) {
	for _, v := range e {
		if !isOurs(v) || d.n(2) == 0 {
			out = append(out, v)
		}
	}
	for range d.n(3) {
		if v := d.variable(); isOurs(v) {
			out = slices.Insert(out, d.n(len(out)+1), any(v))
		}
	}
	return out
}

// An owner writes a template that differs in our variables alone, in any way: after admission, it is exactly the existing
// one. Of any other template, no variable changes. A second request changes nothing.
func (c *cluster) checkVariables(t *testing.T, text []byte) {
	t.Helper()
	in := map[string]string{policy.ReloadAnnotation: "auto"}
	recorded := map[string]string{policy.ReloadAnnotation: "auto", record.ConfigHashAnnotation: "v1.x.y"}
	d := &drawn{text}
	var existing, rewritten, others []env
	for range 1 + d.n(3) {
		e := d.env()
		existing, rewritten, others = append(existing, e), append(rewritten, d.rewritten(e)), append(others, d.env())
	}
	before := of(recorded, map[string]string{record.ConfigHashAnnotation: "v1.x.y", "note": "x"}, existing...)
	o := of(in, map[string]string{"note": "x"}, rewritten...)
	got := c.applied(t, "", o, before)
	if diff := cmp.Diff(parse(t, string(encode(t, templateOf(before)))), templateOf(got)); diff != "" {
		t.Errorf("template that differs in our variables alone (-want +got):\n%s", diff)
	}
	if again := c.post(t, asked(t, got, before)); again.Patch != nil {
		t.Errorf("patch of a second request = %s, want none", again.Patch)
	}

	o = of(recorded, map[string]string{record.ConfigHashAnnotation: "v1.x.y", "note": "x"}, others...)
	templateOf(o)["spec"].(object)["hostNetwork"] = true
	got = c.applied(t, "", o, before)
	if diff := cmp.Diff(parse(t, string(encode(t, templateOf(o)["spec"]))), templateOf(got)["spec"]); diff != "" {
		t.Errorf("another template (-want +got):\n%s", diff)
	}
}

func TestAdmission_VariablesOfRandomRewrites(t *testing.T) {
	c := newCluster(t, secret("db", "password", "x"))
	seeds.Each(t, 300, func(t *testing.T, seed uint64) {
		random, text := rand.New(rand.NewPCG(seed, 0)), make([]byte, 100)
		for i := range text {
			text[i] = byte(random.Uint32())
		}
		c.checkVariables(t, text)
	})
}

func FuzzVariables(f *testing.F) {
	for _, text := range []string{"", "\x01\x03\x03\x02\x01", "\x02\x05\x03\x02\x01\x00\x02\x02\x04\x02\x00\x01\x01", strings.Repeat("\x05\x03\x02\x01\x04", 12)} {
		f.Add([]byte(text))
	}
	c := newCluster(f, secret("db", "password", "x"))
	f.Fuzz(c.checkVariables)
}
