package integration

import (
	"testing"
	"fmt"

	"github.com/configdep/configdep/test/install"
)

func TestRepro(t *testing.T) {
	bad := 0
	for i := range 30 {
		extra, err := server.StartExtra(fmt.Sprintf("repro-%d", i), install.ReplicaOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := extra.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := send(t, directly(extra), request{path: resourcePath("default")}); got.code != 200 {
			bad++
			t.Logf("%d: %d %.200s", i, got.code, got.body)
		}
		extra.Kill()
	}
	t.Logf("%d bad", bad)
}
