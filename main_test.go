package fencepost_test

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }

// addTwin is a kernel for examples.
var addTwin = e2e.AddTwin
