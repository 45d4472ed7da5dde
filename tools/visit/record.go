package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"pegasus/accel/nvidia/listing"
)

// Possible outcomes of a step.
const (
	stateDone    = "done"
	stateFailed  = "FAILED"
	stateSkipped = "skipped"
	stateLater   = "no time"
)

// outcome is the outcome of a step.
type outcome struct {
	Step    string  `json:"step"`
	About   string  `json:"about"`
	State   string  `json:"state"`
	Why     string  `json:"why,omitempty"`
	Seconds float64 `json:"seconds"`
	Denied  []int   `json:"denied,omitempty"` // system calls that the kernel logged meanwhile as refused by a filter
	Data    any     `json:"data,omitempty"`
}

// record is the results of a command so far. It is rewritten after each step, so an aborted command leaves
// the results of the finished steps.
type record struct {
	Command   string    `json:"command"`
	Rehearsal bool      `json:"rehearsal"` // no result is from a GPU
	Driver    string    `json:"driver"`
	Began     time.Time `json:"began"`
	Machine   string    `json:"machine"`
	Device    string    `json:"device"`
	Steps     []outcome `json:"steps"`

	v *visit
}

func openRecord(v *visit) (*record, error) {
	r := &record{Command: v.command, Rehearsal: v.rehearsal, Driver: v.driver, Began: time.Now().UTC(), Machine: machine(), Device: v.device, v: v}
	text, err := os.ReadFile(v.file(".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	var before record
	if err == nil {
		err = json.Unmarshal(text, &before)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w; delete it, or give another folder as --out", v.file(".json"), err)
	}
	if before.Rehearsal != r.Rehearsal || before.Device != r.Device {
		return nil, fmt.Errorf("%s is of %q: give another folder as --out", v.file(".json"), before.Device)
	}
	for _, o := range before.Steps {
		if o.State != stateLater {
			r.Steps = append(r.Steps, o)
		}
	}
	return r, nil
}

func (r *record) has(step string) bool {
	for _, o := range r.Steps {
		if o.Step == step {
			return true
		}
	}
	return false
}

func (r *record) add(o outcome) error {
	r.Steps = append(r.Steps, o)
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("step %s: %w", o.Step, err)
	}
	if err := write(r.v.file(".json"), append(text, '\n')); err != nil {
		return err
	}
	return write(r.v.file(".md"), r.markdown())
}

// write replaces a file atomically.
func write(path string, text []byte) error {
	if err := os.WriteFile(path+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// machine returns a one-line description of this machine.
func machine() string {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%d cores, Linux %s", runtime.NumCPU(), strings.TrimSpace(string(kernel)))
}

// lookAt returns a one-line description of the device, and its driver's CUDA version, as pegasus-nvidia
// reports them.
func (v *visit) lookAt() (string, int) {
	ctx, cancel := context.WithTimeout(context.Background(), listing.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, v.in("bin/pegasus-nvidia"), "list", "--library", v.driver)
	cmd.Env, cmd.Stderr = v.environment(), v.log
	text, err := cmd.Output()
	var all []listing.Device
	if err != nil || json.Unmarshal(text, &all) != nil || len(all) == 0 {
		return "none", 0
	}
	return all[0].Name + ", capability " + all[0].Capability, all[0].Version
}

// markdown returns the record for people.
func (r *record) markdown() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n\n", strings.ToUpper(r.Command[:1])+r.Command[1:])
	if r.Rehearsal {
		b.WriteString("**This is a rehearsal: nothing of it was found on a GPU.**\n\n")
	}
	fmt.Fprintf(&b, "%s on %s; driver %s; %s.\n\n| step | | seconds | |\n|---|---|--:|---|\n", r.Device, r.Machine, r.Driver, r.Began.Format(time.RFC3339))
	for _, o := range r.Steps {
		why := o.Why
		if len(o.Denied) > 0 {
			why += fmt.Sprintf(" (system calls %v were denied)", o.Denied)
		}
		fmt.Fprintf(&b, "| %s | %s | %.1f | %s |\n", o.Step, o.State, o.Seconds, cell(why))
	}
	for _, o := range r.Steps {
		if o.Data != nil {
			fmt.Fprintf(&b, "\n## %s: %s\n\n%s", o.Step, o.About, detail(o.Data))
		}
	}
	return b.Bytes()
}

// cell returns a text escaped for a table.
func cell(s string) string {
	s = strings.ReplaceAll(strings.ReplaceAll(s, "|", "\\|"), "\n", " ")
	if len(s) > 300 {
		s = s[:300] + " …"
	}
	return s
}

// mostLines is the number of lines of a step's data that are shown; the rest is in the JSON.
const mostLines = 60

// detail returns a step's data: figures and answers as a table, everything else as JSON.
func detail(data any) string {
	text, err := json.Marshal(data)
	if err != nil {
		return err.Error() + "\n"
	}
	var f findings
	if json.Unmarshal(text, &f) == nil && len(f.Figures)+len(f.Answers) > 0 {
		return f.markdown()
	}
	var b bytes.Buffer
	json.Indent(&b, text, "", " ")
	lines := strings.SplitAfter(b.String(), "\n")
	if len(lines) > mostLines {
		lines = append(lines[:mostLines], "…\n")
	}
	return "```json\n" + strings.TrimSuffix(strings.Join(lines, ""), "\n") + "\n```\n"
}
