package runtimes_test

import (
	"testing"

	"github.com/fencepost-gpu/fencepost/internal/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
