package debugguard_test

import (
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
)

// Who reads the stays does so beside blocks that come and go.
func TestStaysAreReadWhileBlocksComeAndGo(t *testing.T) {
	b := newBench(t, debugguard.Hunt)
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			list, _ := b.guard.Stays()
			for _, s := range list {
				if s.Bytes == 0 || s.Tag == "" || s.From.IsZero() {
					t.Errorf("%+v", s)
					return
				}
			}
		}
	})
	for range 200 {
		b.free(b.alloc(64))
		b.free(b.alloc(4096))
		b.drain()
	}
	close(stop)
	reader.Wait()
}
