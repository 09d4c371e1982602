// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/configdep/configdep/pkg/apis/configdep/v1alpha1"
	"github.com/configdep/configdep/pkg/decide"
	"github.com/configdep/configdep/pkg/plugin"
	"github.com/configdep/configdep/test/await"
	"github.com/configdep/configdep/test/controlplane"
)

// beThePlugin makes the test binary be kubectl configdep, so that kubectl can run it as its plugin.
const beThePlugin = "TEST_BE_THE_PLUGIN"

func runPlugin() int {
	return plugin.Run(context.Background(), os.Args[1:], genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
}

// recipesPage has the recipes for other tools that the tests run, restartPage those for restarts, and migrationPage the one for a switch.
const (
	recipesPage   = "../../docs/integrate.md"
	restartPage   = "../../docs/restart.md"
	migrationPage = "../../docs/migrate.md"
)

// recipes run the recipes of recipesPage, by their headings, and restartRecipes those of restartPage.
var (
	recipes = map[string]func(*recipe){
		"External Secrets Operator": recipeExternalSecrets,
		"cert-manager":              recipeCertManager,
		"Vault":                     recipeVault,
		"Secrets Store CSI driver":  recipeSecretsStore,
		"Sealed Secrets":            recipeSealedSecrets,
		"Argo CD":                   recipeArgoCD,
		"Flux":                      recipeFlux,
		"Charts of others":          recipeCharts,
		"In a pipeline":             recipePipeline,
	}
	restartRecipes = map[string]func(*recipe){
		"Opt in":                                    recipeAllButOne,
		"See what a change would restart":           recipeWho,
		"Choose the sources":                        recipeSomeSources,
		"The application reads mounted files again": recipeLiveVolumes,
		"Wait for a release to finish":              recipeSettle,
		"Hold restarts":                             recipeHold,
		"Limit when restarts start":                 recipeWindows,
		"How pods are restarted":                    recipeStrategy,
		"Restart on request":                        recipeTeam,
		"Rotate a Secret, and revoke the old one":   recipeRevoke,
		"Try new content on one workload first":     recipeCanary,
		"Run Jobs and CronJobs again":               recipeRunAgain,
		"If a workload does not restart":            recipeNotRestarted,
	}
)

// Each block of docs/integrate.md works as it is printed, but for the name of the namespace, which each test has for itself.
func TestRecipes(t *testing.T) {
	t.Parallel()
	tryRecipes(t, recipesPage, recipes)
}

// Each block of docs/restart.md works as it is printed, too.
func TestRestartRecipes(t *testing.T) {
	t.Parallel()
	tryRecipes(t, restartPage, restartRecipes)
}

// The switch from Reloader works as it is printed. test/extended/lifecycle observes that it restarts nothing.
func TestMigrationRecipe(t *testing.T) {
	t.Parallel()
	const heading = "Switch"
	blocks := recipeBlocks(t, migrationPage)[heading]
	if len(blocks) == 0 {
		t.Fatalf("there is no recipe %q", heading)
	}
	tryRecipe(t, blocks, recipeFromReloader)
}

// tryRecipes runs the recipes of a page, by their headings.
func tryRecipes(t *testing.T, page string, recipes map[string]func(*recipe)) {
	t.Helper()
	found := map[string]bool{}
	for heading, blocks := range recipeBlocks(t, page) {
		run := recipes[heading]
		if run == nil {
			t.Errorf("%q is not tried", heading)
			continue
		}
		found[heading] = true
		t.Run(heading, func(t *testing.T) {
			t.Parallel()
			tryRecipe(t, blocks, run)
		})
	}
	for heading := range recipes {
		if !found[heading] {
			t.Errorf("there is no recipe %q", heading)
		}
	}
}

// tryRecipe runs a recipe, which has to try all blocks.
func tryRecipe(t *testing.T, blocks []block, run func(*recipe)) {
	t.Helper()
	r := &recipe{shop: newShop(t), blocks: blocks, dir: t.TempDir()}
	r.tools()
	run(r)
	if len(r.blocks) != 0 {
		t.Errorf("a block that is not tried:\n%s", r.blocks[0].text)
	}
}

// A block of a document, in a language.
type block struct{ language, text string }

// recipeBlocks returns the blocks of the recipes of a page, by their headings.
func recipeBlocks(t *testing.T, from string) map[string][]block {
	t.Helper()
	page, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]block{}
	for _, section := range strings.Split(string(page), "\n## ")[1:] {
		heading, text, _ := strings.Cut(section, "\n")
		if blocks := blocksOf(text); len(blocks) > 0 {
			out[heading] = blocks
		}
	}
	return out
}

// blocksOf returns the blocks of a text.
func blocksOf(text string) (blocks []block) {
	for _, found := range regexp.MustCompile("(?s)```(\\w+)\n(.*?)```").FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, block{found[1], found[2]})
	}
	return blocks
}

// recipe is a recipe that is tried in a namespace and a folder of its own.
type recipe struct {
	*shop

	blocks []block // those to come
	dir    string
	env    []string
}

// tools puts kubectl, helm and kubectl configdep into a folder of the recipe.
func (r *recipe) tools() {
	r.Helper()
	bin := r.TempDir()
	self, err := os.Executable()
	r.must(err)
	root, err := controlplane.RepositoryRoot()
	r.must(err)
	r.must(os.Symlink(cluster.KubectlPath(), filepath.Join(bin, "kubectl")))
	for name, line := range map[string]string{
		"kubectl-configdep": beThePlugin + `=1 exec "` + self + `" "$@"`,
		"helm":              `exec "$("` + root + `/hack/tools/build.sh" helm)" "$@"`,
	} {
		r.must(os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/bash\n"+line+"\n"), 0o700))
	}
	r.env = []string{"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH")}
	for _, home := range []string{"CONFIG", "CACHE", "DATA"} {
		r.env = append(r.env, "HELM_"+home+"_HOME="+filepath.Join(r.TempDir(), home))
	}
}

var shopName = regexp.MustCompile(`\bshop\b`)

// next returns the next block, with the namespace of the test.
func (r *recipe) next(language string) string {
	r.Helper()
	if len(r.blocks) == 0 || r.blocks[0].language != language {
		r.Fatalf("want a block in %s, got %+v", language, r.blocks)
	}
	text := r.blocks[0].text
	r.blocks = r.blocks[1:]
	return shopName.ReplaceAllString(text, r.namespace)
}

// manifest reads the next block, whose fields must all be known.
func (r *recipe) manifest(into any) {
	r.Helper()
	text := r.next("yaml")
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		r.Fatalf("%v in:\n%s", err, text)
	}
}

// run runs the commands of the next block, of which the last ends with a code, and returns what they print.
func (r *recipe) run(code int) string {
	r.Helper()
	return r.shell(r.next("console"), code)
}

// shell runs lines of a shell in the folder of the recipe.
func (r *recipe) shell(lines string, code int) string {
	r.Helper()
	cmd := cluster.Command(r.Context(), "bash", "-e", "-o", "pipefail", "-c", lines)
	var out, errOut bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = r.dir, append(cmd.Environ(), r.env...), &out, &errOut
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		r.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		r.Errorf("code %d, want %d, of:\n%s\n%s%s", got, code, lines, out.String(), errOut.String())
	}
	return out.String()
}

// findsSome are the commands that end with another code than 0 if they have found what they look for.
var findsSome = regexp.MustCompile(`configdep (check|missing|report|stale) | --pods `)

// asPrinted runs the commands of the next block, and compares their output with that in the block.
func (r *recipe) asPrinted() {
	r.Helper()
	want := strings.Split(strings.TrimSpace(r.next("console")), "\n")
	var got []string
	for _, line := range want {
		if command, is := strings.CutPrefix(line, "$ "); is {
			code := pluginDone
			if findsSome.MatchString(command) {
				code = pluginFound
			}
			got = append(got, line)
			got = append(got, strings.Split(strings.TrimSpace(r.shell(command, code)), "\n")...)
		}
	}
	normalized := func(lines []string) []string {
		text := strings.Join(lines, "\n") + "\n"
		for _, v := range varying {
			text = v.of.ReplaceAllString(text, v.by)
		}
		return strings.Split(regexp.MustCompile(`\b\d+m\b`).ReplaceAllString(text, "AGE"), "\n")
	}
	if diff := cmp.Diff(normalized(want), normalized(got)); diff != "" {
		r.Errorf("output (-as printed +got):\n%s", diff)
	}
}

// prints checks that some output has a text.
func (r *recipe) prints(out, want string) {
	r.Helper()
	if !strings.Contains(out, want) {
		r.Errorf("the output lacks %q:\n%s", want, out)
	}
}

// web creates Deployments that read the password of Secret db, which exists.
func (r *recipe) web(names ...string) {
	r.Helper()
	r.write(db, "password", "old", "user", "shop")
	for _, name := range names {
		r.create(deployment(name, envSecretKey("db", "password")))
	}
	for _, name := range names {
		r.view("deployment."+name, is(v1alpha1.StateInSync, "ContentApplied"))
		awaitAge(r.T, r.namespace, name)
	}
}

// restarts checks that a change is the only one for which a Deployment has been restarted since it has opted in.
func (r *recipe) restarts(name string, cause ref, change func() metav1.Object) {
	r.Helper()
	awaitAge(r.T, r.namespace, name)
	r.view("deployment."+name, recorded)
	before := r.templates(name)
	r.view("deployment."+name, applied, at(change()), restartedFor(string(cause)))
	if got := r.templates(name); got != before+1 {
		r.Errorf("%s had %d templates, and %d after a change of %s", name, before, got, cause)
	}
}

// restartsNothing checks that the servers have seen a change, and that it restarts no pods of a Deployment: they do not read what has changed,
// or they are shown as stale.
func (r *recipe) restartsNothing(name string, change func() metav1.Object) {
	r.Helper()
	awaitAge(r.T, r.namespace, name)
	before := r.templates(name)
	changed := change()
	r.view("deployment."+name, at(changed), func(o *v1alpha1.ConfigDependency) error {
		if applied(o) == nil {
			return nil
		}
		return is(v1alpha1.StateStale, decide.ReasonNotTriggering)(o)
	})
	if got := r.templates(name); got != before {
		r.Errorf("%s had %d templates, and %d after a change of %s", name, before, got, changed.GetName())
	}
}

func recipeFromReloader(r *recipe) {
	root, err := controlplane.RepositoryRoot()
	r.must(err)
	r.must(os.Symlink(filepath.Join(root, "artifacts"), filepath.Join(r.dir, "artifacts")))
	r.must(os.WriteFile(filepath.Join(r.dir, "reloader.yaml"), []byte("reloader: {reloadOnCreate: true}\n"), 0o600))
	// Reloader is not installed, and configdep is: the chart is rendered, as far as the flags allow.
	instead := `helm() { local verb=$1; shift; case $verb in
		get) cat reloader.yaml ;;
		install | upgrade) command helm template "$@" ;;
		uninstall) echo "$verb $*" ;;
	esac; }
`
	image := "" // for the shell of each step
	run := func(code int) string {
		r.Helper()
		block := r.next("console")
		if line, _, found := strings.Cut(block, "\n"); found && strings.HasPrefix(line, "image=") {
			image = line + "\n"
		}
		return r.shell(instead+image+block, code)
	}
	step := func() string { r.Helper(); return run(0) }
	step() // convert the values
	r.prints(r.shell("cat values.yaml", 0), "onCreate: true")
	r.prints(step(), "--observe") // install
	web := single("web", envSecretKey("db", "password"))
	optedIn(web)
	r.create(web) // its Secret does not exist
	r.view("deployment.web", is(v1alpha1.StateBlocked, ""))
	r.prints(step(), "deployment.web") // compare
	_, err = kube.CoreV1().Events(r.namespace).Create(r.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "reloaded"},
		InvolvedObject: corev1.ObjectReference{Kind: "Deployment", Namespace: r.namespace, Name: "web"}, Reason: "Reloaded", Count: 2,
	}, metav1.CreateOptions{})
	r.must(err)
	r.prints(run(1), "< Deployment "+r.namespace+"/web 2") // the code of diff
	if out := step(); strings.Contains(out, "--observe") {
		r.Errorf("the switch renders the chart with --observe:\n%s", out)
	}
	step() // prints nothing in a cluster without other tests
	r.prints(step(), "uninstall reloader -n reloader")
	step() // go back
}

func recipeNotRestarted(r *recipe) {
	r.web("web")
	r.write(db, "password", "new")
	r.view("deployment.web", is(v1alpha1.StateStale, "NotOptedIn"))
	r.prints(r.run(pluginFound), "deployment/web")
	r.prints(r.run(0), "deployment.web")

	blocked := single("blocked", envSecretKey("absent", "password"))
	optedIn(blocked)
	r.create(blocked)
	r.view("deployment.blocked", is(v1alpha1.StateBlocked, ""))
	r.prints(r.run(0), "Secret absent is missing")
}

func recipeWho(r *recipe) {
	r.web("web")
	optIn := func(o *appsv1.Deployment) { optedIn(o) }
	r.edit("web", optIn)
	r.view("deployment.web", recorded)
	out := r.run(pluginDone)
	r.prints(out, "deployment/web")
	r.prints(out, "A change of Secret/db (password) would restart 1 workload with 2 pods.")
}

func recipeRevoke(r *recipe) {
	r.web("web")
	r.write(db, "password", "new")
	revoke := r.blocks[len(r.blocks)-1].text
	r.shell(shopName.ReplaceAllString(revoke, r.namespace), pluginFound) // at once: old pods are never taken for new ones
	r.view("deployment.web", is(v1alpha1.StateStale, "NotOptedIn"))
	r.asPrinted()
	r.run(pluginDone)
	r.view("deployment.web", is(v1alpha1.StateInSync, "ContentApplied"), counted(v1alpha1.PodCounts{Total: 2, Current: 2}))

	// Pods without a workload count, too.
	create(r.T, kube.CoreV1().Pods(r.namespace).Create, pod("toolbox", envSecretKey("db", "password")))
	awaitAge(r.T, r.namespace, "toolbox")
	r.write(db, "password", "newest")
	r.shell("kubectl configdep reload deploy/web --wait -n "+r.namespace, pluginDone)
	r.shell(shopName.ReplaceAllString(revoke, r.namespace), pluginFound)
}

func recipeAllButOne(r *recipe) {
	r.web("api", "web")
	r.run(0)
	r.restarts("api", db, func() metav1.Object { return r.write(db, "password", "new") })
	r.view("deployment.web", is(v1alpha1.StateStale, ""), counted(v1alpha1.PodCounts{Total: 2, Stale: 2}))
}

func recipeSomeSources(r *recipe) {
	web := func() {
		r.Helper()
		for _, source := range []ref{"ConfigMap/dashboards", "ConfigMap/other", "ConfigMap/feature-a"} {
			r.write(source, "key", "old")
		}
		r.write(db, "password", "old")
		r.create(deployment("web", optional(db, "ConfigMap/dashboards", "ConfigMap/other")))
		r.run(0)
		r.view("deployment.web", applied)
	}
	web()
	r.restarts("web", db, func() metav1.Object { return r.write(db, "password", "new") })
	r.restarts("web", "ConfigMap/feature-b", func() metav1.Object { return r.write("ConfigMap/feature-b", "key", "new") })
	r.restartsNothing("web", func() metav1.Object { return r.write("ConfigMap/other", "key", "new") })

	r.shop = newShop(r.T)
	web()
	r.restarts("web", "ConfigMap/other", func() metav1.Object { return r.write("ConfigMap/other", "key", "new") })
	r.restartsNothing("web", func() metav1.Object { return r.write("ConfigMap/dashboards", "key", "new") })
}

func recipeLiveVolumes(r *recipe) {
	r.write("ConfigMap/settings", "key", "old")
	r.write(db, "password", "old")
	r.create(deployment("web", envSecretKey("db", "password"), mounts(corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}})))
	r.run(0)
	r.view("deployment.web", applied)
	r.restarts("web", db, func() metav1.Object { return r.write(db, "password", "new") })
	r.restartsNothing("web", func() metav1.Object { return r.write("ConfigMap/settings", "key", "new") })
}

// mounts makes the container mount a volume.
func mounts(source corev1.VolumeSource) use {
	return func(p *corev1.PodSpec) {
		p.Volumes = append(p.Volumes, corev1.Volume{Name: "volume", VolumeSource: source})
		p.Containers[0].VolumeMounts = append(p.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "volume", MountPath: "/mnt"})
	}
}

func recipeSettle(r *recipe) {
	r.web("web")
	r.run(0)
	r.view("deployment.web", recorded, func(o *v1alpha1.ConfigDependency) error {
		if settle := o.Spec.Reload.Settle; settle == nil || settle.Duration != 2*time.Minute {
			return fmt.Errorf("settle = %v", settle)
		}
		return nil
	})
	r.write(db, "password", "new")
	r.view("deployment.web", is(v1alpha1.StateSettling, ""))
}

func recipeHold(r *recipe) {
	r.web("web")
	r.optIn("web")
	r.run(0)
	r.write(db, "password", "new")
	r.view("deployment.web", is(v1alpha1.StateBlocked, "OnHold"), func(o *v1alpha1.ConfigDependency) error {
		if !strings.Contains(o.Status.Message, "INC-4711") {
			return errors.New(o.Status.Message)
		}
		return nil
	})
	r.run(0)
	r.view("deployment.web", applied, restartedFor(string(db)))
}

func recipeWindows(r *recipe) {
	r.web("web")
	r.optIn("web")
	r.run(0)
	r.write(db, "password", "new")
	r.restartsIn(db, func(day time.Weekday, hour int) bool {
		return day == time.Saturday || day == time.Sunday || hour < 8 || hour >= 18
	})
}

func recipeStrategy(r *recipe) {
	r.web("web")
	r.run(0)
	r.edit("web", func(o *appsv1.Deployment) { o.Annotations["configdep.io/settle"] = "8s" }) // or it would be in doubt what the new pods have read
	r.view("deployment.web", recorded)
	before := r.templates("web")
	r.view("deployment.web", applied, at(r.write(db, "password", "new")), restartedFor(string(db)))
	if got := r.templates("web"); got != before {
		r.Errorf("web had %d templates, and %d after its pods were evicted", before, got)
	}
}

func recipeRunAgain(r *recipe) {
	r.write(db, "password", "old")
	create(r.T, kube.BatchV1().CronJobs(r.namespace).Create, cronJob("report", envSecretKey("db", "password")))
	r.view("cronjob.report", is(v1alpha1.StateInSync, "NextRunReadsContent"))
	r.run(0)
	r.view("cronjob.report", applied)
	r.view("cronjob.report", applied, at(r.write(db, "password", "new")), restartedFor(string(db)))
}

func recipePipeline(r *recipe) {
	r.web("web")
	r.edit("web", func(o *appsv1.Deployment) { optedIn(o) })
	r.view("deployment.web", recorded)
	manifest := "apiVersion: v1\nkind: Secret\nmetadata: {name: db, namespace: " + r.namespace + "}\nstringData: {password: new}\n"
	r.must(os.WriteFile(filepath.Join(r.dir, "secret.yaml"), []byte(manifest), 0o600))
	r.run(pluginDone)
	o, err := r.api().Get(r.Context(), "deployment.web", metav1.GetOptions{})
	r.must(err)
	if err := errors.Join(applied(o), restartedFor(string(db))(o)); err != nil {
		r.Error(err)
	}
	r.shell("kubectl wait --for=condition=Ready cfgdep/deployment.web -n "+r.namespace, 0)
}

func recipeTeam(r *recipe) {
	r.web("web")
	team := "team-of-" + r.namespace
	var rules []rbacv1.PolicyRule
	r.manifest(&rules)
	create(r.T, kube.RbacV1().Roles(r.namespace).Create, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "reload"}, Rules: rules})
	create(r.T, kube.RbacV1().RoleBindings(r.namespace).Create, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reload"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reload"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: team}},
	})
	config, err := clientcmd.LoadFromFile(cluster.Kubeconfig())
	r.must(err)
	for _, user := range config.AuthInfos {
		user.Impersonate = team
	}
	own := filepath.Join(r.dir, "kubeconfig")
	r.must(clientcmd.WriteToFile(*config, own))
	r.env = append(r.env, "KUBECONFIG="+own)
	await.Until(r.T, "the right is known everywhere", func(ctx context.Context) error {
		for range 5 { // each may be answered by another replica
			if out, err := cluster.Kubectl(ctx, "auth", "can-i", "create", "configdependencies", "--subresource=reload", "-n", r.namespace, "--as="+team); err != nil {
				return errors.New(out)
			}
		}
		return nil
	})
	first := runningPods(r.T, r.namespace, "web", 2, nil)
	r.prints(r.run(pluginDone), "are being replaced")
	second := runningPods(r.T, r.namespace, "web", 2, first)
	r.view("deployment.web", is(v1alpha1.StateInSync, ""))
	r.prints(r.run(0), `"triggered":true`)
	runningPods(r.T, r.namespace, "web", 2, second)
}

func recipeCanary(r *recipe) {
	r.web("web", "web-canary")
	first := runningPods(r.T, r.namespace, "web", 2, nil)
	r.run(0)
	r.view("deployment.web-canary", recorded)
	r.write(db, "password", "new")
	wait, rest, _ := strings.Cut(r.next("console"), "\n")
	r.shell(wait, pluginDone)
	r.view("deployment.web-canary", applied, restartedFor(string(db)))
	if now := runningPods(r.T, r.namespace, "web", 2, nil); !cmp.Equal(now, first) {
		r.Error("the other workload is restarted before its time")
	}
	r.shell(rest, pluginDone)
	r.view("deployment.web", is(v1alpha1.StateInSync, "ContentApplied"), restartedFor("Request"))
}
