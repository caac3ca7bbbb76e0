package browser

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience bounds what a page may take to show something on a busy machine.
const patience = time.Minute

// chromium is the program to test with.
func chromium(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("FENCEPOST_CHROMIUM"); path != "" {
		return path
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("FENCEPOST_REQUIRE") == "1" {
		t.Fatal("no Chromium here: set FENCEPOST_CHROMIUM=$(scripts/chromium)")
	}
	t.Skip("no Chromium here: set FENCEPOST_CHROMIUM=$(scripts/chromium)")
	return ""
}

// tab is a page that is open. At the end of the test it must have had no error
// and asked nobody but its own server.
type tab struct {
	*testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string
	asked    map[network.RequestID]string
	open     map[network.RequestID]bool // asked and not answered
	gone     bool                       // the server is: requests that fail are no problem
}

// screen is what a page is shown on.
type screen struct {
	width, height int64
	dark          bool
}

var desk = screen{width: 1280, height: 900}

// openTab opens a page of the server in a browser of its own.
func openTab(t *testing.T, address string, on screen) *tab {
	t.Helper()
	allocator, closeAllocator := chromedp.NewExecAllocator(context.Background(),
		chromedp.ExecPath(chromium(t)), chromedp.NoFirstRun, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Headless,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.Flag("hide-scrollbars", true),
		chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(patience))
	t.Cleanup(closeAllocator)
	ctx, closeTab := chromedp.NewContext(allocator)
	t.Cleanup(func() { _ = chromedp.Cancel(ctx); closeTab() }) // the folder goes after the browser
	p := &tab{T: t, ctx: ctx, asked: map[network.RequestID]string{}, open: map[network.RequestID]bool{}}
	if err := chromedp.Do(ctx); err != nil { // without a deadline, which would be the browser's
		t.Fatalf("starting the browser: %v", err)
	}
	if err := chromedp.Listen(ctx, p.watch); err != nil {
		t.Fatal(err)
	}
	p.do("opening "+address, send(network.Enable, network.EnableParams{}), send(log.Enable, cdp.Empty{}), send(runtime.Enable, cdp.Empty{}),
		chromedp.EmulateViewport(on.width, on.height), on.theme(), chromedp.Navigate(address))
	server, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.judge(server.Host) })
	return p
}

// theme makes the page light or dark.
func (s screen) theme() chromedp.Action[chromedp.Void] {
	scheme := "light"
	if s.dark {
		scheme = "dark"
	}
	return send(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// send is an action of one command.
func send[P, R any](command cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

// watch notes what the browser tells of a page.
func (p *tab) watch(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.problems = append(p.problems, "exception: "+exceptionText(e.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		text := []string{string(e.Type)}
		for _, arg := range e.Args {
			text = append(text, string(arg.Value))
		}
		p.problems = append(p.problems, "console: "+strings.Join(text, " "))
	case *log.EventEntryAdded:
		if p.gone && strings.HasPrefix(e.Entry.Text, "Failed to load resource") {
			return
		}
		p.problems = append(p.problems, fmt.Sprintf("log: %s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case *network.EventRequestWillBeSent:
		p.asked[e.RequestID] = e.Request.URL
		p.open[e.RequestID] = true
	case *network.EventLoadingFinished:
		delete(p.open, e.RequestID)
	case *network.EventLoadingFailed:
		delete(p.open, e.RequestID)
		if e.BlockedReason == network.BlockedReasonCsp {
			delete(p.asked, e.RequestID) // it never left
		}
	}
}

// takeProblems is what went wrong so far, and forgets it.
func (p *tab) takeProblems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	problems := p.problems
	p.problems = nil
	return problems
}

// problem waits until the browser has told of problems that have these texts, as it
// does sometime after them, and forgets what it told.
func (p *tab) problem(texts ...string) {
	p.Helper()
	told := ""
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		told += strings.Join(p.takeProblems(), "\n") + "\n"
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(told, text) }) {
			return
		}
		if time.Now().After(end) {
			p.Fatalf("not all of %q are told:\n%s", texts, told)
		}
	}
}

// pause stops the page from asking for the state, and waits for what it has asked.
func (p *tab) pause() {
	p.Helper()
	p.do("pausing", chromedp.Click(chromedp.CSS("#pause")))
	for end := time.Now().Add(patience); p.asking(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			p.Fatal("the page asks on")
		}
	}
}

func (p *tab) asking() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open) > 0
}

func (p *tab) judge(host string) {
	for _, problem := range p.takeProblems() {
		p.Error(problem)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, asked := range p.asked {
		if u, err := url.Parse(asked); err != nil || u.Host != host {
			p.Errorf("the page asked %s", asked)
		}
	}
	if len(p.asked) < 5 {
		p.Errorf("the page asked for %q only: nothing was watched", p.asked)
	}
}

// do runs actions within the patience.
func (p *tab) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.Fatalf("%s: %v; so far: %q", what, err, p.takeProblems())
	}
}

// script runs a script in the page.
func script(text string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := chromedp.Evaluate[bool]("{ "+text+" }; true")(ctx, t)
		return err
	})
}

// value is what an expression has in the page.
func value[T any](p *tab, expression string) T {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.Fatalf("%s: %v; so far: %q", expression, err, p.takeProblems())
	}
	return v
}

// until waits for an expression to be true in the page.
func (p *tab) until(what, expression string) {
	p.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if value[bool](p, "Boolean("+expression+")") {
			return
		}
	}
	p.Fatalf("%s: not within %v; the page says:\n%s", what, patience, value[string](p, "document.body.innerText"))
}

// text is the text of an element.
func (p *tab) text(selector string) string {
	p.Helper()
	return value[string](p, shown(selector))
}

// contains waits for an element's text to have another in it.
func (p *tab) contains(selector, text string) {
	p.Helper()
	p.until(fmt.Sprintf("%s with %q", selector, text), fmt.Sprintf("%s.includes(%q)", shown(selector), text))
}

// shown is the text of an element, with plain spaces.
func shown(selector string) string {
	return fmt.Sprintf("(document.querySelector(%q)?.innerText ?? '').replaceAll('\\u202f', ' ')", selector)
}

func exceptionText(e *runtime.ExceptionDetails) string {
	if e.Exception != nil && e.Exception.Description != "" {
		return e.Exception.Description
	}
	return e.Text
}
