package test

import (
	"bufio"
	"fmt"
	"strings"
	"testing"
)

// The device's attributes agree with its behaviour.
func TestDevice(t *testing.T) {
	h := startHost(t, oneDomain)
	device := program(t, "device")
	for _, part := range []string{"limits", "occupancy", "memory", "beside"} {
		t.Run(part, func(t *testing.T) { succeed(t, h.guest("one", device, part)) })
	}
	// The copies beside the kernel of the last part, which took 20 ms, are charged separately.
	if d := h.domains()["one"]; d.Compute < 20e6 || d.Copy == 0 || d.Copy > d.Compute {
		t.Errorf("%d ns of computing and %d ns of copies", d.Compute, d.Copy)
	}
}

// Memory of another domain is not free, quotas or not.
func TestMemoryOfOthers(t *testing.T) {
	h := startHost(t, oneDomain+"[[domain]]\nname = \"two\"\n")
	device := program(t, "device")
	var free [2]int
	for i, domain := range []string{"one", "two"} {
		cmd := h.guest(domain, device, "hold")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Wait()
		defer in.Close()
		line, err := bufio.NewReader(out).ReadString('\n')
		if _, scanned := fmt.Sscan(strings.TrimSpace(line), &free[i]); scanned != nil {
			t.Fatalf("%s says %q: %v", domain, line, err)
		}
	}
	if lost := free[0] - free[1]; lost < 64<<20 {
		t.Errorf("of 64 MiB that the second domain took, %d bytes are missing", lost)
	}
}
