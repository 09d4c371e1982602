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
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/configdep/configdep/pkg/agent"
	"github.com/configdep/configdep/pkg/agent/action"
	"github.com/configdep/configdep/pkg/agent/fileset"
	"github.com/configdep/configdep/pkg/agent/process"
	"github.com/configdep/configdep/pkg/agent/report"
	"github.com/configdep/configdep/pkg/agent/source"
	"github.com/configdep/configdep/pkg/agent/status"
)

// Options are the values of the flags.
type Options struct {
	Dir             string
	Sources         []source.Spec
	Server          source.Server
	Namespace       string
	FileMode, Owner string
	MaxBytes        int64
	Settle, Poll    time.Duration

	CheckCommand string
	CheckTimeout time.Duration

	Reload        HTTP
	Send          Send
	Signal        string
	Process       string
	PIDFile       string
	ReloadCommand string
	ReloadTimeout time.Duration
	Restart       bool
	Uptime        time.Duration
	ReloadFirst   string

	ProbeURL     string
	ProbeTimeout time.Duration

	RollbackAfter      int
	RetryMin, RetryMax time.Duration
	Output             string
	Once               bool

	Listen      string
	ExposeNames bool
	Grace       time.Duration

	Report, Events bool
	Pod            report.Pod
}

// HTTP are the flags of a request.
type HTTP struct {
	URL, Method, Body, Socket, Accept, ServerName string
	Headers                                       []string
	UsernameFile, PasswordFile, TokenFile         string
	CAFile, CertFile, KeyFile                     string
	Insecure                                      bool
	Timeout                                       time.Duration
}

// Send are the flags of bytes that are sent.
type Send struct {
	Text, To, Expect string
	Timeout          time.Duration
}

// New returns the defaults.
func New() *Options {
	return &Options{
		FileMode: "0600", MaxBytes: fileset.DefaultMaxBytes, Settle: time.Second, Poll: 10 * time.Second,
		CheckTimeout: 30 * time.Second, ReloadTimeout: 30 * time.Second, ReloadFirst: "auto",
		Reload: HTTP{Method: http.MethodPost, Timeout: 10 * time.Second},
		Send:   Send{Timeout: 10 * time.Second}, ProbeTimeout: 30 * time.Second, Uptime: time.Second,
		RetryMin: time.Second, RetryMax: time.Minute, Output: "auto", Listen: ":9533", Grace: 25 * time.Second,
		Pod: report.Pod{Name: os.Getenv("POD_NAME"), UID: os.Getenv("POD_UID")},
	}
}

// AddFlags adds the flags.
func (o *Options) AddFlags(f *pflag.FlagSet) {
	const options = "; options follow after semicolons"
	f.StringVar(&o.Dir, "dir", "", "directory in which the files are kept")
	f.Var(&sourceFlag{&o.Sources, source.ConfigMap, false}, "configmap", "[NAMESPACE/]NAME of a ConfigMap"+options+", as in shop/app;optional;dir=conf;key=app.yaml:config.yaml;mode=0440;gunzip;substitute=POD_NAME, or as in app;env=APP_")
	f.Var(&sourceFlag{&o.Sources, source.Secret, false}, "secret", "[NAMESPACE/]NAME of a Secret"+options+", as in shop/tls;optional;dir=tls;key=tls.crt:server.pem;mode=0440;gunzip;substitute=POD_NAME, or as in db;env=DB_")
	f.Var(&sourceFlag{&o.Sources, source.ConfigMap, true}, "configmap-selector", "label selector of ConfigMaps"+options+", where dir may contain {namespace} and {name}, and dir-annotation=KEY names an annotation with the directory of an object, as in app=web;namespace=shop;dir={namespace}/{name};dir-annotation=example.com/dir;mode=0440, or as in app=web;env=APP_")
	f.Var(&sourceFlag{&o.Sources, source.Secret, true}, "secret-selector", "label selector of Secrets, with the options of --configmap-selector, as in app=web;namespace=shop;dir={name};mode=0440, or as in app=web;env=DB_")
	f.Var(&sourceFlag{&o.Sources, source.Volume, false}, "volume", "directory whose files are copied, in which the kubelet or others write"+options+", as in /etc/app;optional;dir=conf;key=app.yaml:config.yaml;mode=0440;gunzip;substitute=POD_NAME")
	f.StringVar(&o.Server.URL, "api-server", o.Server.URL, "URL of the API server; by default that of the cluster, with the ServiceAccount of the pod")
	f.StringVar(&o.Server.TokenFile, "api-server-token-file", o.Server.TokenFile, "file with a token for --api-server")
	f.StringVar(&o.Server.CAFile, "api-server-ca-file", o.Server.CAFile, "certificates of the authorities of --api-server; by default those of the system")
	f.StringVar(&o.Namespace, "namespace", o.Namespace, "namespace of sources that name none; by default that of the pod. Outside of a pod, --report and --events write there")
	f.StringVar(&o.FileMode, "file-mode", o.FileMode, "permissions of the files; those who may read files may also list directories")
	f.StringVar(&o.Owner, "owner", o.Owner, "UID[:GID] or :GID that owns the files; by default the user of this process")
	f.Int64Var(&o.MaxBytes, "max-bytes", o.MaxBytes, "how many bytes the files may have together")
	f.DurationVar(&o.Settle, "settle", o.Settle, "for how long nothing must have changed before changes are applied; at most ten times as long")
	f.DurationVar(&o.Poll, "poll-interval", o.Poll, "how often a --volume is read, besides when the kernel tells of a change in its directory")

	f.StringVar(&o.CheckCommand, "check-command", o.CheckCommand, "command that checks new files before they take their place: words, or a JSON array; {dir} stands for the directory of the new files")
	f.DurationVar(&o.CheckTimeout, "check-timeout", o.CheckTimeout, "how long the check may take")

	o.Reload.addFlags(f)
	f.StringVar(&o.Send.Text, "reload-send", o.Send.Text, `bytes that are sent to --reload-send-to after new files are in place, as in reload\n, with escapes as in Go`)
	f.StringVar(&o.Send.To, "reload-send-to", o.Send.To, "where the application listens: tcp://HOST:PORT or unix:///PATH")
	f.StringVar(&o.Send.Expect, "reload-send-expect", o.Send.Expect, "what the answer must contain, with escapes as in Go; by default the application must end the connection, whatever it answers")
	f.DurationVar(&o.Send.Timeout, "reload-send-timeout", o.Send.Timeout, "how long each try may take, with the answer")
	f.StringVar(&o.Signal, "reload-signal", o.Signal, "signal after new files are in place, as HUP: to the command that this program runs, or to --process or --pid-file")
	f.StringVar(&o.Process, "process", o.Process, "name or path of the program that gets the signal, in a pod that shares its process namespace")
	f.StringVar(&o.PIDFile, "pid-file", o.PIDFile, "file with the number of the process that gets the signal")
	f.StringVar(&o.ReloadCommand, "reload-command", o.ReloadCommand, "command after new files are in place: words, or a JSON array; {dir} stands for --dir")
	f.DurationVar(&o.ReloadTimeout, "reload-command-timeout", o.ReloadTimeout, "how long the command may take")
	f.BoolVar(&o.Restart, "reload-by-restart", o.Restart, "restart the command that this program runs, with new environment variables")
	f.DurationVar(&o.Uptime, "restart-uptime", o.Uptime, "for how long the command must run after a restart to count as started")
	f.StringVar(&o.ReloadFirst, "reload-first", o.ReloadFirst, "true: also after the first files, but not with a command after --; false: not; auto: only by --reload-url, --reload-send and --reload-command, since a signal may end a program that is not ready for it")

	f.StringVar(&o.ProbeURL, "probe-url", o.ProbeURL, "URL of a GET that gets a status code from 200 to 299 if the application works with the new files; with the socket and the CA of --reload-url, and, on the same host, its credentials")
	f.DurationVar(&o.ProbeTimeout, "probe-within", o.ProbeTimeout, "how long it may take until the request succeeds")

	f.IntVar(&o.RollbackAfter, "rollback-after", o.RollbackAfter, "number of failed reloads after which the files that were applied last come back; 0: never")
	f.DurationVar(&o.RetryMin, "retry-min", o.RetryMin, "time between the first two tries, which then doubles")
	f.DurationVar(&o.RetryMax, "retry-max", o.RetryMax, "maximum time between two tries")
	f.StringVar(&o.Output, "command-output", o.Output, "whether the output of commands is written to standard error: always, never, or auto: unless Secrets or volumes are read, or environment variables are substituted, which it may quote")
	f.BoolVar(&o.Once, "once", o.Once, "end once the files are there, for init containers")
	f.BoolVar(&o.Report, "report", o.Report, "write what is applied to the annotation "+status.Annotation+" of the pod, which needs the right to patch it; the environment variable POD_NAME has its name, and POD_UID its UID")
	f.BoolVar(&o.Events, "events", o.Events, "write Events about the pod, which needs the right to create them")
	f.BoolVar(&o.ExposeNames, "expose-names", o.ExposeNames, "name sources, files, commands and URLs in the answers to --listen, which every client in the pod network can read")
	f.StringVar(&o.Listen, "listen", o.Listen, "address of /startupz, /livez, /readyz and /metrics; empty: none")
	f.DurationVar(&o.Grace, "grace-period", o.Grace, "how long the command that this program runs may take to end after SIGTERM; less than terminationGracePeriodSeconds")
}

func (h *HTTP) addFlags(f *pflag.FlagSet) {
	f.StringVar(&h.URL, "reload-url", h.URL, "URL of a request after new files are in place")
	f.StringVar(&h.Method, "reload-method", h.Method, "method of the request")
	f.StringArrayVar(&h.Headers, "reload-header", h.Headers, `header of the request, as in "Name: value"`)
	f.StringVar(&h.Body, "reload-body", h.Body, "body of the request; {changed} stands for the paths of the files that have changed, as a JSON array")
	f.StringVar(&h.Socket, "reload-socket", h.Socket, "path of the unix socket at which the application listens")
	f.StringVar(&h.Accept, "reload-accept", h.Accept, "status codes of success, as in 200,202-204; by default 200-299")
	f.DurationVar(&h.Timeout, "reload-timeout", h.Timeout, "how long each try of the request may take")
	f.StringVar(&h.UsernameFile, "reload-username-file", h.UsernameFile, "file with the user name of basic authentication")
	f.StringVar(&h.PasswordFile, "reload-password-file", h.PasswordFile, "file with the password")
	f.StringVar(&h.TokenFile, "reload-token-file", h.TokenFile, "file with a bearer token")
	f.StringVar(&h.CAFile, "reload-ca-file", h.CAFile, "certificates of authorities to trust, instead of those of the system")
	f.StringVar(&h.CertFile, "reload-cert-file", h.CertFile, "certificate of the client")
	f.StringVar(&h.KeyFile, "reload-key-file", h.KeyFile, "key of that certificate")
	f.StringVar(&h.ServerName, "reload-server-name", h.ServerName, "whom the certificate of the application must be for, instead of the host of the URL")
	f.BoolVar(&h.Insecure, "reload-insecure-skip-verify", h.Insecure, "do not check the certificate of the application")
}

// minPoll is the least time between two reads of a volume. With less, an agent would do nothing else.
const minPoll = 10 * time.Millisecond

// maxPoll is the longest: a volume that is not read for endpoints.Stuck makes the agent not live.
const maxPoll = 5 * time.Minute

// flagError names the flag of an error.
func flagError(flag string, err error) error { return fmt.Errorf("--%s: %w", flag, err) }

// Config makes the configuration of an agent that runs a command, if there is one. The error names all flags that are wrong.
func (o *Options) Config(command []string) (*agent.Config, error) {
	c := &agent.Config{
		Sources: o.Sources, Poll: o.Poll, Settle: o.Settle, Rollback: o.RollbackAfter, RetryMin: o.RetryMin, RetryMax: o.RetryMax, Once: o.Once,
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
	c.Files, err = o.files()
	errs = append(errs, err)
	for flag, d := range map[string]time.Duration{
		"poll-interval": o.Poll, "check-timeout": o.CheckTimeout, "reload-command-timeout": o.ReloadTimeout, "retry-min": o.RetryMin,
		"reload-timeout": o.Reload.Timeout, "reload-send-timeout": o.Send.Timeout, "probe-within": o.ProbeTimeout,
	} {
		if d <= 0 {
			fail(flag, fmt.Errorf("%v must be more than 0", d))
		}
	}
	for flag, d := range map[string]time.Duration{"settle": o.Settle, "restart-uptime": o.Uptime, "grace-period": o.Grace} {
		if d < 0 {
			fail(flag, fmt.Errorf("%v must not be negative", d))
		}
	}
	switch {
	case o.Poll > 0 && o.Poll < minPoll:
		fail("poll-interval", fmt.Errorf("%v must be at least %v", o.Poll, minPoll))
	case o.Poll > maxPoll:
		fail("poll-interval", fmt.Errorf("%v must be at most %v", o.Poll, maxPoll))
	}
	if o.RetryMax < o.RetryMin {
		fail("retry-max", fmt.Errorf("%v is less than --retry-min, %v", o.RetryMax, o.RetryMin))
	}
	if o.RollbackAfter < 0 {
		fail("rollback-after", fmt.Errorf("%d must not be negative", o.RollbackAfter))
	}
	if o.Once && len(command) != 0 {
		fail("once", errors.New("it is for init containers, which run no command afterwards"))
	}
	if (o.Report || o.Events) && o.Pod.Name == "" {
		errs = append(errs, errors.New("--report and --events need the name of the pod in the environment variable POD_NAME"))
	}
	if (o.Report || o.Events) && o.Once {
		fail("once", errors.New("nothing is reported by an init container"))
	}
	output, err := o.output()
	fail("command-output", err)
	if o.CheckCommand != "" {
		args, err := action.ParseCommand(o.CheckCommand)
		fail("check-command", err)
		c.Check = &action.Command{Args: args, Timeout: o.CheckTimeout, Output: output, Hint: hint(output)}
	}
	if len(command) != 0 {
		c.Application = process.NewApplication(command, nil, o.Grace)
	}
	errs = append(errs, o.reloads(c, output))
	if o.ProbeURL != "" {
		probe, err := o.probe()
		errs = append(errs, err)
		c.Probe = &action.Within{Action: probe, Limit: o.ProbeTimeout, Pause: 500 * time.Millisecond}
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
	needed := o.Report || o.Events
	for i := range c.Sources {
		needed = needed || c.Sources[i].Kind != source.Volume
	}
	if !needed {
		return nil
	}
	server := o.Server
	inCluster, own, err := source.InCluster()
	if server.URL == "" {
		if server.TokenFile != "" || server.CAFile != "" {
			return errors.New("--api-server-token-file and --api-server-ca-file are for --api-server")
		}
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
	needed := o.Report || o.Events
	for i := range sources {
		if s := &sources[i]; s.Kind != source.Volume && s.Namespace == "" {
			s.Namespace = namespace
			needed = true
		}
	}
	if needed && namespace == "" {
		return errors.New("--namespace is required outside of a pod, unless all sources name their namespaces and neither --report nor --events is set")
	}
	return nil
}

func (o *Options) files() (out fileset.Options, err error) {
	var errs []error
	if out.Mode, err = parseMode(o.FileMode); err != nil {
		errs = append(errs, flagError("file-mode", err))
	}
	if out.UID, out.GID, err = parseOwner(o.Owner); err != nil {
		errs = append(errs, flagError("owner", err))
	}
	if out.MaxBytes = o.MaxBytes; o.MaxBytes <= 0 || o.MaxBytes > 1<<30 {
		errs = append(errs, flagError("max-bytes", fmt.Errorf("%d must be from 1 to %d", o.MaxBytes, 1<<30)))
	}
	return out, errors.Join(errs...)
}

func parseOwner(text string) (uid, gid *int, err error) {
	if text == "" {
		return nil, nil, nil
	}
	user, group, both := strings.Cut(text, ":")
	parse := func(s string) *int {
		n, e := strconv.ParseUint(s, 10, 31)
		if e != nil {
			err = fmt.Errorf("%q must be UID, UID:GID or :GID, in digits", text)
		}
		id := int(n)
		return &id
	}
	if user != "" {
		uid = parse(user)
	}
	if both {
		gid = parse(group)
	}
	return uid, gid, err
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
		a, err := o.Reload.action("reload-url")
		errs = append(errs, err)
		a.TellChanged = true
		c.Reload = append(c.Reload, a)
		gentle = true
	} else if o.ProbeURL == "" && !reflect.DeepEqual(o.Reload, New().Reload) {
		errs = append(errs, flagError("reload-url", errors.New("it is required by other flags of the request")))
	}
	if o.Send != (Send{Timeout: o.Send.Timeout}) {
		a, err := o.Send.action()
		errs = append(errs, err)
		c.Reload = append(c.Reload, a)
		gentle = true
	}
	if o.ReloadCommand != "" {
		args, err := action.ParseCommand(o.ReloadCommand)
		if err != nil {
			errs = append(errs, flagError("reload-command", err))
		}
		c.Reload = append(c.Reload, &action.Command{Args: args, Timeout: o.ReloadTimeout, Output: output, Hint: hint(output), Dir: c.Dir})
		gentle = true
	}
	if o.Signal != "" {
		s, err := action.ParseSignal(o.Signal)
		if err != nil {
			errs = append(errs, flagError("reload-signal", err))
		}
		to, err := o.target(c)
		errs = append(errs, err)
		c.Reload = append(c.Reload, &action.Signal{Signal: s, To: to})
	} else if o.Process != "" || o.PIDFile != "" {
		errs = append(errs, errors.New("--process and --pid-file are for --reload-signal"))
	}
	if o.Restart {
		if c.Application == nil {
			errs = append(errs, flagError("reload-by-restart", errors.New("it is for a command that this program runs: give it after --")))
		} else {
			c.Reload = append(c.Reload, &agent.Restart{Application: c.Application, Uptime: o.Uptime})
		}
	}
	for i := range o.Sources {
		if o.Sources[i].Env && !o.Restart {
			errs = append(errs, fmt.Errorf("%s: variables of a process change only when it is started: env needs --reload-by-restart", &o.Sources[i]))
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

func (o *Options) target(c *agent.Config) (action.Target, error) {
	switch {
	case o.Process != "" && o.PIDFile != "":
		return nil, errors.New("--process and --pid-file cannot both be set")
	case o.Process != "":
		return action.Process{Name: o.Process}, nil
	case o.PIDFile != "":
		return action.PIDFile(o.PIDFile), nil
	case c.Application != nil:
		return child{c.Application}, nil
	}
	return nil, flagError("reload-signal", errors.New("it needs --process, --pid-file, or a command after --"))
}

// child is the command that this program runs, as the target of a signal.
type child struct{ *process.Application }

func (c child) Send(s syscall.Signal) error { return c.Signal(s) }
func (c child) String() string              { return c.Command[0] }

// action makes the action of the flags.
func (s *Send) action() (*action.Send, error) {
	a := &action.Send{Timeout: s.Timeout}
	var errs [3]error
	if a.Text, errs[0] = action.ParseBytes(s.Text); errs[0] == nil && len(a.Text) == 0 {
		errs[0] = errors.New("there is nothing to send")
	}
	a.To, errs[1] = action.ParseAddress(s.To)
	if a.Expect, errs[2] = action.ParseBytes(s.Expect); len(a.Expect) > action.MaxExpect {
		errs[2] = fmt.Errorf("%d bytes: at most %d of an answer are read", len(a.Expect), action.MaxExpect)
	}
	for i, flag := range []string{"reload-send", "reload-send-to", "reload-send-expect"} {
		if errs[i] != nil {
			errs[i] = flagError(flag, errs[i])
		}
	}
	return a, errors.Join(errs[:]...)
}

// token reports whether a text can be the name of a header. Those of methods have the same characters.
func token(text string) bool {
	_, err := http.NewRequest(text, "http://localhost", nil) //nolint:noctx // it is not sent
	return err == nil
}

// probe makes the request of --probe-url, with the connection of the other one. Another host gets none of its credentials.
func (o *Options) probe() (*action.HTTP, error) {
	h := o.Reload
	if h.URL != "" && host(o.ProbeURL) != host(h.URL) {
		h.UsernameFile, h.PasswordFile, h.TokenFile, h.CertFile, h.KeyFile = "", "", "", "", ""
	}
	h.URL, h.Method, h.Headers, h.Body, h.Accept, h.Timeout = o.ProbeURL, http.MethodGet, nil, "", "", 5*time.Second
	return h.action("probe-url")
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
func (h *HTTP) action(urlFlag string) (*action.HTTP, error) {
	var errs []error
	fail := func(flag string, err error) {
		if err != nil {
			errs = append(errs, flagError(flag, err))
		}
	}
	a := &action.HTTP{
		Method: strings.ToUpper(h.Method), Body: h.Body, Socket: h.Socket, Timeout: h.Timeout, Header: http.Header{},
		UsernameFile: h.UsernameFile, PasswordFile: h.PasswordFile, TokenFile: h.TokenFile,
		CAFile: h.CAFile, CertFile: h.CertFile, KeyFile: h.KeyFile, ServerName: h.ServerName, Insecure: h.Insecure,
	}
	u, err := url.Parse(h.URL)
	switch {
	case err != nil:
		fail(urlFlag, errors.New("it is not a URL")) // the error would quote it
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		fail(urlFlag, errors.New("it must begin with http:// or https:// and a host"))
	case u.User != nil:
		fail(urlFlag, errors.New("it must not have credentials: use --reload-username-file and --reload-password-file"))
	}
	a.URL = u
	if _, err := http.NewRequest(h.Method, "http://localhost", nil); err != nil { //nolint:noctx // it is not sent
		fail("reload-method", err)
	}
	for _, header := range h.Headers {
		name, value, found := strings.Cut(header, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		switch {
		case !found || name == "":
			fail("reload-header", errors.New(`it must be as in "Name: value"`))
		case !token(name): // neither text is quoted: it may be a credential
			fail("reload-header", errors.New(`the name must be letters, digits and hyphens, as in "Name: value"`))
		case strings.EqualFold(name, "Authorization"): // flags can be read by others
			fail("reload-header", errors.New("the credentials of Authorization come from files: use --reload-token-file, or --reload-username-file and --reload-password-file"))
		case strings.ContainsFunc(value, unicode.IsControl):
			fail("reload-header", errors.New("the value must have no line breaks and no other control characters"))
		default:
			a.Header.Add(name, value)
		}
	}
	if h.Accept != "" {
		a.Accept, err = action.ParseCodes(h.Accept)
		fail("reload-accept", err)
	}
	if (h.UsernameFile == "") != (h.PasswordFile == "") {
		fail("reload-username-file", errors.New("it needs --reload-password-file, and the other way round"))
	}
	if h.TokenFile != "" && h.UsernameFile != "" {
		fail("reload-token-file", errors.New("it cannot be set together with --reload-username-file"))
	}
	if (h.CertFile == "") != (h.KeyFile == "") {
		fail("reload-cert-file", errors.New("it needs --reload-key-file, and the other way round"))
	}
	return a, errors.Join(errs...)
}
