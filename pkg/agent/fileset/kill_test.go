// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package fileset

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// writerVariable makes the test program write sets into a directory until it is killed.
const writerVariable = "FILESET_TEST_WRITER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerVariable); dir != "" {
		writeForever(dir)
	}
	os.Exit(m.Run())
}

// numbered is a set whose files all have the same number, and of which some come and go.
func numbered(n int) []File {
	out := files("always", fmt.Sprint(n), "sub/always", fmt.Sprint(n), fmt.Sprintf("only-%d", n%3), fmt.Sprint(n), "large", strings.Repeat(fmt.Sprint(n%10), 10_000))
	if n%2 == 0 {
		out = append(out, files("turns", fmt.Sprint(n))...)
	} else {
		out = append(out, files("turns/into/directory", fmt.Sprint(n))...)
	}
	return out
}

func writeForever(dir string) {
	d, err := Open(dir, Options{})
	for n := 0; err == nil; n++ {
		var s *Set
		if s, err = d.Stage(numbered(n)); err != nil {
			break
		}
		if err = d.Switch(s); err == nil && n%3 == 0 {
			err = d.MarkApplied()
		}
		if n == 0 {
			fmt.Println("ready")
		}
	}
	fmt.Println(err)
	os.Exit(1)
}

// A process that writes is killed at any moment, hundreds of times. Each time readers see one whole set, and the next process
// repairs the rest. The steps themselves are tried one by one in TestCrashAtEveryStep.
func TestKill(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := tempDir(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	seen := map[string]bool{}
	for range 300 {
		c := exec.CommandContext(t.Context(), self)
		c.Env = append(os.Environ(), writerVariable+"="+dir)
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		if !lines.Scan() || lines.Text() != "ready" {
			t.Fatalf("the writer says %q", lines.Text())
		}
		<-time.After(time.Duration(r.Int64N(int64(3 * time.Millisecond))))
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		rest, _ := io.ReadAll(out)
		_ = c.Wait()
		if len(rest) != 0 {
			t.Fatalf("the writer ended with %s", rest)
		}
		got := visible(t, dir)
		n := got["always"]
		seen[n] = true
		var number int
		if _, err := fmt.Sscan(n, &number); err != nil {
			t.Fatalf("files %v", got)
		}
		want := map[string]string{}
		for _, f := range numbered(number) {
			want[f.Path] = string(f.Data)
		}
		if !maps.Equal(got, want) {
			t.Fatalf("readers see %v", got)
		}
		d := open(t, dir, Options{})
		expect(t, dir, want)
		expectLinks(t, dir, d.Current())
		if d.Current().Digest() != d.Digest(numbered(number)) {
			t.Fatal("the set is another one")
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) < 5 {
		t.Errorf("only %d different sets were seen", len(seen))
	}
}
