package test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// mayImport is the table of docs/imports.md: the rooms (packages) that a room may import. A room covers the
// packages below it, unless they have a line of their own. "*" permits all.
var mayImport = map[string][]string{
	"cuda":            {},
	"callbuf":         {"internal/ioctl"},
	"frontend":        {"callbuf", "cuda"},
	"guest":           {"frontend", "callbuf", "cuda", "xenstore"},
	"vcpu":            {},
	"policies":        {"vcpu"},
	"accel":           {"cuda", "vcpu"},
	"accel/history":   {},
	"accel/linked":    {},
	"accel/placement": {"vcpu"},
	"accel/nvidia":    {"accel", "accel/history", "accel/linked", "cuda"},
	"accel/ptx":       {},
	"accel/soft":      {"accel", "accel/history", "accel/linked", "accel/ptx", "cuda"},
	"accel/soft/lane": {"accel/ptx"},

	"accel/soft/lane/arith":   {"accel/ptx"},
	"accel/soft/lane/asm":     {},
	"accel/soft/lane/code":    {},
	"accel/soft/lane/compile": {"accel/ptx", "accel/soft/lane/arith", "accel/soft/lane/ir"},
	"accel/soft/lane/exec":    {"accel/ptx", "accel/soft/lane/arith", "accel/soft/lane/code", "accel/soft/lane/gen", "accel/soft/lane/ir"},
	"accel/soft/lane/gen":     {"accel/ptx", "accel/soft/lane/asm", "accel/soft/lane/ir"},
	"accel/soft/lane/ir":      {"accel/ptx", "accel/soft/lane/arith"},

	"hypervisor":       {"callbuf", "vcpu", "xenstore", "internal/ioctl"},
	"hypervisor/local": {"callbuf", "vcpu", "hypervisor", "cuda"},
	"backend":          {"configs", "hypervisor"},
	"backend/api": {"accel", "policies", "configs", "hypervisor", "backend/control", "backend/events", "backend/gate", "backend/guests",
		"backend/history", "backend/metrics", "backend/objectives", "backend/sched", "backend/web"},
	"backend/client":  {"backend/control"},
	"backend/control": {},
	"backend/cpus":    {"vcpu", "policies", "configs", "hypervisor", "backend/control", "backend/meter", "backend/sched"},
	"backend/events":  {"backend/control"},
	"backend/metrics": {"backend/control"},
	"backend/fits":    {"policies", "configs", "sim", "backend/control"},
	"backend/gate":    {"callbuf", "vcpu", "accel"},
	"backend/guests": {"callbuf", "vcpu", "policies", "accel/placement", "configs", "hypervisor", "backend/control", "backend/cpus",
		"backend/events", "backend/fits", "backend/gate", "backend/hardware", "backend/history", "backend/meter", "backend/objectives", "backend/pidfd", "backend/sched", "backend/statefile",
		"backend/worker", "backend/workers"},
	"backend/hardware":          {"configs"},
	"backend/history":           {"backend/control", "backend/meter"},
	"backend/meter":             {},
	"backend/objectives":        {"backend/control", "backend/history", "backend/meter"},
	"backend/pidfd":             {},
	"backend/sched":             {"vcpu", "policies", "configs", "backend/control", "backend/gate", "backend/hardware", "internal/timerslack"},
	"backend/statefile":         {},
	"backend/worker":            {"callbuf", "cuda", "accel", "backend/gate", "internal/logs"},
	"backend/worker/session":    {"callbuf", "cuda", "accel", "backend/gate", "backend/worker/handles", "internal/timerslack"},
	"backend/worker/handles":    {"cuda"},
	"backend/worker/confine":    {},
	"backend/worker/workertest": {"callbuf", "cuda", "accel"},
	"backend/web":               {},
	"backend/workers":           {"configs", "backend/control", "backend/pidfd", "backend/statefile", "backend/worker"},
	"configs":                   {"policies", "internal/nearest"},
	"sim":                       {"vcpu", "policies", "internal/nearest"},
	"xenstore":                  {},
	"cmd":                       {"*"},
	"test":                      {"*"},
	"tools":                     {"*"},
	"internal/fleet":            {},
	"internal/ioctl":            {},
	"internal/logs":             {},
	"internal/nearest":          {},
	"internal/testkit":          {},
	"internal/timerslack":       {},
	"internal/usage":            {},
}

func room(pkg string) string {
	p := strings.TrimPrefix(strings.TrimPrefix(pkg, "pegasus"), "/")
	for p != "" {
		if _, ok := mayImport[p]; ok {
			return p
		}
		if i := strings.LastIndexByte(p, '/'); i >= 0 {
			p = p[:i]
		} else {
			break
		}
	}
	return p
}

// Imports run one way, except for tests that span several rooms.
func TestImports(t *testing.T) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "pegasus/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		from := room(p.ImportPath)
		allowed, ok := mayImport[from]
		if !ok {
			t.Errorf("%s is in no room of the table", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			if !strings.HasPrefix(imp, "pegasus/") || slices.Contains(allowed, "*") {
				continue
			}
			to := room(imp)
			if to != from && !strings.HasPrefix(to, from+"/") && !slices.Contains(allowed, to) {
				t.Errorf("%s imports %s: %s may import only %v", p.ImportPath, imp, from, allowed)
			}
		}
	}
}
