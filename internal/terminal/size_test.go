package terminal_test

import (
	"fmt"

	"github.com/fencepost-gpu/fencepost/internal/terminal"
)

func ExampleSize() {
	fmt.Println(terminal.Size(640), terminal.Size(3<<29), terminal.Size(1<<50))
	// Output:
	// 640 B 1.5 GiB 1024.0 TiB
}
