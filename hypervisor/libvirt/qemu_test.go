package libvirt

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestParseThreads(t *testing.T) {
	got, err := ParseThreads([]byte(`{"return":[{"cpu-index":1,"thread-id":31561},{"cpu-index":0,"thread-id":31560,"target":"x86_64"}],"id":"libvirt-9"}`))
	if err != nil || !slices.Equal(got, []int{31560, 31561}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{``, `{}`, `{"return":[]}`, `{"return":[{"thread-id":0}]}`, `{"return":[{"thread-id":-4}]}`, `{"error":{"class":"GenericError"}}`} {
		if got, err := ParseThreads([]byte(bad)); err == nil {
			t.Errorf("%s: %v", bad, got)
		}
	}
}

// QEMU can't report threads of others: they are of a process that was started for its machine.
func TestProcessOf(t *testing.T) {
	qemu := exec.Command("sh", "-c", "echo here; read line", "guest=web,debug-threads=on") // as libvirt starts one, in the relevant arguments
	in, err := qemu.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := qemu.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := qemu.Start(); err != nil {
		t.Fatal(err)
	}
	defer qemu.Wait()
	if _, err := out.Read(make([]byte, 1)); err != nil { // only then its arguments are certainly set
		t.Fatal(err)
	}
	defer in.Close()
	pid := qemu.Process.Pid
	if got, err := ProcessOf("web", []int{pid, pid}); err != nil || got != pid {
		t.Errorf("%d, %v", got, err)
	}
	for want, c := range map[string]struct {
		name string
		ids  []int
	}{
		"isn't its QEMU":       {"we", []int{pid}},
		"threads of processes": {"web", []int{pid, os.Getpid()}},
		"no such file":         {"web", []int{1 << 30}},
	} {
		if got, err := ProcessOf(c.name, c.ids); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d, %v", want, got, err)
		}
	}
}

func TestSocketOf(t *testing.T) {
	if got := SocketOf("qemu+unix:///system?socket=/x/y"); got != "/x/y" {
		t.Error(got)
	}
	if got := SocketOf("qemu:///system"); !strings.HasPrefix(got, "/run/libvirt/") {
		t.Error(got)
	}
}

func FuzzThreads(f *testing.F) {
	f.Add([]byte(`{"return":[{"cpu-index":0,"thread-id":31560},{"cpu-index":1,"thread-id":31561}]}`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		ids, err := ParseThreads(answer)
		if err == nil && (len(ids) == 0 || slices.Min(ids) <= 0 || len(ids) > maxVCPUs) {
			t.Fatalf("%v", ids)
		}
	})
}
