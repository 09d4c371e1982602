// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
)

// Each block of docs/see.md works as it is printed, too.
func TestSee(t *testing.T) {
	t.Parallel()
	tryRecipes(t, "../../docs/see.md", map[string]func(*recipe){
		"What is stale?":                           seeStale,
		"Which pods are stale?":                    func(r *recipe) { r.staleWeb(); r.asPrinted() },
		"Why did a workload restart?":              seeWhy,
		"Who uses a Secret?":                       seeWho,
		"What does a workload read?":               seeTree,
		"What would a change restart?":             seeImpact,
		"What is missing or on hold?":              seeMissing,
		"Which ConfigMaps and Secrets are unused?": func(r *recipe) { r.web("web"); r.write("ConfigMap/unused", "key", "value"); r.asPrinted() },
		"Report without an installation":           seeReport,
		"Check manifests before you apply them":    seeCheck,
		"Draw a graph":                             seeGraph,
	})
}

// staleWeb creates a Deployment whose pods have read an older password.
func (r *recipe) staleWeb() {
	r.Helper()
	r.web("web")
	r.write(db, "password", "new")
	r.view("deployment.web", is(v1alpha1.StateStale, "NotOptedIn"))
}

func seeStale(r *recipe) {
	r.staleWeb()
	r.asPrinted()
	r.prints(r.run(0), "deployment.web")
}

// The evidence of each pod depends on when the clocks have ticked, so that the output is not compared as a whole.
func seeWhy(r *recipe) {
	r.web("web")
	r.optIn("web")
	r.write(db, "password", "new")
	r.view("deployment.web", applied, restartedFor(string(db)))
	command, printed, _ := strings.Cut(r.next("console"), "\n")
	out := r.shell(strings.TrimPrefix(command, "$ "), pluginDone)
	for _, want := range []string{
		"deployment/web is InSync (ContentApplied). The pods run with the current content. The next change restarts them.",
		"Automatic restarts: mode Auto, strategy Annotation, by configdep.io/reload.",
		"because of Secret/db.", "configdep, because content changed",
	} {
		r.prints(printed, want)
		r.prints(out, want)
	}
}

func seeWho(r *recipe) {
	r.staleWeb()
	r.asPrinted()
	r.prints(r.run(0), "deployment.web")
}

func seeTree(r *recipe) {
	r.staleWeb()
	r.asPrinted()
	r.prints(r.run(0), "lastChangeTime:")
}

func seeImpact(r *recipe) {
	r.web("web")
	r.optIn("web")
	r.asPrinted()
	manifest := "apiVersion: v1\nkind: Secret\nmetadata: {name: db}\nstringData: {password: new}\n"
	r.must(os.WriteFile(filepath.Join(r.dir, "changed.yaml"), []byte(manifest), 0o600))
	out := r.run(0)
	r.prints(out, "A change of Secret/db (password, user) would restart 1 workload with 2 pods.")
	r.prints(out, "deployment/web")
}

func seeMissing(r *recipe) {
	web := single("web", envSecretKey("db", "password"))
	optedIn(web)
	r.create(web)
	r.view("deployment.web", is(v1alpha1.StateBlocked, ""))
	r.asPrinted()
	r.prints(r.run(0), "Secret db is missing")
}

func seeReport(r *recipe) {
	r.web("web")
	r.write("ConfigMap/unused", "key", "value")
	r.write(db, "password", "new")
	r.asPrinted()
}

func seeCheck(r *recipe) {
	const manifests = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  annotations: {configdep.io/relaod: auto}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: app
        image: app
        env:
        - name: PASSWORD
          valueFrom: {secretKeyRef: {name: db, key: pasword}}
---
apiVersion: v1
kind: Secret
metadata: {name: db}
stringData: {password: x}
`
	dir := filepath.Join(r.dir, "manifests")
	r.must(os.Mkdir(dir, 0o700))
	r.must(os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(manifests), 0o600))
	r.asPrinted()
	r.prints(r.shell("helm() { cat manifests/web.yaml; }\n"+r.next("console"), pluginFound), "Secret db lacks pasword")
}

func seeGraph(r *recipe) {
	r.staleWeb()
	r.run(pluginDone)
	page, err := os.ReadFile(filepath.Join(r.dir, r.namespace+".html"))
	r.must(err)
	r.prints(string(page), "<title>deployment/web, Stale</title>")
}
