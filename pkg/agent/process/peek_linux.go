// Copyright The configdep Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// siginfo is what waitid returns about a child, as in siginfo_t of 64-bit Linux.
type siginfo struct {
	_   [3]int32
	_   int32
	pid int32
	_   [128 - 20]byte
}

// peek looks for a child that has ended, and leaves it as it is. Its number is 0 if there is none.
func peek(info *siginfo) error {
	for {
		err := unix.Waitid(unix.P_ALL, 0, (*unix.Siginfo)(unsafe.Pointer(info)), unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
