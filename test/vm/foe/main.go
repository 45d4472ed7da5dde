// Foe attacks the agent and the host from inside a test's virtual machine: it tries operations that programs there,
// or their root, must not be able to do. It is no part of the product.
//
//	foe pry PID          as any user: attack process PID and its segment
//	foe crowd SECONDS    as any user: act as more programs at once than can be served
//	foe scribble SECONDS as root: write random data anywhere into the region
//	foe flood SECONDS    as root: act as an agent with processes that start and end all the time
package main

import (
	"fmt"
	"os"
	"strconv"
)

func main() {
	acts := map[string]func(n int) error{"pry": pry, "crowd": crowd, "scribble": scribble, "flood": flood}
	if len(os.Args) == 3 && acts[os.Args[1]] != nil {
		n, err := strconv.Atoi(os.Args[2])
		if err == nil {
			err = acts[os.Args[1]](n)
		}
		if err != nil {
			fmt.Println("foe:", err)
			os.Exit(1)
		}
		return
	}
	fmt.Println("usage: foe pry PID | crowd SECONDS | scribble SECONDS | flood SECONDS")
	os.Exit(2)
}
