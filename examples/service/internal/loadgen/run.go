package loadgen

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/fencepost-gpu/fencepost/examples/service/internal/api"
)

// run is one run under way.
type run struct {
	cfg    Config
	client *http.Client
	places chan struct{}

	mu     sync.Mutex
	report Report
	served histogram // of requests that were answered with a result
}

// Run sends requests until the time is over or ctx ends, waits for those under
// way, and reports. The error is that of [Config.Check]; what goes wrong with
// the service is in the report.
func Run(ctx context.Context, cfg Config) (Report, error) {
	if err := cfg.Check(); err != nil {
		return Report{}, err
	}
	return newRun(cfg).do(ctx), nil
}

func newRun(cfg Config) *run {
	transport := &http.Transport{MaxIdleConns: cfg.InFlight, MaxIdleConnsPerHost: cfg.InFlight}
	return &run{cfg: cfg, client: &http.Client{Transport: transport, Timeout: cfg.Timeout},
		places: make(chan struct{}, cfg.InFlight), report: Report{Seed: cfg.Seed, Refused: map[string]uint64{}}}
}

func (r *run) do(ctx context.Context) Report {
	defer r.client.CloseIdleConnections()
	begin := time.Now()
	r.sendAll(ctx, begin)
	r.report.Took = time.Since(begin)
	r.report.Latency = r.served.summary()
	return r.report
}

// sendAll sends each request when it is due, and returns when all were
// answered. Requests are not cut short by ctx: their timeout bounds them.
func (r *run) sendAll(ctx context.Context, begin time.Time) {
	var group sync.WaitGroup
	defer group.Wait()
	total := uint64(r.cfg.Rate * r.cfg.For.Seconds())
	for n := range max(total, 1) {
		due := begin.Add(time.Duration(float64(n) / r.cfg.Rate * float64(time.Second)))
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(due)):
		}
		select {
		case r.places <- struct{}{}:
			group.Go(func() {
				defer func() { <-r.places }()
				r.send(context.WithoutCancel(ctx), n)
			})
		default:
			r.note(func(report *Report) { report.Skipped++ })
		}
	}
}

func (r *run) send(ctx context.Context, n uint64) {
	q := newRequest(r.cfg.Seed, n, r.cfg.Rows)
	r.note(func(report *Report) { report.Sent++ })
	begin := time.Now()
	status, body, err := r.exchange(ctx, q)
	took := time.Since(begin)
	switch {
	case err != nil:
		r.fail(n, err.Error())
	case status == http.StatusOK && q.right(body):
		r.note(func(report *Report) {
			report.OK++
			report.Rows += uint64(q.rows)
			r.served.note(took)
		})
	case status == http.StatusOK:
		r.note(func(report *Report) { report.Wrong++ })
	default:
		r.refused(n, status, body)
	}
}

func (r *run) exchange(ctx context.Context, q *request) (status int, body []byte, err error) {
	request, err := q.http(ctx, strings.TrimSuffix(r.cfg.URL, "/"))
	if err != nil {
		return 0, nil, err
	}
	response, err := r.client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

// refused counts a refusal. That of a service that is busy is as it should be;
// any other means that one of us is wrong.
func (r *run) refused(n uint64, status int, body []byte) {
	var p api.Problem
	_ = json.Unmarshal(body, &p)
	r.note(func(report *Report) { report.Refused[strings.TrimSpace(fmt.Sprintf("%d %s", status, p.Code))]++ })
	switch {
	case p.Code == api.CodeOutOfBudget && p.Memory == nil:
		r.fail(n, "a refusal of memory without its explanation: "+strings.TrimSpace(string(body)))
	case p.Code == api.CodeExceedsBudget:
	case status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable && status != http.StatusGatewayTimeout:
		r.fail(n, fmt.Sprintf("%d %s", status, bytes.TrimSpace(body)))
	}
}

func (r *run) fail(n uint64, why string) {
	r.note(func(report *Report) {
		report.Failed++
		if report.FirstFailure == "" {
			report.FirstFailure = fmt.Sprintf("request %d: %s", n, why)
		}
	})
}

func (r *run) note(change func(*Report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.report)
}
