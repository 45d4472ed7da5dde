package test

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// Whatever stream kernels are launched in, their domain is charged for about as long as they kept the device busy, and for
// copies apart from that.
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
				of, other := compute, copied
				if stream == "copies" {
					of, other = copied, compute
				}
				if of < busy/10 || of > busy+int64(50*time.Millisecond) || other > of/10 {
					t.Errorf("busy for %v: computed for %v, copied for %v", time.Duration(busy), time.Duration(compute), time.Duration(copied))
				}
			})
		}
	}
}
