package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/decorators/debugguard"
	"github.com/fencepost-gpu/fencepost/internal/terminal"
)

// guardTime bounds a request: switching a guard empties its quarantine.
const guardTime = 30 * time.Second

// guardPath is where [fencepost.NewHandler] has the guard.
const guardPath = "/debug/gpumem/guard"

type guardFlags struct {
	at       string
	huntTags []string
	json     bool
}

func guardCommand(c *console, code *int) *cobra.Command {
	var f guardFlags
	cmd := &cobra.Command{
		Use:   "guard [status | off | ledger | sample[:BYTES] | hunt[:OPTIONS]]",
		Short: "Show or switch the debug guard of a running process",
		Long: `Guard asks a running process how its debug guard is set, or switches it, through
the endpoint that the process serves (HandlerConfig.SwitchGuard; the demo has
it). --hunt-tag names all tags that are hunted from now on, each flag one,
for a tag may hold commas; --hunt-tag= is none of them. The process takes changes
from its own machine only.

Exit codes: 0 shown, or switched; 1 no process answers there, or the change was not
taken; 2 a bad flag or word.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			*code, err = runGuard(cmd.Context(), c, f, args, cmd.Flags().Changed("hunt-tag"))
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.at, "at", "http://127.0.0.1:9464", "where the process serves its guard: a URL, without a path that of "+guardPath)
	flags.StringArrayVar(&f.huntTags, "hunt-tag", nil, "hunt this tag, commas and all; may be given several times; empty for none")
	flags.BoolVar(&f.json, "json", false, "print the answer as the process gave it")
	return cmd
}

func runGuard(ctx context.Context, c *console, f guardFlags, args []string, retag bool) (int, error) {
	at, err := url.Parse(f.at)
	if err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" {
		return exitBadInput, fmt.Errorf("--at %q: say a URL such as http://127.0.0.1:9464", f.at)
	}
	if strings.Trim(at.Path, "/") == "" {
		at.Path = guardPath
	}
	var change fencepost.GuardChange
	if len(args) == 1 && args[0] != "status" {
		if _, err := debugguard.ParseMode(args[0]); err != nil {
			return exitBadInput, err
		}
		change.Mode = (*fencepost.GuardMode)(&args[0])
	}
	if retag {
		change.HuntTags = tagsOf(f.huntTags)
	}
	ctx, cancel := context.WithTimeout(ctx, guardTime)
	defer cancel()
	answer, status, err := askGuard(ctx, at.String(), change)
	if err != nil {
		return exitProblem, &problemError{err}
	}
	if status != http.StatusOK {
		return refusedBy(status, answer)
	}
	return exitClean, showGuard(c, answer, f.json)
}

// tagsOf are the tags that flags name: one empty flag names none.
func tagsOf(flags []string) *[]core.Tag {
	tags := []core.Tag{}
	if !slices.Equal(flags, []string{""}) {
		for _, f := range flags {
			tags = append(tags, core.Tag(f))
		}
	}
	return &tags
}

// askGuard sends a change, or asks for the status if there is none.
func askGuard(ctx context.Context, at string, change fencepost.GuardChange) (answer []byte, status int, err error) {
	method, body := http.MethodGet, []byte(nil)
	if change != (fencepost.GuardChange{}) {
		method = http.MethodPost
		if body, err = json.Marshal(change); err != nil {
			return nil, 0, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body))
	if err != nil {
		return nil, 0, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, 0, fmt.Errorf("%w; does the process serve its guard there? see --at", err)
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	answer, err = io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return answer, response.StatusCode, err
}

// refusedBy is the error for an answer that is none of success.
func refusedBy(status int, answer []byte) (int, error) {
	err := fmt.Errorf("%s: %s", http.StatusText(status), strings.TrimSpace(string(answer)))
	if status == http.StatusBadRequest {
		return exitBadInput, err
	}
	return exitProblem, &problemError{err}
}

func showGuard(c *console, answer []byte, asJSON bool) error {
	var s fencepost.GuardStatus
	if err := json.Unmarshal(answer, &s); err != nil || s.Setting == "" {
		return &problemError{errors.New("the answer is not a guard's: does --at name its endpoint?")}
	}
	if asJSON {
		c.printf("%s\n", terminal.Lines(terminal.JSON(bytes.TrimSpace(answer))))
		return nil
	}
	hunted := "none"
	if len(s.HuntTags) > 0 {
		hunted = strings.Join(s.HuntTags, ", ")
	}
	c.printf("guard        %s, policy %s\nhunted tags  %s\nfaults       %s\nkernel log   %s\nfindings     %d\n", s.Setting, s.Policy, hunted,
		cmp.Or(s.Faults, "not known"), cmp.Or(s.KernelLog, "not known"), s.Findings)
	for _, name := range slices.Sorted(maps.Keys(s.Numbers)) {
		if n := s.Numbers[name]; n > 0 { // what did not happen is not listed
			c.printf("  %-18s %-12d %s\n", name, n, guardNumbers[name])
		}
	}
	return nil
}

// guardNumbers says what the guard's numbers count, since the runtime was opened or
// now.
var guardNumbers = map[string]string{
	"guarded":           "blocks allocated between red zones",
	"unguarded":         "blocks chosen for that and allocated without, for want of memory",
	"skipped":           "blocks chosen for that and left out: enough were guarded in that second",
	"isolated":          "blocks of a hunt with a mapping of their own",
	"not_isolated":      "blocks of a hunt that could not have one",
	"verified":          "comparisons of a block that the device has done",
	"unchecked":         "armings and comparisons that were left out",
	"findings":          "what the guard found, reported or not",
	"relieved":          "refusals avoided by giving up quarantine",
	"given_up":          "blocks that quarantine gave up early, to avoid a refusal",
	"evicted":           "blocks that left quarantine",
	"retried":           "frees from quarantine that failed and are tried again",
	"captured":          "accesses kept off a stream that was capturing a graph",
	"delays":            "launches that a hunt delayed",
	"checks":            "batches of comparisons whose verdict is awaited now",
	"ledger_blocks":     "blocks in the ledger now",
	"tombstones":        "freed blocks that are remembered now",
	"deferred":          "frees that open launches hold back now",
	"sentinels":         "canaries in freed memory now",
	"hunted_tags":       "tags that are hunted now",
	"quarantine_bytes":  "bytes in quarantine now",
	"quarantine_blocks": "blocks in quarantine now",
}
