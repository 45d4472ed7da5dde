package kvm

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"

	wire "pegasus/callbuf/region"
)

// AgentOf reports whether a machine's agent has come since the machine was started, as its hub recorded it in the
// region, and its release. The machine can write there, too: the result is for display only.
func AgentOf(region string) (release string, came bool) {
	f, err := os.OpenFile(region, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", false
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() || st.Size() < minRegion {
		return "", false
	}
	var page [wire.PageBytes]byte
	if _, err := f.ReadAt(page[:], st.Size()-wire.PageBytes); err != nil || binary.LittleEndian.Uint64(page[wire.InUse:]) == 0 {
		return "", false
	}
	if p, err := wire.ParsePointer(page[wire.PointerOffset:], uint64(st.Size())); err == nil {
		release = wire.ReadAgentRelease(f, p)
	}
	return release, true
}
