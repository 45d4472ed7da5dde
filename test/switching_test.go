package test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pegasus/policies"
)

// The policy of a running accelerator changes repeatedly; no call is lost, reordered or stuck, and the shares soon are
// those of the last policy.
func TestSwitching(t *testing.T) {
	inParallel(t)
	switching(t, 8*time.Second)
}

// switching runs programs that check their results in three domains while the policy changes every 200 ms, and every 2
// s whether copies have an account of their own.
func switching(t *testing.T, total time.Duration) {
	sharers := []sharer{{"d1", 256, 1}, {"d2", 512, 1}, {"d3", 1024, 1}}
	config := shareConfig("none", "production", sharers)
	h := startHost(t, config)
	end := time.Now().Add(total)
	rounds := checked(t, h, []string{"d1", "d2", "d3"}, end)
	var switches int
	tick := time.NewTicker(200 * time.Millisecond)
	for ; time.Now().Before(end); <-tick.C {
		if switches%10 == 9 {
			accounts := []string{"mrq", "sdq"}[switches/10%2]
			h.configure(strings.Replace(config, "policy =", fmt.Sprintf("accounts = %q\npolicy =", accounts), 1))
			h.pegasus("reload")
		}
		names := policies.Names()
		mode := []string{"production", "paper"}[switches/len(names)%2]
		h.pegasus("policy", names[switches%len(names)], "--mode", mode)
		switches++
	}
	t.Logf("%d switches, %v rounds", switches, rounds())
	h.configure(config)
	h.pegasus("reload")

	for _, s := range sharers {
		h.run(s)
	}
	h.await(sharers)
	for _, name := range []string{"rr", "accc"} {
		h.pegasus("policy", name, "--mode", "production")
		want := proportional(sharers)
		if name == "rr" {
			want = equal(sharers)
		}
		time.Sleep(300 * time.Millisecond) // ten ticks
		checkShares(t, h.over(4*time.Second), want, 6)
	}
}

// checked runs programs in the domains repeatedly until end; each detects calls that are lost or out of order. The
// returned function waits for the last ones, and returns the number of runs.
func checked(t *testing.T, h *host, domains []string, end time.Time) func() int {
	t.Helper()
	programs := [][]string{
		{program(t, "order"), "1000"},
		{program(t, "mix"), "1"},
		{built(t, "bench/blackscholes"), "--quiet", "--iterations", "20"},
	}
	var wg sync.WaitGroup
	ran := make([]int, len(domains)*len(programs))
	for i := range ran {
		args := programs[i%len(programs)]
		wg.Go(func() {
			for ; time.Now().Before(end); ran[i]++ {
				cmd := h.guest(domains[i/len(programs)], args[0], args[1:]...)
				if out, err := within(cmd, time.Minute); err != nil {
					t.Errorf("%v in %s: %v\n%s", args, domains[i/len(programs)], err, out)
					return
				}
			}
		})
	}
	return func() (sum int) {
		wg.Wait()
		for _, n := range ran {
			sum += n
		}
		return sum
	}
}

// within runs a command that must end within a limit.
func within(cmd *exec.Cmd, limit time.Duration) ([]byte, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stuck := time.AfterFunc(limit, func() { cmd.Process.Kill() })
	defer stuck.Stop()
	err := cmd.Wait()
	return out.Bytes(), err
}

// The inputs and decisions of a running daemon's scheduler are recorded, while its policy changes, and replayed: the
// decisions are the same.
func TestTraceIsPlayedAgain(t *testing.T) {
	sharers := []sharer{{"d1", 256, 1}, {"d2", 512, 5}}
	h := startHost(t, shareConfig("lag", "production", sharers))
	for _, s := range sharers {
		h.run(s)
	}
	h.await(sharers)
	path := filepath.Join(t.TempDir(), "trace")
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.pegasus("trace", "--seconds", "3", "--out", path)
	}()
	for _, name := range policies.Names() {
		time.Sleep(150 * time.Millisecond)
		h.pegasus("policy", name)
	}
	<-done
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := policies.PlayAgain(f)
	if err != nil || r.Differs != nil || r.Decisions < 100 {
		t.Errorf("%d events, %d decisions, %+v, %v", r.Events, r.Decisions, r.Differs, err)
	}
}
