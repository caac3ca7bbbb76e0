package liveview

import (
	"sync"
	"testing"
	"time"
)

// Whoever must not wait gets the former answer while one is made, and everybody
// else the one that is made once.
func TestTheFormerAnswerServesWhileOneIsMade(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	s := &shared{make: func(serial uint64) any {
		if serial == 2 {
			close(begun)
			<-release
		}
		return serial
	}}
	if a := s.soonest(); a.serial != 1 || string(a.text) != "1" {
		t.Fatalf("the first answer is number %d: %s", a.serial, a.text)
	}
	s.last.Load().due = time.Time{}
	s.interval = time.Hour
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { s.soonest() })
	<-begun
	if a := s.soonest(); a.serial != 1 {
		t.Errorf("while number 2 is made the answer is number %d", a.serial)
	}
	all.Go(func() {
		if a := s.newest(); a.serial != 2 {
			t.Errorf("who waits gets number %d", a.serial)
		}
	})
	close(release)
}
