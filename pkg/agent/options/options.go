// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package options has the flags of configdep-agent, and makes the configuration of an agent from them.
package options

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/configdep/configdep/pkg/agent"
	"github.com/configdep/configdep/pkg/agent/action"
	"github.com/configdep/configdep/pkg/agent/process"
	"github.com/configdep/configdep/pkg/agent/report"
	"github.com/configdep/configdep/pkg/agent/source"
)

// Options are the values of the flags.
type Options struct {
	Dir       string
	Sources   []source.Spec
	Server    source.Server
	Namespace string
	FileMode  string
	Settle    time.Duration

	CheckCommand string

	Reload        HTTP
	Signal        string
	Process       string
	ReloadCommand string
	Restart       bool
	ReloadFirst   string

	ProbeURL string
	Timeout  time.Duration

	RollbackAfter int
	Output        string
	Once          bool

	Listen      string
	ExposeNames bool
	Grace       time.Duration

	Report []string
	Pod    report.Pod
}

// HTTP are the flags of a request.
type HTTP struct{ URL, Method, Body, Accept, BasicAuth, CAFile string }

// none, in the place of a file with certificates: the certificate of the application is not checked.
const none = "none"

// What is reported.
const (
	annotation = "annotation"
	events     = "events"
)

// These suit all: a volume tells of most changes, and a step that fails is tried until it succeeds.
const (
	poll         = 10 * time.Second
	uptime       = time.Second
	leastRetry   = time.Second
	longestRetry = time.Minute
)

// New returns the defaults.
func New() *Options {
	return &Options{
		FileMode: "0600", Settle: time.Second, ReloadFirst: "auto", Reload: HTTP{Method: http.MethodPost}, Timeout: 30 * time.Second,
		Output: "auto", Listen: ":9533", Grace: 25 * time.Second, Pod: report.Pod{Name: os.Getenv("POD_NAME"), UID: os.Getenv("POD_UID")},
	}
}

// AddFlags adds the flags.
func (o *Options) AddFlags(f *pflag.FlagSet) {
	const options = " May be repeated. Options follow after semicolons. Examples: "
	f.StringVar(&o.Dir, "dir", "", "Directory in which the agent keeps the files.")
	f.Var(&sourceFlag{&o.Sources, source.ConfigMap, false}, "configmap", "[NAMESPACE/]NAME of a ConfigMap."+options+"shop/app;optional;dir=conf;key=app.yaml:config.yaml, app;env=APP_")
	f.Var(&sourceFlag{&o.Sources, source.Secret, false}, "secret", "[NAMESPACE/]NAME of a Secret."+options+"shop/tls;dir=tls;key=tls.crt:server.pem;mode=0440, db;env=DB_")
	f.Var(&sourceFlag{&o.Sources, source.ConfigMap, true}, "configmap-selector", "Label selector of ConfigMaps."+options+"app=web;namespace=shop;dir={namespace}/{name}, app=web;dir-annotation=example.com/dir")
	f.Var(&sourceFlag{&o.Sources, source.Secret, true}, "secret-selector", "Label selector of Secrets."+options+"app=web;dir={name};mode=0440, app=web;env=DB_")
	f.Var(&sourceFlag{&o.Sources, source.Volume, false}, "volume", "Directory to copy, such as the mount path of a volume."+options+"/etc/app;optional;gunzip, /etc/app;dir=conf;substitute=POD_NAME")
	f.StringVar(&o.Server.URL, "api-server", o.Server.URL, "URL of the API server, such as that of kubectl proxy. The default is the cluster of the pod, with the pod's ServiceAccount.")
	f.StringVar(&o.Namespace, "namespace", o.Namespace, "Namespace of sources that name none and, outside of a pod, of --report. The default is the namespace of the pod.")
	f.StringVar(&o.FileMode, "file-mode", o.FileMode, "Permissions of the files. Users who may read a file may also list the directories above it.")
	f.DurationVar(&o.Settle, "settle", o.Settle, "Apply changes when no other change has arrived for this time. Waits at most ten times as long.")

	f.StringVar(&o.CheckCommand, "check-command", o.CheckCommand, "Command that checks new files before they are put in place: words or a JSON array. {dir} is the directory of the new files.")

	o.Reload.addFlags(f)
	f.StringVar(&o.Signal, "reload-signal", o.Signal, "Signal to send after new files are in place, such as HUP. It goes to the command after -- or to --process.")
	f.StringVar(&o.Process, "process", o.Process, "Name or path of the program that gets the signal. The pod must share its process namespace.")
	f.StringVar(&o.ReloadCommand, "reload-command", o.ReloadCommand, "Command to run after new files are in place: words or a JSON array. {dir} is the directory of --dir.")
	f.BoolVar(&o.Restart, "reload-by-restart", o.Restart, "Restart the command after --, with new environment variables.")
	f.StringVar(&o.ReloadFirst, "reload-first", o.ReloadFirst, "Also reload after the first files: true, false or auto. With auto, only if --reload-url or --reload-command is set and there is no command after --.")

	f.StringVar(&o.ProbeURL, "probe-url", o.ProbeURL, "URL that answers a GET with a status from 200 to 299 if the application works with the new files.")
	f.DurationVar(&o.Timeout, "timeout", o.Timeout, "Time limit of each check, of each reload, and of the wait for the probe.")

	f.IntVar(&o.RollbackAfter, "rollback-after", o.RollbackAfter, "Number of failed reloads and probes after which the files that were applied last come back. 0 means never.")
	f.StringVar(&o.Output, "command-output", o.Output, "Write the output of commands to standard error: always, never or auto. With auto, only if it cannot quote Secrets, volumes or substituted variables.")
	f.BoolVar(&o.Once, "once", o.Once, "Exit when the files are in place. This is for init containers.")
	f.StringSliceVar(&o.Report, "report", o.Report, "Report what is applied: annotation (of the pod), events, or both with a comma. Set the environment variables POD_NAME and POD_UID.")
	f.Lookup("report").NoOptDefVal = annotation
	f.BoolVar(&o.ExposeNames, "expose-names", o.ExposeNames, "Name sources, files, commands and URLs in answers to every client that can reach --listen.")
	f.StringVar(&o.Listen, "listen", o.Listen, "Address of /startupz, /livez, /readyz and /metrics. If empty, they are not served.")
	f.DurationVar(&o.Grace, "grace-period", o.Grace, "Time that the command after -- has to end after SIGTERM. Keep it below terminationGracePeriodSeconds.")
}

func (h *HTTP) addFlags(f *pflag.FlagSet) {
	f.StringVar(&h.URL, "reload-url", h.URL, "URL to request after new files are in place.")
	f.StringVar(&h.Method, "reload-method", h.Method, "Method of the request to --reload-url.")
	f.StringVar(&h.Body, "reload-body", h.Body, "Body of the request to --reload-url, in JSON.")
	f.StringVar(&h.Accept, "reload-accept", h.Accept, "Status codes that mean success, such as 200,202-204. The default is 200-299.")
	f.StringVar(&h.BasicAuth, "reload-basic-auth", h.BasicAuth, "Directory with the files username and password, such as a mounted Secret of the type kubernetes.io/basic-auth.")
	f.StringVar(&h.CAFile, "reload-ca-file", h.CAFile, "File with CA certificates to trust instead of the system's. With none, the certificate of the application is not verified.")
}

// flagError names the flag of an error.
func flagError(flag string, err error) error { return fmt.Errorf("--%s: %w", flag, err) }

// Config makes the configuration of an agent that runs a command, if there is one. The error names all flags that are wrong.
func (o *Options) Config(command []string) (*agent.Config, error) {
	c := &agent.Config{
		Sources: o.Sources, Poll: poll, Settle: o.Settle, Rollback: o.RollbackAfter, RetryMin: leastRetry, RetryMax: longestRetry, Once: o.Once,
	}
	var errs []error
	fail := func(flag string, err error) {
		if err != nil {
			errs = append(errs, flagError(flag, err))
		}
	}
	if o.Dir == "" {
		fail("dir", errors.New("it is required"))
	}
	c.Dir = filepath.Clean(o.Dir)
	if len(o.Sources) == 0 {
		errs = append(errs, errors.New("there is no source: give --configmap, --secret, --configmap-selector, --secret-selector or --volume"))
	}
	dir, err := filepath.Abs(c.Dir) // as the paths of volumes are
	fail("dir", err)
	for i := range o.Sources {
		s := &o.Sources[i]
		if s.Kind == source.Volume && o.Dir != "" && (within(s.Name, dir) || within(dir, s.Name)) {
			errs = append(errs, fmt.Errorf("%s: --dir, %s, must not be in it, nor the other way round: the agent would read its own files", s, c.Dir))
		}
		if s.Dir, err = source.Below(dir, s.Dir); err != nil {
			errs = append(errs, fmt.Errorf("%s: dir: %w", s, err))
		}
	}
	c.Files.Mode, err = parseMode(o.FileMode)
	fail("file-mode", err)
	if o.Timeout <= 0 {
		fail("timeout", fmt.Errorf("%v must be more than 0", o.Timeout))
	}
	for flag, d := range map[string]time.Duration{"settle": o.Settle, "grace-period": o.Grace} {
		if d < 0 {
			fail(flag, fmt.Errorf("%v must not be negative", d))
		}
	}
	if o.RollbackAfter < 0 {
		fail("rollback-after", fmt.Errorf("%d must not be negative", o.RollbackAfter))
	}
	if o.Once && len(command) != 0 {
		fail("once", errors.New("it is for init containers, which run no command afterwards"))
	}
	for _, what := range o.Report {
		if what != annotation && what != events {
			fail("report", fmt.Errorf("%q must be %s or %s", what, annotation, events))
		}
	}
	if len(o.Report) != 0 && o.Pod.Name == "" {
		fail("report", errors.New("it needs the name of the pod in the environment variable POD_NAME"))
	}
	if len(o.Report) != 0 && o.Once {
		fail("once", errors.New("nothing is reported by an init container"))
	}
	output, err := o.output()
	fail("command-output", err)
	if o.CheckCommand != "" {
		args, err := action.ParseCommand(o.CheckCommand)
		fail("check-command", err)
		c.Check = &action.Command{Args: args, Timeout: o.Timeout, Output: output, Hint: hint(output)}
	}
	if len(command) != 0 {
		c.Application = process.NewApplication(command, nil, o.Grace)
	}
	errs = append(errs, o.reloads(c, output))
	if o.ProbeURL != "" {
		probe, err := o.probe()
		errs = append(errs, err)
		c.Probe = &action.Within{Action: probe, Limit: o.Timeout, Pause: 500 * time.Millisecond}
	}
	if o.RollbackAfter > 0 && len(c.Reload) == 0 && c.Probe == nil {
		fail("rollback-after", errors.New("there is nothing that could fail: no reload and no --probe-url"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return c, nil
}

// within reports whether a path is that of a directory, or below it.
func within(dir, name string) bool {
	return dir == name || strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}

// Connect connects an agent to the API server, if a source is read from it or something is reported, and gives sources their namespaces.
func (o *Options) Connect(c *agent.Config) error {
	needed := len(o.Report) != 0
	for i := range c.Sources {
		needed = needed || c.Sources[i].Kind != source.Volume
	}
	if !needed {
		return nil
	}
	server := o.Server
	inCluster, own, err := source.InCluster()
	if server.URL == "" {
		if err != nil {
			return fmt.Errorf("API server: %w", err)
		}
		server = inCluster
	}
	server.UserAgent = "configdep-agent"
	if c.Client, err = source.NewClient(server); err != nil {
		return err
	}
	return o.namespaces(c.Sources, own)
}

// namespaces gives sources that name no namespace that of --namespace, or else that of the pod. The ServiceAccount of the pod tells its
// namespace, which --namespace does not change; outside of a pod, own is empty, and --namespace stands for it.
func (o *Options) namespaces(sources []source.Spec, own string) error {
	namespace := cmp.Or(o.Namespace, own)
	o.Pod.Namespace = cmp.Or(own, o.Namespace)
	needed := len(o.Report) != 0
	for i := range sources {
		if s := &sources[i]; s.Kind != source.Volume && s.Namespace == "" {
			s.Namespace = namespace
			needed = true
		}
	}
	if needed && namespace == "" {
		return errors.New("--namespace is required outside of a pod, unless all sources name their namespaces and --report is not set")
	}
	return nil
}

// Reports returns what is reported, and how.
func (o *Options) Reports() report.Options {
	return report.Options{
		Annotate: slices.Contains(o.Report, annotation), Events: slices.Contains(o.Report, events),
		Least: time.Second, RetryMin: leastRetry, RetryMax: longestRetry,
	}
}

func (o *Options) output() (*os.File, error) {
	switch o.Output {
	case "always":
		return os.Stderr, nil
	case "never":
		return nil, nil //nolint:nilnil // no output
	case "auto":
		for i := range o.Sources {
			if s := &o.Sources[i]; s.Kind != source.ConfigMap || s.Substitute != nil {
				return nil, nil //nolint:nilnil // no output
			}
		}
		return os.Stderr, nil
	}
	return nil, fmt.Errorf("%q must be always, never or auto", o.Output)
}

// hint says how the output of a command that failed can be seen.
func hint(output *os.File) string {
	if output == nil {
		return "--command-output=always shows what it prints"
	}
	return ""
}

// reloads adds the actions that reload.
func (o *Options) reloads(c *agent.Config, output *os.File) error {
	var errs []error
	gentle := false
	if o.Reload.URL != "" {
		a, err := o.Reload.action("reload-url", o.Timeout)
		errs = append(errs, err)
		c.Reload = append(c.Reload, a)
		gentle = true
	} else if o.ProbeURL == "" && o.Reload != New().Reload {
		errs = append(errs, flagError("reload-url", errors.New("it is required by other flags of the request")))
	}
	if o.ReloadCommand != "" {
		args, err := action.ParseCommand(o.ReloadCommand)
		if err != nil {
			errs = append(errs, flagError("reload-command", err))
		}
		c.Reload = append(c.Reload, &action.Command{Args: args, Timeout: o.Timeout, Output: output, Hint: hint(output), Dir: c.Dir})
		gentle = true
	}
	if o.Signal != "" {
		s, err := action.ParseSignal(o.Signal)
		if err != nil {
			errs = append(errs, flagError("reload-signal", err))
		}
		a := &action.Signal{Signal: s}
		switch {
		case o.Process != "":
			a.To = action.Process{Name: o.Process}
		case c.Application != nil:
			a.To = child{c.Application}
		default:
			errs = append(errs, flagError("reload-signal", errors.New("it needs --process, or a command after --")))
		}
		c.Reload = append(c.Reload, a)
	} else if o.Process != "" {
		errs = append(errs, flagError("process", errors.New("it is for --reload-signal")))
	}
	if o.Restart {
		if c.Application == nil {
			errs = append(errs, flagError("reload-by-restart", errors.New("it is for a command that this program runs: give it after --")))
		} else {
			c.Reload = append(c.Reload, &agent.Restart{Application: c.Application, Uptime: uptime})
		}
	}
	for i := range o.Sources {
		if o.Sources[i].Env && !o.Restart {
			errs = append(errs, fmt.Errorf("%s: env needs --reload-by-restart, because the environment of a running process cannot change", &o.Sources[i]))
		}
	}
	switch o.ReloadFirst {
	case "auto":
		c.ReloadFirst = gentle && c.Application == nil
	case "true", "false":
		if c.ReloadFirst = o.ReloadFirst == "true"; c.ReloadFirst && c.Application != nil {
			errs = append(errs, flagError("reload-first", errors.New("the command after -- is started once the first files are there, so there is nothing to reload then")))
		}
	default:
		errs = append(errs, flagError("reload-first", fmt.Errorf("%q must be auto, true or false", o.ReloadFirst)))
	}
	return errors.Join(errs...)
}

// child is the command that this program runs, as the target of a signal.
type child struct{ *process.Application }

func (c child) Send(s syscall.Signal) error { return c.Signal(s) }
func (c child) String() string              { return c.Command[0] }

// probe makes the request of --probe-url, with the connection of the other one. Another host gets none of its credentials.
func (o *Options) probe() (*action.HTTP, error) {
	h := HTTP{URL: o.ProbeURL, Method: http.MethodGet, CAFile: o.Reload.CAFile}
	if o.Reload.URL == "" || host(o.ProbeURL) == host(o.Reload.URL) {
		h.BasicAuth = o.Reload.BasicAuth
	}
	return h.action("probe-url", 5*time.Second)
}

// host returns the host and the port of a URL, which action validates.
func host(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Host
}

// action makes the action of the flags, whose URL is that of a flag.
func (h *HTTP) action(urlFlag string, timeout time.Duration) (*action.HTTP, error) {
	var errs []error
	fail := func(flag string, err error) {
		if err != nil {
			errs = append(errs, flagError(flag, err))
		}
	}
	a := &action.HTTP{Method: strings.ToUpper(h.Method), Body: h.Body, BasicAuth: h.BasicAuth, Timeout: timeout}
	if a.Insecure = h.CAFile == none; !a.Insecure {
		a.CAFile = h.CAFile
	}
	u, err := url.Parse(h.URL)
	switch {
	case err != nil:
		fail(urlFlag, errors.New("it is not a URL")) // the error would quote it
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		fail(urlFlag, errors.New("it must begin with http:// or https:// and a host"))
	case u.User != nil:
		fail(urlFlag, errors.New("it must not have credentials: use --reload-basic-auth"))
	}
	a.URL = u
	if _, err := http.NewRequest(h.Method, "http://localhost", nil); err != nil { //nolint:noctx // it is not sent
		fail("reload-method", err)
	}
	if h.Accept != "" {
		a.Accept, err = action.ParseCodes(h.Accept)
		fail("reload-accept", err)
	}
	return a, errors.Join(errs...)
}
