// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package leaks searches the logs of replicas with the maximum verbosity for tokens, keys, and content of Secrets,
// after every kind of use.
package leaks

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/controlplane"
	"github.com/configdep/configdep/test/install"
	"github.com/configdep/configdep/test/search"
)

// auditPolicy makes the replicas log requests and answers.
const auditPolicy = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","rules":[{"level":"RequestResponse"}]}`

// keySecret is the Secret with the key of the config hash.
const keySecret = "configdep-hmac-key"

// scene is a cluster with replicas, and the texts that they must not log.
type scene struct {
	*testing.T

	cluster *controlplane.ControlPlane
	server  *install.Installation
	core    kubernetes.Interface

	secret map[string]string // by description
}

func TestNothingSecretIsLogged(t *testing.T) {
	cluster, err := controlplane.Start(t.Context(), controlplane.Options{Nodes: 1, Log: t.Output(), KeepDir: os.Getenv("CONTROLPLANE_KEEP") != ""})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := &scene{T: t, cluster: cluster, secret: map[string]string{}}
	if s.core, err = kubernetes.NewForConfig(cluster.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	policy := filepath.Join(t.TempDir(), "audit.json")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	s.server, err = install.Install(t.Context(), cluster, install.Options{
		Values: "recreate", Replicas: 2, ManagedCertificates: true,
		Args: []string{
			"-v=10", "--audit-policy-file=" + policy, "--audit-log-path=-", "--shutdown-delay-duration=0s",
			"--serving-certificate-lifetime=36s", "--serving-ca-lifetime=2m",
			"--leader-elect-lease-duration=3s",
		},
		Env: []string{"GOTRACEBACK=crash"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.server.Stop)
	s.knowTheServer()

	s.tokens()
	s.parameters()
	shop := s.newShop()
	// One more replica, which logs in JSON.
	replica, err := s.server.StartExtra("json", install.ReplicaOptions{Binary: s.dumping(), Args: []string{"--logging-format=json"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := replica.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	replicas := append(slices.Clone(s.server.Replicas), replica)
	shop.use(replicas)
	shop.change()
	shop.recreate()
	s.replaceTheKey()
	s.renewCertificates()
	shop.changeWhileNoReplicaRuns(replicas)
	shop.use(replicas)
	s.crash(replica)

	if err := s.server.CheckLogs(); err != nil {
		t.Error(err)
	}
	s.search()
}

// made fails the test if an object could not be created or changed.
func (s *scene) made(_ any, err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// knowTheServer notes the secrets that the server has from the start.
func (s *scene) knowTheServer() {
	s.Helper()
	own, err := clientcmd.BuildConfigFromFlags("", filepath.Join(s.server.Dir(), "kubeconfig.yaml"))
	if err != nil {
		s.Fatal(err)
	}
	s.secret["the token of the server"] = own.BearerToken
	s.noteKeys("at first")
}

// noteKeys notes the keys in the Secrets of the server.
func (s *scene) noteKeys(when string) {
	s.Helper()
	key, err := s.core.CoreV1().Secrets(install.Namespace).Get(s.Context(), keySecret, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	s.secret["the key of the hashes "+when] = string(key.Data["key"])
	s.noteCertificate(s.certificate(s.Context()), when)
}

func (s *scene) certificate(ctx context.Context) *corev1.Secret {
	secret, err := s.core.CoreV1().Secrets(install.Namespace).Get(ctx, install.CertificateSecret, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return secret
}

func (s *scene) noteCertificate(secret *corev1.Secret, when string) {
	for _, name := range []string{"tls.key", "ca.key"} {
		for i, line := range bytes.Split(secret.Data[name], []byte("\n")) {
			if len(line) == 64 { // a full line of the PEM encoding
				s.secret[fmt.Sprintf("%s %s, line %d", name, when, i)] = string(line)
			}
		}
	}
}

// token returns a token of a new ServiceAccount with all permissions.
func (s *scene) token(account string) string {
	s.Helper()
	made := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: account}}
	s.made(s.core.CoreV1().ServiceAccounts("default").Create(s.Context(), made, metav1.CreateOptions{}))
	s.made(s.core.RbacV1().ClusterRoleBindings().Create(s.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: account}},
	}, metav1.CreateOptions{}))
	answer, err := s.core.CoreV1().ServiceAccounts("default").CreateToken(s.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return answer.Status.Token
}

const (
	goodToken    = "the token of a caller"
	lastingToken = "the token of a caller that is in a Secret"
	badToken     = "a token that is not valid"
	forgedToken  = "a token with another signature"
	password     = "the password of a caller"
)

// tokens creates the tokens of callers. One is in a Secret that the server reads, as monitoring needs it.
func (s *scene) tokens() {
	s.Helper()
	s.secret[goodToken] = s.token("caller")
	s.secret[badToken], s.secret[password] = rand.Text(), rand.Text()
	s.secret[forgedToken] = s.secret[goodToken][:strings.LastIndex(s.secret[goodToken], ".")+1] + strings.Repeat(rand.Text(), 13)
	lasting := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "monitoring", Annotations: map[string]string{corev1.ServiceAccountNameKey: "caller"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
	s.made(s.core.CoreV1().Secrets("default").Create(s.Context(), lasting, metav1.CreateOptions{}))
	await.Until(s, "the Secret has a token", func(ctx context.Context) error {
		secret, err := s.core.CoreV1().Secrets("default").Get(ctx, "monitoring", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if s.secret[lastingToken] = string(secret.Data[corev1.ServiceAccountTokenKey]); s.secret[lastingToken] == "" {
			return errors.New("no token")
		}
		return nil
	})
}

// parameters binds a policy for the API to parameters in a ConfigMap, so that the server reads it.
func (s *scene) parameters() {
	s.Helper()
	s.secret["a parameter of a policy"] = rand.Text()
	s.made(s.core.CoreV1().ConfigMaps("default").Create(s.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "parameters"}, Data: map[string]string{"parameter": s.secret["a parameter of a policy"]},
	}, metav1.CreateOptions{}))
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "reloads"}}
	policy.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"configdep.io"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
		},
	}}}
	policy.Spec.Validations = []admissionregistrationv1.Validation{{Expression: `params.data.parameter != ""`}}
	s.made(s.core.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(s.Context(), policy, metav1.CreateOptions{}))
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "reloads"}}
	binding.Spec.PolicyName = "reloads"
	binding.Spec.ParamRef = &admissionregistrationv1.ParamRef{
		Name: "parameters", Namespace: "default", ParameterNotFoundAction: new(admissionregistrationv1.DenyAction),
	}
	binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	s.made(s.core.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(s.Context(), binding, metav1.CreateOptions{}))
}

// replaceTheKey replaces the key of the config hash, and then removes it.
func (s *scene) replaceTheKey() {
	s.Helper()
	secrets := s.core.CoreV1().Secrets(install.Namespace)
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails, according to its documentation
	secret, err := secrets.Get(s.Context(), keySecret, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	secret.Data["key"] = key
	s.made(secrets.Update(s.Context(), secret, metav1.UpdateOptions{}))
	s.secret["the key of the hashes, replaced"] = string(key)
	s.noteKeys("after another key")
	s.awaitLogged("the key of the config hash has been replaced", "The key of the config hash has been replaced")
	s.made(secrets.Patch(s.Context(), keySecret, types.MergePatchType, []byte(`{"data": null}`), metav1.PatchOptions{}))
	await.Until(s, "the key is restored", func(ctx context.Context) error {
		back, err := secrets.Get(ctx, keySecret, metav1.GetOptions{})
		if err == nil && !bytes.Equal(back.Data["key"], key) {
			err = errors.New("the Secret has another key")
		}
		return err
	})
}

// renewCertificates makes the server create another certificate and another CA, and notes all keys in between.
func (s *scene) renewCertificates() {
	s.Helper()
	first := s.certificate(s.Context())
	s.made(s.core.CoreV1().Secrets(install.Namespace).Patch(s.Context(), first.Name, types.MergePatchType, []byte(`{"data": {"ca.key": null}}`), metav1.PatchOptions{}))
	last := ""
	await.Watching(s, "the certificate and its CA have been replaced", func(ctx context.Context) error {
		now := s.certificate(ctx)
		if now.ResourceVersion != last { // the search takes time for each text that is noted
			last = now.ResourceVersion
			s.noteCertificate(now, "in version "+last)
		}
		for _, name := range []string{"tls.key", "ca.key"} {
			if key := now.Data[name]; len(key) == 0 || bytes.Equal(key, first.Data[name]) {
				return fmt.Errorf("there is no other %s", name)
			}
		}
		return nil
	})
}

// dumping returns a program that runs the server, with permission to write a core dump into the current folder.
func (s *scene) dumping() string {
	s.Helper()
	binary, err := install.Build(s.Context(), "./cmd/"+install.Name, false)
	if err != nil {
		s.Fatal(err)
	}
	path := filepath.Join(s.TempDir(), "dumping")
	script := "#!/bin/sh\nulimit -c unlimited || true\ncd " + s.TempDir() + "\nexec " + binary + ` "$@"` + "\n"
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		s.Fatal(err)
	}
	return path
}

// crash aborts a replica as a fault would, so that it prints the stacks of all goroutines.
func (s *scene) crash(r *install.Replica) {
	s.Helper()
	if err := syscall.Kill(r.PID(), syscall.SIGABRT); err != nil {
		s.Fatal(err)
	}
	if err := r.Terminate(); err == nil || !strings.Contains(err.Error(), "abort") || strings.Contains(err.Error(), "core dumped") {
		s.Errorf("after SIGABRT, the replica ended with %v", err)
	}
}

func (s *scene) logs() map[string][]byte {
	s.Helper()
	logs := map[string][]byte{}
	for _, name := range []string{"replica-0", "replica-1", "json"} {
		log, err := os.ReadFile(filepath.Join(s.server.Dir(), name+".log"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			s.Fatal(err)
		}
		logs[name] = log
	}
	return logs
}

func (s *scene) awaitLogged(what, text string) {
	s.Helper()
	await.Until(s, what, func(context.Context) error {
		for name, log := range s.logs() {
			if len(log) > 0 && !bytes.Contains(log, []byte(text)) {
				return fmt.Errorf("the log of %s does not contain the text", name)
			}
		}
		return nil
	})
}

// everyClient contains a path for each client of the process, to prove that the client was used while the log was
// written.
var everyClient = []string{
	"/apis/authentication.k8s.io/v1/tokenreviews", "/apis/authorization.k8s.io/v1/subjectaccessreviews",
	"/namespaces/kube-system/configmaps?", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", "validatingadmissionpolicies",
	"validatingwebhookconfigurations", "/api/v1/configmaps?", "/api/v1/secrets?", "/apis/apps/v1/deployments?", "/api/v1/pods?",
	"/namespaces/configdep-system/secrets/" + keySecret, "/namespaces/configdep-system/secrets/" + install.CertificateSecret,
	"/apis/apiregistration.k8s.io/v1/apiservices",
	"/namespaces/configdep-system/leases", "/events", "/version", "/namespaces/shop/deployments/web", "/apis/apps/v1/replicasets?",
	"/eviction",
}

// said contains texts that the log of each used replica must contain, to prove that the search works.
var said = []string{"/apis/configdep.io/v1alpha1/namespaces/shop", "system:serviceaccount:default:caller", `"kind":"Reload"`, reason}

func (s *scene) search() {
	s.Helper()
	logs := s.logs()
	var all []byte
	for name, log := range logs {
		all = append(all, log...)
		s.Logf("%s has logged %d bytes", name, len(log))
		places := map[string][]byte{"the log": log, "a body in the log": search.Bodies(log)}
		for place, where := range places {
			for what, text := range s.secret {
				for _, form := range search.Forms(text) {
					for _, at := range search.Find(where, form) {
						s.Errorf("%s of %s contains %s at %d:\n%q", place, name, what, at, search.Around(where, at))
					}
				}
			}
		}
	}
	for what, text := range s.secret {
		if len(text) < 16 {
			s.Errorf("%s is too short: %q", what, text)
		}
	}
	for _, want := range everyClient {
		if !bytes.Contains(all, []byte(want)) {
			s.Errorf("no log contains %q, so this client was not tested", want)
		}
	}
	for name, log := range logs {
		for _, want := range said {
			if !bytes.Contains(bytes.ReplaceAll(log, []byte(`\"`), []byte(`"`)), []byte(want)) {
				s.Errorf("the log of %s (%d bytes) lacks %q, so the search proves nothing", name, len(log), want)
			}
		}
	}
	if !bytes.Contains(logs["json"], []byte("SIGABRT")) {
		s.Error("the aborted replica has not printed its stacks")
	}
}

// bearer, basic and protocol return headers for the ways of sending credentials.
func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

func basic(password string) http.Header {
	return http.Header{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte("caller:"+password))}}
}

func protocol(token string) http.Header {
	return http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Origin": {"https://example.com"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
		"Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token)) + ", base64.binary.k8s.io"},
	}
}

// send sends a request and returns the status code of the answer.
func (s *scene) send(config *rest.Config, method, path string, header http.Header, body string) int {
	s.Helper()
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"} // for WebSockets
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		s.Fatal(err)
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(s.Context(), await.Limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, config.Host+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	r.Header = header.Clone()
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := client.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusSwitchingProtocols {
		s.made(io.Copy(io.Discard, answer.Body))
	}
	return answer.StatusCode
}
