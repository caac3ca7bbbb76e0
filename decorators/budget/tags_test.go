package budget_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
	"github.com/fencepost-gpu/fencepost/core/coretest"
	"github.com/fencepost-gpu/fencepost/decorators/budget"
	"github.com/fencepost-gpu/fencepost/internal/names"
	"github.com/fencepost-gpu/fencepost/internal/testkit/must"
)

// Whoever listens is told of each tag once in a round, for each stream.
func TestTagsInUseAreToldOnceInARound(t *testing.T) {
	var mu sync.Mutex
	var told []core.Tag
	r, err := budget.New(coretest.NewFake(0), budget.Config{OnTag: func(tag core.Tag) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, tag)
	}})
	must.Do(t, err)
	pair := func(tag core.Tag) {
		b, err := r.Allocate(t.Context(), core.Request{Bytes: 64, Tag: tag})
		if err == nil {
			_, err = r.Deallocate(t.Context(), b.ID)
		}
		must.Do(t, err)
	}
	for range 3 {
		pair("a")
		pair("b")
		pair("a")
	}
	pair("")
	if want := []core.Tag{"a", "b", names.Untagged}; !slices.Equal(told, want) {
		t.Errorf("told of %v, want %v", told, want)
	}
	told = nil
	r.RenewTags()
	pair("b")
	pair("b")
	if want := []core.Tag{"b"}; !slices.Equal(told, want) {
		t.Errorf("in the next round told of %v, want %v", told, want)
	}
}

// Where nobody listens there is nobody to tell.
func TestTagsNeedNoListener(t *testing.T) {
	r, err := budget.New(coretest.NewFake(0), budget.Config{})
	must.Do(t, err)
	r.RenewTags()
	if _, err := r.Allocate(t.Context(), core.Request{Bytes: 64, Tag: "a"}); err != nil {
		t.Error(err)
	}
}
