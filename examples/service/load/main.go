// Command load makes requests to the example service and checks every result:
// sorts and joins of mixed sizes at a steady rate.
//
//	go run ./examples/service/load -rate 100 -for 10s
//
// Requests are sent when they are due, whether or not others were answered, so
// that a slow service does not slow its own measurement down. Those that would
// be more than may be in flight are skipped and counted. The last lines are a
// report; -json prints it as one JSON object. It sends to this machine only,
// unless told otherwise.
//
// Exit codes: 0 every answer was a right result or a refusal of a busy
// service; 1 something was wrong, or nothing was served; 2 a bad flag.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// The exit codes.
const (
	exitClean   = 0
	exitProblem = 1
	exitUsage   = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr)) //nolint:gocritic // nothing is left to undo
}

// config says what to send, and where.
type config struct {
	url             string
	anyHost, json   bool
	rate            float64 // requests a second
	length, timeout time.Duration
	inFlight, rows  int
	seed            uint64 // request n is the same for the same seed
}

// run is main with an exit code, so that tests can call it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitClean
	}
	if err != nil {
		fmt.Fprintln(stderr, "load:", err)
		return exitUsage
	}
	report := newLoad(cfg).run(ctx)
	if cfg.json {
		err = json.NewEncoder(stdout).Encode(report)
	} else {
		report.print(stdout)
	}
	if err != nil || !report.clean() {
		return exitProblem
	}
	return exitClean
}

func parse(args []string, stderr io.Writer) (cfg config, err error) {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&cfg.url, "url", "http://127.0.0.1:8080", "the service")
	flags.BoolVar(&cfg.anyHost, "any-host", false, "permit a service on another machine")
	flags.Float64Var(&cfg.rate, "rate", 50, "requests a second")
	flags.DurationVar(&cfg.length, "for", 10*time.Second, "how long to send requests")
	flags.IntVar(&cfg.inFlight, "in-flight", 64, "requests that may be under way; those due beyond are skipped")
	flags.IntVar(&cfg.rows, "rows", 100_000, "rows of the largest request")
	flags.Uint64Var(&cfg.seed, "seed", 0, "makes the requests; 0 takes one by chance, and the report says which")
	flags.DurationVar(&cfg.timeout, "timeout", 15*time.Second, "how long a request may take")
	flags.BoolVar(&cfg.json, "json", false, "print the report as one JSON object")
	if err := flags.Parse(args); err != nil {
		return cfg, err
	}
	if flags.NArg() > 0 {
		return cfg, fmt.Errorf("%q: it takes flags only", flags.Arg(0))
	}
	for cfg.seed == 0 {
		cfg.seed = rand.Uint64()
	}
	return cfg, cfg.check()
}

// What may be asked for at most: a typing mistake should not become an attack.
const (
	maxRate     = 1000
	maxLength   = 24 * time.Hour
	maxInFlight = 4096
	maxRows     = 1 << 24
)

func (c config) check() error {
	switch {
	case !(c.rate > 0 && c.rate <= maxRate): // NaN is neither
		return fmt.Errorf("-rate %v: say more than 0, and at most %d", c.rate, maxRate)
	case c.length <= 0 || c.length > maxLength:
		return fmt.Errorf("-for %v: say more than 0, and at most %v", c.length, maxLength)
	case c.inFlight < 1 || c.inFlight > maxInFlight:
		return fmt.Errorf("-in-flight %d: say 1 to %d", c.inFlight, maxInFlight)
	case c.rows < 1 || c.rows > maxRows:
		return fmt.Errorf("-rows %d: say 1 to %d", c.rows, maxRows)
	case c.timeout <= 0:
		return fmt.Errorf("-timeout %v: say more than 0", c.timeout)
	}
	u, err := url.Parse(c.url)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("-url %q: say the URL of a service, such as http://127.0.0.1:8080", c.url)
	}
	ip := net.ParseIP(u.Hostname())
	if !c.anyHost && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("-url: %s is not this machine: load other hosts only if they are yours, and say so", u.Hostname())
	}
	return nil
}
