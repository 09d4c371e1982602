// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// Application is the application as a child of this process, which takes its place for all others: it has its standard input, output
// and error, gets its signals, and gives it its exit code.
type Application struct {
	// Command is the program, which is looked for in PATH, and its arguments.
	Command []string
	// Environment returns the environment, as os.Environ does, each time the application is started.
	Environment func() []string
	// Grace is how long the application may take to end after SIGTERM. Then its process group is killed.
	Grace time.Duration

	restarts sync.Mutex // held while the application is started or started again

	mu         sync.Mutex
	child      *Child
	restarting bool      // until Restart returns
	trial      bool      // during which Restart sees whether the new child stays up
	replaced   *Child    // by Restart, or still on trial there: its end is not told when it comes, also if it is noticed late
	asked      time.Time // when the child last got a signal by which it may end
	ending     bool      // the application is not started again
	ended      chan Exit
}

// ErrEnding is returned if the application is to end, and so is not started again.
var ErrEnding = errors.New("the application is ending")

// StartError is returned if the application could not be started.
type StartError struct{ Err error }

func (e *StartError) Error() string { return "cannot start the application: " + e.Err.Error() }
func (e *StartError) Unwrap() error { return e.Err }

// NewApplication returns an application that has not been started.
func NewApplication(command []string, environment func() []string, grace time.Duration) *Application {
	return &Application{Command: command, Environment: environment, Grace: grace, ended: make(chan Exit, 1)}
}

// Start starts the application. The error is a StartError, or ErrEnding.
func (a *Application) Start() error {
	a.restarts.Lock()
	defer a.restarts.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.start()
}

// start starts the application, with mu held.
func (a *Application) start() error {
	if a.ending {
		return ErrEnding
	}
	c := exec.Command(a.Command[0], a.Command[1:]...) //nolint:noctx // the operator chooses the command; Stop ends it
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	if a.Environment != nil {
		c.Env = a.Environment()
	}
	child, err := Start(c)
	if err != nil {
		return &StartError{err}
	}
	a.child = child
	go func() {
		<-child.Done()
		_ = child.KillGroup()
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.child == child && a.replaced != child {
			a.end(child.Exit())
		}
	}()
	return nil
}

// end tells that the application has ended, with mu held.
func (a *Application) end(e Exit) {
	a.ending = true
	select {
	case a.ended <- e:
	default: // it is told once
	}
}

// Started reports whether the application has been started.
func (a *Application) Started() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.child != nil
}

// Ended receives how the application ended, once it is not started again.
func (a *Application) Ended() <-chan Exit { return a.ended }

// Restart stops the application, starts it again with a new environment, and sees whether it stays up for some time. If it does not,
// or does not start, it may be tried again, or GiveUp called.
func (a *Application) Restart(ctx context.Context, uptime time.Duration) error {
	a.restarts.Lock()
	defer a.restarts.Unlock()
	a.mu.Lock()
	old := a.child
	if a.ending || old == nil {
		a.mu.Unlock()
		return ErrEnding
	}
	wait := a.Grace - time.Since(a.asked)
	a.mu.Unlock()
	if wait > 0 && finished(ctx, old, wait) {
		return ErrEnding // it has been asked to end, and a new child would not be
	}

	a.mu.Lock()
	if a.ending {
		a.mu.Unlock()
		return ErrEnding
	}
	a.restarting, a.replaced = true, old
	a.mu.Unlock()
	err := old.Stop(ctx, a.Grace)

	a.mu.Lock()
	defer a.mu.Unlock()
	defer func() { a.restarting = false }()
	if !old.hasEnded() {
		a.replaced = nil // it goes on, and its end is the end of the application
		return err
	}
	if a.ending {
		a.end(old.Exit())
		return ErrEnding
	}
	if err == nil {
		err = a.start()
	}
	if err != nil {
		return err
	}
	child := a.child
	a.replaced, a.trial, a.asked = child, true, time.Time{}
	a.mu.Unlock()
	finished(ctx, child, uptime)
	a.mu.Lock()
	a.trial = false
	if child.hasEnded() { // maybe in the moment in which the time was over: its end has not been told, and is told by nothing else
		err = fmt.Errorf("the application ended after its start: %s", child.Exit())
	} else {
		a.replaced = nil // from now on its end is the end of the application
	}
	if err != nil && (a.ending || !a.asked.IsZero()) {
		a.end(child.Exit())
	}
	return err
}

// finished waits until a child has ended, for some time at most, and reports whether it has.
func finished(ctx context.Context, c *Child, within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-c.Done():
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// GiveUp says that the application is not started again if it is not running: then it has ended.
func (a *Application) GiveUp() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.endIfDone()
}

// endIfDone tells that the application has ended if it is not running, with mu held.
func (a *Application) endIfDone() {
	if a.child == nil || a.restarting {
		return
	}
	if a.child.hasEnded() {
		a.end(a.child.Exit())
	}
}

// Signal sends the application a signal. The error is os.ErrProcessDone if it is not running.
func (a *Application) Signal(s os.Signal) error {
	a.mu.Lock()
	child := a.child
	a.mu.Unlock()
	if child == nil {
		return os.ErrProcessDone
	}
	return child.Signal(s)
}

// Stop ends the application. Ended tells how.
func (a *Application) Stop() error {
	a.mu.Lock()
	a.ending = true
	child := a.child
	a.mu.Unlock()
	if child == nil {
		return nil
	}
	return child.Stop(context.Background(), a.Grace)
}

// End ends the application, and returns how it ended.
func (a *Application) End() (*Exit, error) {
	if err := a.Stop(); err != nil {
		return nil, err
	}
	a.GiveUp()
	e := <-a.ended
	return &e, nil
}

// discarded are signals that are about this process, and not forwarded: those of its terminal and its pipes. By default they would stop
// or end it.
var discarded = []os.Signal{unix.SIGPIPE, unix.SIGTTIN, unix.SIGTTOU}

// stops are the signals with which containers are stopped.
var stops = []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGQUIT}

// others are all other signals, without those of the children, and the one with which the Go runtime interrupts goroutines.
func others() (out []os.Signal) {
	const last = 64
	for s := unix.Signal(1); s <= last; s++ {
		if s != unix.SIGCHLD && s != unix.SIGURG && !slices.Contains(discarded, os.Signal(s)) && !slices.Contains(stops, os.Signal(s)) {
			out = append(out, s)
		}
	}
	return out
}

// Forward catches the signals that this process gets from now on, and returns a function that sends them to the application until the
// context ends. After SIGTERM the application gets the time of Grace, and then is killed; if that is not possible, cancel is called.
// SIGPROF is not forwarded, because it belongs to the profiler of the Go runtime. The signals with which containers are stopped, SIGTERM,
// SIGINT, SIGQUIT and SIGUSR1, are for this process before the start of the application, and call cancel.
func (a *Application) Forward(ctx context.Context, cancel func()) (run func()) {
	signals, stopping := make(chan os.Signal, 64), make(chan os.Signal, 64) // a channel of their own, so that no other takes their place
	nowhere := make(chan os.Signal, 1)
	signal.Notify(signals, others()...)
	signal.Notify(stopping, stops...)
	signal.Notify(nowhere, discarded...)
	return func() {
		defer signal.Stop(signals)
		defer signal.Stop(stopping)
		defer signal.Stop(nowhere)
		a.forwardAll(ctx, signals, stopping, cancel)
	}
}

func (a *Application) forwardAll(ctx context.Context, signals, stopping <-chan os.Signal, cancel func()) {
	var kill <-chan time.Time
	forward := func(s os.Signal) {
		if err := a.forward(s); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot send a signal to the application", "signal", s)
		}
	}
	for {
		select {
		case s := <-signals:
			if s == unix.SIGUSR1 && !a.Started() { // some images say that it stops their containers
				cancel()
				continue
			}
			forward(s)
		case s := <-stopping:
			if !a.Started() {
				cancel()
				continue
			}
			forward(s)
			if s == unix.SIGTERM && kill == nil {
				kill = time.After(a.Grace)
			}
		case <-kill:
			if err := a.killGroup(); err != nil {
				klog.FromContext(ctx).Error(err, "The application cannot be killed")
				cancel()
			}
		case <-ctx.Done():
			return
		}
	}
}

// forward sends the application a signal. SIGTERM ends it, and so does another signal with which containers are stopped while no child
// runs that could get it: a restart must start no child that has not been asked to end.
func (a *Application) forward(s os.Signal) error {
	if slices.Contains(stops, s) {
		a.mu.Lock()
		if s == unix.SIGTERM || !a.running() {
			a.ending = true
			a.endIfDone()
		}
		a.asked = time.Now()
		a.mu.Unlock()
	}
	if err := a.Signal(s); !errors.Is(err, os.ErrProcessDone) { // it may have ended meanwhile
		return err
	}
	return nil
}

func (a *Application) killGroup() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.child == nil {
		return nil
	}
	return a.child.KillGroup()
}

// running reports whether there is a child that Restart does not stop, with mu held.
func (a *Application) running() bool {
	if a.restarting && !a.trial {
		return false
	}
	return !a.child.hasEnded()
}
