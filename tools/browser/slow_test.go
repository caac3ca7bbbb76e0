package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost"
	"github.com/fencepost-gpu/fencepost/cuda/sim"
)

// edited serves the scene with other states: edit gets the n-th answer, and returns
// nil for none. The past is not to be had.
func (s *scene) edited(edit func(n int64, answer []byte) []byte) (address string, answers *atomic.Int64) {
	answers = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/debug/gpumem/past":
			_, _ = w.Write([]byte("{")) // of which a browser complains to nobody
		case "/debug/gpumem/state":
			answer := httptest.NewRecorder()
			s.server.Config.Handler.ServeHTTP(answer, r)
			if body := edit(answers.Add(1), answer.Body.Bytes()); body != nil {
				_, _ = w.Write(body)
			} else {
				http.Error(w, "out of order", http.StatusInternalServerError)
			}
		default:
			s.server.Config.Handler.ServeHTTP(w, r)
		}
	}))
	s.Cleanup(server.Close)
	return server.URL + "/debug/gpumem/", answers
}

// A process under load answers seldom, and its log forgets within a second. What lies
// between two answers of a page that asked all the time is no gap.
func TestTheChartOfABusyProcessIsNotBlank(t *testing.T) {
	s := newScene(t, nil)
	s.alloc("weights", 512*mib)
	start, dated := time.Now(), regexp.MustCompile(`"time":"[^"]+","pid"`)
	address, answers := s.edited(func(n int64, answer []byte) []byte {
		return dated.ReplaceAll(answer, fmt.Appendf(nil, `"time":%q,"pid"`, start.Add(time.Duration(n)*6*time.Second).Format(time.RFC3339Nano)))
	})
	p := openTab(t, address, desk)
	for end := time.Now().Add(patience); answers.Load() < 6 && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
	}
	p.pause()
	if wide := value[int](p, paintedWidth("--tag0")); wide < 100 {
		t.Errorf("half a minute of weights is %d pixels wide", wide)
	}
}

// Of one answer the chart shows the minute before it, and not a day.
func TestTheAxisOfOneAnswerHasItsTimes(t *testing.T) {
	s := newScene(t, nil)
	s.alloc("weights", 512*mib)
	address, _ := s.edited(func(n int64, answer []byte) []byte {
		if n > 1 {
			return nil
		}
		return answer
	})
	p := openTab(t, address, desk)
	p.mu.Lock()
	p.gone = true
	p.mu.Unlock()
	p.contains("#tags", "weights")
	p.until("times of the last minute", `(() => {
	window.drawn = [];
	const fill = CanvasRenderingContext2D.prototype.fillText;
	CanvasRenderingContext2D.prototype.fillText = function (text, ...at) { window.drawn.push(text); return fill.call(this, text, ...at); };
	document.getElementById("scale").click();
	return true;
})()`)
	p.until("an axis with several times of today", `(() => {
	const times = [...new Set(window.drawn)].filter((x) => /^\d\d:\d\d:\d\d$/.test(x));
	return times.length > 2 && times.every((x) => x.slice(6) % 5 == 0) && !times.every((x) => x === "00:00:00");
})()`)
}

// Frees that the device has not passed may have no event yet.
func TestAStreamWithPendingFreesHasNotPassedAll(t *testing.T) {
	s := newScene(t, func(cfg *fencepost.Config, _ *fencepost.HandlerConfig) { cfg.Resource = fencepost.Async })
	b := s.alloc("kv.cache", mib)
	release, err := s.rt.Driver().(*sim.Device).Hold(s.stream.Handle())
	must(t, err)
	t.Cleanup(release)
	s.free(b)
	passed := regexp.MustCompile(`"seq":(\d+),"completed":\d+`)
	address, _ := s.edited(func(_ int64, answer []byte) []byte {
		return passed.ReplaceAll(answer, []byte(`"seq":$1,"completed":$1`))
	})
	p := openTab(t, address, desk)
	p.contains("#streams", "all but the frees")
	p.contains("#order-legend", "ordered after")
	p.contains("#order-legend", "but for 15 events")
	p.contains("#tiles", "serves its stream again meanwhile")
}
