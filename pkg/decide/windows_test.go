// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package decide_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/policy"
)

// windowAfter is a window that opens between one and two minutes after a time, for a minute.
func windowAfter(at time.Time) (text string, opens time.Time) {
	opens = at.UTC().Truncate(time.Minute).Add(2 * time.Minute)
	return fmt.Sprintf("[{kind: Allow, schedule: %q, duration: 1m}]", opens.Format("4 15 2 1 *")), opens
}

// Outside of its windows, nothing restarts a workload but a user. What has begun ends.
func TestDecide_Windows(t *testing.T) {
	for _, on := range []string{"workload", "namespace"} {
		x := typical(t)
		text, opens := windowAfter(x.now)
		if on == "workload" {
			x.annotate(policy.WindowsAnnotation, text)
		} else {
			x.namespaceAnnotations(map[string]string{policy.WindowsAnnotation: text})
		}
		x.adopt()
		x.set(secret("db", "password", "2"))
		x.want("content must settle all the same", outcome{decide.Settling, "SourceChanged", decide.None, "Secret/db"})
		x.tick(5 * time.Second)
		d := x.want("before the window opens", outcome{decide.Pending, "Window", decide.None, "Secret/db"})
		if want := "Secret/db has changed. A restart is due at " + opens.Format(time.RFC3339) + ", when one may begin by the annotation configdep.io/windows."; d.Message != want || !d.RecheckAt.Equal(opens) {
			t.Errorf("%q, again at %v", d.Message, d.RecheckAt)
		}
		x.now = opens
		if d := x.want("as it opens", rollOut("Secret/db")); !d.DueAt.IsZero() {
			t.Errorf("due at %v, which is before the window opened", d.DueAt)
		}
		x.act()
		x.tick(2 * time.Minute)
		x.want("a rollout that has begun", outcome{decide.RollingOut, "PodsUpdating", decide.None, "Secret/db"})
		x.rollOut()
		x.wantRestarts("once more")

		x.set(secret("db", "password", "3"))
		x.tick(5 * time.Second)
		x.want("after it has closed", outcome{decide.Pending, "Window", decide.None, "Secret/db"})
		x.set(secret("db", "password", "2"))
		x.want("content that comes back", outcome{decide.InSync, "ContentApplied", decide.None, "Secret/db"})
		x.set(secret("db", "password", "4"))
		x.request()
		x.rollOut()
		x.wantRestarts("after a request")
	}
}

// If no window will open, a user has to act.
func TestDecide_WindowsThatNeverOpen(t *testing.T) {
	x := typical(t)
	x.annotate(policy.WindowsAnnotation, `[{kind: Deny, schedule: "* * * * *", duration: 1h}]`)
	x.adopt()
	x.set(secret("db", "password", "2"))
	x.tick(5 * time.Second)
	if d := x.want("always denied", outcome{decide.Blocked, "Window", decide.None, "Secret/db"}); !d.RecheckAt.Equal(x.now.Add(time.Hour)) {
		t.Errorf("again at %v", d.RecheckAt)
	}
	x.annotate(policy.WindowsAnnotation, "")
	x.want("without windows", rollOut("Secret/db"))
}

// While a user holds a workload, nothing restarts it but a Reload, and the message has the user's words.
func TestDecide_Hold(t *testing.T) {
	x := typical(t)
	x.annotate(policy.HoldAnnotation, "INC-4711\x1b[2J: do not touch")
	x.adopt()
	x.set(secret("db", "password", "2"))
	d := x.want("on hold", outcome{decide.Blocked, "OnHold", decide.None, "Secret/db"})
	if !strings.HasSuffix(d.Message, "configdep.io/hold. It says: INC-4711 [2J: do not touch") || !d.RecheckAt.IsZero() {
		t.Errorf("%q, again at %v", d.Message, d.RecheckAt)
	}
	x.tick(time.Hour)
	x.annotate(policy.HoldAnnotation, " ")
	x.want("a hold that does not say why", outcome{decide.Blocked, "InvalidAnnotation", decide.None, ""})
	x.annotate(policy.HoldAnnotation, "")
	x.want("no longer on hold", rollOut("Secret/db"))

	x.act()
	x.rollOut()
	x.namespaceAnnotations(map[string]string{policy.HoldAnnotation: "the freeze of December"})
	x.want("on hold, and nothing is due", outcome{decide.InSync, "ContentApplied", decide.None, "Secret/db"})
	x.set(secret("db", "password", "3"))
	x.want("on hold by the namespace", outcome{decide.Blocked, "OnHold", decide.None, "Secret/db"})
}
