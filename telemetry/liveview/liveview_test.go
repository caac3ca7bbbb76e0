package liveview_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/names"
	"github.com/fencepost-gpu/fencepost/core/oplog"
	"github.com/fencepost-gpu/fencepost/core/readings"
	"github.com/fencepost-gpu/fencepost/internal/testkit/expect"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
	"github.com/fencepost-gpu/fencepost/telemetry/liveview"
)

// resource has so many blocks, and answers nothing else that is asked. Its
// methods beyond these are never called: they would end the test.
type resource struct {
	core.Resource
	ordinal int
	n       int
	block   func(i int) core.BlockInfo
}

func (r *resource) Ordinal() int          { return r.ordinal }
func (r *resource) String() string        { return "resource" }
func (r *resource) Unwrap() core.Resource { return nil }
func (r *resource) Stats() core.Stats {
	return core.Stats{Limit: 1 << 40, Live: core.Amount{Blocks: uint64(r.n)}}
}

func (r *resource) Inspect() core.Inspector { return lister{core.Unsupported{}.Inspect(), r} }

type lister struct {
	core.Inspector
	of *resource
}

func (l lister) Blocks(yield func(core.BlockInfo) bool) {
	r := l.of
	for i := range r.n {
		if !yield(r.block(i)) {
			return
		}
	}
}

const base = 0x7000_0000_0000

// small are blocks of 4 KiB with a gap behind each.
func small(i int) core.BlockInfo {
	return core.BlockInfo{Block: core.Block{ID: core.BlockID{Ptr: base + uint64(i)*8192, Generation: core.Generation(i + 1)}, Bytes: 4096, Requested: 4000, Tag: "small", State: core.BlockState(1 + i%3)},
		Allocated: time.Now().Add(-time.Minute), AllocStack: core.CaptureStack(0), Uses: []core.UseRecord{{Launch: "work", LaunchID: 7, Access: core.Read}}}
}

func view(t *testing.T, devices ...liveview.Source) http.Handler {
	t.Helper()
	return must.Get(liveview.New(liveview.Config{Devices: devices}))(t)
}

func get(t *testing.T, h http.Handler, target string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w
}

// ask reads an answer of JSON.
func ask[T any](t *testing.T, h http.Handler, target string) (v T) {
	t.Helper()
	w := get(t, h, target)
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", target, w.Code, w.Body)
	}
	must.Do(t, json.Unmarshal(w.Body.Bytes(), &v))
	return v
}

type state struct {
	Devices []struct{ Ordinal int }
	Device  struct {
		Ordinal int
		Map     *addressMap
		Tags    []struct {
			Tag                        string
			Live, Pending, Quarantined uint64
		}
		Streams            *streams
		Findings, Refusals struct {
			Total uint64
			Items []map[string]any
		}
	}
}

type streams struct {
	List []struct {
		Number int
		Lease  uint64
	}
	Omitted int
}

type addressMap struct {
	Serial, Blocks, Bytes uint64
	Dated                 bool
	Extents               []struct {
		From  string
		Bytes uint64
	}
	Listed struct {
		Offset, Bytes, Generation []uint64
		State                     []int
		AgeMS                     []int64 `json:"age_ms"`
	}
	Rest struct {
		Blocks, Bytes uint64
		CellBytes     uint64 `json:"cell_bytes"`
		Cells         [][4]uint64
	}
}

// whole is what a map has of each state, listed or summed up.
func (m *addressMap) whole() (sums [3]uint64) {
	for i, n := range m.Listed.Bytes {
		sums[m.Listed.State[i]] += n
	}
	for _, c := range m.Rest.Cells {
		for i := range sums {
			sums[i] += c[1+i]
		}
	}
	return sums
}

func TestFewBlocksAreAllListedWhereTheyLie(t *testing.T) {
	const far = 1 << 40 // behind a gap that is left out
	blocks := []core.BlockInfo{small(0), small(1), small(2)}
	blocks[2].Block.ID.Ptr += far
	r := &resource{n: 3, block: func(i int) core.BlockInfo { return blocks[i] }}
	m := ask[state](t, view(t, liveview.Source{Resource: r}), "/state").Device.Map
	if m.Blocks != 3 || m.Bytes != 3*4096 || m.Rest.Blocks != 0 || len(m.Rest.Cells) != 0 || !m.Dated {
		t.Errorf("%+v", m)
	}
	if len(m.Extents) != 2 || m.Extents[0].From != "0x700000000000" || m.Extents[1].From != "0x710000000000" {
		t.Errorf("extents %+v", m.Extents)
	}
	if want := []uint64{0, 8192, m.Extents[0].Bytes + 16384}; fmt.Sprint(m.Listed.Offset) != fmt.Sprint(want) {
		t.Errorf("offsets %v, want %v", m.Listed.Offset, want)
	}
	if age := m.Listed.AgeMS[0]; age < 60_000 || age > 120_000 {
		t.Errorf("age %d ms", age)
	}
}

func TestAMillionBlocksAreABoundedStateThatAddsUp(t *testing.T) {
	n, largest := 1_000_000, 0
	if testing.Short() {
		n /= 5
	}
	r := &resource{n: n, block: func(i int) core.BlockInfo {
		info := core.BlockInfo{Block: core.Block{ID: core.BlockID{Ptr: base + uint64(i)*8192, Generation: core.Generation(i + 1)}, Bytes: 4096, Tag: core.Tag(fmt.Sprint("tag", i%1000)), State: core.BlockState(1 + i%3)}}
		if i%1000 == 500 {
			info.Block.Bytes = 8192
		}
		return info
	}}
	h := view(t, liveview.Source{Resource: r, Holders: func() (holders []core.Holder) {
		for i := range 5000 {
			holders = append(holders, core.Holder{Tag: core.Tag(fmt.Sprint(i) + strings.Repeat("long", 100)), State: core.Live, Bytes: uint64(i)})
		}
		return holders
	}})
	w := get(t, h, "/state")
	if size := w.Body.Len(); w.Code != http.StatusOK || size > 512<<10 {
		t.Fatalf("%d, %d bytes", w.Code, size)
	}
	var s state
	must.Do(t, json.Unmarshal(w.Body.Bytes(), &s))
	m := s.Device.Map
	if len(m.Listed.Offset) != 2048 || len(m.Rest.Cells) > 1024 || len(m.Extents) > 256 || len(s.Device.Tags) != 65 {
		t.Errorf("%d listed, %d cells, %d extents, %d tags", len(m.Listed.Offset), len(m.Rest.Cells), len(m.Extents), len(s.Device.Tags))
	}
	for _, bytes := range m.Listed.Bytes {
		if bytes == 8192 {
			largest++
		}
	}
	if largest != n/1000 {
		t.Errorf("%d of the %d largest blocks are listed", largest, n/1000)
	}
	var want [3]uint64
	for i := range n {
		want[[]int{0, 1, 2}[i%3]] += r.block(i).Block.Bytes
	}
	if got := m.whole(); got != want || m.Rest.Blocks != uint64(n-2048) {
		t.Errorf("live, pending and quarantined are %v, the blocks have %v", got, want)
	}
}

// The sums hold for blocks of any size anywhere, those included that are larger
// than what a map is divided into.
func TestTheMapAddsUpForBlocksOfAnySize(t *testing.T) {
	sizes := []uint64{1, 4096, 3 << 20, 5<<30 + 1, 700 << 30}
	r := &resource{n: 6000}
	r.block = func(i int) core.BlockInfo {
		return core.BlockInfo{Block: core.Block{ID: core.BlockID{Ptr: uint64(i) * (1 << 41), Generation: core.Generation(i + 1)}, Bytes: sizes[i%len(sizes)], Tag: "a", State: core.Live}}
	}
	var want uint64
	for i := range r.n {
		want += sizes[i%len(sizes)]
	}
	m := ask[state](t, view(t, liveview.Source{Resource: r}), "/state").Device.Map
	if got := m.whole()[0]; got != want || m.Bytes != want || len(m.Extents) > 256 || len(m.Rest.Cells) > 1024 {
		t.Errorf("%d bytes on the map, %d said, %d there; %d extents, %d cells", got, m.Bytes, want, len(m.Extents), len(m.Rest.Cells))
	}
}

func TestAStateSendsOnlyWhatThePageHasNot(t *testing.T) {
	findings := []core.Finding{{Kind: names.FindingLeak, Text: "a"}, {Kind: names.FindingLeak, Text: "b"}}
	refused := oplog.Event{Op: oplog.OpRefusal, Tag: "t", Requested: 9, Err: fmt.Errorf("wrapped: %w", &core.OutOfBudgetError{Limit: 8, Holders: []core.Holder{{Tag: "h", State: core.Retired, Bytes: 3}}})}
	h := view(t, liveview.Source{Resource: &resource{n: 1, block: small},
		Findings: func() (uint64, []core.Finding) { return 7, findings },
		Refusals: func() (uint64, []oplog.Event) { return 3, []oplog.Event{refused} }})
	first := ask[state](t, h, "/state").Device
	if n := first.Findings.Items; first.Findings.Total != 7 || len(n) != 2 || n[0]["text"] != "b" {
		t.Errorf("findings %+v", first.Findings)
	}
	budget, _ := json.Marshal(first.Refusals.Items[0]["budget"])
	if !strings.Contains(string(budget), `"bytes":3`) || !strings.Contains(string(budget), `"limit":8`) {
		t.Errorf("budget %s", budget)
	}
	again := ask[state](t, h, fmt.Sprintf("/state?map=%d&findings=7&refusals=3", first.Map.Serial)).Device
	if again.Map != nil || again.Findings.Items != nil || again.Refusals.Items != nil || again.Findings.Total != 7 {
		t.Errorf("sent again: %+v", again)
	}
}

func TestTextsAreCut(t *testing.T) {
	long := strings.Repeat("ä", 1<<20)
	w := get(t, view(t, liveview.Source{Resource: &resource{n: 1, block: func(int) core.BlockInfo {
		return core.BlockInfo{Block: core.Block{Bytes: 1, Tag: core.Tag(long), State: core.Live}}
	}},
		Health: func() core.Health { return core.Health{Signs: []core.HealthSign{{Text: long}}} },
		Findings: func() (uint64, []core.Finding) {
			return 1, []core.Finding{{Text: long, Victim: core.Block{Tag: core.Tag(long)}}}
		},
		Refusals: func() (uint64, []oplog.Event) { return 1, []oplog.Event{{Tag: core.Tag(long), Err: errors.New(long)}} },
		Streams: func() liveview.Streams {
			return liveview.Streams{List: []readings.StreamInfo{{Last: core.UseRecord{Launch: long}, Lease: &readings.LeaseInfo{ID: 1, Tag: core.Tag(long)}}}}
		},
	}), "/state")
	if w.Body.Len() > 32<<10 || !json.Valid(w.Body.Bytes()) || strings.Contains(w.Body.String(), "\ufffd") {
		t.Errorf("%d bytes, valid: %v", w.Body.Len(), json.Valid(w.Body.Bytes()))
	}
}

func TestManyStreamsAreCutLeasedOnesLast(t *testing.T) {
	s := liveview.Streams{}
	for i := range 1000 {
		stream := readings.StreamInfo{Number: i}
		if i >= 990 {
			stream.Lease = &readings.LeaseInfo{ID: core.StreamID(i)}
		}
		s.List = append(s.List, stream)
	}
	got := ask[state](t, view(t, liveview.Source{Resource: &resource{}, Streams: func() liveview.Streams { return s }}), "/state").Device.Streams
	if len(got.List) != 64 || got.Omitted != 936 || got.List[0].Number != 990 || got.List[0].Lease != 990 || got.List[10].Number != 0 {
		t.Errorf("%d streams, %d omitted, the first is %d", len(got.List), got.Omitted, got.List[0].Number)
	}
}

type details struct {
	Total  uint64
	Blocks []struct {
		Ptr, Tag, State string
		Generation      uint64
		Stack           []string
		Uses            []struct{ Launch, Access string }
	}
}

func TestTheBlocksOfAStretchAreShownInDetail(t *testing.T) {
	h := view(t, liveview.Source{Resource: &resource{n: 1000, block: small}})
	one := ask[details](t, h, fmt.Sprintf("/blocks?from=%#x&to=%#x", base+3*8192+4095, base+3*8192+4096))
	if b := one.Blocks; one.Total != 1 || b[0].Generation != 4 || b[0].State != "live" || b[0].Uses[0].Launch != "work" || !strings.Contains(strings.Join(b[0].Stack, " "), "liveview_test.small") {
		t.Errorf("%+v", one)
	}
	if gap := ask[details](t, h, fmt.Sprintf("/blocks?from=%d&to=%d", base+4096, base+8192)); gap.Total != 0 || gap.Blocks == nil {
		t.Errorf("in a gap: %+v", gap)
	}
	if all := ask[details](t, h, "/blocks"); all.Total != 1000 || len(all.Blocks) != 16 {
		t.Errorf("%d in all, %d shown", all.Total, len(all.Blocks))
	}
}

func TestBadQuestionsAreRefusedWithWhatToSay(t *testing.T) {
	h := view(t, liveview.Source{Resource: &resource{ordinal: 2}}, liveview.Source{Resource: &resource{ordinal: 5}})
	for target, want := range map[string]string{
		"/state?device=0":          "say one of [2 5]",
		"/state?map=x":             "write a number",
		"/blocks?from=x":           "write a number",
		"/blocks?from=9&to=9":      "below to",
		"/blocks?device=9":         "say one of [2 5]",
		"/blocks?from=-1&device=2": "write a number",
	} {
		if w := get(t, h, target); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
	if got := ask[state](t, h, "/state?device=5"); got.Device.Ordinal != 5 || len(got.Devices) != 2 {
		t.Errorf("device 5: %+v", got)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/state", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

func TestAViewOfNothingIsRefused(t *testing.T) {
	for name, devices := range map[string][]liveview.Source{
		"no device":     nil,
		"no resource":   {{}},
		"twice the one": {{Resource: &resource{}}, {Resource: &resource{}}},
	} {
		expect.ErrorOf(liveview.New(liveview.Config{Devices: devices}))(t, core.ErrInvalidRequest, name)
	}
}

// Everything that the page names is served by the view itself, under a policy
// that lets nothing else in.
func TestThePageNamesNothingFromOutside(t *testing.T) {
	h := view(t, liveview.Source{Resource: &resource{}})
	asked := []string{"/", "/live.css", "/uplot/uPlot.iife.min.js", "/uplot/uPlot.min.css"}
	files := 0
	for i := 0; i < len(asked); i++ {
		w := get(t, h, asked[i])
		policy := w.Header().Get("Content-Security-Policy")
		if w.Code != http.StatusOK || !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: %d, policy %q", asked[i], w.Code, policy)
		}
		files++
		own := !strings.HasPrefix(asked[i], "/uplot/")
		for _, m := range regexp.MustCompile(`(?:src|href)="([^"]+)"|from "([^"]+)"|url\(([^)]+)\)`).FindAllStringSubmatch(w.Body.String(), -1) {
			name := m[1] + m[2] + m[3]
			if strings.Contains(name, "//") {
				t.Errorf("%s names %s", asked[i], name)
			}
			if next := path.Join("/", name); own && next != "/state" && !strings.Contains(strings.Join(asked, " ")+" ", next+" ") {
				asked = append(asked, next)
			}
		}
		if own && regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(| style=| on[a-z]+="`).MatchString(w.Body.String()) {
			t.Errorf("%s makes markup or code of texts", asked[i])
		}
	}
	for _, none := range []string{"/uplot/", "/assets", "/uplot"} {
		if w := get(t, h, none); w.Code == http.StatusOK {
			t.Errorf("%s is served: %.100s", none, w.Body)
		}
	}
	if files < 12 {
		t.Errorf("only %d files were looked at: %q", files, asked)
	}
}

func TestWhatIsTakenFromOthersIsWhatTheNoticeSays(t *testing.T) {
	notice, err := os.ReadFile("assets/uplot/README.md")
	must.Do(t, err)
	sums := regexp.MustCompile(`(?m)^([0-9a-f]{64})  (\S+)$`).FindAllStringSubmatch(string(notice), -1)
	if len(sums) != 3 {
		t.Fatalf("%d sums", len(sums))
	}
	for _, m := range sums {
		text, err := os.ReadFile(path.Join("assets/uplot", m[2]))
		if sum := sha256.Sum256(text); err != nil || hex.EncodeToString(sum[:]) != m[1] {
			t.Errorf("%s is not what it was: %v", m[2], err)
		}
	}
}

// Many pages at once are answered with few lists of the blocks.
func TestManyPagesShareOneMap(t *testing.T) {
	var mu sync.Mutex
	lists := 0
	r := &resource{n: 100}
	r.block = func(i int) core.BlockInfo {
		if i == 0 {
			mu.Lock()
			lists++
			mu.Unlock()
		}
		return small(i)
	}
	h := view(t, liveview.Source{Resource: r})
	began := time.Now()
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 20 {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/state", nil))
				if !bytes.Contains(w.Body.Bytes(), []byte(`"serial"`)) {
					t.Error("a state without a map")
				}
			}
		})
	}
	all.Wait()
	if most := 1 + int(time.Since(began)/(500*time.Millisecond)); lists > most {
		t.Errorf("the blocks were listed %d times for 320 states within %v", lists, time.Since(began))
	}
}

// stalled is a client that takes nothing until it is let.
type stalled struct {
	*httptest.ResponseRecorder
	reached, release chan struct{}
	once             sync.Once
}

func (s *stalled) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.reached) })
	<-s.release
	return s.ResponseRecorder.Write(p)
}

func TestAClientThatTakesNothingKeepsNobodyFromTheBlocks(t *testing.T) {
	h := view(t, liveview.Source{Resource: &resource{n: 100, block: small}})
	slow := &stalled{ResponseRecorder: httptest.NewRecorder(), reached: make(chan struct{}), release: make(chan struct{})}
	var asking sync.WaitGroup
	asking.Go(func() { h.ServeHTTP(slow, httptest.NewRequest(http.MethodGet, "/blocks", nil)) })
	<-slow.reached
	answered := make(chan int, 1)
	asking.Go(func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/blocks", nil))
		answered <- w.Code
	})
	select {
	case code := <-answered:
		if code != http.StatusOK {
			t.Errorf("the answer is %d", code)
		}
	case <-time.After(time.Minute):
		t.Error("no answer while another client takes nothing")
	}
	close(slow.release)
	asking.Wait()
}

// The page knows a tag by what it is shown of it, so what is shown alike is one.
func TestTagsThatAreCutAlikeAreOne(t *testing.T) {
	long := core.Tag(strings.Repeat("t", 96))
	holders := []core.Holder{
		{Tag: long + "1", State: core.Live, Bytes: 5, Blocks: 1}, {Tag: "\xff", State: core.Live, Bytes: 4, Blocks: 1},
		{Tag: long + "2", State: core.Retired, Bytes: 3, Blocks: 1}, {Tag: core.Tag(names.Bound("\xff")), State: core.Live,
			Bytes: 2, Blocks: 1},
		{Tag: long + "3", State: core.Quarantined, Bytes: 7, Blocks: 1},
	}
	got := ask[state](t, view(t, liveview.Source{Resource: &resource{}, Holders: func() []core.Holder { return holders }}), "/state").Device.Tags
	if len(got) != 2 || got[0].Live != 5 || got[0].Pending != 3 || got[0].Quarantined != 7 ||
		got[1].Tag != names.Bound("\xff") || got[1].Live != 6 {
		t.Errorf("%+v", got)
	}
}
