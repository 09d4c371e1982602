// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	policyv1client "k8s.io/client-go/kubernetes/typed/policy/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

// client passes requests of a server to the simulation, and waits for the answers. Each call has its own fake,
// because a fake answers one request at a time.
type client struct {
	kubernetes.Interface // nil: no other API is used
	server               *server
	reload               *reloadRequest // nil: a request of the controller
}

func (c client) fake() *fake.Clientset {
	f := &fake.Clientset{}
	f.AddReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		o, err := c.server.ask(action, c.reload)
		return true, o, err
	})
	return f
}

func (c client) AppsV1() appsv1client.AppsV1Interface       { return c.fake().AppsV1() }
func (c client) CoreV1() corev1client.CoreV1Interface       { return c.fake().CoreV1() }
func (c client) PolicyV1() policyv1client.PolicyV1Interface { return c.fake().PolicyV1() }

// request is a request of a server.
type request struct {
	server *server
	action clienttesting.Action
	reload *reloadRequest
	name   string // of the object
	slot   int    // -1: of all
	pod    string // the only one to list
	noted  bool
	// sources are as the server had read them when it sent the request.
	sources [sourceCount]source
	// terminating: the server knew when it sent the request that the namespace is being deleted.
	terminating bool
	// lagged: the stream of pods lagged then.
	lagged bool
	// orphaned: the stream of ReplicaSets lagged then, without which pods have no revision.
	orphaned bool
	// behind: a stream of sources lagged then.
	behind bool
	// managed: the workload had opted in, as the server knew then.
	managed bool
	// kept: the server then had a reason to give back the template of pods; see shown.
	kept bool
	// hidden: a container may have read content that has changed since by the removal of a key, as the record is about other content.
	hidden bool
	reply  chan answer
	// ghost: no client waits for the answer.
	ghost bool
	// late: it has waited in the network.
	late bool
	// done is the answer that is yet to be sent; nil: the request has not been carried out.
	done *answer
}

type answer struct {
	object runtime.Object
	err    error
}

func (r *request) patch() clienttesting.PatchAction {
	p, _ := r.action.(clienttesting.PatchAction)
	return p
}

// verb returns the request type, as in "list pods" or "create pods/eviction".
func (r *request) verb() string {
	verb := r.action.GetVerb() + " " + r.action.GetResource().Resource
	if sub := r.action.GetSubresource(); sub != "" {
		verb += "/" + sub
	}
	return verb
}

func (r *request) String() string {
	text := ""
	if p := r.patch(); p != nil {
		text = string(p.GetPatch())
	}
	return fmt.Sprintf("server %d requests: %s %s %s", r.server.id, r.verb(), r.name, text)
}

// newRequest reads an action. All names and labels identify a workload.
func newRequest(s *server, action clienttesting.Action, reload *reloadRequest) *request {
	r := &request{server: s, action: action, reload: reload, reply: make(chan answer, 1)}
	switch a := action.(type) {
	case clienttesting.PatchAction:
		r.name = a.GetName()
	case clienttesting.GetAction:
		r.name = a.GetName()
	case clienttesting.CreateAction:
		if m, ok := a.GetObject().(metav1.Object); ok {
			r.name = m.GetName()
		}
	case clienttesting.ListAction:
		r.name = a.GetListRestrictions().Labels.String()
		if name, found := a.GetListRestrictions().Fields.RequiresExactMatch(metav1.ObjectNameField); found {
			r.name, r.pod = name, name
		}
		if action.GetResource().Resource == "poddisruptionbudgets" { // of all workloads
			r.slot = -1
		}
	}
	if at := strings.IndexByte(r.name, 'w'); at >= 0 && at+1 < len(r.name) {
		r.slot, _ = strconv.Atoi(r.name[at+1 : at+2])
	}
	return r
}

func compareRequests(a, b *request) int {
	user := func(r *request) int {
		if r.reload != nil {
			return 0 // answered at once, without conflicts
		}
		return 1
	}
	return cmp.Or(cmp.Compare(user(a), user(b)), cmp.Compare(a.server.id, b.server.id), cmp.Compare(a.slot, b.slot))
}

// fault is an error that a request meets.
type fault int

const (
	noFault fault = iota
	tooManyRequests
	internalError
	timeout      // the request is not carried out
	lostResponse // the request is carried out, and the answer is lost
	faultCount
)

var faultNames = [faultCount]string{"none", "429", "500", "timeout", "lost response"}

// do carries a request out, or makes it fail.
func (w *world) do(r *request, f fault) answer {
	switch f {
	case tooManyRequests:
		return answer{err: apierrors.NewTooManyRequests("simulated", 1)}
	case internalError:
		return answer{err: apierrors.NewInternalError(fmt.Errorf("simulated"))}
	case timeout:
		return answer{err: apierrors.NewTimeoutError("simulated", 1)}
	}
	o, err := w.handle(r)
	if f == lostResponse {
		return answer{err: apierrors.NewTimeoutError("simulated, after the request was carried out", 1)}
	}
	if err != nil {
		return answer{err: err}
	}
	return answer{object: o}
}

func (w *world) handle(r *request) (runtime.Object, error) {
	resource := r.action.GetResource().GroupResource()
	if r.slot < 0 {
		return w.budgets(), nil
	}
	d := w.workloads[r.slot]
	switch r.verb() {
	case "get deployments", "get statefulsets", "get daemonsets", "get rollouts":
		if d == nil || kindOf(d.kind).Resource.GroupResource() != resource {
			return nil, apierrors.NewNotFound(resource, r.name)
		}
		return d.object(), nil
	case "list pods":
		return d.podList(r.pod), nil
	case "patch pods":
		return w.tell(r, d, resource)
	case "create pods/eviction":
		return nil, w.evictFor(r, d, resource)
	case "patch deployments", "patch statefulsets", "patch daemonsets", "patch rollouts":
		if d == nil || kindOf(d.kind).Resource.GroupResource() != resource {
			return nil, apierrors.NewNotFound(resource, r.name)
		}
		return w.patch(r, d, resource)
	}
	w.oracle.fail("unexpected request: %v", r)
	return nil, apierrors.NewBadRequest("simulated")
}

// evictFor evicts a pod for a server if PodDisruptionBudgets allow that.
func (w *world) evictFor(r *request, d *workload, resource schema.GroupResource) error {
	if d == nil {
		return apierrors.NewNotFound(resource, r.name)
	}
	i := slices.IndexFunc(d.pods, func(p *pod) bool { return p.name == r.name })
	switch {
	case i < 0:
		return apierrors.NewNotFound(resource, r.name)
	case !d.pods[i].evictedBy(r):
		return apierrors.NewConflict(resource, r.name, errors.New("another pod has this name"))
	case d.pods[i].terminating:
		return nil
	case d.pdb:
		return apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 10)
	}
	w.oracle.tally["evictions"]++
	w.evict(d, d.pods[i])
	return nil
}

// evictedBy reports whether an eviction is about this pod, and no other of the same name.
func (p *pod) evictedBy(r *request) bool {
	a, ok := r.action.(clienttesting.CreateAction)
	if !ok {
		return false
	}
	e, ok := a.GetObject().(*policyv1.Eviction)
	return ok && e.DeleteOptions != nil && e.DeleteOptions.Preconditions != nil && ptr.Deref(e.DeleteOptions.Preconditions.UID, "") == p.object().UID
}

func (d *manifest) owner() metav1.OwnerReference {
	apiVersion, kind := kindOf(d.kind).GroupVersionKind().ToAPIVersionAndKind()
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: workloadName(d.slot), UID: types.UID(fmt.Sprint("workload-", d.uid)), Controller: new(true)}
}

// patchBody contains all fields that a patch of a server may set.
type patchBody struct {
	Metadata struct {
		UID             string             `json:"uid"`
		ResourceVersion string             `json:"resourceVersion"`
		Annotations     map[string]*string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Paused    *bool   `json:"paused"`
		RestartAt *string `json:"restartAt"`
		Template  struct {
			Metadata struct {
				Annotations map[string]*string `json:"annotations"`
			} `json:"metadata"`
		} `json:"template"`
	} `json:"spec"`
}

// patch applies a merge patch with preconditions, as kube-apiserver does.
func (w *world) patch(r *request, d *workload, resource schema.GroupResource) (runtime.Object, error) {
	var body patchBody
	env := d.template.env
	if p := r.patch().GetPatch(); !isJSONPatch(p) {
		if err := w.decodePatch(p, &body); err != nil {
			return nil, err
		}
	} else if changed, merge, err := w.applyJSON(r, d, resource); err != nil {
		return nil, err
	} else {
		env, body = changed, merge
	}
	w.oracle.checkForm(r, &body)
	if uid := fmt.Sprint("workload-", d.uid); body.Metadata.UID != uid || body.Metadata.ResourceVersion != fmt.Sprint(d.revision) {
		w.logf("    conflict")
		return nil, apierrors.NewConflict(resource, r.name, fmt.Errorf("the object has been modified"))
	}
	if d.refused && r.reload == nil {
		w.logf("    refused")
		w.oracle.refused(r, d, &body)
		return nil, apierrors.NewForbidden(resource, r.name, fmt.Errorf("a policy of the cluster denies it"))
	}
	w.oracle.patched(r, d, &body)
	wrote := w.write(d, fieldManager, func(m *manifest) {
		for k, v := range body.Metadata.Annotations {
			m.annotations = with(m.annotations, k, ptr.Deref(v, ""))
		}
		for k, v := range body.Spec.Template.Metadata.Annotations {
			m.template.annotations = with(m.template.annotations, k, ptr.Deref(v, ""))
		}
		m.template.env = env
		if m.paused = ptr.Deref(body.Spec.Paused, m.paused); body.Spec.Paused != nil {
			d.pausedByServer = true
			if m.paused {
				w.oracle.tally["pauses"]++
			}
		}
		if m.restartAt = ptr.Deref(body.Spec.RestartAt, m.restartAt); len(body.Spec.Template.Metadata.Annotations) > 0 {
			if m.restarted = w.revision; r.late { // content may have changed since it was decided
				m.restarted = 0
			}
		}
	})
	if d.refusals = (refusals{}); len(body.Spec.Template.Metadata.Annotations) > 0 && d.written.leavesMarks() {
		w.oracle.fail("a restart leaves variables of another tool: %s", r.patch().GetPatch())
	}
	if !wrote {
		return d.object(), nil
	}
	return d.written.object(), nil
}

// decodePatch decodes a merge patch.
func (w *world) decodePatch(p []byte, body *patchBody) error {
	decoder := json.NewDecoder(bytes.NewReader(p))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(body); err != nil {
		w.oracle.fail("a patch sets more than annotations: %v: %s", err, p)
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// checkForm checks the conditions for every patch.
func (o *oracle) checkForm(r *request, body *patchBody) {
	switch options := r.action.(clienttesting.PatchActionImpl).PatchOptions; {
	case options.FieldManager != fieldManager:
		o.fail("a patch with the field manager %q", options.FieldManager)
	case body.Metadata.UID == "" || body.Metadata.ResourceVersion == "":
		o.fail("a patch without preconditions: %s", r.patch().GetPatch())
	}
	for _, annotations := range []map[string]*string{body.Metadata.Annotations, body.Spec.Template.Metadata.Annotations} {
		for key := range annotations {
			if !strings.HasPrefix(key, "configdep.io/") && key != pausedAtAnnotation {
				o.fail("a patch of the annotation %s, which is not configdep's", key)
			}
		}
	}
}

// ask is called by the workers of a controller, and by Reloads.
func (s *server) ask(action clienttesting.Action, reload *reloadRequest) (runtime.Object, error) {
	if s.stopped.Load() && reload == nil {
		return nil, context.Canceled
	}
	r := newRequest(s, action, reload)
	s.network.add(r)
	a := <-r.reply
	return a.object, a.err
}

// sorted returns requests in an order that does not depend on the scheduler.
func sorted(requests []*request) []*request {
	slices.SortStableFunc(requests, compareRequests)
	return requests
}
