package web

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/fencepost-gpu/fencepost/examples/service/internal/api"
)

// house bounds the requests inside, and those of them that are on the device.
type house struct {
	// places has one element for each request inside, turns for each on the
	// device.
	places, turns chan struct{}
	inside        sync.WaitGroup
}

func newHouse(l Limits) *house {
	return &house{places: make(chan struct{}, l.Turns+l.Waiting), turns: make(chan struct{}, l.Turns)}
}

// enter lets a request in, or refuses it at once.
func (h *house) enter() (leave func(), err error) {
	select {
	case h.places <- struct{}{}:
	default:
		return nil, &refusal{status: http.StatusTooManyRequests, code: api.CodeTooMany, retry: true,
			detail: fmt.Sprintf("%d requests are being served or wait already", cap(h.places))}
	}
	h.inside.Add(1)
	return func() { <-h.places; h.inside.Done() }, nil
}

// turn waits for a place on the device until ctx ends.
func (h *house) turn(ctx context.Context) (done func(), err error) {
	select {
	case h.turns <- struct{}{}:
		return func() { <-h.turns }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for a turn on the device: %w", ctx.Err())
	}
}

// empty waits until nobody is inside, or ctx ends. Nobody may enter any more.
func (h *house) empty(ctx context.Context) error {
	done := make(chan struct{})
	go func() { h.inside.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d requests have not ended: %w", len(h.places), ctx.Err())
	}
}
