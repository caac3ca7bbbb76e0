package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/internal/terminal"
	"github.com/fencepost-gpu/fencepost/internal/traceio/alloctrace"
	"github.com/fencepost-gpu/fencepost/internal/workline"
	"github.com/fencepost-gpu/fencepost/telemetry/explain"
)

// historyPath is where [fencepost.NewHandler] has the history, historyTime how long it may take to come.
const (
	historyPath = "/debug/gpumem/history"
	historyTime = time.Minute
)

// mostListed is how many requests are listed where none is named.
const mostListed = 10

func whyCommand(c *console) *cobra.Command {
	var bounds limitFlags
	cmd := &cobra.Command{
		Use:   "why FILE|URL [TRACE]",
		Short: "Say what a request waited for on the device",
		Long: `Why explains why a request was slow on the device: which launch of which other
request it waited for, over which block, for how long, and whether data or memory
that is used again demanded it. Then it prints the request's critical path, step
by step. Without a trace id it lists the requests that lost most to others.

The history is a file (a log of the level Uses, a dump, or what
` + historyPath + ` gave), or is asked of a running process: name a URL such as
http://127.0.0.1:9464. Sampled traces are in it whole, as far back as it goes.

Exit codes: 0 explained; 1 no process answers there, or the history has no timed
launch, or none of the trace; 2 the file or an argument is bad; 130 Ctrl-C.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			limits, err := bounds.limits()
			if err != nil {
				return err
			}
			trace, err := workline.Span(strings.Join(args[1:], ""), "")
			if err != nil || len(args) == 2 && trace.TraceID == [16]byte{} {
				return fmt.Errorf("trace %q: say the 32 hexadecimal digits of its id", strings.Join(args[1:], ""))
			}
			device, err := readDevice(cmd.Context(), c, args[0], limits)
			if err != nil {
				return err
			}
			if len(args) == 1 {
				list(c, device)
				return nil
			}
			e, err := device.Explain(trace.TraceID)
			if err != nil {
				return &problemError{fmt.Errorf("why %s: %w", args[1], err)}
			}
			c.printf("%s", terminal.Lines(e.String()))
			return nil
		},
	}
	bounds.add(cmd)
	return cmd
}

// list prints the requests that lost most.
func list(c *console, device *explain.Device) {
	requests := device.MostHeldUp(mostListed)
	if len(requests) == 0 {
		c.printf("No request in the history waited for another's work on the device.\n")
	}
	for _, r := range requests {
		c.printf("%x  lost %-8v most of it: %s\n", r.Trace[:], r.Lost.Round(time.Microsecond), terminal.Lines(r.Worst.Text()))
	}
}

// readDevice reads the history of a file or a running process.
func readDevice(ctx context.Context, c *console, from string, limits alloctrace.Limits) (_ *explain.Device, err error) {
	ctx, in, err := openHistory(ctx, from)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	var events []oplog.Event
	passed, err := limits.EachEvent(from, &untilStopped{ctx: ctx, r: in}, func(_ string, e oplog.Event) {
		if e.Op == oplog.OpDevice {
			events = append(events, e)
		}
	})
	if ctx.Err() != nil {
		return nil, &problemError{fmt.Errorf("why: %w", ctx.Err())}
	}
	if err != nil {
		return nil, err
	}
	passed.Missing = 0 // what is missing of the memory's history is no matter here
	c.complainOf(from, passed)
	if len(events) == 0 {
		return nil, &problemError{fmt.Errorf("why: %s says of no launch when the device did it: a log has that at the level Uses, a running process if launches are traced or timed (FENCEPOST_TIME_ONE_IN)", from)}
	}
	return explain.New(events), nil
}

// asURL is where a process is asked, if it is no file that is named.
func asURL(from string) (at *url.URL, ok bool) {
	at, err := url.Parse(from)
	return at, err == nil && (at.Scheme == "http" || at.Scheme == "https")
}

// openHistory opens a file, or asks a running process if from is a URL: until the context ends that comes with it.
func openHistory(ctx context.Context, from string) (context.Context, io.ReadCloser, error) {
	at, ok := asURL(from)
	if !ok {
		in, err := os.Open(from)
		return ctx, in, err
	}
	ctx, cancel := context.WithTimeout(ctx, historyTime)
	in, err := askHistory(ctx, at)
	if err != nil {
		cancel()
		return ctx, nil, err
	}
	return ctx, answer{in, cancel}, nil
}

// answer is an answer whose context ends when it is closed.
type answer struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close closes both.
func (e answer) Close() error {
	defer e.cancel()
	return e.ReadCloser.Close()
}

// askHistory asks a running process for its history.
func askHistory(ctx context.Context, at *url.URL) (io.ReadCloser, error) {
	if strings.Trim(at.Path, "/") == "" {
		at.Path = historyPath
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, &problemError{fmt.Errorf("%w; does the process serve its history there?", err)}
	}
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
		return nil, errors.Join(&problemError{fmt.Errorf("%s: %s: %s", at, response.Status, strings.TrimSpace(string(text)))}, response.Body.Close())
	}
	return response.Body, nil
}
