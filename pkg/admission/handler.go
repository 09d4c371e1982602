package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/metrics"
	"github.com/configdep/configdep/pkg/policy"
)

// Path is where workloads are sent.
const Path = "/admission/workloads"

const (
	// maxBody bounds a request. It holds a workload twice, of which kube-apiserver takes no
	// larger one than 3 MB.
	maxBody = 8 << 20
	// maxObjects bounds the objects and lists in a request: decoded, each takes a hundred times
	// what it takes on the wire. A Deployment of a hundred containers has fewer.
	maxObjects = 20_000
	// turns bounds the requests that are handled at once, and with it the memory: one takes a
	// turn for each MB. Others wait.
	turns = 16
	// patience is how long one waits for its turn, and how long its body may take to arrive:
	// less than the caller waits.
	patience = 2 * time.Second
)

// Graph gives access to the dependency graph. Read returns false, without a call, while
// the graph does not equal the cluster.
type Graph interface {
	Read(func(*dependency.Graph)) bool
}

// Finder looks up a source as it is now; nil: there is none.
type Finder interface {
	Find(context.Context, *dependency.Digester, dependency.SourceKey) (*dependency.Source, error)
}

// Config is what a Handler is made from.
type Config struct {
	Graph    Graph
	Finder   Finder
	Defaults policy.Defaults
	// Digester returns the digester of the server; it is there once Graph is read.
	Digester func() *dependency.Digester
	// Namespaces are those that the graph holds; empty: all. Workloads of Exempt ones are
	// admitted as they are, for every caller.
	Namespaces, Exempt []string
}

// Handler answers AdmissionReviews of workloads.
type Handler struct {
	Config

	turns *semaphore.Weighted
}

// NewHandler returns a Handler.
func NewHandler(c Config) *Handler { return &Handler{c, semaphore.NewWeighted(turns)} }

// ServeHTTP is part of http.Handler. What is no AdmissionReview of a workload gets an error
// of HTTP, and kube-apiserver goes on without us.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	started := time.Now()
	status, answer, err := h.serve(w, r)
	if err != nil {
		klog.FromContext(r.Context()).V(2).Info("Refusing a request to the webhook", "status", status, "err", err)
		metrics.Webhook("", metrics.WebhookRefused, time.Since(started))
		http.Error(w, err.Error(), status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // the caller may have gone
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) (status int, answer []byte, err error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return http.StatusMethodNotAllowed, nil, fmt.Errorf("an AdmissionReview comes by POST, not %s", r.Method)
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return http.StatusUnsupportedMediaType, nil, errors.New("an AdmissionReview comes as application/json")
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	size := r.ContentLength
	if size < 0 || size > maxBody { // it is not known, or refused below
		size = maxBody
	}
	weight := 1 + size>>20
	if h.turns.Acquire(ctx, weight) != nil {
		return http.StatusServiceUnavailable, nil, errors.New("too many requests at once")
	}
	defer h.turns.Release(weight)
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(patience)) // not in tests
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return http.StatusRequestEntityTooLarge, nil, fmt.Errorf("at most %d bytes are read", tooLarge.Limit)
	} else if err != nil {
		return http.StatusBadRequest, nil, fmt.Errorf("reading the request: %w", err)
	}
	if bytes.Count(body, []byte("{"))+bytes.Count(body, []byte("[")) > maxObjects {
		return http.StatusRequestEntityTooLarge, nil, fmt.Errorf("at most %d objects and lists are read", maxObjects)
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil {
		return http.StatusBadRequest, nil, fmt.Errorf("reading the AdmissionReview: %w", err)
	}
	if gvk := review.GroupVersionKind(); gvk != admissionv1.SchemeGroupVersion.WithKind("AdmissionReview") || review.Request == nil {
		return http.StatusBadRequest, nil, fmt.Errorf("an AdmissionReview of %s with a request is needed, this is %s", admissionv1.SchemeGroupVersion, gvk)
	}
	if review.Request.UID == "" {
		return http.StatusBadRequest, nil, errors.New("the request of the AdmissionReview has no uid")
	}
	if kind := review.Request.Kind; kind.Group != appsv1.GroupName || readers[kind.Kind] == nil {
		return http.StatusBadRequest, nil, fmt.Errorf("a %s is not a workload whose pods can be restarted", kind.Kind)
	}
	review.Response = h.review(ctx, review.Request)
	review.Request = nil
	answer, err = json.Marshal(&review)
	if err != nil {
		return http.StatusInternalServerError, nil, fmt.Errorf("writing the answer: %w", err)
	}
	return http.StatusOK, answer, nil
}

// review answers a request. It never refuses one.
func (h *Handler) review(ctx context.Context, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	started := time.Now()
	response := &admissionv1.AdmissionResponse{UID: r.UID, Allowed: true}
	patch, result, err := h.admit(ctx, r)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Admitting a workload as it is", "kind", r.Kind.Kind, "workload", klog.KRef(r.Namespace, r.Name))
		result = metrics.WebhookError
	}
	if patch != nil {
		response.Patch, response.PatchType = patch, new(admissionv1.PatchTypeJSONPatch)
	}
	metrics.Webhook(string(r.Operation), result, time.Since(started))
	return response
}

// admit returns the patch for a workload, or nil.
func (h *Handler) admit(ctx context.Context, r *admissionv1.AdmissionRequest) (patch []byte, result string, err error) {
	switch {
	case r.SubResource != "" || r.Operation != admissionv1.Create && r.Operation != admissionv1.Update:
		return nil, metrics.WebhookUnchanged, nil
	case slices.Contains(h.Exempt, r.Namespace),
		len(h.Namespaces) > 0 && !slices.Contains(h.Namespaces, r.Namespace), // nothing is known of it
		writtenByUs(r): // a webhook configuration without our match conditions
		return nil, metrics.WebhookUnchanged, nil
	}
	object, err := readWorkload(r.Kind.Kind, r.Namespace, r.Object.Raw)
	if err != nil {
		return nil, "", err
	}
	var before *shape
	if r.Operation == admissionv1.Update {
		if before, err = readShape(r.Kind.Kind, r.OldObject.Raw); err != nil {
			return nil, "", err
		}
	}
	marks, purpose, ready := h.marks(ctx, object, before)
	if !ready {
		return nil, metrics.WebhookNotReady, nil
	}
	if patch, err = object.patch(marks); err != nil {
		return nil, "", fmt.Errorf("making the patch: %w", err)
	}
	if patch == nil {
		return nil, metrics.WebhookUnchanged, nil
	}
	return patch, string(purpose), nil
}

// writtenByUs reports whether it is the controller or a reload that writes. Any client may
// claim to be, and gets what it writes.
func writtenByUs(r *admissionv1.AdmissionRequest) bool {
	var options metav1.PatchOptions // those of create and update have the field as well
	return json.Unmarshal(r.Options.Raw, &options) == nil && options.FieldManager == policy.FieldManager
}

// marks asks which annotations a workload is to carry. It returns false while the index
// does not equal the cluster.
func (h *Handler) marks(ctx context.Context, object *written, before *shape) (marks policy.Marks, purpose policy.Purpose, ready bool) {
	admission := policy.Admission{NewTemplate: before == nil || !sameTemplate(&object.shape, before)}
	if before != nil {
		admission.Before = before.workload()
	}
	var absent []dependency.SourceKey
	var digester *dependency.Digester
	evaluate := func(g *dependency.Graph) {
		admission.Evaluation = policy.EvaluateWithoutGlobs(g, digester, object.Workload, h.Defaults)
		marks, purpose = admission.Marks(), admission.Purpose()
	}
	ready = h.Graph.Read(func(g *dependency.Graph) {
		digester = h.Digester()
		evaluate(g)
		if purpose == policy.Adopt || purpose == policy.Stamp {
			absent = admission.Absent()
		}
	})
	if !ready || len(absent) == 0 {
		return marks, purpose, ready
	}
	// They may have been made a moment ago, by the same kubectl apply.
	found, err := h.find(ctx, digester, absent)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Looking up sources of a workload that is written; it is left to the controller", "workload", klog.KRef(object.Namespace, object.Name), "err", err)
		admission.Unsure = true
	}
	if len(found) > 0 || admission.Unsure {
		ready = h.Graph.Read(func(g *dependency.Graph) {
			if now := h.Digester(); now != digester { // what was looked up says nothing any more
				digester, found, admission.Unsure = now, nil, true
			}
			evaluate(g.With(found))
		})
	}
	return marks, purpose, ready
}
