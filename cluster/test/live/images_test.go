//go:build soak

package live

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"

	"pegasus/cluster/image"
)

// programImage is the image of the tests' pods: a shell, the C library, and programs that compute and check their results.
const programImage = "pegasus.local/program:1"

// importImages gives containerd the images that a registry would have: of a pod's pause, of the pods, and of the chart.
func importImages() error {
	shell := image.File{Path: "/bin/busybox", Mode: 0o755, Data: nil}
	program := image.Image{Name: programImage}
	for to, from := range map[string]string{
		"/bin/busybox":                        "/bin/busybox",
		"/bin/sh":                             "/bin/busybox",
		"/lib64/ld-linux-x86-64.so.2":         "/lib64/ld-linux-x86-64.so.2",
		"/usr/lib/x86_64-linux-gnu/libc.so.6": "/lib/x86_64-linux-gnu/libc.so.6",
		"/usr/lib/x86_64-linux-gnu/libm.so.6": "/lib/x86_64-linux-gnu/libm.so.6",
		"/bin/vectoradd":                      built("bench/vectoradd"),
		"/bin/matmul":                         built("bench/matmul"),
		"/bin/busy":                           built("bench/busy"),
	} {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if to == shell.Path {
			shell.Data = data
		}
		program.Files = append(program.Files, image.File{Path: to, Mode: 0o755, Data: data})
	}
	program.Files = append(program.Files, image.File{Path: "/tmp/.keep", Mode: 0o644})
	pause := image.Image{Name: "pegasus.local/pause:1", Command: []string{"/bin/busybox", "sleep", "infinity"}, Files: []image.File{shell}}
	for _, i := range []image.Image{pause, program} {
		var archive bytes.Buffer
		if _, err := i.Write(&archive); err != nil {
			return err
		}
		if err := importArchive(archive.Bytes()); err != nil {
			return err
		}
	}
	archive, err := os.ReadFile(built("cluster/pegasus-image.tar"))
	if err != nil {
		return fmt.Errorf("%w; run `make cluster-image` first", err)
	}
	return importArchive(archive)
}

func importArchive(archive []byte) error {
	cmd := exec.Command(built("kubernetes/ctr"), "-n", "k8s.io", "images", "import", "-")
	cmd.Stdin = bytes.NewReader(archive)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ctr images import: %w: %s", err, out)
	}
	return nil
}
