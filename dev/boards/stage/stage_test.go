package main

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each scene does what it is named for without an error, and its metrics can
// be read before and after.
func TestEverySceneIsPlayed(t *testing.T) {
	s := must.Get(raise(t.Context(), t.TempDir(), scenes()))(t)
	defer s.close(t.Context())
	server := s.handler()
	read := func(ended string) {
		t.Helper()
		for _, scene := range newPlan().Scenes {
			w := httptest.NewRecorder()
			server.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics/"+scene, nil))
			if there := w.Code == http.StatusOK && strings.Contains(w.Body.String(), "gpumem_memory_bytes{"); there == (scene == ended) {
				t.Errorf("%s: %d %s", scene, w.Code, w.Body)
			}
		}
	}
	read("")
	w := httptest.NewRecorder()
	server.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/act", nil))
	if w.Code != http.StatusOK {
		t.Error(w.Body)
	}
	read("end")
}

func TestScenesAreChosen(t *testing.T) {
	if chosen, err := choose("work,end"); err != nil || len(chosen) != 2 || chosen[0].name != "work" || chosen[1].name != "end" {
		t.Errorf("%v, %v", chosen, err)
	}
	if _, err := choose("work,other"); err == nil || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("a scene that there is not: %v", err)
	}
}

// A panel or an alert that no scene moves proves nothing.
func TestEveryQueryAndAlertIsMovedByAScene(t *testing.T) {
	p := newPlan()
	used := map[string]bool{"quiet": true, "idle": true} // on which nothing may alert
	for _, q := range p.Queries {
		if used[q.Proof.Scene] = true; !slices.Contains(p.Scenes, q.Proof.Scene) || (q.Proof.By == 0) == (q.Proof.Is == 0 && q.Proof.After == 0) {
			t.Errorf("%s: say which scene moves it, and by how much: %+v", q.Where, q.Proof)
		}
	}
	for _, a := range p.Alerts {
		if used[a.Scene] = true; !slices.Contains(p.Scenes, a.Scene) {
			t.Errorf("%s: say which scene raises it, not %q", a.Name, a.Scene)
		}
	}
	for _, scene := range p.Scenes {
		if !used[scene] {
			t.Errorf("%s is played for nobody", scene)
		}
	}
}
