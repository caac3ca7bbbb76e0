//go:build !linux

package faultdump

import (
	"errors"
	"os"
	"syscall"
)

func newPipe() (string, *os.File, error) { return "", nil, errors.ErrUnsupported }

func openIdle(string) (*os.File, error) { return nil, errors.ErrUnsupported }

func readable(syscall.RawConn) bool { return false }
