// Command service is an example of a program that uses Fencepost: an HTTP
// service that sorts and joins uploaded columns on a GPU, or on the simulated
// device where there is none.
//
//	go run ./examples/service
//	curl -d '{"keys":[3,1,2]}' -H 'Content-Type: application/json' http://127.0.0.1:8080/sort
//
// Each request has a deadline and reserves the memory of its whole work before
// it begins; a refusal says who holds the memory. Spans go to a collector if
// the standard OTEL_EXPORTER_OTLP_ENDPOINT variables name one. The README in
// this folder has the rest; examples/service/load makes requests.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/examples/service/internal/web"
)

// The exit codes.
const (
	exitClean   = 0
	exitProblem = 1 // it did not run, or not end, as it should
	exitUsage   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process
	slog.SetDefault(slog.New(withTrace(slog.NewTextHandler(os.Stderr, nil))))
	os.Exit(run(ctx, os.Args[1:], os.Stderr))
}

// options are what the flags say.
type options struct {
	listen, check string
	stack         fencepost.Config
	limits        web.Limits
	// patience is how long a request waits for memory, drain how long the
	// service goes on after it said that it stops, and stop how long the
	// requests under way have then.
	patience, drain, stop time.Duration
	// step is what each step of the end may take; it has no flag.
	step  time.Duration
	share float64
	// switchGuard permits that, from this machine; plantOverrun is the bug of the
	// engine.
	switchGuard  bool
	plantOverrun uint64
}

// run is main with an exit code, so that tests can call it. It ends when ctx
// does.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitClean
	}
	if err != nil {
		fmt.Fprintln(stderr, "service:", err)
		return exitUsage
	}
	do := serve
	if o.check != "" {
		do = check
	}
	if err := do(ctx, o); err != nil {
		fmt.Fprintln(stderr, "service:", err)
		return exitProblem
	}
	return exitClean
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{step: stepTimeout, limits: web.DefaultLimits}
	var budget string
	flags := flag.NewFlagSet("service", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.listen, "listen", "127.0.0.1:8080", "address to serve on; there is no authentication, so think before you name another")
	flags.StringVar(&o.check, "check", "", "ask a running service's `URL` whether it is ready, and end with 0 if so")
	flags.StringVar((*string)(&o.stack.Device), "device", string(fencepost.Auto), "auto, cuda or sim")
	flags.StringVar((*string)(&o.stack.Guard), "guard", "", "debug guard: off, ledger, sample, sample:BYTES or hunt (default sample)")
	flags.BoolVar(&o.switchGuard, "switch-guard", false, "take requests from this machine that switch the debug guard, as \"fencepost guard\" makes them")
	flags.StringVar(&budget, "budget", "", "limit of device memory, such as 1GiB (default: what is free)")
	flags.IntVar(&o.stack.Streams, "streams", 0, "stream leases at a time; a request takes up to two (default 16)")
	flags.Int64Var(&o.limits.MaxBody, "max-body", o.limits.MaxBody, "bytes of a request's body")
	flags.IntVar(&o.limits.MaxRows, "max-rows", o.limits.MaxRows, "rows of a column")
	flags.IntVar(&o.limits.Waiting, "waiting", o.limits.Waiting, "requests that may wait for a turn on the device; more get 429")
	flags.DurationVar(&o.limits.Timeout, "timeout", o.limits.Timeout, "how long a request may take")
	flags.DurationVar(&o.patience, "patience", 50*time.Millisecond, "how long a request waits for device memory before it is refused with 503")
	flags.DurationVar(&o.drain, "drain", 0, "how long to serve on after a signal, while /readyz says no")
	flags.DurationVar(&o.stop, "stop-timeout", 20*time.Second, "how long requests under way have to end after that")
	flags.Float64Var(&o.share, "trace-share", 1, "share of traces that are sampled, unless OTEL_TRACES_SAMPLER says otherwise")
	flags.Uint64Var(&o.plantOverrun, "plant-overrun", 0, "PLANT A BUG, to practise on-call work: one sort of `N` writes one value behind a column (default none)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	err := o.complete(flags.Args(), budget)
	return o, err
}

func (o *options) complete(rest []string, budget string) error {
	if len(rest) > 0 {
		return fmt.Errorf("%q: it takes flags only", rest[0])
	}
	if !(o.share >= 0 && o.share <= 1) { // NaN is neither
		return fmt.Errorf("-trace-share %v: say 0 to 1", o.share)
	}
	if o.patience < 0 || o.drain < 0 || o.stop <= 0 {
		return fmt.Errorf("-patience %v, -drain %v, -stop-timeout %v: say times that are not negative, and let requests end", o.patience, o.drain, o.stop)
	}
	if budget != "" {
		bytes, err := fencepost.ParseBytes(budget)
		if err != nil {
			return fmt.Errorf("-budget %q: %w", budget, err)
		}
		o.stack.Budget = bytes
	}
	return errors.Join(o.limits.Check(), o.stack.Check())
}

// check asks a running service whether it is ready. It is what a container's
// health check runs: the image has no other program that could ask.
func check(ctx context.Context, o options) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, o.check, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", response.Status, text)
	}
	return nil
}
