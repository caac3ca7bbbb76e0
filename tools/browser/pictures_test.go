package browser

import (
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/cuda"
)

var pictures = flag.String("pictures", "", "write the pictures of the documents into this folder")

// TestPicturesOfTheDocuments makes them; without the flag it looks at the same
// scenes for a moment only.
func TestPicturesOfTheDocuments(t *testing.T) {
	for _, c := range []struct {
		name    string
		on      screen
		seconds int
	}{
		{"idle", screen{width: 1280, height: 900}, 20},
		{"load", screen{width: 1280, height: 900, dark: true}, 60},
		{"incident", screen{width: 1280, height: 900}, 40},
		{"narrow", screen{width: 400, height: 800, dark: true}, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t, func(cfg *fencepost.Config, h *fencepost.HandlerConfig) {
				cfg.GuardConfig.Advanced.StackBytes = 1
				if c.name == "incident" {
					cfg.Incidents, h.Incidents = t.TempDir(), true
				}
			})
			o := newOffice(s)
			if c.name != "idle" {
				defer o.open()()
			}
			time.Sleep(seconds(c.seconds)) // the page begins with what was before it
			p := openTab(t, s.live(), c.on)
			p.contains("#health", "ok")
			p.contains("#streams", "decode")
			p.contains("#past-note", "from the log in memory")
			if c.name == "load" {
				p.until("the map", shown("#map-note")+".match(/^[1-9]/)")
				p.do("choosing a block", chromedp.Focus(chromedp.CSS("#map")), chromedp.KeyEvent(kb.Home), chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.Enter),
					script("document.activeElement.blur(); document.querySelector('#tip').hidden = true"))
				p.contains("#details", "weights #")
			}
			if c.name == "incident" {
				s.overrun("build_postings")
				s.refuse("kv.cache", 3<<30)
				p.contains("#findings", "oob-write")
				p.contains("#refusals", "kv.cache")
				p.contains("#files", "oob-write")
				p.do("opening both", script("document.querySelectorAll('.news details:first-child > summary').forEach((s) => s.click())"))
			}
			time.Sleep(seconds(3))
			p.picture(c.name)
			if c.name == "load" { // for the README: who holds the memory, and where it lies
				p.capture("front", "Math.ceil(document.querySelector('#map-range').getBoundingClientRect().bottom + scrollY + 8)")
			}
		})
	}
}

// seconds is the time that a scene takes, for a picture or without one.
func seconds(n int) time.Duration {
	if *pictures == "" {
		return 2 * time.Second
	}
	return time.Duration(n) * time.Second
}

// picture writes the whole page as a file.
func (p *tab) picture(name string) {
	p.Helper()
	p.capture(name, "document.documentElement.scrollHeight")
}

// capture writes the page down to a height that a script says as a file.
func (p *tab) capture(name, height string) {
	p.Helper()
	if *pictures == "" {
		return
	}
	p.do("the height of the picture", chromedp.EmulateViewport(value[int64](p, "document.documentElement.clientWidth"), value[int64](p, height)))
	time.Sleep(2500 * time.Millisecond) // it draws itself anew
	image, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	must(p.T, err)
	must(p.T, os.WriteFile(filepath.Join(*pictures, name+".png"), image, 0o600))
}

// office is a service at work: weights that stay, a cache that grows and
// shrinks, requests with scratch memory, and an index in the background.
type office struct {
	*scene
	lanes   []*cuda.Lease
	weights []core.Block
	cache   []core.Block
	index   []core.Block
	scratch [][]core.Block
}

func newOffice(s *scene) *office {
	o := &office{scene: s}
	for _, tag := range []core.Tag{"prefill", "decode", "decode", "decode", "copy.in", "index", "evict"} {
		lease, err := s.rt.Streams().Acquire(s.Context(), tag)
		must(s.T, err)
		s.Cleanup(func() { _ = lease.Release() })
		o.lanes = append(o.lanes, lease)
	}
	for i := range 9 {
		o.weights = append(o.weights, s.alloc("weights", uint64(140+i%3*18)*mib))
	}
	s.launch("load_weights", o.lanes[4], core.Write, o.weights...)
	return o
}

// open makes the office work until it is closed.
func (o *office) open() (closeOffice func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		began := time.Now()
		for tick := 0; ; tick++ {
			select {
			case <-stop:
				return
			case <-time.After(25 * time.Millisecond):
				o.serve(tick, time.Since(began))
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

// serve is one round of requests. Nothing is enqueued on the device.
func (o *office) serve(tick int, since time.Duration) {
	target := 20 + int((0.5-0.5*math.Cos(2*math.Pi*since.Seconds()/17))*52)
	for len(o.cache) < target {
		b := o.alloc("kv.cache", uint64(8+tick%5*4)*mib)
		o.launch("prefill", o.lanes[0], core.Write, b)
		o.cache = append(o.cache, b)
	}
	for len(o.cache) > target+2 {
		at := tick * 7 % len(o.cache)
		o.free(o.cache[at])
		o.cache = slices.Delete(o.cache, at, at+1)
	}
	if tick%60 == 0 {
		o.index = append(o.index, o.alloc("index.postings", uint64(3+tick%7)*mib), o.alloc("index.terms", 5*mib))
		o.launch("merge_segment", o.lanes[5], core.ReadWrite, o.index[len(o.index)-2:]...)
	}
	scratch := []core.Block{o.alloc("activations", uint64(16+tick%3*24)*mib), o.alloc("sort.keys", uint64(2+tick%4*9)*mib), o.alloc("logits", 3*mib)}
	lane := o.lanes[1+tick%3]
	o.launch("attention", lane, core.Read, o.weights[tick%len(o.weights)], o.cache[tick%len(o.cache)])
	o.launch("softmax_topk", lane, core.Write, scratch...)
	o.launch("sample_token", o.lanes[1+(tick+1)%3], core.Read, scratch[2])
	o.scratch = append(o.scratch, scratch)
	if len(o.scratch) > 4 {
		o.free(o.scratch[0]...)
		o.scratch = o.scratch[1:]
	}
}
