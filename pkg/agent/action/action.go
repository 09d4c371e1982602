// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

// Package action has the ways in which an application is asked to read its configuration again, and by which that is checked.
//
// No error has anything of what an application answers, which may quote its configuration.
package action

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/configdep/configdep/pkg/agent/process"
)

// Action is one step after or before new configuration. Do returns once it has succeeded, or with what went wrong. It ends with its
// context.
type Action interface {
	Do(ctx context.Context) error
	// String names the action, as in "POST http://127.0.0.1:9090/-/reload". It has no credentials.
	String() string
}

// Command runs a command.
type Command struct {
	Args []string
	// Timeout is how long it may run.
	Timeout time.Duration
	// Output gets its output. nil: nothing does.
	Output *os.File
	// Hint is added to the error if it fails.
	Hint string
	// Dir is put in the place of DirPlaceholder in the arguments.
	Dir string
}

// DirPlaceholder stands for the directory of the new files in the arguments of commands.
const DirPlaceholder = "{dir}"

// Do runs the command.
func (c *Command) Do(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("did not end within %v", c.Timeout))
	defer cancel()
	args := make([]string, len(c.Args))
	for i, arg := range c.Args {
		args[i] = strings.ReplaceAll(arg, DirPlaceholder, c.Dir)
	}
	err := process.Run(ctx, c.Output, nil, args[0], args[1:]...)
	if err != nil && c.Hint != "" {
		err = fmt.Errorf("%w (%s)", err, c.Hint)
	}
	return err
}

func (c *Command) String() string { return "command " + c.Args[0] }

// ParseCommand parses a command: a JSON array of strings, or words between spaces.
func ParseCommand(text string) ([]string, error) {
	args, words := strings.Fields(text), true
	if strings.HasPrefix(strings.TrimSpace(text), "[") {
		args, words = nil, false
		if err := parseJSON(text, &args); err != nil {
			return nil, fmt.Errorf("%q is not a JSON array of strings, as in [\"nginx\", \"-t\"]: %w", text, err)
		}
	}
	switch {
	case len(args) == 0 || args[0] == "":
		return nil, fmt.Errorf("%q has no command", text)
	case words && slices.ContainsFunc(args, func(arg string) bool { return strings.ContainsAny(arg[:1], `"'`) }):
		return nil, fmt.Errorf("%q: quotes have no meaning here: give a JSON array, as in [\"sh\", \"-c\", \"exit 1\"]", text)
	}
	return args, nil
}

// Within tries an action again and again until it succeeds.
type Within struct {
	Action
	// Limit is how long it may take together, and Pause the time between two tries.
	Limit, Pause time.Duration
}

// Do tries the action. The error is that of the last try.
func (w *Within) Do(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.Limit)
	defer cancel()
	var last error
	for {
		err := w.Action.Do(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err // and not that the time is over
		}
		select {
		case <-time.After(w.Pause):
		case <-ctx.Done():
			return last
		}
	}
}
