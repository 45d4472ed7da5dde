package test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const watchedDomains = `
[[accelerator]]
name = "a0"
type = "soft"

[[domain]]
name = "one"
memory = "64MiB"

[[domain]]
name = "two"
memory = "32MiB"
`

// GPU monitoring tools show a domain, and nothing of another.
func TestToolsSeeTheirDomain(t *testing.T) {
	h := startHost(t, watchedDomains)
	tool := program(t, "nvml")
	succeed(t, h.guest("one", tool))

	busy := h.bench("one", "busy", "--seconds", "3600", "--kernel-ms", "50")
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { busy.Process.Kill(); busy.Wait() }()
	mine, others := watch(t, h.guest("one", tool, "watch")), watch(t, h.guest("two", tool, "watch"))
	deadline := time.Now().Add(soon)
	for {
		got := mine.see(t)
		if got.total != 64<<20 {
			t.Fatalf("%+v, where the quota is 64 MiB", got)
		}
		if got.busy >= 30 && len(got.processes) == 1 && strings.HasPrefix(got.processes[0], fmt.Sprint(busy.Process.Pid)+":") && !strings.HasSuffix(got.processes[0], ":0") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v, while process %d is busy", got, busy.Process.Pid)
		}
		time.Sleep(150 * time.Millisecond)
	}
	if got := others.see(t); got.total != 32<<20 || got.used != 0 || got.busy != 0 || len(got.processes) != 0 {
		t.Errorf("another domain sees %+v", got)
	}
}

type seen struct {
	total, used, busy uint64
	processes         []string
}

// watcher is a tool that prints its view of the device at each line that it receives.
type watcher struct {
	in  io.Writer
	out *bufio.Reader
}

func watch(t *testing.T, cmd *exec.Cmd) *watcher {
	t.Helper()
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
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	return &watcher{in, bufio.NewReader(out)}
}

func (w *watcher) see(t *testing.T) (s seen) {
	t.Helper()
	fmt.Fprintln(w.in)
	line, err := w.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(line, "total %d used %d busy %d", &s.total, &s.used, &s.busy); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	_, list, _ := strings.Cut(line, "processes")
	s.processes = strings.Fields(list)
	return s
}

// Every symbol that NVIDIA's library has exported exists and gives the result in cuda/spec/nvml.json, also with nulls,
// extremes, and no device.
func TestEverySymbolOfNVML(t *testing.T) {
	b, err := os.ReadFile("../cuda/spec/nvml.json")
	if err != nil {
		t.Fatal(err)
	}
	var spec struct {
		Handles   []string
		Functions []struct {
			Name, Body string
			Out        map[string]int64
			Params     []struct{ Name, Type string }
		}
	}
	if err := json.Unmarshal(b, &spec); err != nil {
		t.Fatal(err)
	}
	// Initialisation, shutdown, and a function that returns text.
	special := map[string]bool{"nvmlInit": true, "nvmlInit_v2": true, "nvmlInitWithFlags": true, "nvmlShutdown": true, "nvmlErrorString": true}
	var lines strings.Builder
	n := 0
	for _, f := range spec.Functions {
		if special[f.Name] {
			continue
		}
		n++
		body := f.Body
		if body == "" {
			body = "refused"
		}
		if f.Out != nil {
			body = "out"
		}
		fmt.Fprint(&lines, f.Name, " ", body)
		for _, p := range f.Params {
			kind := "number"
			if value, ok := f.Out[p.Name]; ok {
				kind = fmt.Sprint("out:", value)
			} else if p.Type == "nvmlDevice_t" {
				kind = "device"
			} else if strings.HasSuffix(p.Type, "*") {
				kind = "pointer"
			}
			fmt.Fprint(&lines, " ", kind)
		}
		fmt.Fprintln(&lines)
	}
	if n < 430 {
		t.Errorf("the spec has %d symbols", n)
	}
	h := startHost(t, oneDomain)
	cmd := h.guest("one", program(t, "nvmlall"))
	cmd.Stdin = strings.NewReader(lines.String())
	if got, want := string(succeed(t, cmd)), fmt.Sprintf("%d symbols, 0 wrong\n", n); got != want {
		t.Errorf("got %swant %s", got, want)
	}
}

// The driver version matches the CUDA version reported to programs, whichever of the two is set.
func TestToldDriver(t *testing.T) {
	t.Parallel()
	h := startHost(t, oneDomain)
	tool := program(t, "nvml")
	for _, c := range []struct{ cuda, driver, want string }{
		{"", "", "550.54.14 12.550.54.14 12040"},
		{"13.0", "", "580.65.06 13.580.65.06 13000"},
		{"12.2", "", "535.54.03 12.535.54.03 12020"},
		{"11.8", "", "520.61.05 11.520.61.05 11080"},
		{"", "535.261.03", "535.261.03 12.535.261.03 12020"},
		{"", "470.42", "470.42 11.470.42 11040"},
		{"", "600.1", "600.1 13.600.1 13000"},
		{"12.4", "535.261.03", "535.261.03 12.535.261.03 12040"},
		{"", "390.157", "550.54.14 12.550.54.14 12040"},
		{"", "535", "550.54.14 12.550.54.14 12040"},
		{"", "535.261.03-1", "550.54.14 12.550.54.14 12040"},
		{"", "535.2.3.4", "550.54.14 12.550.54.14 12040"},
		{"", "535.0000000000000000000001", "550.54.14 12.550.54.14 12040"},
		{"", "-535.1", "550.54.14 12.550.54.14 12040"},
	} {
		t.Run(c.cuda+" "+c.driver, func(t *testing.T) {
			cmd := h.guest("one", tool, "versions")
			cmd.Env = append(cmd.Environ(), "PEGASUS_CUDA="+c.cuda, "PEGASUS_DRIVER="+c.driver)
			if got := strings.TrimSpace(string(succeed(t, cmd))); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			cmd = h.guest("one", built(t, "bin/pegasus"), "smi", "--query-gpu=driver_version", "--format=csv,noheader")
			cmd.Env = append(cmd.Environ(), "PEGASUS_CUDA="+c.cuda, "PEGASUS_DRIVER="+c.driver)
			if got, want := strings.TrimSpace(string(succeed(t, cmd))), strings.Fields(c.want)[0]; got != want {
				t.Errorf("pegasus smi: %s, want %s", got, want)
			}
		})
	}
}
