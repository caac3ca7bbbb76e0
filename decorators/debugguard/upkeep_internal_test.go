package debugguard

import (
	"runtime"
	"testing"
	"time"
)

// docs/guard.md promises eleven seconds from the free to the finding on a device
// that is idle: the age, a tick that has just missed it, and one more in haste
// for a verdict that was not there yet.
func TestTheDefaultsTellWithinElevenSeconds(t *testing.T) {
	cfg := Config{}.withDefaults()
	every := cfg.upkeepInterval()
	const forTheDevice = 250 * time.Millisecond
	if took := cfg.QuarantineAge + every + 2*every/upkeepHaste + forTheDevice; took > 11*time.Second {
		t.Errorf("it may take %v", took)
	}
	for age, want := range map[time.Duration]time.Duration{time.Millisecond: minUpkeep, time.Second: 50 * time.Millisecond, time.Hour: maxUpkeep, -1: maxUpkeep} {
		if got := (Config{QuarantineAge: age}).withDefaults().upkeepInterval(); got != want {
			t.Errorf("an age of %v is looked at every %v, want %v", age, got, want)
		}
	}
}

// A guard that nobody closed and everybody forgot is not kept by its timer.
func TestTheUpkeepKeepsNoForgottenGuard(t *testing.T) {
	gone := make(chan struct{})
	func() {
		r := &Resource{}
		r.upkeep.begin(time.Hour, newTimer(r, (*Resource).tick))
		r.upkeep.wake()
		runtime.AddCleanup(r, func(c chan struct{}) { close(c) }, gone)
	}()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		runtime.GC()
		select {
		case <-gone:
			return
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("it is still there")
		}
	}
}
