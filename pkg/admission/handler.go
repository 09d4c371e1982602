// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/dependency"
	"github.com/configdep/configdep/pkg/kind"
	"github.com/configdep/configdep/pkg/metrics"
	"github.com/configdep/configdep/pkg/policy"
	"github.com/configdep/configdep/pkg/record"
)

// Path is the URL path of the webhook.
const Path = "/admission/workloads"

// defaultPatience is how long a request waits for its turn, and how long its body may take to arrive: less than the
// timeout of the caller.
const defaultPatience = 2 * time.Second

// Finder looks up the current state of a source; nil: it does not exist.
type Finder interface {
	Find(context.Context, *dependency.Digester, dependency.SourceKey) (*dependency.Source, error)
}

// Config configures a Handler.
type Config struct {
	Index  decide.Index
	Finder Finder
	Clock  clock.PassiveClock
	// Namespaces are those that the graph holds; empty: all.
	Namespaces []string
	// Observe: all workloads are admitted unchanged.
	Observe bool
	// Dialects are those whose annotations are read.
	Dialects policy.Dialects
	// Kinds are the kinds of workloads.
	Kinds kind.Table
	// Exempt reports whether workloads of a namespace are admitted unchanged, for every caller; nil: no
	// namespace is exempt.
	Exempt func(namespace string) bool
}

// Handler answers AdmissionReviews of workloads.
type Handler struct {
	Config

	patience         time.Duration
	bodies, decoding *shares
	finds            *rate.Limiter
	logged           *rate.Limiter
}

// NewHandler returns a Handler.
func NewHandler(c Config) *Handler {
	return &Handler{
		Config: c, patience: defaultPatience, bodies: newShares(bodies, bodiesOfHost), decoding: newShares(decoding, decodingOfHost),
		finds: rate.NewLimiter(findRate, findBurst), logged: rate.NewLimiter(1, 10),
	}
}

// maxText limits the length of what is said about an invalid request, in the log and in the
// answer.
const maxText = 512

// log logs what is wrong with a request, with a limited rate and length, because unauthenticated
// callers can cause it.
func (h *Handler) log(ctx context.Context, level klog.Level, message string, err error, keysAndValues ...any) {
	if logger := klog.FromContext(ctx); h.logged.AllowN(h.Clock.Now(), 1) {
		logger.V(int(level)).Info(message, append(keysAndValues, "err", shortened(err.Error()))...)
	}
}

func shortened(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "..."
}

// ServeHTTP implements http.Handler. Anything other than an AdmissionReview of a workload
// gets an HTTP error, and kube-apiserver continues without the webhook.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	started := h.Clock.Now()
	status, answer, err := h.serve(w, r)
	if err != nil {
		h.log(r.Context(), 2, "Refusing a request to the webhook", err, "status", status)
		metrics.Webhook("", metrics.WebhookRefused, h.Clock.Since(started))
		http.Error(w, shortened(err.Error()), status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // the caller may have gone
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) (status int, answer []byte, err error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return http.StatusMethodNotAllowed, nil, fmt.Errorf("an AdmissionReview must be sent by POST, not %s", r.Method)
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return http.StatusUnsupportedMediaType, nil, errors.New("an AdmissionReview must have the content type application/json")
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.patience)
	defer cancel()
	size := r.ContentLength
	if size < 0 || size > maxBody { // it is not known, or refused below
		size = maxBody
	}
	release, err := h.bodies.acquire(ctx, hostOf(r), max(size, leastBody))
	if err != nil {
		return http.StatusServiceUnavailable, nil, errBusy
	}
	defer release()
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.patience)) // not in tests
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return http.StatusRequestEntityTooLarge, nil, fmt.Errorf("the body has more than %d bytes", tooLarge.Limit)
	} else if err != nil {
		return http.StatusBadRequest, nil, fmt.Errorf("reading the request: %w", err)
	}
	review, err := readReview(body, h.Kinds)
	if err != nil {
		return http.StatusBadRequest, nil, err
	}
	body = nil //nolint:wastedassign,ineffassign // its memory is for what comes of it
	if !h.passes(review.Request) {
		cost := review.Request.cost()
		if cost > decodingOfHost {
			return http.StatusRequestEntityTooLarge, nil, review.Request.tooLarge()
		}
		release, err := h.decoding.acquire(ctx, hostOf(r), cost)
		if err != nil {
			return http.StatusServiceUnavailable, nil, errBusy
		}
		defer release()
	}
	answer, err = json.Marshal(&admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: h.review(ctx, review.Request)})
	if err != nil {
		return http.StatusInternalServerError, nil, fmt.Errorf("writing the answer: %w", err)
	}
	return http.StatusOK, answer, nil
}

var errBusy = errors.New("too many requests at once")

// review answers a request. It never refuses one.
func (h *Handler) review(ctx context.Context, r *request) *admissionv1.AdmissionResponse {
	started := h.Clock.Now()
	response := &admissionv1.AdmissionResponse{UID: r.UID, Allowed: true}
	patch, result, err := h.admit(ctx, r)
	if err != nil {
		h.log(ctx, 0, "Admitting a workload unchanged", err, "kind", r.Kind.Kind, "workload", klog.KRef(r.Namespace, r.Name))
		result = metrics.WebhookError
	}
	if patch != nil {
		response.Patch, response.PatchType = patch, new(admissionv1.PatchTypeJSONPatch)
	}
	metrics.Webhook(r.operation(), result, h.Clock.Since(started))
	return response
}

// passes reports whether a workload is admitted unchanged, whatever its content.
func (h *Handler) passes(r *request) bool {
	return h.Observe || r.SubResource != "" || r.operation() == "" ||
		h.Exempt != nil && h.Exempt(r.Namespace) ||
		len(h.Namespaces) > 0 && !slices.Contains(h.Namespaces, r.Namespace) || // nothing is known of it
		r.Options.FieldManager == record.FieldManager // a webhook configuration without our match conditions; any client may claim to be
}

// admit returns the patch for a workload, or nil.
func (h *Handler) admit(ctx context.Context, r *request) (patch []byte, result string, err error) {
	if h.passes(r) {
		return nil, metrics.WebhookUnchanged, nil
	}
	if r.malformed != nil {
		return nil, "", fmt.Errorf("reading a %s: %w", r.Kind.Kind, r.malformed)
	}
	object, err := readWorkload(h.Kinds, r.kind, h.Dialects, r.Namespace, r.Name, r.object)
	if err != nil {
		return nil, "", err
	}
	if !object.Rollable || object.Borrows { // although others of its kind are; or it has no template of its own, and the controller records it
		return nil, metrics.WebhookUnchanged, nil
	}
	var before *written
	if r.before != nil {
		if before, err = r.before.marked(); err != nil {
			return nil, "", fmt.Errorf("reading the old %s: %w", r.Kind.Kind, err)
		}
	}
	marks, action, ready := h.marks(ctx, object, before, r.Options.FieldManager)
	if !ready {
		return nil, metrics.WebhookNotReady, nil
	}
	if patch, err = object.patch(marks, before); err != nil {
		return nil, "", fmt.Errorf("making the patch: %w", err)
	}
	if patch == nil {
		return nil, metrics.WebhookUnchanged, nil
	}
	return patch, string(action), nil
}

// marks returns what of ours a workload should have that a field manager writes. It returns false
// while the index does not equal the cluster.
func (h *Handler) marks(ctx context.Context, object, before *written, manager string) (marks decide.DesiredAnnotations, action decide.AdmissionAction, ready bool) {
	admission := decide.Admission{NewTemplate: true, Now: h.Clock.Now()}
	if before != nil {
		admission.Before = before.remembered()
		admission.NewTemplate, admission.Variables = changesOf(object, before, manager)
	}
	var absent []dependency.SourceKey
	var digester *dependency.Digester
	evaluate := func(now decide.Evaluator) {
		admission.Evaluation = now.Prepare(object.Workload)
		if action = admission.Action(); action.Records() { // nothing is looked at whose answer is not given
			admission.Complete()
		}
		marks = admission.DesiredAnnotations()
	}
	ready = h.Index.Read(func(now decide.Evaluator) {
		digester = now.Graph.Digester()
		evaluate(now)
		if action.Records() {
			absent = admission.Absent()
		}
	})
	if !ready || len(absent) == 0 {
		return marks, action, ready
	}
	// They may have been created a moment ago, by the same kubectl apply.
	found, err := h.find(ctx, digester, absent)
	if err != nil {
		h.log(ctx, 2, "Could not look up the sources of a workload; leaving it to the controller", err, "workload", klog.KRef(object.Namespace, object.Name))
		admission.Unsure = true
	}
	if len(found) > 0 || admission.Unsure {
		ready = h.Index.Read(func(now decide.Evaluator) {
			if now.Graph.Digester() != digester { // what was looked up says nothing any more
				found, admission.Unsure = nil, true
			}
			now.Graph = now.Graph.With(found)
			evaluate(now)
		})
	}
	return marks, action, ready
}
