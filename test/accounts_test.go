package test

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// In whatever stream kernels are launched, their domain is charged for about the time that they kept the device busy;
// the same holds for copies inside the device, which hold the engine for kernels.
func TestAccounts(t *testing.T) {
	accounts := program(t, "accounts")
	for name, h := range map[string]*host{"soft": startHost(t, oneDomain), "nvidia": startNVIDIA(t, oneDomain)} {
		for _, stream := range []string{"legacy", "own", "aside", "thread", "copies"} {
			t.Run(name+"/"+stream, func(t *testing.T) {
				before := h.domains()["one"]
				said := string(succeed(t, h.guest("one", accounts, stream, "300")))
				busy, err := strconv.ParseInt(strings.TrimSpace(said), 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				after := h.domains()["one"]
				compute, copied := after.Compute-before.Compute, after.Copy-before.Copy
				t.Logf("busy for %v: computed for %v, copied for %v", time.Duration(busy), time.Duration(compute), time.Duration(copied))
				if compute < busy/10 || compute > busy+int64(50*time.Millisecond) || copied > compute/10 {
					t.Errorf("busy for %v: computed for %v, copied for %v", time.Duration(busy), time.Duration(compute), time.Duration(copied))
				}
			})
		}
	}
}
