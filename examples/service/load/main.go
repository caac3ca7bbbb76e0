// Command load makes requests to the example service and checks every result:
// sorts and joins of mixed sizes, as JSON and as binary, at a steady rate.
//
//	go run ./examples/service/load -rate 100 -for 10s
//
// The last lines are a report; -json prints it as one JSON object. It sends to
// this machine only, unless told otherwise.
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
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/fencepost-gpu/fencepost/examples/service/internal/loadgen"
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

// run is main with an exit code, so that tests can call it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, asJSON, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitClean
	}
	if err != nil {
		fmt.Fprintln(stderr, "load:", err)
		return exitUsage
	}
	report, err := loadgen.Run(ctx, cfg)
	if err != nil {
		fmt.Fprintln(stderr, "load:", err)
		return exitUsage
	}
	if asJSON {
		err = json.NewEncoder(stdout).Encode(report)
	} else {
		report.Print(stdout)
	}
	if err != nil || !report.Clean() {
		return exitProblem
	}
	return exitClean
}

func parse(args []string, stderr io.Writer) (cfg loadgen.Config, asJSON bool, err error) {
	flags := flag.NewFlagSet("load", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&cfg.URL, "url", "http://127.0.0.1:8080", "the service")
	flags.BoolVar(&cfg.AnyHost, "any-host", false, "permit a service on another machine")
	flags.Float64Var(&cfg.Rate, "rate", 50, "requests a second")
	flags.DurationVar(&cfg.For, "for", 10*time.Second, "how long to send requests")
	flags.IntVar(&cfg.InFlight, "in-flight", 64, "requests that may be under way; those due beyond are skipped")
	flags.IntVar(&cfg.Rows, "rows", 100_000, "rows of the largest request")
	flags.Uint64Var(&cfg.Seed, "seed", 0, "makes the requests; 0 takes one by chance, and the report says which")
	flags.DurationVar(&cfg.Timeout, "timeout", 15*time.Second, "how long a request may take")
	flags.BoolVar(&asJSON, "json", false, "print the report as one JSON object")
	if err := flags.Parse(args); err != nil {
		return cfg, false, err
	}
	if flags.NArg() > 0 {
		return cfg, false, fmt.Errorf("%q: it takes flags only", flags.Arg(0))
	}
	for cfg.Seed == 0 {
		cfg.Seed = rand.Uint64()
	}
	return cfg, asJSON, cfg.Check()
}
