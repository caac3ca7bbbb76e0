package replay

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost-gpu/fencepost/cuda"
)

// leased is the lease that stands for a recorded stream.
type leased struct {
	*cuda.Lease
	used uint64 // the number of the newest event that asked for it
}

// lease returns the stream that stands for a recorded one. Fencepost's own logs
// name leases, of which a service has a new one for each request: when there
// are more than streams, the one that was not used for longest is given back,
// and gets another if it comes again.
func (p *player) lease(ctx context.Context, recorded uint64) (*cuda.Lease, error) {
	l, ok := p.leases[recorded]
	if !ok {
		got, err := p.cfg.Streams.TryAcquire(ctx, "replay")
		if errors.Is(err, cuda.ErrNoStream) && len(p.leases) > 0 {
			if err = p.giveBackOldest(); err == nil {
				got, err = p.cfg.Streams.TryAcquire(ctx, "replay")
			}
		}
		if err != nil {
			return nil, fmt.Errorf("a lease for recorded stream %d: %w", recorded, err)
		}
		l = &leased{Lease: got}
		p.leases[recorded] = l
	}
	l.used = p.report.Events
	return l.Lease, nil
}

func (p *player) giveBackOldest() error {
	var oldest uint64
	first := true
	for recorded, l := range p.leases {
		if first || l.used < p.leases[oldest].used {
			oldest, first = recorded, false
		}
	}
	l := p.leases[oldest]
	delete(p.leases, oldest)
	return l.Release()
}
