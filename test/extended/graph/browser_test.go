// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package graph

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/configdep/configdep/test/debian"
)

// browser is a tab of Chromium. It is driven by the protocol of its developer tools over a pair of pipes, one command after the other.
type browser struct {
	*testing.T
	commands io.Writer
	answers  *bufio.Reader
	session  string
	last     int
}

// newBrowser starts the Chromium of this machine, or of Debian's packages.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	program, environment := chromium(t)
	ctx, cancel := context.WithCancel(t.Context())
	c := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
		"--user-data-dir="+t.TempDir(), "--no-first-run", "--disable-background-networking", "about:blank")
	c.Env = environment
	var stderr strings.Builder
	c.Stderr = &stderr
	theirCommands, ourCommands, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ourAnswers, theirAnswers, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.ExtraFiles = []*os.File{theirCommands, theirAnswers} // 3 and 4
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	theirCommands.Close()
	theirAnswers.Close()
	b := &browser{T: t, commands: ourCommands, answers: bufio.NewReader(ourAnswers)}
	t.Cleanup(func() {
		cancel()
		ourCommands.Close()
		ourAnswers.Close()
		_ = c.Wait() // it was killed
		if b.session == "" {
			t.Log(stderr.String())
		}
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	b.session = session.SessionID
	return b
}

// chromium returns the program and its environment.
func chromium(t *testing.T) (program string, environment []string) {
	t.Helper()
	for _, name := range []string{"chromium", "google-chrome"} {
		if program, err := exec.LookPath(name); err == nil {
			return program, os.Environ()
		}
	}
	root, err := debian.UnpackAll(t.Context(), "chromium", "fonts-dejavu-core")
	if errors.Is(err, debian.ErrNone) {
		t.Skip(err) //nolint:forbidigo // neither Chromium nor apt is here; where apt is, as in CI, it is unpacked, and a failure of that is one of the test
	}
	if err != nil {
		t.Fatal(err)
	}
	fonts := filepath.Join(t.TempDir(), "fonts.conf")
	config := fmt.Sprintf("<fontconfig><dir>%s</dir><cachedir>%s</cachedir></fontconfig>", filepath.Join(root, "usr", "share", "fonts"), t.TempDir())
	if err := os.WriteFile(fonts, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "usr", "lib", "chromium", "chromium"), append(debian.Environment(root), "FONTCONFIG_FILE="+fonts)
}

// call sends a command, waits for its answer, and decodes it; nil: not. Events are dropped.
func (b *browser) call(method string, params, result any) {
	b.Helper()
	b.last++
	command := map[string]any{"id": b.last, "method": method, "params": params}
	if b.session != "" {
		command["sessionId"] = b.session
	}
	text, err := json.Marshal(command)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := b.commands.Write(append(text, 0)); err != nil {
		b.Fatal(err)
	}
	for {
		text, err := b.answers.ReadBytes(0)
		if err != nil {
			b.Fatalf("%s: %v", method, err)
		}
		var answer struct {
			ID     int
			Error  json.RawMessage
			Result json.RawMessage
		}
		if err := json.Unmarshal(text[:len(text)-1], &answer); err != nil {
			b.Fatal(err)
		}
		if answer.ID != b.last {
			continue
		}
		if answer.Error != nil {
			b.Fatalf("%s: %s", method, answer.Error)
		}
		if result != nil {
			if err := json.Unmarshal(answer.Result, result); err != nil {
				b.Fatal(err)
			}
		}
		return
	}
}

// eval returns the value of an expression in the page, awaited.
func eval[T any](b *browser, expression string) (value T) {
	b.Helper()
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &answer)
	if answer.ExceptionDetails != nil {
		b.Fatalf("%s: %s", expression, answer.ExceptionDetails)
	}
	if len(answer.Result.Value) > 0 {
		if err := json.Unmarshal(answer.Result.Value, &value); err != nil {
			b.Fatalf("%s: %v", expression, err)
		}
	}
	return value
}

// painted is an expression that is done when the page has been drawn.
const painted = `new Promise(done => requestAnimationFrame(() => setTimeout(() => done(performance.now()))))`

// press presses a key, by its name in events.
func (b *browser) press(key string) {
	b.Helper()
	down := map[string]any{"type": "rawKeyDown", "key": key}
	if len(key) == 1 {
		down = map[string]any{"type": "keyDown", "key": key, "text": key}
	}
	b.call("Input.dispatchKeyEvent", down, nil)
	b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key}, nil)
}

// media sets a feature of the media, such as prefers-color-scheme.
func (b *browser) media(name, value string) {
	b.Helper()
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]any{{"name": name, "value": value}}}, nil)
}

// window sets the size of the window.
func (b *browser) window(width, height int) {
	b.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}, nil)
}

// screenshot writes what the window shows to a folder, if GRAPH_SCREENSHOTS names one.
func (b *browser) screenshot(name string) {
	b.Helper()
	dir := os.Getenv("GRAPH_SCREENSHOTS")
	if dir == "" {
		return
	}
	var picture struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &picture)
	data, err := base64.StdEncoding.DecodeString(picture.Data)
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), data, 0o644); err != nil {
		b.Fatal(err)
	}
}
