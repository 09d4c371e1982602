// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package logging

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // registers the format json
	"k8s.io/klog/v2"
)

const (
	content = "swordfish-of-a-secret"
	token   = "token-of-a-caller"
)

// configure configures logging with apply; logged returns what has been logged since.
func configure(t *testing.T, apply func(*logsapi.LoggingConfiguration, featuregate.FeatureGate) error, change func(*logsapi.LoggingConfiguration)) (logged func() string) {
	t.Helper()
	gates := featuregate.NewFeatureGate()
	if err := logsapi.AddFeatureGates(gates); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	stderr := os.Stderr
	os.Stderr = f
	before := slog.Default()
	t.Cleanup(func() {
		os.Stderr = stderr
		slog.SetDefault(before)
		if err := errors.Join(logsapi.ResetForTest(gates), f.Close()); err != nil {
			t.Error(err)
		}
	})
	c := logsapi.NewLoggingConfiguration()
	change(c)
	if err := apply(c, gates); err != nil {
		t.Fatal(err)
	}
	return func() string {
		klog.Flush()
		log, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(log)
	}
}

// cluster acts as an API server: it returns a Secret, and the user of a token.
func cluster(t *testing.T, contentType string) *kubernetes.Clientset {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer runtime.Object = &corev1.SecretList{Items: []corev1.Secret{{Data: map[string][]byte{"password": []byte(content)}}}}
		if strings.HasSuffix(r.URL.Path, "tokenreviews") {
			answer = &authenticationv1.TokenReview{
				Spec:   authenticationv1.TokenReviewSpec{Token: token},
				Status: authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "jane"}},
			}
		}
		w.Header().Set("Content-Type", contentType)
		info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), contentType)
		if !ok {
			t.Errorf("no serializer of %s", contentType)
			return
		}
		encoder := scheme.Codecs.EncoderForVersion(info.Serializer, schema.GroupVersions{corev1.SchemeGroupVersion, authenticationv1.SchemeGroupVersion})
		if err := encoder.Encode(answer, w); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: server.URL, Transport: &http.Transport{DisableKeepAlives: true}, BearerToken: "token-of-the-server",
		ContentConfig: rest.ContentConfig{ContentType: contentType, AcceptContentTypes: contentType},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// use makes the requests whose bodies contain secrets.
func use(t *testing.T, client *kubernetes.Clientset) {
	t.Helper()
	ctx := klog.NewContext(t.Context(), klog.LoggerWithValues(klog.LoggerWithName(klog.FromContext(t.Context()), "reader"), "resource", "secrets"))
	for _, ctx := range []context.Context{context.Background(), ctx} { //nolint:usetesting // as a client that has no other context
		if _, err := client.CoreV1().Secrets("").List(ctx, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// The generic API server authenticates callers in this way. Its request to the API server does not have the
	// context of the caller.
	authenticator, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		TokenAccessReviewClient: client.AuthenticationV1(), CacheTTL: time.Second, WebhookRetryBackoff: &wait.Backoff{Steps: 1},
	}.New()
	if err != nil {
		t.Fatal(err)
	}
	call := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
	call.Header.Set("Authorization", "Bearer "+token)
	if who, ok, err := authenticator.AuthenticateRequest(call); err != nil || !ok || who.User.GetName() != "jane" {
		t.Fatalf("caller = %+v, %v; want jane", who, err)
	}
}

// secrets returns which secrets a log contains, including those in the dump of a body.
func secrets(log string) (found []string) {
	var bodies strings.Builder
	for line := range strings.Lines(strings.ReplaceAll(log, `\n`, "\n")) { // JSON has them on one line
		if _, dump, ok := strings.Cut(line, "  "); ok && len(dump) > 48 {
			if b, err := hex.DecodeString(strings.ReplaceAll(dump[:48], " ", "")); err == nil {
				bodies.Write(b)
			}
		}
	}
	for _, secret := range []string{content, token, "token-of-the-server"} {
		for _, form := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret))} {
			if strings.Contains(log, form) || strings.Contains(bodies.String(), form) {
				found = append(found, secret)
			}
		}
	}
	return found
}

// A user who investigates a problem sets a high verbosity, and shares the log with others.
func TestBodiesAreNotLogged(t *testing.T) {
	verbose := func(format string, change func(*logsapi.LoggingConfiguration)) func(*logsapi.LoggingConfiguration) {
		return func(c *logsapi.LoggingConfiguration) {
			c.Format = format
			change(c)
		}
	}
	ten := func(c *logsapi.LoggingConfiguration) { c.Verbosity = 10 }
	for name, test := range map[string]struct {
		configuration func(*logsapi.LoggingConfiguration)
		later         string // a verbosity that is set later
	}{
		"text":                        {configuration: verbose("text", ten)},
		"JSON":                        {configuration: verbose("json", ten)},
		"text, verbose later":         {configuration: verbose("text", func(*logsapi.LoggingConfiguration) {}), later: "10"},
		"JSON, verbose later":         {configuration: verbose("json", func(*logsapi.LoggingConfiguration) {}), later: "10"},
		"text, verbose for all files": {configuration: verbose("text", func(c *logsapi.LoggingConfiguration) { c.VModule = verboseFiles("*") })},
		"text, maximum verbosity":     {configuration: verbose("text", func(c *logsapi.LoggingConfiguration) { c.Verbosity = 1<<31 - 1 })},
		"JSON, maximum verbosity":     {configuration: verbose("json", func(c *logsapi.LoggingConfiguration) { c.Verbosity = 127 })},
	} {
		for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
			t.Run(name+", "+contentType, func(t *testing.T) {
				log := func(apply func(*logsapi.LoggingConfiguration, featuregate.FeatureGate) error) (log string) {
					t.Run("", func(t *testing.T) {
						logged := configure(t, apply, test.configuration)
						if test.later != "" {
							if _, err := logs.GlogSetter(test.later); err != nil {
								t.Fatal(err)
							}
						}
						use(t, cluster(t, contentType))
						log = logged()
					})
					return log
				}
				if found := secrets(log(logsapi.ValidateAndApply)); len(found) < 2 {
					t.Fatalf("without a limit, only %q are logged, so this test proves nothing", found)
				}
				limited := log(Apply)
				if found := secrets(limited); len(found) > 0 {
					t.Errorf("the log contains %q:\n%s", found, limited)
				}
				for _, want := range []string{"api/v1/secrets", "tokenreviews", "reader"} {
					if !strings.Contains(limited, want) {
						t.Errorf("the log lacks %q, which is logged below the level of bodies:\n%s", want, limited)
					}
				}
			})
		}
	}
}

func verboseFiles(patterns ...string) (c logsapi.VModuleConfiguration) {
	for _, p := range patterns {
		c = append(c, logsapi.VModuleItem{FilePattern: p, Verbosity: 10})
	}
	return c
}

// All loggers have the same limit, however they are derived, and levels above the configured verbosity are off.
func TestVerbosity(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		for verbosity, want := range map[logsapi.VerbosityLevel][]bool{
			10: {0: true, 6: true, 7: true, 8: false, 9: false, 10: false},
			4:  {0: true, 4: true, 5: false, 6: false, 7: false, 8: false},
		} {
			t.Run("", func(t *testing.T) {
				configure(t, Apply, func(c *logsapi.LoggingConfiguration) { c.Format, c.Verbosity = format, verbosity })
				l := klog.Background()
				for name, l := range map[string]klog.Logger{
					"original": l, "with a name": l.WithName("n"), "with values": l.WithValues("k", "v"), "with a caller": l.WithCallDepth(1),
					"from a context": klog.FromContext(t.Context()), "TODO": klog.TODO(),
				} {
					for _, level := range []int{0, 4, 5, 6, 7, 8, 9, 10} {
						if level < len(want) && l.V(level).Enabled() != want[level] && (want[level] || level > int(verbosity) || level > 7) {
							t.Errorf("%s, -v=%d, logger %s: level %d enabled = %v", format, verbosity, name, level, !want[level])
						}
					}
					if l.V(4).V(4).Enabled() {
						t.Errorf("%s, -v=%d, logger %s: level 4 of level 4 enabled = true, want false", format, verbosity, name)
					}
				}
			})
		}
	}
}

// Each line names the source location of the call, as it does without a limit.
func TestLinesNameTheirCaller(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			logged := configure(t, Apply, func(c *logsapi.LoggingConfiguration) { c.Format, c.Verbosity = format, 10 })
			helper := func(l klog.Logger) { l.WithCallDepth(1).Info("by a helper") }
			klog.Background().Info("by the logger")
			klog.Background().WithName("n").WithValues("k", "v").V(2).Info("by a derived logger")
			klog.Background().Error(io.EOF, "an error by the logger")
			helper(klog.Background())
			klog.InfoS("by a function") //nolint:forbidigo // as libraries do
			klog.V(5).Infof("by a %s with a level", "format")
			klog.ErrorS(io.EOF, "an error by a function") //nolint:forbidigo // as libraries do
			klog.Infof("by a %s", "format")               //nolint:forbidigo // as libraries do
			lines := strings.Split(strings.TrimSpace(logged()), "\n")
			if len(lines) != 8 {
				t.Fatalf("%d lines are logged:\n%s", len(lines), strings.Join(lines, "\n"))
			}
			for _, line := range lines {
				if !strings.Contains(line, "logging_test.go:") {
					t.Errorf("the line does not name its caller: %s", line)
				}
				if format == "json" && !json.Valid([]byte(line)) {
					t.Errorf("the line is not JSON: %s", line)
				}
			}
		})
	}
}

// The verbosity of a file applies to the calls in that file.
func TestVerbosityOfFiles(t *testing.T) {
	configure(t, Apply, func(c *logsapi.LoggingConfiguration) { c.VModule = verboseFiles("logging_test") })
	if l := klog.Background(); !l.V(7).Enabled() || l.V(8).Enabled() {
		t.Error("levels of this file: 7 enabled and 8 disabled expected")
	}
}

// A configuration that would log bodies is rejected, with an error that names the flag.
func TestRefused(t *testing.T) {
	for name, test := range map[string]struct {
		gate, debug string
		change      func(*logsapi.LoggingConfiguration)
		want        string
	}{
		"loggers without context": {gate: "ContextualLogging=false", want: "--feature-gates=ContextualLogging=false"},
		"debugging of HTTP":       {debug: "madvdontneed=1,http2debug=2", want: "GODEBUG=http2debug"},
		"a buffer for text": {
			gate: "LoggingAlphaOptions=true", want: "--log-text-info-buffer-size",
			change: func(c *logsapi.LoggingConfiguration) { c.Options.Text.InfoBufferSize = buffer(t) },
		},
		"a buffer for JSON": {
			gate: "LoggingAlphaOptions=true", want: "--log-json-info-buffer-size",
			change: func(c *logsapi.LoggingConfiguration) { c.Format, c.Options.JSON.InfoBufferSize = "json", buffer(t) },
		},
		"a format that does not exist": {change: func(c *logsapi.LoggingConfiguration) { c.Format = "xml" }, want: "Unsupported log format"},
	} {
		t.Run(name, func(t *testing.T) {
			gates := featuregate.NewFeatureGate()
			if err := logsapi.AddFeatureGates(gates); err != nil {
				t.Fatal(err)
			}
			if test.gate != "" {
				if err := gates.Set(test.gate); err != nil {
					t.Fatal(err)
				}
			}
			if test.debug != "" {
				t.Setenv("GODEBUG", test.debug)
			}
			c := logsapi.NewLoggingConfiguration()
			if test.change != nil {
				test.change(c)
			}
			if err := Apply(c, gates); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error = %v, want it to contain %s", err, test.want)
			}
		})
	}
}

func buffer(t *testing.T) (size resource.QuantityValue) {
	t.Helper()
	if err := size.Set("64Ki"); err != nil {
		t.Fatal(err)
	}
	return size
}
