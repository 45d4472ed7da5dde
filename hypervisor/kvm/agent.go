package kvm

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"

	wire "pegasus/callbuf/region"
)

// HadAgent says whether a machine's agent has come since the machine was started, as its hub
// noted it in the region. The machine can write there, too: it is for people to see.
func HadAgent(region string) bool {
	f, err := os.OpenFile(region, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() || st.Size() < minRegion {
		return false
	}
	var word [8]byte
	if _, err := f.ReadAt(word[:], st.Size()-wire.PageBytes+wire.InUse); err != nil {
		return false
	}
	return binary.LittleEndian.Uint64(word[:]) != 0
}
