package vm

import (
	"os/exec"
	"strings"
	"testing"
)

// scaling are ffmpeg's arguments: it makes some small pictures, scales them on the
// accelerator, and prints the checksum of each.
const scaling = "-v error -nostdin -init_hw_device cuda=gpu -filter_hw_device gpu " +
	"-f lavfi -i testsrc2=size=96x64:rate=4:duration=1 " +
	"-vf format=yuv420p,hwupload_cuda,scale_cuda=48:32:interp_algo=lanczos,hwdownload,format=yuv420p " +
	"-f framemd5 -"

// ffmpeg, as Debian has it, scales pictures in a machine as it does outside.
func TestFFmpeg(t *testing.T) {
	t.Parallel()
	disk, err := ffmpegDisk(buildDir(t))
	if err != nil {
		t.Fatalf("%v; `make deps` installs what is missing", err)
	}
	h := startHost(t, twoMachines)
	m := h.bootMachine("one", Machine{Disk: disk, Job: waitForAgent + `
export LD_LIBRARY_PATH=/mnt/lib/x86_64-linux-gnu
/mnt/bin/ffmpeg ` + scaling + "\n"})
	args := append([]string{"run", "--runtime-dir", h.dir, "--domain", "three", "--", "/usr/bin/ffmpeg"}, strings.Fields(scaling)...)
	outside, err := exec.Command(built(t, "bin/pegasus"), args...).Output()
	if err != nil {
		t.Fatalf("outside: %v", err)
	}
	inside := sums(m.finish())
	if want := sums(string(outside)); len(want) != 4 || strings.Join(inside, "\n") != strings.Join(want, "\n") {
		t.Errorf("pictures of the machine:\n%s\noutside:\n%s", strings.Join(inside, "\n"), strings.Join(want, "\n"))
	}
	if d := h.domain("one"); d.GPU == 0 {
		t.Errorf("the machine used no accelerator: %+v", d)
	}
}

// sums returns the lines of pictures in ffmpeg's output.
func sums(out string) (lines []string) {
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "0,") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}
