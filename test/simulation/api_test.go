package simulation

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

// client passes what a controller asks for to the simulation, and waits for the answer.
// Each call has a fake of its own, because a fake answers one request at a time.
type client struct {
	kubernetes.Interface // nil: no other API is used
	server               *server
}

func (c client) AppsV1() appsv1client.AppsV1Interface {
	f := &fake.Clientset{}
	f.AddReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		o, err := c.server.ask(action)
		return true, o, err
	})
	return f.AppsV1()
}

// request is what a controller asks for.
type request struct {
	server *server
	action clienttesting.Action
	slot   int
	// seen is what the server had seen when it asked, and sent when that was.
	noted bool
	seen  view
	sent  time.Time
	reply chan answer
	// ghost: nobody waits for the answer any more.
	ghost bool
	// done is the answer that has yet to be sent; nil: it is not done yet.
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

func (r *request) String() string {
	verb := r.action.GetVerb()
	if p := r.patch(); p != nil {
		verb += " " + string(p.GetPatch())
	}
	return fmt.Sprintf("server %d asks: %s %s %s", r.server.id, r.action.GetResource().Resource, workloadName(r.slot), verb)
}

// newRequest reads an action. The only names and labels that there are end in the slot.
func newRequest(s *server, action clienttesting.Action) *request {
	r := &request{server: s, action: action, reply: make(chan answer, 1)}
	name := ""
	switch a := action.(type) {
	case clienttesting.PatchAction:
		name = a.GetName()
	case clienttesting.GetAction:
		name = a.GetName()
	case clienttesting.ListAction:
		name = a.GetListRestrictions().Labels.String()
	}
	r.slot, _ = strconv.Atoi(name[len(name)-1:])
	return r
}

func compareRequests(a, b *request) int {
	return cmp.Or(cmp.Compare(a.server.id, b.server.id), cmp.Compare(a.slot, b.slot))
}

// fault is what goes wrong with a request.
type fault int

const (
	noFault fault = iota
	tooManyRequests
	internalError
	timeout      // nothing has been done
	lostResponse // it has been done, and nobody learns of it
	faultCount
)

var faultNames = [faultCount]string{"none", "429", "500", "timeout", "lost response"}

// do carries a request out, or lets it fail.
func (w *world) do(r *request, f fault) answer {
	resource := r.action.GetResource().GroupResource()
	switch f {
	case tooManyRequests:
		return answer{err: apierrors.NewTooManyRequests("simulated", 1)}
	case internalError:
		return answer{err: apierrors.NewInternalError(fmt.Errorf("simulated"))}
	case timeout:
		return answer{err: apierrors.NewTimeoutError("simulated", 1)}
	}
	o, err := w.handle(r, resource)
	if f == lostResponse {
		return answer{err: apierrors.NewTimeoutError("simulated, though it has been done", 1)}
	}
	if err != nil {
		return answer{err: err}
	}
	return answer{object: o}
}

func (w *world) handle(r *request, resource schema.GroupResource) (runtime.Object, error) {
	d := w.workloads[r.slot]
	switch r.action.GetVerb() + " " + resource.Resource {
	case "get deployments":
		if d == nil || d.kind != "Deployment" {
			return nil, apierrors.NewNotFound(resource, workloadName(r.slot))
		}
		return d.object(), nil
	case "list replicasets":
		return d.replicaSets(), nil
	case "list controllerrevisions":
		return d.controllerRevisions(), nil
	case "patch deployments", "patch statefulsets", "patch daemonsets":
		if d == nil || workloadStream(d.kind).String() != resource.Resource {
			return nil, apierrors.NewNotFound(resource, workloadName(r.slot))
		}
		return w.patch(r, d, resource)
	}
	w.oracle.fail("a request that nothing calls for: %v", r)
	return nil, apierrors.NewBadRequest("simulated")
}

func (d *workload) owner() metav1.OwnerReference {
	return metav1.OwnerReference{Kind: d.kind, Name: workloadName(d.slot), UID: types.UID(fmt.Sprint("workload-", d.uid)), Controller: new(true)}
}

// revisionMeta returns the metadata of the ReplicaSets or ControllerRevisions.
func (d *workload) revisionMeta() (out []metav1.ObjectMeta) {
	for i, r := range d.revisions {
		out = append(out, metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprint(workloadName(d.slot), "-", i), Labels: map[string]string{"app": workloadName(d.slot)},
			CreationTimestamp: metav1.NewTime(seconds(r.created)), OwnerReferences: []metav1.OwnerReference{d.owner()},
			Annotations: map[string]string{"deployment.kubernetes.io/revision": fmt.Sprint(r.number)},
		})
	}
	return out
}

func (d *workload) replicaSets() runtime.Object {
	out := &appsv1.ReplicaSetList{}
	if d != nil {
		for _, m := range d.revisionMeta() {
			out.Items = append(out.Items, appsv1.ReplicaSet{ObjectMeta: m})
		}
	}
	return out
}

func (d *workload) controllerRevisions() runtime.Object {
	out := &appsv1.ControllerRevisionList{}
	if d != nil {
		for i, m := range d.revisionMeta() {
			out.Items = append(out.Items, appsv1.ControllerRevision{ObjectMeta: m, Revision: d.revisions[i].number})
		}
	}
	return out
}

// patchBody is all that a patch of the controller may name.
type patchBody struct {
	Metadata struct {
		UID             string             `json:"uid"`
		ResourceVersion string             `json:"resourceVersion"`
		Annotations     map[string]*string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Template struct {
			Metadata struct {
				Annotations map[string]*string `json:"annotations"`
			} `json:"metadata"`
		} `json:"template"`
	} `json:"spec"`
}

// patch applies a merge patch with its preconditions, as kube-apiserver does.
func (w *world) patch(r *request, d *workload, resource schema.GroupResource) (runtime.Object, error) {
	p := r.patch()
	var body patchBody
	decoder := json.NewDecoder(bytes.NewReader(p.GetPatch()))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&body); err != nil {
		w.oracle.fail("a patch names more than annotations: %v: %s", err, p.GetPatch())
		return nil, apierrors.NewBadRequest(err.Error())
	}
	w.oracle.checkForm(r, &body)
	if uid := fmt.Sprint("workload-", d.uid); body.Metadata.UID != uid || body.Metadata.ResourceVersion != fmt.Sprint(d.revision) {
		w.logf("    conflict")
		return nil, apierrors.NewConflict(resource, workloadName(d.slot), fmt.Errorf("the object has been modified"))
	}
	before := d.manifest
	restarts := w.oracle.beforePatch(r, d, &body)
	wrote := w.write(d, fieldManager, func(m *manifest) {
		for k, v := range body.Metadata.Annotations {
			m.annotations = with(m.annotations, k, ptr.Deref(v, ""))
		}
		for k, v := range body.Spec.Template.Metadata.Annotations {
			m.template.annotations = with(m.template.annotations, k, ptr.Deref(v, ""))
		}
	})
	w.oracle.afterPatch(r, d, &before, restarts, wrote)
	return d.object(), nil
}

// checkForm checks what holds of every patch.
func (o *oracle) checkForm(r *request, body *patchBody) {
	switch options := r.action.(clienttesting.PatchActionImpl).PatchOptions; {
	case options.FieldManager != fieldManager:
		o.fail("a patch in the name of %q", options.FieldManager)
	case body.Metadata.UID == "" || body.Metadata.ResourceVersion == "":
		o.fail("a patch without preconditions: %s", r.patch().GetPatch())
	}
	for _, annotations := range []map[string]*string{body.Metadata.Annotations, body.Spec.Template.Metadata.Annotations} {
		for key := range annotations {
			if !strings.HasPrefix(key, "configdep.io/") {
				o.fail("a patch of the annotation %s of somebody else", key)
			}
		}
	}
}

// ask is called by the workers of a controller.
func (s *server) ask(action clienttesting.Action) (runtime.Object, error) {
	if s.stopped.Load() {
		return nil, context.Canceled
	}
	r := newRequest(s, action)
	s.network.add(r)
	a := <-r.reply
	return a.object, a.err
}

// sorted returns requests in an order that does not depend on the scheduler.
func sorted(requests []*request) []*request {
	slices.SortFunc(requests, compareRequests)
	return requests
}
