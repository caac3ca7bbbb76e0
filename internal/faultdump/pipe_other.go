//go:build !linux

package faultdump

import (
	"errors"
	"os"
)

func newPipe() (string, *os.File, error) { return "", nil, errors.ErrUnsupported }

func openIdle(string) (*os.File, error) { return nil, errors.ErrUnsupported }

func readable(*os.File) bool { return false }
