package vm

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pegasus/backend/control"
)

// between returns the text between two lines.
func between(text, from, to string) string {
	_, text, _ = strings.Cut(text, from+"\n")
	text, _, _ = strings.Cut(text, to+"\n")
	return text
}

// examine has a machine's doctor print its findings under a name. The agent prints to the same output, also
// between two of the doctor's lines, so each line has a mark.
const examine = `
examine() {
	pegasus-guest doctor --json >/tmp/doctor
	echo "$1 ended: $?"
	sed "s/^/$1: /" /tmp/doctor
}
`

// findings returns the checks that the doctor printed under a name, by their names, and checks its exit status.
func findings(t *testing.T, out, name string, status int) map[string]control.Check {
	t.Helper()
	var text strings.Builder
	for line := range strings.Lines(out) {
		if said, ok := strings.CutPrefix(line, name+": "); ok {
			text.WriteString(said)
		}
	}
	var all []control.Check
	if err := json.Unmarshal([]byte(text.String()), &all); err != nil || !strings.Contains(out, fmt.Sprintf("%s ended: %d\n", name, status)) {
		t.Fatalf("%v:\n%s", err, out)
	}
	byName := map[string]control.Check{}
	for _, f := range all {
		byName[f.Name] = f
	}
	return byName
}

// In a machine that isn't attached the agent serves no process, programs fail with the reason,
// and the doctor prints the remedy.
func TestUnattached(t *testing.T) {
	t.Parallel()
	h := startHost(t, twoMachines)
	out := h.launch("one", Machine{Job: waitForSocket + examine + `
examine unattached
PEGASUS_LOG=error /bench/vectoradd --quiet; echo "program: $?"
true
`}).finish()
	found := findings(t, out, "unattached", 1)
	for name, state := range map[string]string{"agent": "ok", "region": "fail", "kernel": "ok", "mkfs.ext4": "ok", "library": "ok"} {
		if found[name].State != state {
			t.Errorf("%s: %+v, want %s", name, found[name], state)
		}
	}
	if !strings.Contains(found["region"].Fix, "pegasus attach") {
		t.Errorf("the way out: %+v", found["region"])
	}
	if strings.Contains(out, "program: 0") || !strings.Contains(out, "the Pegasus daemon refused: this machine has no region") {
		t.Errorf("the program wasn't told why:\n%s", out)
	}
}

// The doctor's findings in a machine with programs that find an accelerator, and its findings when
// a part is missing. The installation can be removed.
func TestInstalled(t *testing.T) {
	t.Parallel()
	h := startHost(t, twoMachines)
	out := h.boot("one", examine+`
until pegasus-guest doctor >/dev/null; do sleep 0.1; done
examine good
su -s /bin/sh -c 'pegasus-guest doctor' nobody && echo "good for nobody"
mkdir /tmp/other; cp /lib/x86_64-linux-gnu/libuuid.so.1 /tmp/other/libcuda.so.1
export LD_LIBRARY_PATH=/tmp/other
examine shadowed
unset LD_LIBRARY_PATH
kill $agent; wait $agent
examine "no agent"
pegasus-guest install --uninstall
find / -xdev -name 'libcuda*' -o -xdev -path '*/pegasus/*' | grep -v -e ^/proc -e ^/sys -e ^/tmp/other
echo "that is left"
`).finish()
	good := findings(t, out, "good", 0)
	for _, name := range []string{"agent", "region", "host", "library"} {
		if good[name].State != "ok" {
			t.Errorf("%s: %+v", name, good[name])
		}
	}
	if d := good["host"].Detail; !strings.Contains(d, " answers, generation ") || strings.HasPrefix(d, " ") {
		t.Errorf("the host's release isn't known: %s", d)
	}
	if !strings.Contains(out, "good for nobody") {
		t.Error("not every user may use it")
	}
	if f := findings(t, out, "shadowed", 1)["library"]; !strings.Contains(f.Detail, "/tmp/other/libcuda.so.1 isn't Pegasus', and programs load it first, by LD_LIBRARY_PATH") {
		t.Errorf("another library: %+v", f)
	}
	if f := findings(t, out, "no agent", 1)["agent"]; f.State != "fail" {
		t.Errorf("no agent: %+v", f)
	}
	if left := between(out, "removed       /etc/cdi/pegasus.yaml", "that is left"); strings.TrimSpace(left) != "ran           ldconfig" {
		t.Errorf("left:\n%s", left)
	}
}
