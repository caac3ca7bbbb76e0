package history

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/fencepost-gpu/fencepost/core"
)

// endless is a history that has no end as long as somebody takes it.
func endless(began chan<- struct{}) Source {
	return Source{Events: func() []core.Event { return nil }, JSONLines: func(w io.Writer) error {
		began <- struct{}{}
		for line := make([]byte, 64<<10); ; {
			if _, err := w.Write(line); err != nil {
				return err
			}
		}
	}}
}

// A client that does not read holds up nobody for long.
func TestAClientThatDoesNotReadIsCutOff(t *testing.T) {
	began := make(chan struct{}, 8)
	source, turn := endless(began), make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { source.serve(w, r, turn, 50*time.Millisecond) }))
	defer server.Close()
	for range 2 { // the second is answered when the first is cut off
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: here\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		select {
		case <-began:
		case <-time.After(time.Minute):
			t.Fatal("a request is memory up")
		}
	}
}

func TestAClientThatWaitsForItsTurnMayLeave(t *testing.T) {
	turn := make(chan struct{}, 1)
	turn <- struct{}{} // somebody is answered
	ctx, leave := context.WithCancel(t.Context())
	leave()
	done := make(chan struct{})
	go func() {
		defer close(done)
		endless(nil).serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx), turn, patience)
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it waits on")
	}
}
