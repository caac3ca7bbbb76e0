package fencepost

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/fencepost-gpu/fencepost/core"
)

// devices are the process's runtimes, by ordinal.
var devices [core.MaxOrdinals]struct {
	building sync.Mutex
	runtime  atomic.Pointer[Runtime]
}

// Device returns the process's runtime for an ordinal, and opens it with the
// default configuration and the environment's (but for FENCEPOST_ORDINAL) at
// the first call. Of several concurrent first callers one builds and the others wait for it. A failed
// build is not kept: the next call tries again. After the runtime was closed
// the next call opens a new one.
func Device(ordinal int) (*Runtime, error) {
	if ordinal < 0 || ordinal >= core.MaxOrdinals {
		return nil, &core.InvalidRequestError{Op: "fencepost.Device", Field: "ordinal", Reason: fmt.Sprintf("%d does not lie in 0 to %d", ordinal, core.MaxOrdinals-1)}
	}
	d := &devices[ordinal]
	if r := d.runtime.Load(); r != nil {
		return r, nil
	}
	d.building.Lock()
	defer d.building.Unlock()
	if r := d.runtime.Load(); r != nil {
		return r, nil
	}
	var cfg Config
	cfg.warnOfUnknown(os.Environ())
	if err := cfg.applyEnvironment(); err != nil {
		return nil, err
	}
	cfg.Ordinal = ordinal // whatever FENCEPOST_ORDINAL says
	r, err := open(context.Background(), cfg)
	if err != nil {
		return nil, err
	}
	d.runtime.Store(r)
	return r, nil
}

// forgetDevice makes the next Device build anew, if r is the process's.
func forgetDevice(r *Runtime) {
	for i := range devices {
		devices[i].runtime.CompareAndSwap(r, nil)
	}
}
