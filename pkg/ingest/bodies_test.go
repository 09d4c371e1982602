package ingest

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/configdep/configdep/pkg/logging"
)

// client-go logs the bodies of answers at a verbosity that people ask for when something
// is wrong. Those of ours are Secrets, and logs are read by many.
func TestSecretsAreNotLoggedHoweverVerbose(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var answer any = &corev1.SecretList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "SecretList"},
			Items:    []corev1.Secret{*secretWith(password)},
		}
		if strings.HasSuffix(r.URL.Path, KeySecret) {
			key := keySecret([]byte(password + password + password + password))
			key.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}
			answer = key
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, Transport: &http.Transport{DisableKeepAlives: true}})
	if err != nil {
		t.Fatal(err)
	}

	logged := func(request func(ctxLogger klog.Logger)) string {
		logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.Verbosity(10), ktesting.BufferLogs(true)))
		request(logger)
		return logger.GetSink().(ktesting.Underlier).GetBuffer().String()
	}
	tells := func(log string) bool {
		return strings.Contains(log, password) || strings.Contains(log, base64.StdEncoding.EncodeToString([]byte(password)))
	}
	if log := logged(func(logger klog.Logger) {
		if _, err := client.CoreV1().Secrets("").List(klog.NewContext(t.Context(), logger), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}); !tells(log) {
		t.Fatalf("client-go does not log bodies any more, or not so that this test finds them:\n%s", log)
	}

	for what, request := range map[string]func(logger klog.Logger) error{
		"the list of Secrets": func(logger klog.Logger) error {
			_, err := client.CoreV1().Secrets("").List(logging.WithoutBodies(klog.NewContext(t.Context(), logger)), metav1.ListOptions{})
			return err
		},
		"with a logger that has a name and values": func(logger klog.Logger) error {
			ctx := logging.WithoutBodies(klog.NewContext(t.Context(), logger.WithName("n").WithValues("k", "v").V(1)))
			_, err := client.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
			return err
		},
		"the key of the digests": func(logger klog.Logger) error {
			_, err := loadKey(klog.NewContext(t.Context(), logger), client.CoreV1().Secrets(home))
			return err
		},
	} {
		log := logged(func(logger klog.Logger) {
			if err := request(logger); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		})
		if tells(log) {
			t.Errorf("%s: the log tells content:\n%s", what, log)
		}
	}
}

// What is below bodies is still logged, and what is logged on top of a name or values, or
// by a level on a level, is not let through again.
func TestVerbosityBelowBodiesStays(t *testing.T) {
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.Verbosity(10)))
	ctx := logging.WithoutBodies(klog.NewContext(t.Context(), logger))
	for name, l := range map[string]klog.Logger{
		"as it is":      klog.FromContext(ctx),
		"with a name":   klog.FromContext(ctx).WithName("n"),
		"with values":   klog.FromContext(ctx).WithValues("k", "v"),
		"with a caller": klog.FromContext(ctx).WithCallDepth(1),
	} {
		for level, want := range map[int]bool{0: true, 6: true, 7: true, 8: false, 9: false, 10: false} {
			if got := l.V(level).Enabled(); got != want {
				t.Errorf("%s: level %d is logged: %v", name, level, got)
			}
		}
		if l.V(4).V(4).Enabled() {
			t.Errorf("%s: level 4 above level 4 is logged", name)
		}
	}
}
