// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// refusal is the error of a rejected request. Its message says what the user can do.
type refusal struct {
	code    int32
	reason  metav1.StatusReason
	message string
}

func badRequest(message string) refusal {
	return refusal{http.StatusBadRequest, metav1.StatusReasonBadRequest, message}
}

func invalid(message string) refusal {
	return refusal{http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, message}
}

var (
	notAllowed    = refusal{http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "does not allow this method"}
	noSuchPath    = refusal{http.StatusNotFound, metav1.StatusReasonNotFound, "could not find the requested resource"}
	notAcceptable = refusal{http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "application/json"}
	unsupported   = refusal{http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "application/json, application/yaml"}
)

// Every invalid request gets a Status that says what is wrong, through the aggregator and without it.
func TestBadRequestsAreRefusedWithAStatus(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	create(t, kube.AppsV1().Deployments(namespace).Create, asleep("web"))
	view(t, namespace, "deployment.web")

	all := resourcePath(namespace)
	web := all + "/deployment.web"
	reload := web + "/reload"
	post := func(body string) request { return request{http.MethodPost, reload, inJSON, body} }
	postWith := func(query, body string) request { return request{http.MethodPost, reload + "?" + query, inJSON, body} }
	get := func(path string) request { return request{path: path} }

	type test struct {
		request
		want refusal
	}
	tests := map[string]test{
		// The body of a Reload.
		"no body, no content type": {request{method: http.MethodPost, path: reload}, badRequest("the body is empty: {} is enough")},
		"no body":                  {post(""), badRequest("the body is empty: {} is enough")},
		"incomplete JSON":          {post(`{"spec":`), badRequest("unexpected end of JSON input")},
		"not JSON":                 {post("reload it!"), badRequest("json parse error")},
		"a list":                   {post("[]"), badRequest("cannot unmarshal array")},
		"a string":                 {post(`"Reload"`), badRequest("cannot unmarshal string")},
		"invalid YAML":             {request{http.MethodPost, reload, header("Content-Type", "application/yaml"), "spec: {mode: ["}, badRequest("yaml")},
		"a kind of another group":  {post(`{"kind":"Pod","apiVersion":"v1"}`), badRequest(`Pod in version "v1" cannot be handled as a Reload`)},
		"another kind":             {post(`{"kind":"ConfigDependency","apiVersion":"configdep.io/v1alpha1"}`), badRequest("cannot be handled as a Reload")},
		"another version":          {post(`{"kind":"Reload","apiVersion":"configdep.io/v9"}`), badRequest(`Reload in version "v9" cannot be handled as a Reload`)},
		"an unknown field":         {post(`{"spec":{"when":"now"}}`), badRequest(`unknown field "spec.when"`)},
		"ignored, it says":         {postWith("fieldValidation=Ignore", `{"spec":{"when":"now"}}`), badRequest(`unknown field "spec.when"`)},
		"in YAML":                  {post("spec: {when: now}\n"), badRequest(`unknown field "spec.when"`)},
		"a field twice":            {post(`{"spec":{"mode":"Always","mode":"IfStale"}}`), badRequest(`duplicate field "spec.mode"`)},
		"twice in YAML":            {post("spec: {mode: Always, mode: IfStale}\n"), badRequest(`key "mode" already set`)},
		"a field of another type":  {post(`{"spec":{"reason":5}}`), badRequest("spec.reason")},
		"a body of another type":   {request{http.MethodPost, reload, header("Content-Type", "text/plain"), "{}"}, unsupported},
		"a body in protobuf":       {request{http.MethodPost, reload, header("Content-Type", "application/vnd.kubernetes.protobuf"), "k8s\x00"}, unsupported},
		"YAML with aliases":        {request{http.MethodPost, reload, header("Content-Type", "application/yaml"), "x: &a y\nz: *a\n"}, badRequest("YAML with aliases (*name) is not accepted")},
		"the same as JSON":         {post("x: &a y\nz: *a\n"), badRequest("YAML with aliases (*name) is not accepted")},
		"a body of 65 kB": {post(`{"spec":{"reason":"` + strings.Repeat("x", 64<<10) + `"}}`),
			refusal{http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, "limit is"}},
		"the name of another object":       {post(`{"metadata":{"name":"deployment.other"}}`), badRequest("deployment.other")},
		"another namespace":                {post(`{"metadata":{"namespace":"elsewhere"}}`), badRequest("namespace")},
		"an unknown mode":                  {post(`{"spec":{"mode":"Sometimes"}}`), invalid(`spec.mode: Unsupported value: "Sometimes": supported values: "Always", "IfStale"`)},
		"a long reason":                    {post(`{"spec":{"reason":"` + strings.Repeat("ä", 257) + `"}}`), invalid("spec.reason: Too long: may not be more than 256 characters")},
		"a reason of two lines":            {post(`{"spec":{"reason":"x\nERROR"}}`), invalid(`spec.reason: Invalid value: "\n": must be a single line without control or invisible characters`)},
		"all errors at once":               {post(`{"spec":{"mode":"x","reason":"` + strings.Repeat("x", 257) + `"}}`), invalid("[spec.mode: Unsupported value")},
		"an unknown dry run":               {postWith("dryRun=Some", "{}"), invalid("dryRun: Unsupported value")},
		"an unknown validation":            {postWith("fieldValidation=Some", "{}"), invalid("fieldValidation: Unsupported value")},
		"a long field manager":             {postWith("fieldManager="+strings.Repeat("x", 129), "{}"), invalid("fieldManager: Too long")},
		"a reload of an unknown name":      {request{http.MethodPost, all + "/deployment.none/reload", inJSON, "{}"}, refusal{http.StatusNotFound, metav1.StatusReasonNotFound, `configdependencies.configdep.io "deployment.none" not found`}},
		"a reload in an unknown namespace": {request{http.MethodPost, resourcePath("no-such-namespace") + "/deployment.web/reload", inJSON, "{}"}, refusal{http.StatusNotFound, metav1.StatusReasonNotFound, `namespaces "no-such-namespace" not found`}},
		"a reload without a namespace":     {request{http.MethodPost, apiPath + "/configdependencies/deployment.web/reload", inJSON, "{}"}, noSuchPath},

		// Formats of the answer.
		"YAML":                     {request{path: all, header: header("Accept", "application/yaml")}, notAcceptable},
		"HTML":                     {request{path: all, header: header("Accept", "text/html")}, notAcceptable},
		"protobuf only":            {request{path: all, header: header("Accept", "application/vnd.kubernetes.protobuf")}, notAcceptable},
		"CBOR":                     {request{path: web, header: header("Accept", "application/cbor")}, notAcceptable},
		"a Table of version 9":     {request{path: all, header: header("Accept", "application/json;as=Table;v=v9;g=meta.k8s.io")}, notAcceptable},
		"an invalid Accept header": {request{path: all, header: header("Accept", "json")}, notAcceptable},

		// Paths and methods.
		"GET of a reload":               {get(reload), notAllowed},
		"an unknown subresource":        {get(web + "/status"), noSuchPath},
		"a path below a reload":         {get(reload + "/more"), noSuchPath},
		"an unknown resource":           {get(apiPath + "/dependencies"), noSuchPath},
		"an object without a namespace": {get(apiPath + "/configdependencies/deployment.web"), noSuchPath},

		// Parameters of get and list.
		"get: an invalid version":               {get(web + "?resourceVersion=latest"), badRequest(`invalid resource version "latest"`)},
		"get: a future version":                 {get(web + "?resourceVersion=" + farFuture), refusal{http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "Too large resource version"}},
		"get: an invalid timeout":               {get(web + "?timeout=soon"), badRequest("invalid timeout")},
		"list: an unsupported field":            {get(all + "?fieldSelector=spec.replicas%3D1"), badRequest("use one of metadata.name, metadata.namespace, status.state, status.reason, spec.reload.mode, spec.workloadRef.kind, spec.workloadRef.name, source")},
		"list: a source without a kind":         {get(all + "?fieldSelector=source%3Ddb"), badRequest("not of the form ConfigMap/NAME, Secret/NAME or SecretProviderClass/NAME")},
		"list: a source without a name":         {get(all + "?fieldSelector=source%3DSecret/"), badRequest("not of the form ConfigMap/NAME, Secret/NAME or SecretProviderClass/NAME")},
		"list: a source of an unsupported kind": {get(all + "?fieldSelector=source%3DDeployment/web"), badRequest("not of the form ConfigMap/NAME, Secret/NAME or SecretProviderClass/NAME")},
		"list: an expired version": {get(all + "?resourceVersion=1&resourceVersionMatch=Exact"),
			refusal{http.StatusGone, metav1.StatusReasonExpired, "too old"}},
		"list: a token without a namespace": {get(all + "?continue=" + continueToken(`{"v":"meta.k8s.io/v1","rv":1,"start":"deployment.web"}`)), badRequest("invalid continue token")},
		"list: a token with a path":         {get(all + "?continue=" + continueToken(`{"v":"meta.k8s.io/v1","rv":1,"start":"../../etc"}`)), badRequest("invalid continue token")},
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions} {
		for name, path := range map[string]string{"a namespace": all, "all namespaces": apiPath + "/configdependencies", "an object": web, "a reload": reload} {
			if method != http.MethodPost || path != reload {
				tests[method+" of "+name] = test{request{method, path, inJSON, "{}"}, notAllowed}
			}
		}
	}
	for _, name := range []string{
		"deployment", "deployment.", ".web", "..", "...", "deployment.none", "DEPLOYMENT.WEB", "Deployment.web", "web",
		"deployment.web ", " deployment.web", "deployment.web?x", "deployment.web\x00", "deployment.web\n", "%", "\xff\xfe", "😀", `{"`,
		"deployment.web;x", strings.Repeat("x", 1000),
	} {
		missing := refusal{http.StatusNotFound, metav1.StatusReasonNotFound, "configdependencies.configdep.io"}
		path := all + "/" + strings.ReplaceAll(url.PathEscape(name), ".", "%2E")
		tests["GET of "+name] = test{get(path), missing}
		tests["reload of "+name] = test{request{http.MethodPost, path + "/reload", inJSON, "{}"}, missing}
	}
	for _, name := range []string{"deployment/web", "../configdependencies/deployment.web", "deployment.web/"} {
		tests["GET of "+name] = test{get(all + "/" + url.PathEscape(name) + "/reload/x"), noSuchPath}
	}

	for name, tt := range tests {
		for _, where := range everywhere {
			t.Run(name+", "+where.name, func(t *testing.T) {
				t.Parallel()
				checkRefused(t, send(t, where.Config, tt.request), tt.want)
			})
		}
	}
}

// continueToken encodes a token as the server does.
func continueToken(content string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(content))
}

func checkRefused(t *testing.T, got *answer, want refusal) {
	t.Helper()
	status := got.status()
	if status == nil {
		t.Fatalf("the answer, a %d of type %s, is not a Status: %s", got.code, got.header.Get("Content-Type"), got.body)
	}
	if got.code != int(want.code) || status.Code != want.code || status.Reason != want.reason || status.Status != metav1.StatusFailure {
		t.Errorf("answer = %d (%d in the Status) %s, want %d %s", got.code, status.Code, status.Reason, want.code, want.reason)
	}
	if !strings.Contains(status.Message, want.message) {
		t.Errorf("message = %q, want it to contain %q", status.Message, want.message)
	}
}

// farFuture is a version that no cluster reaches.
const farFuture = "4611686018427387903"

// Common parameters have the same meaning as for other resources.
func TestListParametersAreThoseOfKubernetes(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	create(t, kube.AppsV1().Deployments(namespace).Create, asleep("web"))
	view(t, namespace, "deployment.web")
	for _, query := range []string{
		"labelSelector=+%3D", "labelSelector=a+in+(", "labelSelector=a%3D%3D%3Db", "labelSelector=-",
		"fieldSelector=foo", "fieldSelector=%3D", "fieldSelector=a%3Cb",
		"limit=x", "limit=-1", "limit=0", "limit=1.5", "limit=99999999999999999999",
		"continue=x", "continue=%00", "limit=1&continue=e30", "continue=" + continueToken(`{"v":"meta.k8s.io/v9","rv":1,"start":"x"}`),
		"continue=" + continueToken(`{"v":"meta.k8s.io/v1","rv":1}`), "continue=x&resourceVersion=5",
		"resourceVersion=x", "resourceVersion=-1", "resourceVersion=0x10", "resourceVersion=0", "resourceVersion=" + farFuture,
		"resourceVersionMatch=Exact", "resourceVersionMatch=NotOlderThan", "resourceVersionMatch=Roughly&resourceVersion=1",
		"resourceVersionMatch=Exact&resourceVersion=0", "resourceVersionMatch=Exact&resourceVersion=" + farFuture,
		"sendInitialEvents=true", "sendInitialEvents=x", "allowWatchBookmarks=x",
		"watch=true&timeoutSeconds=x", "watch=true&labelSelector=a+in+(",
		"watch=true&sendInitialEvents=true", "watch=true&sendInitialEvents=false", "watch=true&resourceVersionMatch=NotOlderThan",
		"watch=true&sendInitialEvents=true&resourceVersionMatch=Exact",
		"watch=true&timeoutSeconds=1", "watch=true&timeoutSeconds=1&resourceVersion=0",
		"timeout=x", "timeout=-5s", "timeout=5", "timeoutSeconds=x", "timeoutSeconds=-1",
		"pretty=x", "unknown=1", "dryRun=Some",
	} {
		for _, where := range everywhere {
			t.Run(query+", "+where.name, func(t *testing.T) {
				t.Parallel()
				theirs := send(t, cluster.RESTConfig(), request{path: "/api/v1/namespaces/" + namespace + "/configmaps?" + query})
				ours := send(t, where.Config, request{path: resourcePath(namespace) + "?" + query})
				if ours.code != theirs.code || ours.reason() != theirs.reason() {
					t.Errorf("answer = %d %s: %s\nFor ConfigMaps it is %d %s: %s",
						ours.code, ours.reason(), ours.body, theirs.code, theirs.reason(), theirs.body)
				}
			})
		}
	}
}

// Clients that prefer protobuf, which many programs configure for all resources, get JSON, as for custom
// resources.
func TestClientsThatPreferProtobufGetJSON(t *testing.T) {
	t.Parallel()
	namespace := newNamespace(t)
	create(t, kube.AppsV1().Deployments(namespace).Create, asleep("web"))
	view(t, namespace, "deployment.web")

	config := cluster.RESTConfig()
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client := clientset(t, config).ConfigdepV1alpha1().ConfigDependencies(namespace)
	if list, err := client.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 1 {
		t.Errorf("list: %v, %v", list, err)
	}
	if _, err := client.Get(t.Context(), "deployment.web", metav1.GetOptions{}); err != nil {
		t.Errorf("get: %v", err)
	}
	if got, err := client.Reload(t.Context(), "deployment.web", &v1alpha1.Reload{}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil || !got.Status.Triggered {
		t.Errorf("reload: %v, %v", got, err)
	}
}
