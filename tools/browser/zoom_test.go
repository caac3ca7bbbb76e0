package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/fencepost-gpu/fencepost/core"
)

// zoomScene has a large block and behind it four that are seen closely.
func zoomScene(t *testing.T) (s *scene, last core.Block) {
	s = newScene(t, nil)
	s.alloc("weights", 1<<30)
	for range 4 {
		last = s.alloc("kv.cache", mib)
	}
	return s, last
}

// inPlace is true when nothing that is still to come moves the map.
const inPlace = "document.querySelector('#past-note').innerText && document.querySelector('#streams tbody tr')"

// corner is where the map begins behind its addresses, and how wide it is.
func (p *tab) corner() (x, y, width float64) {
	p.Helper()
	box := value[[]float64](p, "(() => { document.querySelector('#map').scrollIntoView({block: 'center'}); const b = document.querySelector('#map').getBoundingClientRect(); return [b.left + 112, b.top, b.width - 112]; })()")
	return box[0], box[1], box[2]
}

func (p *tab) wheel(x, y, delta float64, modifiers int64) {
	p.Helper()
	p.do("the wheel", send(input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: input.DispatchMouseEventTypeMouseWheel, X: x, Y: y, DeltaX: 0.01, DeltaY: delta, Modifiers: modifiers}))
}

func (p *tab) drag(fromX, fromY, toX, toY float64) {
	p.Helper()
	mouse := func(what input.DispatchMouseEventType, x, y float64) {
		p.do(string(what), send(input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: what, X: x, Y: y, Button: input.MouseButtonLeft, Buttons: 1, ClickCount: 1}))
	}
	mouse(input.DispatchMouseEventTypeMousePressed, fromX, fromY)
	mouse(input.DispatchMouseEventTypeMouseMoved, (fromX+toX)/2, (fromY+toY)/2)
	mouse(input.DispatchMouseEventTypeMouseMoved, toX, toY)
	mouse(input.DispatchMouseEventTypeMouseReleased, toX, toY)
}

func TestTheMapIsZoomedByKeys(t *testing.T) {
	s, last := zoomScene(t)
	p := openTab(t, s.live(), desk)
	p.contains("#map-note", "5 blocks, 1.00 GiB")
	p.contains("#map-range", "All addresses in use")
	p.do("choosing the last", chromedp.Focus(chromedp.CSS("#map")), chromedp.KeyEvent(kb.End))
	for range 9 {
		p.do("plus", chromedp.KeyEvent("+"))
	}
	p.until("a five hundredth of it", shown("#map-range")+".match(/^0x.*: 2[.]0\\d MiB/)")
	p.until("fewer blocks", shown("#map-note")+".match(/^[23] blocks/)")
	p.do("Enter", chromedp.KeyEvent(kb.Enter))
	p.contains("#details", fmt.Sprintf("kv.cache #%d", last.ID.Generation))
	p.contains("#details", "1 048 576") // the whole block, though it may be cut on the map
	before := p.text("#map-range")
	p.do("a page on", chromedp.KeyEvent(kb.PageUp))
	p.until("other addresses", shown("#map-range")+fmt.Sprintf(" !== %q", before))
	p.do("minus", chromedp.KeyEvent("-"))
	p.until("twice as much", shown("#map-range")+".match(/: 4[.]0\\d MiB/)")
	p.do("zero", chromedp.KeyEvent("0"))
	p.contains("#map-range", "All addresses in use")
	p.contains("#map-note", "5 blocks, 1.00 GiB")
}

func TestTheMapIsZoomedByPointerAndButtons(t *testing.T) {
	s, _ := zoomScene(t)
	p := openTab(t, s.live(), desk)
	p.contains("#map-note", "5 blocks")
	p.until("all to be in its place", inPlace)
	x, y, width := p.corner()
	p.drag(x+10, y+6, x+width/2, y+6)
	p.until("a part of the first row", shown("#map-range")+".startsWith('0x') && "+shown("#map-note")+".startsWith('1 block,')")
	if p.text("#details") != "" {
		t.Errorf("marking a stretch chose a block: %s", p.text("#details"))
	}
	if n := value[int](p, "[...document.querySelectorAll('#zoom-all, #zoom-out')].filter((b) => b.disabled).length"); n != 0 {
		t.Error("there is no way back")
	}
	p.do("all", chromedp.Click(chromedp.CSS("#zoom-all")))
	p.contains("#map-range", "All addresses in use")

	x, y, width = p.corner()
	p.wheel(x+width/2, y+6, -120, 0)
	p.wheel(x+width/2, y+6, 120, 0) // and back, if the page has scrolled
	if text := p.text("#map-range"); !strings.HasPrefix(text, "All") {
		t.Errorf("the wheel alone zooms: %s", text)
	}
	x, y, width = p.corner()
	p.wheel(x+width/2, y+6, -120, 2)
	p.until("a closer look", shown("#map-range")+".startsWith('0x')")
	p.wheel(x+width/2, y+6, 1000, 2)
	p.wheel(x+width/2, y+6, 1000, 2)
	p.contains("#map-range", "All addresses in use")

	p.do("the button", chromedp.Click(chromedp.CSS("#zoom-in")))
	p.until("half of it", shown("#map-range")+".startsWith('0x')")
	p.do("the button", chromedp.Click(chromedp.CSS("#zoom-out")))
	p.contains("#map-range", "All addresses in use")
	// A click still chooses.
	x, y, _ = p.corner()
	p.do("a click", chromedp.MouseClickXY(x+40, y+6))
	p.contains("#details", "weights #")
}

// A closer look goes on as the memory changes, also where it is all freed.
func TestACloserLookStaysUpToDate(t *testing.T) {
	s, last := zoomScene(t)
	p := openTab(t, s.live(), desk)
	p.contains("#map-note", "5 blocks")
	p.do("the last, closely", chromedp.Focus(chromedp.CSS("#map")), chromedp.KeyEvent(kb.End))
	for range 12 {
		p.do("plus", chromedp.KeyEvent("+"))
	}
	p.until("that block alone", shown("#map-note")+".startsWith('1 block,')")
	s.free(last)
	must(t, s.rt.Drain(t.Context()))
	p.until("nothing", shown("#map-note")+".startsWith('0 blocks')")
}
