// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package response bounds the memory of responses that are encoded at the same time. Priority and fairness bounds only their number, and
// one can be thousands of times as large as another. The storage of each resource says how large a response is before it makes it. This
// package imports nothing of this project.
package response

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/munnerz/goautoneg"
	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// The limits are in bytes of JSON. A response that is not streamed takes two to three times as much memory while it is encoded.
const (
	// PageBytes is where a page of a list ends, whatever its limit is, so that it is a small response.
	PageBytes = 1 << 20
	// maxSmall is the size of the largest small response. These do not wait for larger ones.
	maxSmall = 2 << 20
	// Of all responses of a class. No response is larger than all may be together.
	allSmall, allLarge = 8 << 20, 16 << 20
	// maxWait is how long a response waits for others. It occupies a seat of priority and fairness meanwhile.
	maxWait = 3 * time.Second
	// maxSend is how long a client may take to read a response, during which others wait. The generic API server cannot end a write.
	maxSend = time.Minute
)

// Format is how a response is encoded.
type Format int

const (
	// Streamed is JSON, a list object by object.
	Streamed Format = iota
	// Metadata is a table, or metadata, without the objects.
	Metadata
	// Objects is a table with the objects.
	Objects
)

// limiter has the bytes that may yet be encoded.
type limiter struct {
	small, large *semaphore.Weighted
	maxSend      time.Duration
}

// response is what the context of a request has.
type response struct {
	*limiter

	format  Format
	writer  *http.ResponseController
	release func() // nil: it has taken nothing
}

type key struct{}

// WithLimit lets handlers call FormatOf and Take. It refuses responses in YAML with 406, which take a hundred times their size, unless the
// client accepts JSON too; and it never indents them, not even for curl, which takes ten times.
func WithLimit(api http.Handler, codecs runtime.NegotiatedSerializer) http.Handler {
	return (&limiter{semaphore.NewWeighted(allSmall), semaphore.NewWeighted(allLarge), maxSend}).handler(api, codecs)
}

func (l *limiter) handler(api http.Handler, codecs runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		info, is := genericapirequest.RequestInfoFrom(request.Context())
		if !is || !info.IsResourceRequest {
			api.ServeHTTP(w, request)
			return
		}
		accept, err := accepted(request.Header.Get("Accept"))
		if err != nil {
			responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{Version: "v1"}, w, request)
			return
		}
		out := &response{limiter: l, writer: http.NewResponseController(w)}
		switch {
		case !strings.Contains(accept, "as="):
		case request.URL.Query().Get("includeObject") == string(metav1.IncludeObject):
			out.format = Objects
		default:
			out.format = Metadata
		}
		request = request.Clone(context.WithValue(request.Context(), key{}, out))
		if accept != "" {
			request.Header.Set("Accept", accept)
		}
		request.URL.RawQuery = "pretty=false&" + request.URL.RawQuery // the first value counts
		defer func() {
			if out.release != nil {
				out.release()
				_ = out.writer.SetWriteDeadline(time.Time{}) // the next request on the connection may be a watch
			}
		}()
		api.ServeHTTP(w, request)
	})
}

// accepted returns the header Accept without what is never sent.
func accepted(header string) (string, error) {
	if header == "" {
		return "", nil
	}
	var out []string
	plain := false
	for _, clause := range goautoneg.ParseAccept(header) {
		if strings.EqualFold(clause.SubType, "yaml") {
			continue
		}
		delete(clause.Params, "pretty")
		plain = plain || strings.EqualFold(clause.SubType, "json") || clause.SubType == "*"
		out = append(out, mime.FormatMediaType(clause.Type+"/"+clause.SubType, clause.Params))
	}
	if !plain {
		return "", notAcceptable("this API responds in JSON alone, and the request accepts " + shorten(header) + ": accept application/json")
	}
	return strings.Join(out, ","), nil
}

func shorten(text string) string {
	const most = 64
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

func notAcceptable(message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable, Message: message,
	}}
}

// FormatOf returns how the response to a request is encoded.
func FormatOf(ctx context.Context) Format {
	if out, found := ctx.Value(key{}).(*response); found {
		return out.format
	}
	return Streamed
}

// Take waits until a response of about so many bytes may be encoded. They are given back when the request ends. It is called once for a
// request. Its errors are API errors: 429 if it would have to wait too long, and 406 if it is too large; a streamed one never is.
func Take(ctx context.Context, bytes int) error {
	out, found := ctx.Value(key{}).(*response)
	if !found {
		return nil
	}
	of, size := out.small, int64(bytes)
	if size > maxSmall {
		of = out.large
	}
	switch {
	case size <= allLarge:
	case out.format == Streamed:
		size = allLarge
	default:
		return notAcceptable(fmt.Sprintf("the response would have some %d MiB, and at most %d MiB are encoded as a table or as metadata: set a limit, such as ?limit=500, "+
			"or accept application/json alone", size>>20, allLarge>>20))
	}
	waiting, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	if of.Acquire(waiting, size) != nil {
		return apierrors.NewTooManyRequests("many large responses are being sent, and this one has waited for too long", 5)
	}
	out.release = func() { of.Release(size) }
	_ = out.writer.SetWriteDeadline(time.Now().Add(out.maxSend)) // an error: it cannot be set, as in tests
	return nil
}
