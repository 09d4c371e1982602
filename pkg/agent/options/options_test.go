// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/configdep/configdep/pkg/agent"
	"github.com/configdep/configdep/pkg/agent/action"
	"github.com/configdep/configdep/pkg/agent/source"
)

// parse parses flags, and makes a configuration from them.
func parse(command []string, args ...string) (*agent.Config, error) {
	o, f := New(), pflag.NewFlagSet("", pflag.ContinueOnError)
	o.AddFlags(f)
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	return o.Config(command)
}

func TestSources(t *testing.T) {
	t.Setenv("SET", "x")
	t.Setenv("_0", "x")
	web, err := labels.Parse("app=web,tier in (a, b)")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		flag, value string
		want        source.Spec
		err         string
	}{
		{flag: "configmap", value: "app", want: source.Spec{Kind: source.ConfigMap, Name: "app"}},
		{flag: "secret", value: "shop/tls ; optional; dir=a/b; key=tls.crt:server/cert.pem; key=tls.key; mode=0440", want: source.Spec{
			Kind: source.Secret, Namespace: "shop", Name: "tls", Optional: true, Dir: "a/b", Mode: 0o440,
			Keys: []source.Key{{Key: "tls.crt", Path: "server/cert.pem"}, {Key: "tls.key", Path: "tls.key"}},
		}},
		{flag: "configmap-selector", value: "app=web,tier in (a, b);namespace=shop;dir={namespace}/{name};dir-annotation=example.com/dir", want: source.Spec{
			Kind: source.ConfigMap, Namespace: "shop", Selector: web, Dir: "{namespace}/{name}", DirAnnotation: "example.com/dir",
		}},
		{flag: "secret-selector", value: "app=web,tier in (a, b)", want: source.Spec{Kind: source.Secret, Selector: web}},
		{flag: "volume", value: "/etc/app/;optional", want: source.Spec{Kind: source.Volume, Name: "/etc/app", Optional: true}},
		{flag: "secret", value: "db;env=DB_", want: source.Spec{Kind: source.Secret, Name: "db", Env: true, EnvPrefix: "DB_"}},
		{flag: "secret", value: "db;env", want: source.Spec{Kind: source.Secret, Name: "db", Env: true}},
		{flag: "volume", value: "/v;gunzip", want: source.Spec{Kind: source.Volume, Name: "/v", Gunzip: true}},

		{flag: "configmap", value: "", err: "name"},
		{flag: "configmap", value: "App", err: `name "App"`},
		{flag: "configmap", value: "a;optional=true", err: "optional has no value"},
		{flag: "secret-selector", value: "a=b;substitute=SET", want: source.Spec{Kind: source.Secret, Selector: labels.SelectorFromSet(labels.Set{"a": "b"}), Substitute: []string{"SET"}}},
		{flag: "configmap", value: "a;gunzip;substitute=SET,_0", want: source.Spec{Kind: source.ConfigMap, Name: "a", Gunzip: true, Substitute: []string{"SET", "_0"}}},
		{flag: "configmap", value: "a;substitute", err: "it must name environment variables, as in substitute=POD_NAME,POD_IP"},
		{flag: "configmap", value: "a;substitute=SET,", err: "substitute=SET,: it must name environment variables"},
		{flag: "configmap", value: "a;substitute=UNSET", err: "substitute: the environment variable UNSET is not set"},
		{flag: "configmap", value: "a;gunzip=true", err: "gunzip has no value"},
		{flag: "configmap", value: "a;", err: `option "" is unknown`},
		{flag: "configmap", value: "a;dri=x", err: `option "dri" is unknown: there are optional, dir=`},
		{flag: "configmap", value: "a;key=", err: "key: it must be KEY or KEY:PATH"},
		{flag: "configmap", value: "a;key=x:", err: `key "x": path ""`},
		{flag: "configmap", value: "a;key=x:..data", err: "reserved"},
		{flag: "configmap", value: "a;mode=999", err: `mode "999"`},
		{flag: "configmap", value: "a;mode=0040", err: "the owner must be allowed to read"},
		{flag: "configmap", value: "a;mode=04755", err: "from 0001 to 0775"},
		{flag: "configmap", value: "a;mode=0666", err: `mode "0666": all users would be allowed to write`},
		{flag: "configmap", value: "a;namespace=x", err: "give a name as NAMESPACE/NAME"},
		{flag: "configmap", value: "a;dir-annotation=no annotation", err: "dir-annotation"},
		{flag: "configmap", value: "a;env;dir=x", err: "have no meaning"},
		{flag: "configmap-selector", value: "", err: "would match everything"},
		{flag: "configmap-selector", value: "a in b", err: "found"},
		{flag: "configmap-selector", value: "a=b;namespace=A", err: `namespace "A"`},
		{flag: "volume", value: "etc/app", err: "must be absolute"},
		{flag: "volume", value: "/v;env", err: "for ConfigMaps and Secrets"},
		{flag: "volume", value: "/v;dir=a/b", want: source.Spec{Kind: source.Volume, Name: "/v", Dir: "a/b"}},
		{flag: "volume", value: "/v;dir={name}", err: "dir: {namespace} and {name} stand for those of ConfigMaps and Secrets"},
		{flag: "volume", value: "/v;dir-annotation=x", err: "volumes have no annotations"},
	} {
		o, f := New(), pflag.NewFlagSet("", pflag.ContinueOnError)
		o.AddFlags(f)
		err := f.Parse([]string{"--" + tt.flag + "=" + tt.value})
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("--%s=%s: %v, want %q", tt.flag, tt.value, err, tt.err)
			}
			continue
		}
		if err != nil || len(o.Sources) != 1 {
			t.Errorf("--%s=%s: %v", tt.flag, tt.value, err)
			continue
		}
		got := o.Sources[0]
		if selectors := fmt.Sprint(got.Selector); selectors != fmt.Sprint(tt.want.Selector) {
			t.Errorf("--%s=%s: selector %s", tt.flag, tt.value, selectors)
		}
		got.Selector, tt.want.Selector = nil, nil
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("--%s=%s (-want +got):\n%s", tt.flag, tt.value, diff)
		}
	}
}

// The examples in the help of the flags can be used as they are.
func TestSources_ExamplesOfHelp(t *testing.T) {
	t.Setenv("POD_NAME", "x")
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	New().AddFlags(f)
	flags := 0
	f.VisitAll(func(f *pflag.Flag) {
		if f.Value.Type() != "source" {
			return
		}
		flags++
		_, examples, found := strings.Cut(f.Usage, "Examples: ")
		if !found {
			t.Errorf("--%s has no example: %s", f.Name, f.Usage)
		}
		for example := range strings.SplitSeq(examples, ", ") {
			arg := "--" + f.Name + "=" + example
			if _, err := parse([]string{"/bin/app"}, "--dir=/files", "--reload-by-restart", arg); err != nil {
				t.Errorf("%s: %v", arg, err)
			}
		}
	})
	if flags != 5 {
		t.Errorf("%d flags for sources", flags)
	}
}

// describe shows what is done for a reload.
func describe(c *agent.Config) (out []string) {
	for _, a := range c.Reload {
		out = append(out, a.String())
	}
	if c.Probe != nil {
		out = append(out, "probe "+c.Probe.String())
	}
	if c.ReloadFirst {
		out = append(out, "first")
	}
	return out
}

// --namespace is for sources that name none. The namespace of the pod is told by its ServiceAccount, if there is one.
func TestNamespaces(t *testing.T) {
	const needed = "--namespace is required outside of a pod"
	for _, tt := range []struct {
		args, own string   // flags, and the namespace of the ServiceAccount
		want      []string // the namespaces of the sources, and that of the pod
		err       string
	}{
		{args: "--configmap=a --secret=b/c", own: "shop", want: []string{"shop", "b", "shop"}},
		{args: "--configmap=a --secret=b/c --namespace=x --report", own: "shop", want: []string{"x", "b", "shop"}},
		{args: "--configmap=a --secret=b/c --namespace=x --report=events", want: []string{"x", "b", "x"}},
		{args: "--configmap-selector=a=b;namespace=c --volume=/v", want: []string{"c", "", ""}},
		{args: "--configmap=b/c", want: []string{"b", ""}},
		{args: "--configmap=b/c --configmap=a", err: needed},
		{args: "--configmap-selector=a=b", err: needed},
		{args: "--configmap=b/c --report", err: needed},
		{args: "--volume=/v --report=events", err: needed},
	} {
		o, f := New(), pflag.NewFlagSet("", pflag.ContinueOnError)
		o.AddFlags(f)
		if err := f.Parse(strings.Fields(tt.args)); err != nil {
			t.Fatal(err)
		}
		err := o.namespaces(o.Sources, tt.own)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v, want %q", tt.args, err, tt.err)
			}
			continue
		}
		var got []string
		for _, s := range o.Sources {
			got = append(got, s.Namespace)
		}
		if diff := cmp.Diff(tt.want, append(got, o.Pod.Namespace)); err != nil || diff != "" {
			t.Errorf("%s, in a pod of %q: %v (-want +got):\n%s", tt.args, tt.own, err, diff)
		}
	}
}

// Outside of a pod, an agent needs no --namespace if each source names its own.
func TestConnect(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	o := New()
	o.Server.URL = "http://127.0.0.1:1"
	o.Sources = []source.Spec{{Kind: source.ConfigMap, Namespace: "shop", Name: "app"}}
	c := &agent.Config{Sources: o.Sources}
	if err := o.Connect(c); err != nil || c.Client == nil {
		t.Errorf("client %v, error %v", c.Client, err)
	}
}

func TestReload(t *testing.T) {
	t.Setenv("POD_NAME", "")
	app := []string{"/usr/sbin/nginx", "-g", "daemon off;"}
	for _, tt := range []struct {
		args    string
		command []string
		want    []string
		err     string
	}{
		{args: "", want: nil},
		{args: "--reload-url=http://127.0.0.1:9090/-/reload?token=x", want: []string{"POST http://127.0.0.1:9090/-/reload", "first"}},
		{args: "--reload-url=http://127.0.0.1/ --reload-method=put --reload-first=false", want: []string{"PUT http://127.0.0.1/"}},
		{args: "--reload-signal=HUP", command: app, want: []string{"SIGHUP to /usr/sbin/nginx"}},
		{args: "--reload-signal=HUP --process=nginx", want: []string{"SIGHUP to process nginx"}},
		{args: "--reload-signal=HUP --process=nginx --reload-first=true", want: []string{"SIGHUP to process nginx", "first"}},
		{args: "--reload-command=/bin/reload --probe-url=http://localhost/healthz", want: []string{"command /bin/reload", "probe GET http://localhost/healthz", "first"}},
		{args: "--reload-by-restart", command: app, want: []string{"restart of /usr/sbin/nginx"}},

		{args: "--reload-command=b --reload-first=false", command: app, want: []string{"command b"}},
		{args: "--reload-command=b --reload-first=true", command: app, err: "--reload-first: the command after -- is started once the first files are there"},
		{args: "--reload-signal=HUP", err: "needs --process, or a command"},
		{args: "--reload-by-restart", err: "give it after --"},
		{args: "--reload-url=ftp://a/", err: "--reload-url: it must begin with http://"},
		{args: "--reload-url=http:///x", err: "--reload-url: it must begin with"},
		{args: "--reload-url=http://user:PASSWORD@a/", err: "use --reload-basic-auth"},
		{args: "--process=a", err: "--process: it is for --reload-signal"},
		{args: "--reload-body=x", err: "--reload-url: it is required"},
		{args: "--reload-basic-auth=/x --reload-command=b", err: "--reload-url: it is required"},
		{args: "--timeout=0s", err: "--timeout: 0s must be more than 0"},
		{args: "--report=everything", err: `--report: "everything" must be annotation or events`},
		{args: "--report=events --once", err: "--once"},
		{args: "--reload-url=http://a/%zz", err: "--reload-url: it is not a URL"},
		{args: "--reload-url=http://a/ --reload-method=a,b", err: "--reload-method"},
		{args: "--probe-url=http://user:PASSWORD@a/", err: "--probe-url: it must not have credentials"},
		{args: "--reload-url=http://a/ --reload-accept=2xx", err: "--reload-accept"},
		{args: "--rollback-after=1", err: "--rollback-after: there is nothing that could fail"},
		{args: "--rollback-after=1 --reload-command=b", want: []string{"command b", "first"}},
		{args: "--rollback-after=1 --probe-url=http://a/", want: []string{"probe GET http://a/"}},
		{args: `--check-command='nginx`, err: "quotes have no meaning here"},
		{args: `--reload-command=["'a'"]`, want: []string{"command 'a'", "first"}},
		{args: `--reload-command=["a"`, err: "JSON array"},
		{args: "--check-command=[]", err: "--check-command"},
		{args: "--reload-first=yes", err: "must be auto, true or false"},
		{args: "--command-output=yes", err: "must be always, never or auto"},
		{args: "--file-mode=8", err: "--file-mode"},
		{args: "--settle=-1s", err: "--settle"},
		{args: "--rollback-after=-1", err: "--rollback-after"},
		{args: "--once", command: app, err: "--once"},
		{args: "--report", err: "POD_NAME"},
		{args: "--secret=a;env", command: app, err: "env needs --reload-by-restart"},
		{args: "--dir=", err: "--dir: it is required"},
		{args: "--secret=tls;dir=../x", err: `Secret /tls: dir: path "../x"`},
		{args: "--secret=tls;dir=/etc", err: `Secret /tls: dir: directory "/etc" is not below /files`},
		{args: "--volume=/files", err: "Volume /files: --dir"},
		{args: "--volume=/files/sub", err: "Volume /files/sub: --dir"},
		{args: "--volume=/", err: "Volume /: --dir"},
		{args: "--volume=/files2"},
	} {
		args := append([]string{"--dir=/files", "--configmap=a"}, strings.Fields(tt.args)...)
		c, err := parse(tt.command, args...)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "PASSWORD") {
				t.Errorf("%s: %v, want %q", tt.args, err, tt.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.args, err)
			continue
		}
		if diff := cmp.Diff(tt.want, describe(c)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.args, diff)
		}
	}
	if _, err := parse(nil, "--dir=/files"); err == nil || !strings.Contains(err.Error(), "there is no source") {
		t.Errorf("without sources: %v", err)
	}
	// All that is wrong is told at once.
	if _, err := parse(nil, "--settle=-1s", "--file-mode=x"); err == nil || strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("four mistakes: %v", err)
	}
}

// The agent would read its own files again, also if --dir is relative.
func TestVolume_InRelativeDir(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		volume, dir string
		refused     bool
	}{
		{here, "out", true},
		{here, ".", true},
		{here + "/out/in", "./out", true},
		{here + "/in", "..", true},
		{here + "/in", "out", false},
		{here + "/in", "../out", false},
	} {
		_, err := parse(nil, "--volume="+tt.volume, "--dir="+tt.dir)
		if refused := err != nil && strings.Contains(err.Error(), "must not be in it"); refused != tt.refused || err != nil && !refused {
			t.Errorf("--volume=%s --dir=%s: %v", tt.volume, tt.dir, err)
		}
	}
}

// A command that fails without output says how that can be seen.
func TestCommandOutput(t *testing.T) {
	t.Setenv("SET", "x")
	for flag, want := range map[string]bool{"--configmap=a": false, "--secret=a": true, "--volume=/v": true, "--configmap=a;substitute=SET": true} {
		c, err := parse(nil, flag, "--dir=/files", "--check-command=false", "--reload-command=false")
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range append(c.Reload, c.Check) {
			if err := a.Do(t.Context()); err == nil || strings.Contains(err.Error(), "false: exit code 1 (--command-output=always shows what it prints)") != want {
				t.Errorf("%s: %v", flag, err)
			}
		}
	}
}

// Another host than that of the reload gets none of its credentials.
func TestProbe_Credentials(t *testing.T) {
	for url, want := range map[string]string{"http://a:1/ready": "/login", "http://a:2/ready": "", "http://b:1/ready": ""} {
		c, err := parse(nil, "--configmap=a", "--dir=/files", "--reload-url=http://a:1/reload", "--reload-basic-auth=/login", "--probe-url="+url)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Probe.(*action.Within).Action.(*action.HTTP).BasicAuth; got != want {
			t.Errorf("%s: the credentials are read from %q, want %q", url, got, want)
		}
	}
}

// Without a reload, the credentials are those of the probe.
func TestProbe_Alone(t *testing.T) {
	c, err := parse(nil, "--configmap=a", "--dir=/files", "--reload-basic-auth=/login", "--probe-url=http://a/ready")
	if err != nil || c.Probe.(*action.Within).Action.(*action.HTTP).BasicAuth != "/login" {
		t.Errorf("%+v, %v", c, err)
	}
}

// The output of commands may quote Secrets.
func TestOutput(t *testing.T) {
	t.Setenv("SET", "x")
	for args, want := range map[string]bool{
		"--configmap=a": true, "--configmap=a;gunzip": true, "--secret=a": false, "--configmap=a;substitute=SET": false, "--configmap=a --configmap=b;substitute=SET": false, "--configmap=a --volume=/v": false, "--secret=a --command-output=always": true, "--configmap=a --command-output=never": false,
	} {
		c, err := parse(nil, append(strings.Fields(args), "--dir=/files", "--check-command=true")...)
		if err != nil || (c.Check.Output != nil) != want {
			t.Errorf("%s: %v, %v", args, c, err)
		}
	}
}

// A directory is one below --dir, in whatever way it is written.
func TestSourceDir(t *testing.T) {
	for dir, want := range map[string]string{"tls": "tls", "tls/": "tls", "/files/tls/": "tls", "/files": "", "./a//{name}": "a/{name}", "/files/../files/a": "a"} {
		c, err := parse(nil, "--configmap-selector=app;dir="+dir, "--dir=/files/")
		if err != nil || c.Sources[0].Dir != want {
			t.Errorf("dir=%s: %+v, %v, want %q", dir, c, err, want)
		}
	}
}

// Of a command that reloads, {dir} is the directory that the application reads.
func TestReloadCommand_Dir(t *testing.T) {
	c, err := parse(nil, "--configmap=a", "--dir=/files/../x", "--reload-command=test {dir}/nginx.conf = /x/nginx.conf")
	if err == nil {
		err = c.Reload[0].Do(t.Context())
	}
	if err != nil {
		t.Error(err)
	}
}

func TestFiles(t *testing.T) {
	c, err := parse(nil, "--configmap=a", "--dir=/files/../x", "--file-mode=0440")
	if err != nil || c.Dir != "/x" || c.Files.Mode != 0o440 {
		t.Errorf("%+v, %v", c, err)
	}
}

// The certificate of the application is checked, unless that is not wanted.
func TestReload_CAFile(t *testing.T) {
	for flag, want := range map[string]action.HTTP{"": {}, "/ca.crt": {CAFile: "/ca.crt"}, "none": {Insecure: true}} {
		c, err := parse(nil, "--configmap=a", "--dir=/files", "--reload-url=https://a", "--probe-url=https://a", "--reload-ca-file="+flag)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range []*action.HTTP{c.Reload[0].(*action.HTTP), c.Probe.(*action.Within).Action.(*action.HTTP)} {
			if a.CAFile != want.CAFile || a.Insecure != want.Insecure {
				t.Errorf("%q: %+v", flag, a)
			}
		}
	}
}

// One duration is for all that is tried.
func TestTimeout(t *testing.T) {
	c, err := parse(nil, "--configmap=a", "--dir=/files", "--check-command=a", "--reload-url=http://a", "--reload-command=b", "--probe-url=http://a", "--timeout=7s")
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range []time.Duration{c.Check.Timeout, c.Reload[0].(*action.HTTP).Timeout, c.Reload[1].(*action.Command).Timeout, c.Probe.(*action.Within).Limit} {
		if got != 7*time.Second {
			t.Errorf("%v", got)
		}
	}
}

func TestReport(t *testing.T) {
	t.Setenv("POD_NAME", "web-1")
	for flag, want := range map[string][2]bool{"--report": {true, false}, "--report=annotation": {true, false}, "--report=events": {false, true}, "--report=events,annotation": {true, true}, "--once": {}} {
		o, f := New(), pflag.NewFlagSet("", pflag.ContinueOnError)
		o.AddFlags(f)
		if err := f.Parse([]string{"--configmap=a", "--dir=/files", flag}); err != nil {
			t.Fatal(err)
		}
		if _, err := o.Config(nil); err != nil {
			t.Errorf("%s: %v", flag, err)
		}
		if r := o.Reports(); r.Annotate != want[0] || r.Events != want[1] {
			t.Errorf("%s: %+v", flag, r)
		}
	}
}

// No value of a flag makes the agent panic, and each that is taken makes a source with a name or a selector.
func FuzzSource(f *testing.F) {
	for _, s := range []string{"a", "a/b;optional", "a;dir=x;key=a:b;mode=0440", "app=web;namespace=n", ";;;", "a;env=X", "a;gunzip;substitute", "a;substitute=PATH"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		for _, kind := range []source.Kind{source.ConfigMap, source.Secret, source.Volume} {
			for _, selector := range []bool{false, true} {
				var sources []source.Spec
				if err := (&sourceFlag{&sources, kind, selector}).Set(value); err != nil {
					continue
				}
				if s := sources[0]; s.Name == "" && s.Selector == nil {
					t.Errorf("%q makes %+v", value, s)
				}
			}
		}
	})
}
