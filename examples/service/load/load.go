package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/examples/service/internal/api"
)

// load is one run under way.
type load struct {
	cfg    config
	client *http.Client
	places chan struct{}

	mu     sync.Mutex
	report report
	served []time.Duration // of requests that were answered with a result
}

func newLoad(cfg config) *load {
	transport := &http.Transport{MaxIdleConns: cfg.inFlight, MaxIdleConnsPerHost: cfg.inFlight}
	return &load{cfg: cfg, client: &http.Client{Transport: transport, Timeout: cfg.timeout},
		places: make(chan struct{}, cfg.inFlight), report: report{Seed: cfg.seed, Refused: map[string]uint64{}}}
}

// run sends each request when it is due, until the time is over or ctx ends, and
// waits for those under way: ctx cuts none short, their timeout bounds them.
func (l *load) run(ctx context.Context) report {
	defer l.client.CloseIdleConnections()
	begin := time.Now()
	var group sync.WaitGroup
	total := max(1, uint64(l.cfg.rate*l.cfg.length.Seconds()))
	for n := uint64(0); n < total && ctx.Err() == nil; n++ {
		due := begin.Add(time.Duration(float64(n) / l.cfg.rate * float64(time.Second)))
		select {
		case <-ctx.Done():
			continue
		case <-time.After(time.Until(due)):
		}
		select {
		case l.places <- struct{}{}:
			group.Go(func() {
				defer func() { <-l.places }()
				l.send(context.WithoutCancel(ctx), n)
			})
		default:
			l.note(func(r *report) { r.Skipped++ })
		}
	}
	group.Wait()
	l.report.Took, l.report.Latency = time.Since(begin), latencyOf(l.served)
	return l.report
}

func (l *load) send(ctx context.Context, n uint64) {
	q := newRequest(l.cfg.seed, n, l.cfg.rows)
	l.note(func(r *report) { r.Sent++ })
	begin := time.Now()
	status, body, err := l.exchange(ctx, q)
	took := time.Since(begin)
	switch {
	case err != nil:
		l.fail(n, err.Error())
	case status == http.StatusOK && q.right(body):
		l.note(func(r *report) {
			r.OK++
			r.Rows += uint64(q.rows)
			l.served = append(l.served, took)
		})
	case status == http.StatusOK:
		l.note(func(r *report) { r.Wrong++ })
	default:
		l.refused(n, status, body)
	}
}

func (l *load) exchange(ctx context.Context, q *request) (status int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(l.cfg.url, "/")+q.path, bytes.NewReader(q.body)) //nolint:gosec // the user names the service
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", api.JSON)
	response, err := l.client.Do(request) //nolint:gosec // as above
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

// refused counts a refusal. That of a service that is busy is as it should be;
// any other means that one of us is wrong.
func (l *load) refused(n uint64, status int, body []byte) {
	var p api.Problem
	_ = json.Unmarshal(body, &p)
	l.note(func(r *report) { r.Refused[strings.TrimSpace(fmt.Sprintf("%d %s", status, p.Code))]++ })
	switch {
	case p.Code == api.CodeOutOfBudget && p.Memory == nil:
		l.fail(n, "a refusal of memory without its explanation: "+strings.TrimSpace(string(body)))
	case p.Code == api.CodeExceedsBudget:
	case status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable && status != http.StatusGatewayTimeout:
		l.fail(n, fmt.Sprintf("%d %s", status, bytes.TrimSpace(body)))
	}
}

func (l *load) fail(n uint64, why string) {
	l.note(func(r *report) {
		r.Failed++
		if r.FirstFailure == "" {
			r.FirstFailure = fmt.Sprintf("request %d: %s", n, why)
		}
	})
}

func (l *load) note(change func(*report)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.report)
}

// request is one request, and what its answer must be.
type request struct {
	path string
	body []byte
	rows int
	// right reports whether the body of an answer is right.
	right func(body []byte) bool
}

// newRequest makes request number n of a run. Sizes are spread evenly over the
// orders of magnitude.
func newRequest(seed, n uint64, maxRows int) *request {
	rng := rand.New(rand.NewPCG(seed, n))
	rows := min(maxRows, int(math.Exp(rng.Float64()*math.Log(float64(maxRows)+1))))
	if rng.IntN(3) == 0 {
		return newJoin(rng, rows)
	}
	return newSort(rng, rows)
}

func newSort(rng *rand.Rand, rows int) *request {
	keys := make([]uint32, rows)
	for i := range keys {
		keys[i] = rng.Uint32()
	}
	return &request{path: api.RouteSort, rows: rows, body: encode(api.SortRequest{Keys: keys}), right: func(body []byte) bool {
		var got api.SortRequest
		err := json.Unmarshal(body, &got)
		slices.Sort(keys)
		return err == nil && slices.Equal(got.Keys, keys)
	}}
}

// newJoin makes rows of which half are left ones; about half of those find a
// partner.
func newJoin(rng *rand.Rand, rows int) *request {
	var t api.JoinRequest
	partners := map[uint32]uint32{}
	for range (rows + 1) / 2 {
		k, v := rng.Uint32N(math.MaxUint32), rng.Uint32N(math.MaxUint32) // which is no key and no value
		if _, twice := partners[k]; !twice {
			partners[k] = v
			t.RightKeys, t.RightValues = append(t.RightKeys, k), append(t.RightValues, v)
		}
	}
	t.Left = make([]uint32, rows/2)
	for i := range t.Left {
		t.Left[i] = rng.Uint32()
		if rng.IntN(2) == 0 {
			t.Left[i] = t.RightKeys[rng.IntN(len(t.RightKeys))]
		}
	}
	return &request{path: api.RouteJoin, rows: rows, body: encode(t), right: func(body []byte) bool {
		var got api.JoinResponse
		return json.Unmarshal(body, &got) == nil && slices.EqualFunc(got.Values, t.Left, func(v *uint32, key uint32) bool {
			want, ok := partners[key]
			return ok == (v != nil) && (v == nil || *v == want)
		})
	}}
}

// encode is for values that have only numbers.
func encode(v any) []byte {
	b, _ := json.Marshal(v) //nolint:errchkjson // see above
	return b
}
