package coretest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost-gpu/fencepost/core"
)

// testCase is one behaviour that every resource must show.
type testCase struct {
	name string
	// needs and lacks are the features that a subject must have and must not
	// have for the case to mean something.
	needs, lacks core.Features
	// device is set for cases that touch bytes, failingFree for the one that
	// needs a failing free, limited for those that need a budget, room for
	// those that hold that many bytes.
	device, failingFree, limited bool
	room                         uint64
	// bare is set for cases that mean something on a backend only.
	bare bool
	run  func(*trial)
}

// Run runs the conformance suite over the resource that open returns. open is
// called once to see what the resource is, and once for each case; it cleans
// up after itself through t.Cleanup.
//
// Every case ends with the same demand: when all was given back and drained,
// nothing is outstanding, no intent is open and no counter went below zero.
// Cases that mean nothing for the resource are left out; the log names them,
// and why.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	t.Helper()
	subject := open(t)
	subject.validate(t)
	var leftOut []string
	ran := 0
	for _, c := range cases() {
		if why := c.unfit(subject); why != "" {
			leftOut = append(leftOut, c.name+" ("+why+")")
			continue
		}
		ran++
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			s.validate(t)
			newTrial(t, s).conduct(c)
		})
	}
	t.Logf("conformance: %d cases ran, %d left out: %s", ran, len(leftOut), strings.Join(leftOut, ", "))
}

func (s Subject) validate(t *testing.T) {
	t.Helper()
	switch {
	case s.Resource == nil:
		t.Fatal("Subject.Resource is nil")
	case s.Streams == nil:
		t.Fatal("Subject.Streams is nil")
	case s.Features != s.Resource.Features():
		t.Fatalf("%v says that it can do %v, Subject.Features expects %v", s.Resource, s.Resource.Features(), s.Features)
	}
}

// unfit says why c means nothing for s, "" if it does.
func (c testCase) unfit(s Subject) string {
	missing := c.needs &^ s.Features
	switch {
	case missing != 0:
		return "no " + missing.String()
	case c.lacks&s.Features != 0:
		return "has " + (c.lacks & s.Features).String()
	case c.device && s.Device == nil:
		return "no Device"
	case c.failingFree && s.FailNextFree == nil:
		return "no FailNextFree"
	case c.limited && s.Budget == 0:
		return "no Budget"
	case c.bare && s.Resource.Unwrap() != nil:
		return "not a bare backend"
	}
	for _, limit := range []uint64{s.Capacity, s.Budget} {
		if limit != 0 && limit < c.room {
			return fmt.Sprintf("needs %d bytes of %d", c.room, limit)
		}
	}
	return ""
}

func cases() []testCase {
	var all []testCase
	for _, group := range [][]testCase{allocationCases, threadCases, identityCases, stateCases, ticketCases,
		conflictCases, bookCases, layerCases, reservationCases, isolationCases, deviceCases} {
		all = append(all, group...)
	}
	return all
}
