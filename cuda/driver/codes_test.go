package driver

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

func TestEveryCodeHasANameOfItsOwn(t *testing.T) {
	seen := map[string]int{}
	for code, info := range codes {
		if !strings.HasPrefix(info.name, "CUDA_ERROR_") || info.text == "" {
			t.Errorf("code %d is %+v", code, info)
		}
		if other, ok := seen[info.name]; ok {
			t.Errorf("codes %d and %d are both %s", code, other, info.name)
		}
		seen[info.name] = code
	}
}

func TestTheCodesThatTakeTheContextAreSticky(t *testing.T) {
	var sticky []int
	for code := range 1000 {
		if errors.Is(NewError("op", code), core.ErrSticky) {
			sticky = append(sticky, code)
		}
	}
	want := []int{214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911}
	if !slices.Equal(sticky, want) {
		t.Errorf("sticky are %v, want %v", sticky, want)
	}
}

func TestACodeThatNobodyKnowsHasItsNumber(t *testing.T) {
	if e := NewError("op", 12345); e.Name != "CUDA_ERROR_12345" || e.Sticky || e.OutOfMemory {
		t.Errorf("got %+v", e)
	}
}
