package main

import (
	"encoding/json"
	"os"
	"path/filepath"

	"pegasus/callbuf"
	wire "pegasus/callbuf/region"
	"pegasus/guest/kvm"
)

// findBar maps a region that is a PCI device.
func (s *scribbler) findBar() bool {
	for _, dir := range kvm.FindShared("/") {
		s.bar = mapFile(filepath.Join(dir, "resource2"))
	}
	return s.bar != nil
}

// findParts finds the present parts of the region, from the agent's record.
func (s *scribbler) findParts() {
	s.files = map[string][]byte{filepath.Join(region, controlName): s.bar[:wire.ControlBytes]}
	text, err := os.ReadFile(region + ".json")
	if err != nil {
		return
	}
	var record struct {
		Processes []struct{ At *callbuf.Extent }
	}
	if json.Unmarshal(text, &record) != nil {
		return
	}
	for _, p := range record.Processes {
		if at := p.At; at != nil && at.Bytes > 0 && at.Bytes <= uint64(len(s.bar)) && at.Offset <= uint64(len(s.bar))-at.Bytes {
			s.files[string(rune('a'+len(s.files)))] = s.bar[at.Offset:][:at.Bytes]
		}
	}
}
