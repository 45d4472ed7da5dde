package test

import (
	"bytes"
	"regexp"
	"testing"
)

// Errors of kernels that have no consequences on a GPU have none here, unless the program's environment names a check.
func TestSoftCheck(t *testing.T) {
	h := startHost(t, oneDomain)
	p := program(t, "beside")
	run := func(part, checks string) (out, err string) {
		t.Helper()
		cmd := h.guest("one", p, part)
		cmd.Env = append(cmd.Environ(), "PEGASUS_SOFT_CHECK="+checks)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		said, failed := cmd.Output()
		if failed != nil {
			t.Fatalf("%s: %v\n%s", part, failed, &stderr)
		}
		return string(said), stderr.String()
	}
	for _, c := range []struct{ part, checks, out, err string }{
		{"first", "", "0\n", `^$`},
		{"below", "", "0\n", `^$`},
		{"between", "", "0\n", `^$`},
		{"behind", "", "0\n", `^$`},
		{"pool", "", "0\n", `^$`},
		{"captured", "", "0\n", `^$`},
		{"race", "", "0 late\n", `^$`},
		{"first", "bounds", "700\n", `PTX line 11: illegal address, address 0x\w+, offset -256 of the allocation of 4096 bytes at 0x\w+\n$`},
		{"below", "bounds", "700\n", `offset -4 of the allocation of 4096 bytes at 0x\w+\n$`},
		{"between", "bounds", "700\n", `offset -4 of the allocation of 4096 bytes at 0x\w+\n$`},
		{"behind", "bounds", "700\n", `offset 100 of the allocation of 100 bytes at 0x\w+\n$`},
		{"within", "bounds", "0\n", `^$`},
		{"pool", "bounds", "700\n", `offset 100 of the allocation of 100 bytes at 0x\w+\n$`},
		{"pool again", "bounds", "700\n", `offset 1000 of the allocation of 1000 bytes at 0x\w+\n$`},
		{"pool within", "bounds", "0\n", `^$`},
		{"captured", "bounds", "700\n", `offset 1000 of the allocation of 1000 bytes at 0x\w+\n$`},
		{"race", "bounds", "0 late\n", `^$`},
		{"race", "order:1", "", `^pegasus: the order of warps is random; PEGASUS_SOFT_CHECK=order:1 repeats it\n$`},
		{"behind", "order,bounds", "700\n", `^pegasus: the order of warps is random; PEGASUS_SOFT_CHECK=order:\d+ repeats it\npegasus: kernel store: .*\n$`},
		{"behind", "bound", "0\n", `^pegasus: PEGASUS_SOFT_CHECK: bound is no check; there are bounds, order and order:SEED, with commas between\n$`},
		{"within", "order:x,bounds,", "0\n", `^pegasus: .* order:x is no check; .*\n$`},
	} {
		t.Run(c.part+" "+c.checks, func(t *testing.T) {
			out, err := run(c.part, c.checks)
			if c.out != "" && out != c.out || !regexp.MustCompile(c.err).MatchString(err) {
				t.Errorf("it printed %q and %q, want %q and %s", out, err, c.out, c.err)
			}
		})
	}
	shown := false
	for _, seed := range []string{"1", "2", "3", "4", "5", "6"} {
		first, _ := run("race", "order:"+seed)
		if again, _ := run("race", "order:"+seed); again != first {
			t.Errorf("seed %s: %q, then %q", seed, first, again)
		}
		shown = shown || first != "0 late\n"
	}
	if !shown {
		t.Error("no order of six shows the race")
	}
}
