// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"bufio"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certutil "k8s.io/client-go/util/cert"
)

const limit = 5 * time.Minute

func file(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func parse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// basicAuth returns a directory with credentials.
func basicAuth(t *testing.T, username, password string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"username": username, "password": password} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestHTTP(t *testing.T) {
	const secret = "PASSWORD-OF-THE-APPLICATION"
	var got *http.Request
	var body string
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got, body = r, string(text)
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, "the configuration has "+secret)
	}))
	defer server.Close()
	h := &HTTP{
		Method: http.MethodPut, URL: parse(t, server.URL+"/-/reload?token="+secret), Body: "{}", Timeout: limit,
		BasicAuth: basicAuth(t, "admin\n", secret+"\r\n"),
	}
	if err := h.Do(t.Context()); err != nil {
		t.Fatal(err)
	}
	user, password, _ := got.BasicAuth()
	if got.Method != http.MethodPut || got.URL.Path != "/-/reload" || body != "{}" || got.Header.Get("Content-Type") != "application/json" ||
		user != "admin" || password != secret {
		t.Errorf("%s %s of %s with %q, %v, %s %s", got.Method, got.URL, got.Host, body, got.Header, user, password)
	}
	h.Body, h.BasicAuth = "", ""
	if err := h.Do(t.Context()); err != nil || got.Header["Authorization"] != nil || got.Header["Content-Type"] != nil {
		t.Errorf("%v, %v", err, got.Header)
	}
	for _, tt := range []struct {
		status int
		accept string
		good   bool
	}{
		{200, "", true},
		{299, "", true},
		{304, "", false},
		{302, "", false}, // and the redirect is not followed
		{404, "", false},
		{500, "", false},
		{404, "200,400-405", true},
		{200, "202", false},
	} {
		if status, h.Accept = tt.status, nil; tt.accept != "" {
			var err error
			if h.Accept, err = ParseCodes(tt.accept); err != nil {
				t.Fatal(err)
			}
		}
		err := h.Do(t.Context())
		if (err == nil) != tt.good || got.URL.Path != "/-/reload" {
			t.Errorf("%d with %q: %v, at %s", tt.status, tt.accept, err, got.URL)
		}
		if err != nil && (strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), strconv.Itoa(tt.status)) || !strings.Contains(err.Error(), "PUT http://")) {
			t.Errorf("error %v", err)
		}
	}
	server.Close()
	if err := h.Do(t.Context()); err == nil || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("error %v of no server", err)
	}
	if h.BasicAuth = t.TempDir(); !errors.Is(h.Do(t.Context()), os.ErrNotExist) {
		t.Error("credentials that do not exist")
	}
	if err := syscall.Mkfifo(filepath.Join(h.BasicAuth, "username"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.Do(t.Context()); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("a pipe in the place of a user name: %v", err)
	}
	if h.BasicAuth = basicAuth(t, "admin", secret+"\nX-Other: y"); h.Do(t.Context()) == nil || strings.Contains(h.Do(t.Context()).Error(), secret) {
		t.Errorf("a password with two lines: %v", h.Do(t.Context()))
	}
}

// The certificate of the application is checked, by a file that is read for each request.
func TestHTTP_Certificates(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it tells of refused handshakes
	server.StartTLS()
	defer server.Close()
	another, key, err := certutil.GenerateSelfSignedCertKey("another", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ca := file(t, "ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	for name, tt := range map[string]struct {
		ca       string
		insecure bool
		err      string
	}{
		"its CA":                      {ca, false, ""},
		"the CAs of the system":       {"", false, "certificate"},
		"another CA":                  {file(t, "ca.crt", string(another)), false, "certificate"},
		"no check":                    {"", true, ""},
		"a file without certificates": {file(t, "tls.key", string(key)), false, "has no certificate"},
		"no file":                     {filepath.Join(t.TempDir(), "none"), false, "no such file"},
	} {
		h := &HTTP{Method: http.MethodPost, URL: parse(t, server.URL), Timeout: limit, CAFile: tt.ca, Insecure: tt.insecure}
		if err := h.Do(t.Context()); (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, want %q", name, err, tt.err)
		}
	}
}

// What is no answer of HTTP, or a strange one, may be part of a configuration too.
func TestHTTP_StrangeAnswers(t *testing.T) {
	const secret = "PASSWORD"
	for name, answer := range map[string]string{
		"no HTTP":          secret + " " + secret + " x\r\n\r\n",
		"no status":        "HTTP/1.1 " + secret + "\r\n\r\n",
		"no version":       "HTTP/" + secret + " 200 OK\r\n\r\n",
		"no header":        "HTTP/1.1 200 OK\r\n" + secret + "\r\n\r\n",
		"no length":        "HTTP/1.1 200 OK\r\nContent-Length: " + secret + "\r\n\r\n",
		"another encoding": "HTTP/1.1 200 OK\r\nTransfer-Encoding: " + secret + "\r\n\r\n",
		"no location":      "HTTP/1.1 302 Found\r\nLocation: http://[" + secret + "\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			go func() {
				c, err := listener.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					_, _ = io.WriteString(c, answer)
				}
			}()
			h := &HTTP{Method: http.MethodGet, URL: parse(t, "http://"+listener.Addr().String()), Timeout: limit}
			if err := h.Do(t.Context()); err == nil || strings.Contains(err.Error(), secret) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// An application that does not answer, or not to the end, costs the time of one try.
func TestHTTP_Timeout(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/begins" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
		}
		<-release
	}))
	defer server.Close()
	defer close(release)
	h := &HTTP{Method: http.MethodPost, URL: parse(t, server.URL), Timeout: 50 * time.Millisecond}
	if err := h.Do(t.Context()); err == nil || !strings.Contains(err.Error(), "no answer within 50ms") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	newer := errors.New("newer")
	cancel(newer)
	h.Timeout = limit
	if err := h.Do(ctx); !errors.Is(err, newer) {
		t.Errorf("error %v of an interrupted request", err)
	}
	// The status is known: it is enough. On a busy machine it may come later.
	h.URL, h.Timeout = parse(t, server.URL+"/begins"), 100*time.Millisecond
	for err := h.Do(t.Context()); err != nil; err = h.Do(t.Context()) {
		if h.Timeout *= 8; h.Timeout > limit || !strings.Contains(err.Error(), "no answer within") {
			t.Fatalf("error %v after an answer without an end", err)
		}
	}
}

func TestSignal(t *testing.T) {
	program := filepath.Join(t.TempDir(), "app")
	if err := os.WriteFile(program, []byte("#!/bin/sh\ntrap 'echo USR1' USR1\necho ready\nwhile :; do sleep 0.01; done\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), program)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	read := func(want string) {
		t.Helper()
		line := make([]byte, len(want))
		if _, err := io.ReadFull(out, line); err != nil || string(line) != want {
			t.Fatalf("read %q, %v, want %q", line, err, want)
		}
	}
	read("ready\n")
	// A file system proc with that process alone. A shell cannot trap SIGHUP if the test runs under nohup.
	proc, pid := t.TempDir(), strconv.Itoa(c.Process.Pid)
	if err := os.Symlink("/proc/"+pid, filepath.Join(proc, pid)); err != nil {
		t.Fatal(err)
	}
	shell, err := os.Readlink("/proc/" + pid + "/exe")
	if err != nil {
		t.Fatal(err)
	}
	usr1 := &Signal{syscall.SIGUSR1, Process{Name: shell, Proc: proc}}
	if err := usr1.Do(t.Context()); err != nil {
		t.Fatal(err)
	}
	read("USR1\n")
	if got := usr1.String(); got != "SIGUSR1 to process "+shell {
		t.Errorf("it is shown as %s", got)
	}
	if err := (&Signal{syscall.SIGHUP, Process{Name: "no-such-program"}}).Do(t.Context()); err == nil || !strings.Contains(err.Error(), "shareProcessNamespace") {
		t.Errorf("no process: %v", err)
	}
}

// A process is found by its executable, or by its command line if that cannot be read; its workers get no signal.
func TestProcess_Is(t *testing.T) {
	proc := t.TempDir()
	add := func(pid, parent int, state, line, executable string) {
		dir := filepath.Join(proc, strconv.Itoa(pid))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		stat := fmt.Sprintf("%d (a) b (c)) %s %d 1 1", pid, state, parent)
		if err := errors.Join(os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o600), os.WriteFile(filepath.Join(dir, "cmdline"), []byte(line), 0o600)); err != nil {
			t.Fatal(err)
		}
		if executable != "" {
			if err := os.Symlink(executable, filepath.Join(dir, "exe")); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(7, 1, "S", "nginx: master process /usr/sbin/nginx\x00", "")
	add(8, 7, "S", "nginx: worker process\x00", "")
	add(9, 1, "S", "sh\x00-c\x00nginx\x00", "/usr/bin/dash")
	add(10, 1, "Z", "", "")
	add(11, 1, "S", "/opt/prometheus\x00--config=x\x00", "/opt/prometheus-2 (deleted)")
	for name, want := range map[string][]int{"nginx": {7, 8}, "dash": {9}, "sh": {9}, "prometheus-2": {11}, "/opt/prometheus": {11}, "/usr/bin/dash": {9}, "worker": nil, "": nil} {
		var got []int
		for pid := 7; pid <= 11; pid++ {
			if _, is := (Process{Name: name}).is(filepath.Join(proc, strconv.Itoa(pid))); is {
				got = append(got, pid)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("processes of %q: %v, want %v", name, got, want)
		}
	}
}

func TestCommand(t *testing.T) {
	dir := t.TempDir()
	out, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c := &Command{Args: []string{"sh", "-c", "echo $1 $2", "x", "{dir}/nginx.conf", "--dir={dir}"}, Timeout: limit, Dir: "/new set", Output: out}
	if err := c.Do(t.Context()); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(out.Name()); err != nil || string(text) != "/new set/nginx.conf --dir=/new set\n" {
		t.Errorf("output %q, %v", text, err)
	}
	c = &Command{Args: []string{"sleep", "1000"}, Timeout: 20 * time.Millisecond}
	if err := c.Do(t.Context()); err == nil || err.Error() != "sleep: did not end within 20ms" {
		t.Errorf("error %v", err)
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string][]string{
		"nginx -t":                   {"nginx", "-t"},
		`["sh", "-c", "a b"]`:        {"sh", "-c", "a b"},
		"  nginx   -c  {dir}/n.conf": {"nginx", "-c", "{dir}/n.conf"},
		"":                           nil, "[]": nil, `[""]`: nil, `["a", 1]`: nil, `["a"] x`: nil, "[": nil,
	} {
		got, err := ParseCommand(text)
		if (err == nil) != (want != nil) || err == nil && !cmp.Equal(got, want) {
			t.Errorf("ParseCommand(%q) = %q, %v", text, got, err)
		}
	}
	for text, want := range map[string]syscall.Signal{"HUP": 1, "SIGHUP": 1, "sigusr1": 10, "15": 15, "64": 64, "": 0, "0": 0, "65": 0, "NONE": 0, "-1": 0} {
		if got, err := ParseSignal(text); got != want || (err == nil) != (want != 0) {
			t.Errorf("ParseSignal(%q) = %d, %v", text, got, err)
		}
	}
	for text, want := range map[string][]Codes{
		"200": {{200, 200}}, "200,202-204": {{200, 200}, {202, 204}}, "100-599": {{100, 599}}, "1, 200": nil,
		"": nil, "99": nil, "600": nil, "204-202": nil, "200,": nil, "ok": nil, "200-": nil,
	} {
		if got, err := ParseCodes(text); (err == nil) != (want != nil) || err == nil && !slices.Equal(got, want) {
			t.Errorf("ParseCodes(%q) = %v, %v", text, got, err)
		}
	}
}

func TestWithin(t *testing.T) {
	tries := 0
	w := &Within{Action: try(func() error {
		if tries++; tries < 3 {
			return errors.New("not yet")
		}
		return nil
	}), Limit: limit, Pause: time.Millisecond}
	if err := w.Do(t.Context()); err != nil || tries != 3 {
		t.Errorf("%v after %d tries", err, tries)
	}
	w = &Within{Action: try(func() error { return errors.New("never") }), Limit: 20 * time.Millisecond, Pause: time.Millisecond}
	if err := w.Do(t.Context()); err == nil || err.Error() != "never" {
		t.Error(err)
	}
}

type try func() error

func (t try) Do(context.Context) error { return t() }
func (t try) String() string           { return "try" }
