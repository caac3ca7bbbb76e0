package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

// What a tab checks at its end is part of each of these tests: no error, no
// line on the console, and no request to anybody else.
func TestThePageShowsWhatIsHeldByTag(t *testing.T) {
	s := newScene(t, nil)
	s.alloc("weights", 512*mib)
	s.alloc("kv.cache", 128*mib)
	p := openTab(t, s.live(), desk)
	p.contains("#tags", "weights")
	p.contains("#tags", "512 MiB")
	p.contains("#tiles", "16 % of 4.00 GiB")
	p.until("a chart", "document.querySelector('#chart canvas')?.width > 400")
	p.until("the chart to be painted in the tags' colours", painted("#chart canvas", 2))
	// It goes on by itself.
	s.alloc("sort.keys", 64*mib)
	p.contains("#tags", "sort.keys")
	p.contains("#health", "ok")
	p.until("the title to say how much", "document.title.startsWith('17')")
}

func TestThePoolsTileSaysWhatIsFreeInIt(t *testing.T) {
	s := newScene(t, func(cfg *fencepost.Config, _ *fencepost.HandlerConfig) {
		cfg.Resource, cfg.Pool.Limit = fencepost.Pool, 256*mib
	})
	s.alloc("weights", 65*mib)
	p := openTab(t, s.live(), desk)
	p.contains("#tiles", "fragmented, at most 256 MiB")
	must(t, s.rt.SetPoolLimit(0))
	p.contains("#tiles", "fragmented, at most 4.00 GiB") // the budget bounds the pool, too
}

// painted is true if a canvas has so many colours or more, each with a hundred
// pixels at least.
func painted(selector string, colors int) string {
	return fmt.Sprintf(`(() => {
	const c = document.querySelector(%q);
	const d = new Uint32Array(c.getContext("2d").getImageData(0, 0, c.width, c.height).data.buffer);
	const n = new Map();
	for (const v of d) if (v >>> 24 > 200) n.set(v, (n.get(v) ?? 0) + 1);
	return [...n.values()].filter((k) => k > 100).length >= %d;
})()`, selector, colors)
}

// What happened before the page was opened is in the chart, from the log.
func TestTheChartBeginsBeforeThePage(t *testing.T) {
	s := newScene(t, nil)
	s.alloc("weights", 512*mib)
	for range 20 {
		s.alloc("kv.cache", 16*mib)
		time.Sleep(200 * time.Millisecond)
	}
	p := openTab(t, s.live(), desk)
	p.contains("#past-note", "from the log in memory")
	p.pause() // what it draws now is not what it saw
	if wide := value[int](p, paintedWidth("--tag0")); wide < 25 {
		t.Errorf("the past of weights is %d pixels wide, of four seconds in sixty", wide)
	}
	// It ends as it is: at the right edge of what is painted all is there.
	p.contains("#tags", "320 MiB")
}

// paintedWidth is how many columns of the chart have the colour of a tag's area.
func paintedWidth(name string) string {
	return fmt.Sprintf(`(() => {
	const c = document.querySelector("#chart canvas");
	const want = getComputedStyle(document.documentElement).getPropertyValue(%q).trim();
	const [r, g, b] = [1, 3, 5].map((i) => 0.62 * parseInt(want.slice(i, i + 2), 16) + 0.38 * 255);
	const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
	const columns = new Set();
	for (let i = 0; i < d.length; i += 4) if (Math.abs(d[i] - r) + Math.abs(d[i + 1] - g) + Math.abs(d[i + 2] - b) < 12) columns.add((i / 4) %% c.width);
	return columns.size;
})()`, name)
}

// Live is the same everywhere: what the guard holds back, and what the device has
// not passed, is neither live in the tiles nor in the table nor in the map.
func TestQuarantineIsToldApartEverywhere(t *testing.T) {
	s := newScene(t, func(c *fencepost.Config, _ *fencepost.HandlerConfig) {
		c.GuardConfig.QuarantineAge = time.Hour
		c.GuardConfig.Advanced.Hunt.QuarantineBytes = 1 << 30
	})
	kept := s.alloc(hunted, 8*mib)
	for range 4 {
		s.free(s.alloc(hunted, mib))
	}
	p := openTab(t, s.live(), desk)
	p.contains("#tags", string(hunted))
	stats := s.rt.Stats()
	live, held := float64(stats.Live.Bytes)/mib, float64(stats.Quarantined.Bytes)/mib
	if stats.Quarantined.Blocks != 4 || stats.Live.Blocks != 1 {
		t.Fatalf("%+v", stats)
	}
	p.contains("#layers", "quarantined")
	row := value[[]string](p, "[...[...document.querySelectorAll('#tags tbody tr')].find((r) => r.innerText.includes('index.build')).cells].map((c) => c.innerText)")
	if row[1] != fmt.Sprintf("%.2f MiB", live) || row[2] != fmt.Sprintf("%.2f MiB", held) || row[3] != "–" || row[4] != "5" {
		t.Errorf("the table says %q, of %.2f MiB live and %.2f MiB quarantined", row, live, held)
	}
	tile := func(n int) string {
		return value[string](p, fmt.Sprintf("document.querySelectorAll('.tile .value')[%d].innerText", n))
	}
	if tile(1) != row[1] || tile(3) != row[2] {
		t.Errorf("the tiles say %s live and %s quarantined, the table %q", tile(1), tile(3), row)
	}
	p.contains("#map-note", "5 blocks")
	p.do("keys", chromedp.Focus(chromedp.CSS("#map")), chromedp.KeyEvent(kb.Home))
	for range 5 {
		p.do("the next block", chromedp.KeyEvent(kb.ArrowRight))
		tip := p.text("#tip")
		if isKept := strings.Contains(tip, fmt.Sprintf("#%d ", kept.ID.Generation)); strings.Contains(tip, "live") != isKept || strings.Contains(tip, "quarantined") == isKept {
			t.Errorf("the map says %q of a block that is kept: %v", tip, isKept)
		}
	}
	s.free(kept)
}

func TestAClickOnABlockShowsIt(t *testing.T) {
	s := newScene(t, nil)
	b := s.alloc("weights", 256*mib)
	s.launch("load_weights", s.stream, core.Write, b)
	s.alloc("kv.cache", 64*mib)
	p := openTab(t, s.live(), desk)
	p.contains("#map-note", "2 blocks")
	p.until("the map", painted("#map", 2))
	p.until("all to be in its place", inPlace)
	// The first block begins where the map does, behind the addresses.
	box := value[[]float64](p, "(() => { const b = document.querySelector('#map').getBoundingClientRect(); document.querySelector('#map').scrollIntoView(); const c = document.querySelector('#map').getBoundingClientRect(); return [c.left, c.top]; })()")
	p.do("a click", chromedp.MouseClickXY(box[0]+112+40, box[1]+6))
	p.contains("#details", fmt.Sprintf("weights #%d", b.ID.Generation))
	for _, want := range []string{"268 435 456", fmt.Sprintf("%#x", b.ID.Ptr), "load_weights", "write", "(*scene).alloc", "live"} {
		if text := p.text("#details"); !strings.Contains(text, want) {
			t.Errorf("the details lack %q:\n%s", want, text)
		}
	}
	// The keys get there too.
	p.do("keys", chromedp.Focus(chromedp.CSS("#map")), chromedp.KeyEvent(kb.End), chromedp.KeyEvent(kb.Enter))
	p.contains("#details", "kv.cache")
}

func TestABlockThatIsGoneIsSaidToBe(t *testing.T) {
	s := newScene(t, nil)
	b := s.alloc("weights", 256*mib)
	p := openTab(t, s.live(), desk)
	p.contains("#map-note", "1 block")
	p.pause()
	s.free(b)
	must(t, s.rt.Drain(t.Context()))
	p.do("keys", chromedp.Focus(chromedp.CSS("#map")), chromedp.KeyEvent(kb.Home), chromedp.KeyEvent(kb.Enter))
	p.contains("#details", "is gone")
}

func TestAFindingAppears(t *testing.T) {
	s := newScene(t, nil)
	p := openTab(t, s.live(), desk)
	p.contains("#findings", "None.")
	b := s.overrun("build_postings")
	p.contains("#findings", "oob-write")
	p.contains("#findings", fmt.Sprintf("index.build #%d", b.ID.Generation))
	p.do("opening it", chromedp.Click(chromedp.CSS("#findings summary")))
	p.contains("#findings pre", "build_postings")
	p.contains("#health", "degraded")
	p.contains("#reasons", "findings")
	p.until("the tile to warn", "[...document.querySelectorAll('.tile.alarm')].some((t) => t.innerText.includes('Findings'))")
	// It stays open when another comes.
	before := s.rt.Findings().Total()
	s.overrun("merge_postings")
	p.until("another finding", fmt.Sprintf("document.querySelectorAll('#findings details').length > %d", before))
	p.until("the first to stay open", "document.querySelectorAll('#findings details[open]').length === 1")
}

func TestARefusalSaysWhoHeldTheMemoryThen(t *testing.T) {
	s := newScene(t, nil)
	s.alloc("weights", 3<<30)
	p := openTab(t, s.live(), desk)
	p.contains("#refusals", "None.")
	s.refuse("kv.cache", 2<<30)
	p.contains("#refusals", "2.00 GiB, 1") // GiB, or 1024 MiB if the block before has red zones
	p.contains("#refusals", "left of 4.00 GiB")
	p.do("opening it", chromedp.Click(chromedp.CSS("#refusals summary")))
	p.contains("#refusals .body", "out of budget")
	p.contains("#refusals .body table", "weights")
}

func TestHealthTurnsWhenTheDeviceIsLost(t *testing.T) {
	s := newScene(t, nil)
	p := openTab(t, s.live(), desk)
	p.contains("#health", "ok")
	s.rt.Driver().(*sim.Device).LoseContext(700)
	_, _ = s.rt.Allocate(t.Context(), core.Request{Bytes: 64}) // meets the loss
	p.contains("#health", "poisoned")
	p.contains("#reasons", "sticky error")
	p.contains("#findings", "sticky-error")
}

func TestStreamsShowWhoHasThemAndTheirOrder(t *testing.T) {
	s := newScene(t, nil)
	reader, err := s.rt.Streams().Acquire(t.Context(), "attention")
	must(t, err)
	defer func() { must(t, reader.Release()) }()
	b := s.alloc("kv.cache", mib)
	s.launch("fill_cache", s.stream, core.Write, b)
	s.launch("attend", reader, core.Read, b)
	p := openTab(t, s.live(), desk)
	p.contains("#streams", "attention")
	p.contains("#streams", "attend")
	row := "[...document.querySelectorAll('#streams tbody tr')].find((r) => r.innerText.includes('attention'))"
	p.until("a wait", row+".cells[9].innerText === '1'")
	p.until("the order", "[..."+row+".querySelectorAll('.after i')].some((i) => i.title.includes('up to'))")
	p.contains("#streams-note", "2 of 16 leased")
}

func TestTheGuardIsSwitchedOnlyWhereThatIsSwitchedOn(t *testing.T) {
	shown := newScene(t, nil)
	p := openTab(t, shown.live(), desk)
	p.contains("#guard-note", "sample")
	if n := value[int](p, "document.querySelectorAll('#guard-section form, #guard-section button, #guard-section input').length"); n != 0 {
		t.Errorf("%d controls", n)
	}
	p.do("switching by hand", script(`fetch("guard", {method: "POST", headers: {"Content-Type": "application/json"}, body: '{"mode":"off"}'}).then((r) => { window.answer = r.status; }); 0`))
	p.until("an answer", "window.answer === 405")
	p.problem("status of 405")
	if mode := shown.rt.GuardStatus().Setting; !strings.HasPrefix(string(mode), "sample") {
		t.Errorf("it was switched to %s", mode)
	}

	switched := newScene(t, func(_ *fencepost.Config, h *fencepost.HandlerConfig) { h.SwitchGuard = true })
	p = openTab(t, switched.live(), desk)
	p.until("a form", "document.querySelector('#guard-switch input')")
	p.do("switching", chromedp.SendKeys(chromedp.CSS("#guard-switch input"), "hunt"), chromedp.Click(chromedp.CSS("#guard-switch button")))
	p.contains("#guard-note", "hunt")
	p.do("switching to nonsense", chromedp.SendKeys(chromedp.CSS("#guard-switch input"), "er"), chromedp.Click(chromedp.CSS("#guard-switch button")))
	p.contains("#guard-switch output", "mode")
	p.problem("status of 400")
	if mode := switched.rt.GuardStatus().Setting; mode != "hunt" {
		t.Errorf("it is in mode %s", mode)
	}
}

// evil would run in the page if a text were put into it as markup.
const evil = `<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>`

func TestTextsOfTheProgramAreNeverMarkup(t *testing.T) {
	s := newScene(t, func(c *fencepost.Config, _ *fencepost.HandlerConfig) {
		c.Sim.Name = evil
		c.GuardConfig.HuntTags = []core.Tag{hunted, evil}
	})
	lease, err := s.rt.Streams().Acquire(t.Context(), evil)
	must(t, err)
	defer func() { must(t, lease.Release()) }()
	b := s.alloc(evil, 256*mib)
	s.launch(evil, lease, core.Write, b)
	s.refuse(evil, 8<<30)
	s.free(b)
	s.freeTwice(evil)
	s.alloc(evil, 256*mib)
	p := openTab(t, s.live(), desk)
	for _, place := range []string{"#tags", "#streams", "#refusals", "#findings"} {
		p.contains(place, "<img src=x onerror=")
	}
	p.until("the map", shown("#map-note")+".match(/^[1-9]/)")
	p.do("keys", chromedp.Focus(chromedp.CSS("#map")), chromedp.KeyEvent(kb.End), chromedp.KeyEvent(kb.Enter))
	p.contains("#details", "<img src=x onerror=")
	p.do("opening all", script("document.querySelectorAll('summary').forEach((s) => s.click())"))
	if n := value[int](p, "document.querySelectorAll('img').length + document.querySelectorAll('body script').length"); n != 0 {
		t.Errorf("%d elements were made of a text", n)
	}
	if value[bool](p, "'pwned' in window") {
		t.Error("a tag ran")
	}
}

func TestIncidentsAreShownOnlyWhereThatIsSwitchedOn(t *testing.T) {
	folder := func(c *fencepost.Config, _ *fencepost.HandlerConfig) { c.Incidents = t.TempDir() }
	off := newScene(t, folder)
	p := openTab(t, off.live(), desk)
	p.contains("#health", "ok")
	if text := p.text("body"); strings.Contains(text, "Incidents") || strings.Contains(text, "Dump") {
		t.Errorf("it is off, and the page says:\n%s", text)
	}
	p.do("asking by hand", script(`Promise.all([fetch("incidents"), fetch("dump", {method: "POST"})]).then((r) => { window.answers = r.map((x) => x.status).join(); }); 0`))
	p.until("two times 404", "window.answers === '404,404'")
	p.problem("/incidents", "/dump")

	on := newScene(t, func(c *fencepost.Config, h *fencepost.HandlerConfig) { folder(c, h); h.Incidents = true })
	p = openTab(t, on.live(), desk)
	p.contains("#files-note", "none yet")
	p.do("dumping", chromedp.Click(chromedp.CSS("#dump")))
	p.contains("#dump-answer", "dumped in 3 forms")
	p.contains("#files", "dump: request")
	p.do("dumping again", chromedp.Click(chromedp.CSS("#dump")))
	p.contains("#dump-answer", "ask again in")
	p.problem("status of 429")
}

// An incident holds what the program says, such as a tag that is markup. Nothing of
// that is shown by a browser that is led to it: it is a download.
func TestAnIncidentIsNeverAPage(t *testing.T) {
	for _, tag := range hostile {
		s := newScene(t, func(c *fencepost.Config, h *fencepost.HandlerConfig) { c.Incidents, h.Incidents = t.TempDir(), true })
		s.freeTwice(tag)
		p := openTab(t, s.live(), desk)
		p.contains("#files", "double-free")
		row := "[...document.querySelectorAll('#files tbody tr')].find((r) => r.innerText.includes('double-free'))"
		if text := value[string](p, row+".innerText"); strings.ContainsAny(text, "<>\"\u202e") {
			t.Errorf("%q: the row says %q", tag, text)
		}
		var answer struct{ Type, Disposition, Sniff, Text string }
		link := value[string](p, row+".querySelector('a').href")
		p.do("fetching it", script(fmt.Sprintf(`fetch(%q).then(async (r) => { window.got = { type: r.headers.get("Content-Type"), disposition: r.headers.get("Content-Disposition"), sniff: r.headers.get("X-Content-Type-Options"), text: await r.text() }; }); 0`, link)))
		p.until("the incident", "window.got")
		answer = value[struct{ Type, Disposition, Sniff, Text string }](p, "window.got")
		if answer.Type != "application/octet-stream" || answer.Disposition != `attachment; filename="fencepost-incident.json"` || answer.Sniff != "nosniff" || !strings.Contains(answer.Text, "double-free") {
			t.Errorf("%q: %+v", tag, answer)
		}
		p.do("following the link", script(row+".querySelector('a').click()"))
		p.do("leading the page to it", script(fmt.Sprintf("location.href = %q", link)))
		time.Sleep(500 * time.Millisecond)
		if at := value[string](p, "location.href"); at != s.live() || value[bool](p, "'pwned' in window") {
			t.Errorf("%q: the page is %s, and something ran: %v", tag, at, value[bool](p, "'pwned' in window"))
		}
	}
}

// hostile are tags that would do harm where they are no text.
var hostile = []core.Tag{evil, `"><svg onload="window.pwned=1">`, "javascript:window.pwned=1", "a\u202eb\u2066c\x00\x1b[31m\r\nX: y", core.Tag(strings.Repeat("long<b>", 600)), "\xff\xfe"}

// Each of them is in the past of the chart, in the table and in the map.
func TestHostileTagsAreTextInThePast(t *testing.T) {
	s := newScene(t, nil)
	for i, tag := range hostile {
		s.alloc(tag, uint64(64+i)*mib)
	}
	time.Sleep(1500 * time.Millisecond)
	p := openTab(t, s.live(), desk)
	p.contains("#past-note", "from the log in memory")
	p.until("all tags", fmt.Sprintf("document.querySelectorAll('#tags tbody tr').length === %d", len(hostile)))
	p.contains("#tags", "<img src=x onerror=")
	p.contains("#tags", "…") // the long one is cut
	p.do("pointing at the past", chromedp.MouseClickXY(300, 300))
	if n := value[int](p, "document.querySelectorAll('img, svg, iframe, b[onload]').length + document.querySelectorAll('body script').length"); n != 0 || value[bool](p, "'pwned' in window") {
		t.Errorf("%d elements were made of a text", n)
	}
	if wide := value[int64](p, "document.documentElement.scrollWidth"); wide > desk.width {
		t.Errorf("the page is %d wide", wide)
	}
}

func TestScriptsOfOthersDoNotRun(t *testing.T) {
	s := newScene(t, nil)
	p := openTab(t, s.live(), desk)
	p.contains("#health", "ok")
	p.do("an inline script", script("{ const s = document.createElement('script'); s.textContent = 'window.pwned = 1'; document.body.append(s); }"))
	p.do("an image from elsewhere", script("{ const i = document.createElement('img'); i.src = 'https://example.invalid/x.png'; document.body.append(i); }"))
	p.problem("script-src 'self'", "img-src 'self'")
	if value[bool](p, "'pwned' in window") {
		t.Error("an inline script ran")
	}
}

func TestAServerThatIsGoneIsSaidToBe(t *testing.T) {
	s := newScene(t, nil)
	p := openTab(t, s.live(), desk)
	p.contains("#health", "ok")
	p.mu.Lock()
	p.gone = true
	p.mu.Unlock()
	s.server.CloseClientConnections()
	s.server.Close()
	p.contains("#health", "unreachable")
	p.contains("#lost", "No answer from the process since")
	p.pause()
}

func TestSeveralDevicesAreChosenFrom(t *testing.T) {
	first, second := openAt(t, 3), openAt(t, 5)
	s := newScene(t, func(_ *fencepost.Config, h *fencepost.HandlerConfig) {
		h.Runtimes = []*fencepost.Runtime{first, second}
	})
	s.alloc("weights", 256*mib)
	_, err := second.Allocate(t.Context(), core.Request{Bytes: 128 * mib, Tag: "of.five"})
	must(t, err)
	p := openTab(t, s.live(), desk)
	p.until("three devices", "document.querySelectorAll('#device option').length === 3")
	p.until("the first to be shown", "document.querySelector('#device').value === '3'")
	p.do("choosing", script("{ const d = document.querySelector('#device'); d.value = '5'; d.dispatchEvent(new Event('change')); }"))
	p.contains("#tags", "of.five")
	p.do("choosing", script("{ const d = document.querySelector('#device'); d.value = '0'; d.dispatchEvent(new Event('change')); }"))
	p.contains("#tags", "weights")
	p.until("the other's tags to be gone", "!document.querySelector('#tags').innerText.includes('of.five')")
	p.contains("#map-note", "1 block, 256 MiB")
	links := value[[]string](p, "[...document.querySelectorAll('#links a')].map((a) => a.href)")
	for _, link := range links {
		response, err := http.Get(link)
		must(t, err)
		must(t, response.Body.Close())
		if response.StatusCode != http.StatusOK || !strings.Contains(link, "device=0") {
			t.Errorf("%s: %s", link, response.Status)
		}
	}
	if len(links) != 5 {
		t.Errorf("links: %q", links)
	}
}

func TestNothingIsWiderThanTheScreen(t *testing.T) {
	s := newScene(t, nil)
	s.alloc("weights", 512*mib)
	s.alloc(core.Tag(strings.Repeat("long.", 40)), 512*mib)
	s.overrun("build_postings")
	s.refuse(core.Tag(strings.Repeat("wide", 40)), 8<<30)
	for _, width := range []int64{400, 768, 1280, 1920} {
		p := openTab(t, s.live(), screen{width: width, height: 800})
		p.contains("#findings", "oob-write")
		p.contains("#tags", "weights")
		if wide := value[int64](p, "document.documentElement.scrollWidth"); wide > width {
			t.Errorf("at %d the page is %d wide", width, wide)
		}
	}
}

// What the keyboard cannot reach does not exist for those who have only that.
func TestTheKeyboardReachesEverything(t *testing.T) {
	s := newScene(t, func(_ *fencepost.Config, h *fencepost.HandlerConfig) { h.SwitchGuard = true })
	s.overrun("build_postings")
	s.refuse("kv.cache", 8<<30)
	p := openTab(t, s.live(), desk)
	p.contains("#findings", "oob-write")
	p.until("the form", "document.querySelector('#guard-switch input')")
	reached := map[string]bool{}
	for range 40 {
		p.do("tab", chromedp.KeyEvent(kb.Tab))
		reached[value[string](p, "(() => { const e = document.activeElement; return e.id || e.getAttribute('aria-label') || e.textContent.slice(0, 12) || e.tagName; })()")] = true
	}
	for _, want := range []string{"pause", "scale", "map", "zoom-in", "by-state", "by-tag", "Tags", "Streams", "Metrics", "Mode", "Switch"} {
		if !reached[want] {
			t.Errorf("%s is not reached: %v", want, reached)
		}
	}
}
