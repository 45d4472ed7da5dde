// Prepare makes the image that tests with a real Xen boot, unless the image exists; `make xen-image`
// runs it. It makes a part again only if the part's inputs have changed.
package main

import (
	"fmt"
	"os"

	"pegasus/test/xen"
)

func main() {
	build := os.Getenv("PEGASUS_BUILD")
	if build == "" {
		build = "build"
	}
	img, err := xen.Build(build, xen.Bookworm)
	if err != nil {
		fmt.Fprintf(os.Stderr, "xen-image: %v; `make build` and `make deps` bring what is missing\n", err)
		os.Exit(1)
	}
	fmt.Printf("hypervisor  %s\nDom0        %s\nits files   %s\n", img.Xen, img.Kernel, img.Initrd)
}
