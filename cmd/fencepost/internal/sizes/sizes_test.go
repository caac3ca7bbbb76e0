package sizes_test

import (
	"fmt"

	"github.com/fencepost-gpu/fencepost/cmd/fencepost/internal/sizes"
)

func ExampleText() {
	fmt.Println(sizes.Text(640), sizes.Text(3<<29), sizes.Text(1<<50))
	// Output:
	// 640 B 1.5 GiB 1024.0 TiB
}
