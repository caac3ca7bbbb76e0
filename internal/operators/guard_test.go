package operators

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Who asks is answered, whatever holds the switch up; the switch is made when
// it can be.
func TestASwitchOverHTTPThatHangsIsAnswered(t *testing.T) {
	held, switched := make(chan struct{}), make(chan string, 1)
	handler := Guard{
		Status: func() any { return nil },
		Switch: func(_ context.Context, c GuardChange) error {
			<-held
			switched <- *c.Mode
			return nil
		},
		limit: time.Millisecond,
	}
	req := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:9464/guard", strings.NewReader("mode=hunt"))
	req.RemoteAddr = "127.0.0.1:40000"
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		answer <- w
	}()
	const patience = time.Minute
	select {
	case w := <-answer:
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "does not answer") {
			t.Errorf("answer %d: %s", w.Code, w.Body)
		}
	case <-time.After(patience):
		t.Error("no answer while the switch hangs")
	}
	close(held)
	select {
	case mode := <-switched:
		if mode != "hunt" {
			t.Errorf("switched to %q", mode)
		}
	case <-time.After(patience):
		t.Error("the switch was not made")
	}
}
