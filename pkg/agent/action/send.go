// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxExpect is how long an expected answer may be: as much of an answer is read.
const MaxExpect = maxAnswer

// Send sends bytes to an application, as to the master socket of HAProxy.
type Send struct {
	Text []byte
	To   Address
	// Expect is what the answer must contain. Empty: the application must end the connection, whatever it answers.
	Expect []byte
	// Timeout is how long each try may take, with the answer.
	Timeout time.Duration
}

// Address is where an application listens.
type Address struct{ network, address string }

func (a Address) String() string { return a.network + "://" + a.address }

// ParseAddress parses tcp://HOST:PORT or unix:///PATH.
func ParseAddress(text string) (Address, error) {
	network, address, _ := strings.Cut(text, "://")
	switch network {
	case "tcp":
		host, port, err := net.SplitHostPort(address)
		if n, portErr := strconv.ParseUint(port, 10, 16); err == nil && portErr == nil && n != 0 && host != "" && !strings.ContainsAny(host, "/@") {
			return Address{network, address}, nil
		}
	case "unix":
		if path.IsAbs(address) && !strings.Contains(address, "\x00") {
			return Address{network, address}, nil
		}
	}
	return Address{}, errors.New("it must be tcp://HOST:PORT or unix:///PATH")
}

// ParseBytes parses a text with escapes as in Go: \n, \r, \t, \\, \x00 and so on. All else stands for itself.
func ParseBytes(text string) ([]byte, error) {
	var out []byte
	for text != "" {
		if text[0] != '\\' {
			plain, _, _ := strings.Cut(text, `\`)
			out = append(out, plain...)
			text = text[len(plain):]
			continue
		}
		char, multibyte, rest, err := strconv.UnquoteChar(text, 0)
		if err != nil {
			return nil, errors.New(`a backslash must begin an escape, as in \n, \r, \t, \\ or \x00`) // without the text
		}
		if text = rest; multibyte {
			out = utf8.AppendRune(out, char)
		} else {
			out = append(out, byte(char))
		}
	}
	return out, nil
}

func (s *Send) String() string { return "bytes to " + s.To.String() }

// Do sends the bytes once, and waits for the answer. Errors have nothing of either.
func (s *Send) Do(ctx context.Context) error {
	late := "the connection did not end"
	if len(s.Expect) != 0 {
		late = "no expected answer"
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.Timeout, fmt.Errorf("%s within %v", late, s.Timeout))
	defer cancel()
	if err := s.send(ctx); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("%s: %w", s, err)
	}
	return nil
}

func (s *Send) send(ctx context.Context) (err error) {
	c, err := (&net.Dialer{}).DialContext(ctx, s.To.network, s.To.address)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	if _, err := c.Write(s.Text); err != nil {
		return err
	}
	if len(s.Expect) != 0 {
		return s.expect(c)
	}
	// The application sees that no more comes. With an answer that is expected it does not: HAProxy would not finish it.
	if half, can := c.(interface{ CloseWrite() error }); can {
		if err := half.CloseWrite(); err != nil {
			return err
		}
	}
	n, err := io.CopyN(io.Discard, c, maxAnswer)
	if errors.Is(err, io.EOF) || n == maxAnswer {
		return nil
	}
	return err
}

// expect reads until the answer contains what is expected.
func (s *Send) expect(from io.Reader) error {
	answer, checked := make([]byte, 0, 4096), 0
	for len(answer) < maxAnswer {
		if len(answer) == cap(answer) {
			answer = append(answer, 0)[:len(answer)]
		}
		n, err := from.Read(answer[len(answer):min(cap(answer), maxAnswer)])
		answer = answer[:len(answer)+n]
		if bytes.Contains(answer[checked:], s.Expect) {
			return nil
		}
		checked = max(0, len(answer)-len(s.Expect)+1)
		switch {
		case errors.Is(err, io.EOF):
			return errors.New("the answer is not the expected one")
		case err != nil:
			return err
		}
	}
	return fmt.Errorf("the first %d bytes of the answer are not the expected ones", maxAnswer)
}
