//go:build !linux

package kmsg

import (
	"errors"
	"fmt"
	"os"
	"time"
)

func open(path string) (*os.File, error) {
	return nil, fmt.Errorf("%s: %w: only Linux has it", path, errors.ErrUnsupported)
}

func sinceBoot() time.Duration { return 0 }
