//go:build soak

package operate

import (
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"pegasus/backend/control"
	"pegasus/internal/testkit"
)

// The tutorial's commands, in their order and as they stand on the page, lead to the shares and explanations that the page
// describes. The tests of cmd/pegasus run them, too, but with other programs.
func TestOperateTutorial(t *testing.T) {
	page, err := os.ReadFile("../../docs/tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pg") // short: socket paths are at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	clone := filepath.Join(dir, "clone")
	if err := os.Mkdir(clone, 0o755); err != nil {
		t.Fatal(err)
	}
	build := filepath.Dir(filepath.Dir(testkit.Built(t, "bin/pegasus")))
	if err := os.Symlink(build, filepath.Join(clone, "build")); err != nil {
		t.Fatal(err)
	}
	command := func(line string) *exec.Cmd {
		words := strings.Fields(line)
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Dir, cmd.Env = clone, append(os.Environ(), "PEGASUS_RUNTIME_DIR="+filepath.Join(dir, "run"))
		return cmd
	}
	t.Cleanup(func() { command("build/bin/pegasus stop").Run() })
	share := func(name string) float64 {
		out, _ := command("build/bin/pegasus domains --json").Output()
		var all []control.Domain
		json.Unmarshal(out, &all)
		for _, d := range all {
			if d.Name == name {
				return d.Share
			}
		}
		return -1
	}
	about := func(name string, want float64) func() bool { // of the last two seconds, on a host that may be busy
		return func() bool {
			if got := share(name); math.Abs(got-want) < 0.1 {
				return true
			}
			out, _ := command("build/bin/pegasus why " + name).CombinedOutput()
			t.Logf("%s", out)
			time.Sleep(time.Second)
			return false
		}
	}

	shares := map[string]func(){ // what the page promises after a command
		"build/bin/pegasus run --domain batch": func() {
			testkit.Within(t, time.Minute, "batch has three quarters", about("batch", 0.75))
		},
		"build/bin/pegasus set render": func() { testkit.Within(t, time.Minute, "render has half", about("render", 0.5)) },
		"build/bin/pegasus policy rr":  func() { testkit.Within(t, time.Minute, "batch has half", about("batch", 0.5)) },
	}
	n := 0
	for _, m := range regexp.MustCompile(`(?m)^    (build/bin/.*)$`).FindAllStringSubmatch(string(page), -1) {
		line := m[1]
		n++
		t.Log(line)
		cmd := command(line)
		switch {
		case strings.HasPrefix(line, "build/bin/pegasus run "):
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
			name := regexp.MustCompile(`--domain (\S+)`).FindStringSubmatch(line)[1]
			testkit.Within(t, time.Minute, name+" is there", func() bool { return share(name) >= 0 })
		case line == "build/bin/pegasus top": // TestOperateTop
		case line == "build/bin/pegasus events":
			cmd = command("timeout 1 " + line)
			if out, _ := cmd.Output(); !strings.Contains(string(out), "credits = 768") {
				t.Errorf("%s: got %s, want the change of credits", line, out)
			}
		default:
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", line, err, out)
			}
			if strings.Contains(line, " why ") && !regexp.MustCompile(`credits 768: owed 50\.0 %, got \d+\.\d %`).Match(out) {
				t.Errorf("%s: got\n%s\nwant the debt and the result", line, out)
			}
		}
		for begin, check := range shares {
			if strings.HasPrefix(line, begin) {
				check()
			}
		}
	}
	if n < 10 {
		t.Errorf("got %d commands, want at least 10", n)
	}
}
