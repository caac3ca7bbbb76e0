package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// captured runs the command and returns what it printed, both streams together.
func captured(t *testing.T, args ...string) (text string, code int) {
	t.Helper()
	read, write, err := os.Pipe()
	must.Do(t, err)
	stdout, stderr := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = write, write
	done := make(chan string, 1)
	go func() {
		var b bytes.Buffer
		_, _ = io.Copy(&b, read)
		done <- b.String()
	}()
	code = run(args)
	os.Stdout, os.Stderr = stdout, stderr
	_ = write.Close()
	return <-done, code
}

// The command switches a running demo, which goes on with every result right.
func TestTheGuardOfARunningDemoIsSwitched(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	demoCode := make(chan int, 1)
	addresses := make(chan string, 1)
	go func() {
		demoCode <- runChild(ctx, t, func(line string) {
			if _, rest, ok := strings.Cut(line, "the live view on "); ok {
				addresses <- rest + "guard"
			}
		}, "demo", "--for", "10m", "--listen", "127.0.0.1:0", "--guard=ledger")
	}()
	at := "--at=" + <-addresses
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"guard", at}, exitClean, "guard        ledger, policy report\nhunted tags  none"},
		{[]string{"guard", at, "status"}, exitClean, "guard        ledger, "},
		{[]string{"guard", strings.TrimSuffix(at, guardPath)}, exitClean, "guard        ledger, "},
		{[]string{"guard", at, "sample:4096", "--hunt-tag=sort.keys", "--hunt-tag=join.table"}, exitClean, "guard        sample:4096, policy report\nhunted tags  sort.keys, join.table"},
		{[]string{"guard", at, "--hunt-tag=rows,left", "--json"}, exitClean, `"hunt_tags":["rows,left"]`},
		{[]string{"guard", at, "hunt"}, exitClean, "guard        hunt, "},
		{[]string{"guard", at, "--hunt-tag="}, exitClean, "hunted tags  none"},
		{[]string{"guard", at, "off", "--json"}, exitClean, `"setting":"off"`},
		{[]string{"guard", at, "--hunt-tag=a", "--hunt-tag="}, exitBadInput, "an empty tag"},
		{[]string{"guard", at, "paranoid"}, exitBadInput, `"paranoid": say off, ledger`},
		{[]string{"guard", strings.TrimSuffix(at, guardPath) + "/healthz"}, exitProblem, "not a guard's"},
		{[]string{"guard", strings.TrimSuffix(at, guardPath) + "/metrics", "off"}, exitProblem, "Method Not Allowed"},
	} {
		text, code := captured(t, c.args...)
		if code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%q: exit code %d, want %d and %q:\n%s", c.args, code, c.code, c.want, text)
		}
	}
	stop()
	if code := <-demoCode; code != exitClean {
		t.Errorf("the demo ended with %d", code)
	}
}

// Each number of the guard is printed with what it counts, and not if it counted
// nothing.
func TestTheNumbersOfTheGuardAreExplained(t *testing.T) {
	rt := must.Get(fencepost.Open(t.Context(), fencepost.Config{Device: fencepost.Sim, Guard: "ledger"}))(t)
	defer func() { must.Get(rt.Close(context.Background()))(t) }()
	numbers := rt.GuardStatus().Numbers
	for name := range numbers {
		if guardNumbers[name] == "" {
			t.Errorf("%s is not explained", name)
		}
	}
	if len(guardNumbers) != len(numbers) {
		t.Errorf("%d numbers are explained, and there are %d", len(guardNumbers), len(numbers))
	}
	status := `{"setting":"sample","policy":"report","hunt_tags":[],"numbers":{"guarded":7,"evicted":0},"findings":0}`
	text := printed(t, func(c *console) { must.Do(t, showGuard(c, []byte(status), false)) })
	if !strings.Contains(text, "guarded            7            blocks allocated between red zones\n") || strings.Contains(text, "evicted") {
		t.Error(text)
	}
}

func TestARefusalOfTheProcessIsAProblemAndNotBadInput(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the guard is switched from this machine only", http.StatusForbidden)
	}))
	defer server.Close()
	if text, code := captured(t, "guard", "--at="+server.URL, "hunt"); code != exitProblem || !strings.Contains(text, "Forbidden: the guard is switched from this machine only") {
		t.Errorf("exit code %d:\n%s", code, text)
	}
}
