// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/configdep/configdep/pkg/decide"
)

// Environment variables whose names are not unique, and those of Reloader, which restarts set and remove by JSON patches.

// variables are those that an owner adds to each container, before and after those of its uses.
var variables = [][2][]corev1.EnvVar{
	{},
	{{{Name: "MODE", Value: "of the chart"}}, {{Name: "MODE", Value: "of the user"}}},
	{
		{{Name: "STAKATER_C0_CONFIGMAP", Value: "left"}, {Name: "MODE", Value: "of the chart"}, {Name: "STAKATER_OTHER_SECRET", Value: "left"}},
		{{Name: "STAKATER_S0_SECRET", Value: "left"}, {Name: "MODE", Value: "of the user"}, {Name: "STAKATER_MODE", Value: "mine"}},
	},
	{
		{{Name: "STAKATER_S0_SECRET", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}, {Name: "MODE"}},
		{{Name: "STAKATER_C1_CONFIGMAP", Value: "left"}, {Name: "MODE", Value: "of the user"}},
	},
}

// envOf returns the variables of each container of a pod, as JSON; empty: those of its uses.
func envOf(spec *corev1.PodSpec) string {
	var all [][]corev1.EnvVar
	for i := range spec.Containers {
		all = append(all, spec.Containers[i].Env)
	}
	out, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return string(out)
}

// ownedEnv is what the owner of a workload declares for a variant.
func ownedEnv(variant, added int) string {
	if added == 0 {
		return ""
	}
	spec := podSpecs[variant]
	spec.Containers = slices.Clone(spec.Containers)
	for i := range spec.Containers {
		spec.Containers[i].Env = slices.Concat(variables[added][0], spec.Containers[i].Env, variables[added][1])
	}
	return envOf(&spec)
}

// setEnv sets the variables of containers, which must not be shared.
func setEnv(spec *corev1.PodSpec, env string) {
	var all [][]corev1.EnvVar
	if env == "" {
		return
	}
	if err := json.Unmarshal([]byte(env), &all); err != nil {
		panic(err)
	}
	for i := range all {
		spec.Containers[i].Env = all[i]
	}
}

// isMark reports whether a restart may set or remove a variable.
func isMark(v corev1.EnvVar) bool {
	return v.ValueFrom == nil && strings.HasPrefix(v.Name, "STAKATER_") && (strings.HasSuffix(v.Name, "_CONFIGMAP") || strings.HasSuffix(v.Name, "_SECRET") || strings.HasSuffix(v.Name, "_SECRETPROVIDERCLASS"))
}

// isJSONPatch reports whether a patch is no merge patch.
func isJSONPatch(patch []byte) bool { return patch[0] == '[' }

// applyJSON applies a JSON patch of a workload as kube-apiserver does. It returns the variables after that, and the same as a merge patch of all else.
func (w *world) applyJSON(r *request, d *workload, resource schema.GroupResource) (env string, body patchBody, err error) {
	before, err := json.Marshal(d.object())
	if err != nil {
		panic(err)
	}
	operations, err := jsonpatch.DecodePatch(r.patch().GetPatch())
	if err != nil {
		return "", body, apierrors.NewBadRequest(err.Error())
	}
	if path, err := operations[0].Path(); err != nil || operations[0].Kind() != "test" || path != "/metadata/resourceVersion" {
		w.oracle.fail("a patch without preconditions: %s", r.patch().GetPatch())
	}
	after, err := operations.Apply(before)
	if err != nil {
		w.logf("    %v", err)
		if string(*operations[0]["value"]) == fmt.Sprintf("%q", fmt.Sprint(d.revision)) {
			w.oracle.fail("a patch of the current version fails: %v: %s", err, r.patch().GetPatch())
		}
		return "", body, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", resource, "", err.Error(), 0, false)
	}
	type object struct {
		Metadata map[string]any `json:"metadata"`
		Spec     struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	var was, is object
	for raw, into := range map[string]*object{string(before): &was, string(after): &is} {
		if err := json.Unmarshal([]byte(raw), into); err != nil {
			panic(err)
		}
	}
	w.oracle.checkVariables(r, d, was.Spec.Template.Spec.Containers, is.Spec.Template.Spec.Containers)
	env = envOf(&is.Spec.Template.Spec)
	// What it does besides is the same as the least merge patch that does it.
	merge, err := jsonpatch.CreateMergePatch(before, after)
	if err != nil {
		panic(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(merge, &fields); err != nil {
		panic(err)
	}
	if spec, is := fields["spec"].(map[string]any); is {
		if template, is := spec["template"].(map[string]any); is {
			delete(template, "spec")
		}
	}
	metadata, _ := fields["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		fields["metadata"] = metadata
	}
	metadata["uid"], metadata["resourceVersion"] = was.Metadata["uid"], was.Metadata["resourceVersion"]
	merge, err = json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	return env, body, w.decodePatch(merge, &body)
}

// checkVariables checks what a restart makes of the variables of containers.
func (o *oracle) checkVariables(r *request, d *workload, before, after []corev1.Container) {
	if len(before) != len(after) {
		o.fail("a patch changes the number of containers: %s", r.patch().GetPatch())
		return
	}
	o.tally["restarts that change variables"]++
	for i := range before {
		was, is := slices.DeleteFunc(slices.Clone(before[i].Env), isMark), slices.DeleteFunc(slices.Clone(after[i].Env), isMark)
		if !reflect.DeepEqual(was, is) && len(was)+len(is) > 0 {
			o.fail("%s: a restart changes the variables of its owner from %v to %v", workloadName(d.slot), was, is)
		}
		set := map[string]bool{}
		for _, v := range after[i].Env {
			if isMark(v) && (v.Value == "left" || v.Value == "" || set[v.Name]) {
				o.fail("%s: a restart leaves the variable %s=%s", workloadName(d.slot), v.Name, v.Value)
			}
			set[v.Name] = set[v.Name] || isMark(v)
		}
		a, b := before[i], after[i]
		if a.Env, b.Env = nil, nil; !reflect.DeepEqual(a, b) {
			o.fail("%s: a restart changes more of a container than variables: %s", workloadName(d.slot), r.patch().GetPatch())
		}
	}
}

// leavesMarks reports whether a restart that changes the template leaves variables of another tool.
func (m *manifest) leavesMarks() bool {
	t := podTemplate(&m.template)
	return customKinds[m.kind] == nil && slices.ContainsFunc(t.Spec.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return isMark(v) && v.Value == "left" })
	})
}

// refusals are those of restarts of a workload in a row.
type refusals struct {
	term  chan struct{} // of the server, as its ended
	hash  string
	count int
	since uint64 // the revision of the world
	at    uint64 // the revision of the workload: when it changes, servers try again soon
	last  time.Time
}

// refused notes that a policy of the cluster has refused a patch, which may be one of a restart.
func (o *oracle) refused(r *request, d *workload, body *patchBody) {
	hash := body.Spec.Template.Metadata.Annotations[hashAnnotation]
	if n := &d.refusals; hash == nil || r.ghost {
		*n = refusals{}
	} else if n.term != r.server.ended || n.hash != *hash || n.at != d.revision {
		*n = refusals{r.server.ended, *hash, 1, o.world.revision, d.revision, time.Now()}
	} else {
		n.count, n.last = n.count+1, time.Now()
	}
}

// checkRefused checks that what has been refused ten times is said to be refused.
func (o *oracle) checkRefused(s *server, d *workload, got *shown) {
	n := &d.refusals
	if n.term != s.ended || !s.leads || s.asleep || n.count <= 10 || time.Since(n.last) > 6*time.Minute || n.hash != got.hash || got.Action != decide.RollOut {
		return
	}
	if slices.ContainsFunc(o.world.sources[:], func(s source) bool { return s.version > n.since }) { // it may have been other content meanwhile
		return
	}
	if o.tally["restarts that are refused"]++; got.State != decide.Blocked || got.Reason != decide.ReasonRefused || !strings.Contains(got.Message, "a policy of the cluster denies it") {
		o.fail("%s: a restart has been refused %d times, and server %d shows %s (%s: %s)", workloadName(d.slot), n.count, s.id, got.State, got.Reason, got.Message)
	}
}

// addVariables gives workloads of a tenth of the histories variables, and the strategy env-var to most of these. For a while, their patches are refused.
func (h *history) addVariables(begin int) {
	m := maker{rand.New(rand.NewPCG(h.Seed, 12)), h}
	slot := m.workload()
	s := &h.Workloads[slot]
	if m.IntN(10) > 0 || s.Kind != "Deployment" && s.Kind != "StatefulSet" && s.Kind != "DaemonSet" || s.Annotations[strategyAnnotation] != "" || len(h.Workloads) > 1 && h.Workloads[1].Borrows {
		return
	}
	if s.Variables = m.IntN(len(variables)); s.Variables == 0 || m.IntN(3) > 0 {
		s.Annotations[strategyAnnotation] = "env-var"
	}
	begin = min(begin, len(h.Operations))
	for range 2 + m.IntN(3) {
		at := begin + m.IntN(len(h.Operations)-begin+1)
		some := []operation{{Do: "set content", A: m.source(), Content: m.content()}, {Do: "wait", Wait: pick(m, time.Second, 3*time.Second, time.Minute)}}
		switch m.IntN(4) {
		case 0:
			some = slices.Concat([]operation{{Do: "refuse", A: slot, B: 1}}, some, []operation{{Do: "look"}, {Do: "set content", A: m.source(), Content: m.content()},
				{Do: "wait", Wait: pick(m, time.Second, 20*time.Second, 7*time.Minute)}, {Do: "look"}, {Do: "refuse", A: slot}})
		case 1:
			some = append(some, operation{Do: "rewrite", A: slot, B: 2, C: -1}, operation{Do: "look"})
		case 2:
			some = append(some, operation{Do: "set image", A: slot, B: m.IntN(2), C: m.IntN(3)}, operation{Do: "undo", A: slot})
		}
		h.Operations = slices.Insert(h.Operations, at, some...)
	}
}
