package image

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
)

// Vmlinux unpacks the ELF file in the kernel, which Xen loads faster, to a file, unless that
// exists. It needs xz. (Documentation/x86/boot.rst has the layout.)
func (k *Kernel) Vmlinux(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	packed, err := os.ReadFile(k.Image)
	if err != nil {
		return err
	}
	const setupSects, payloadOffset, payloadLength, headerEnd = 0x1f1, 0x248, 0x24c, 0x250
	if len(packed) < headerEnd || string(packed[0x202:0x206]) != "HdrS" {
		return fmt.Errorf("%s is no bzImage", k.Image)
	}
	le := binary.LittleEndian
	from := (int(packed[setupSects])+1)*512 + int(le.Uint32(packed[payloadOffset:]))
	to := from + int(le.Uint32(packed[payloadLength:])) - 4 // the unpacked size is at the end
	if from > to || to > len(packed) {
		return fmt.Errorf("%s says that its payload is at %d to %d of %d bytes", k.Image, from, to, len(packed))
	}
	making := fmt.Sprintf("%s.%d", path, os.Getpid())
	f, err := os.Create(making)
	if err != nil {
		return err
	}
	defer os.Remove(making)
	defer f.Close()
	var says bytes.Buffer
	unpack := exec.Command("xz", "-dc")
	unpack.Stdin, unpack.Stdout, unpack.Stderr = bytes.NewReader(packed[from:to]), f, &says
	if err := unpack.Run(); err != nil {
		return fmt.Errorf("unpack %s: xz: %w: %s", k.Image, err, &says)
	}
	return os.Rename(making, path)
}
