// Package listing defines the description of devices that pegasus-nvidia returns to the daemon and the pegasus command,
// which contain no C library.
//
// Callers: pegasus-nvidia and accel/nvidia, which write the description; pegasusd, pegasus and cmd/visit, which read
// it.
//
// Trust boundary: none; pegasus-nvidia is a program of the host.
package listing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// Device describes one device.
type Device struct {
	Index      int    `json:"index"`
	Name       string `json:"name"`
	UUID       string `json:"uuid"`
	Memory     uint64 `json:"memory"`
	Version    int    `json:"cuda"` // the newest that the driver supports: 1000*major + 10*minor
	Capability string `json:"capability"`
	Units      int    `json:"multiprocessors"`
	Clock      int    `json:"clock_khz"`
	Maps       bool   `json:"maps_memory"` // under addresses that can be chosen

	// Values from NVIDIA's monitoring library, if it is installed; else zeros.
	Link uint64 `json:"link_bytes_per_s,omitempty"` // to or from the host, at most
	Used uint64 `json:"memory_used,omitempty"`      // now, by all processes
	Busy int    `json:"busy_percent,omitempty"`     // of the last moments
}

// Program is the program that loads the driver's library.
const Program = "pegasus-nvidia"

// Find returns the path of Program: beside this program, else as the shell would find it.
func Find() (string, error) {
	if self, err := os.Executable(); err == nil {
		if path := filepath.Join(filepath.Dir(self), Program); isFile(path) {
			return path, nil
		}
	}
	path, err := exec.LookPath(Program)
	if err != nil {
		return "", fmt.Errorf("%s is missing: it is installed beside pegasusd", Program)
	}
	return path, nil
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// Patience bounds the start of the driver: without persistence mode it first initializes the devices.
const Patience = 60 * time.Second

// Ask returns the devices that a driver reports; library "" is the system's. The error is one line.
func Ask(program, library string) (all []Device, err error) {
	err = ask(&all, program, "list", "--library", library)
	return all, err
}

// Switching contains the cost of a switch between two processes on a device, the bytes of its memory that a process's
// context takes, and the bytes that were unused before.
type Switching struct {
	Cost    time.Duration `json:"cost_ns"`
	Context uint64        `json:"context_bytes"`
	Unused  uint64        `json:"unused_bytes"`
}

// AskSwitching measures a device's Switching. No other process may be using the device.
func AskSwitching(program, library, device string) (s Switching, err error) {
	err = ask(&s, program, "switching", "--library", library, "--device", device)
	return s, err
}

func ask(answer any, program string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("NVIDIA's driver has not started within %v", Patience)
		}
		if said := bytes.TrimSpace(errs.Bytes()); len(said) > 0 {
			return errors.New(string(bytes.ReplaceAll(said, []byte("\n"), []byte("; "))))
		}
		return fmt.Errorf("%s: %w", program, err)
	}
	if err := json.Unmarshal(out.Bytes(), answer); err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	return nil
}

// Choose returns the device with an index or UUID, the first for "".
func Choose(all []Device, which string) (Device, error) {
	for _, d := range all {
		if which == "" || which == strconv.Itoa(d.Index) || which == d.UUID {
			return d, nil
		}
	}
	if len(all) == 0 {
		return Device{}, errors.New("NVIDIA's driver has no device")
	}
	text := ""
	for _, d := range all {
		text += fmt.Sprintf(" %d = %s (%s)", d.Index, d.UUID, d.Name)
	}
	return Device{}, fmt.Errorf("device = %q: there is none of that index or UUID; there are%s", which, text)
}
