package debugguard

import "context"

// ctxMutex is a lock for which a caller waits no longer than its context lasts,
// because whoever holds it may be waiting for the device. A sync.Mutex cannot do
// that.
type ctxMutex chan struct{}

func newCtxMutex() ctxMutex { return make(ctxMutex, 1) }

// lock fails only if the lock is not free and ctx ends.
func (m ctxMutex) lock(ctx context.Context) error {
	if m.tryLock() { // also if ctx has ended
		return nil
	}
	select {
	case m <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m ctxMutex) tryLock() bool {
	select {
	case m <- struct{}{}:
		return true
	default:
		return false
	}
}

func (m ctxMutex) unlock() { <-m }
