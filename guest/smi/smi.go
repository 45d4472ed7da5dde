// Package smi prints a guest's use of its accelerator, with the columns and flags of nvidia-smi. NVIDIA's own binary
// calls undocumented functions of NVML.
//
// Callers: pegasus and pegasus-guest.
//
// Trust boundary: a guest trusts its host.
package smi

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"

	"pegasus/cuda"
	"pegasus/frontend"
)

// Options are the supported flags of nvidia-smi.
type Options struct {
	List   bool   // -L
	Query  string // --query-gpu
	Format string // --format; "": csv
}

// state is the state of a device as shown.
type state struct {
	index   int
	count   int // of the domain's devices
	device  cuda.Device
	version uint32
	driver  string
	usage   cuda.DomainUsage
	percent int64
}

// sampled is the time over which utilisation is measured.
const sampled = 200 * time.Millisecond

// Show writes the state of a socket's domain to out, and variables with values that have no effect to errs.
func Show(out, errs io.Writer, socket string, o Options) error {
	for _, line := range cuda.Ignored(os.Getenv) {
		fmt.Fprintln(errs, line)
	}
	fields, err := parse(o)
	if err != nil {
		return err
	}
	c, err := frontend.Dial(socket)
	if err != nil {
		return err
	}
	defer c.Close()
	devices, err := c.Devices()
	if err != nil {
		return err
	}
	before, err := c.Usage()
	if err != nil {
		return err
	}
	time.Sleep(sampled)
	usage, err := c.Usage()
	if err != nil {
		return err
	}
	var all []state
	for i, d := range devices.Devices {
		s := state{index: i, count: len(devices.Devices), device: d, usage: usage}
		s.version, s.driver = cuda.ReportedVersions(devices.DriverVersion, os.Getenv)
		if passed := usage.Now - before.Now; passed > 0 {
			s.percent = max(0, min(100, (usage.Busy-before.Busy)*100/passed))
		}
		all = append(all, s)
	}
	switch {
	case o.List:
		for _, s := range all {
			fmt.Fprintf(out, "GPU %d: %s (UUID: %s)\n", s.index, s.device.Name, s.device.UUID)
		}
	case fields != nil:
		csv(out, all, fields, o.Format)
	default:
		table(out, all)
	}
	return nil
}

func (s *state) bus() string {
	a := &s.device.Attributes
	return fmt.Sprintf("%08X:%02X:%02X.0", uint32(a[cuda.AttributePCIDomainID]), a[cuda.AttributePCIBusID], a[cuda.AttributePCIDeviceID])
}

// field is a field of --query-gpu. A value without a unit has an empty one.
type field struct {
	name, unit string
	value      func(s *state) string
}

const missing = "[N/A]"

func mib(n uint64) string { return fmt.Sprint(n >> 20) }

var known = []field{
	{"index", "", func(s *state) string { return fmt.Sprint(s.index) }},
	{"count", "", func(s *state) string { return fmt.Sprint(s.count) }},
	{"name", "", func(s *state) string { return s.device.Name }},
	{"gpu_name", "", func(s *state) string { return s.device.Name }},
	{"uuid", "", func(s *state) string { return s.device.UUID.String() }},
	{"gpu_uuid", "", func(s *state) string { return s.device.UUID.String() }},
	{"pci.bus_id", "", (*state).bus},
	{"gpu_bus_id", "", (*state).bus},
	{"driver_version", "", func(s *state) string { return s.driver }},
	{"compute_cap", "", func(s *state) string {
		a := &s.device.Attributes
		return fmt.Sprintf("%d.%d", a[cuda.AttributeComputeCapabilityMajor], a[cuda.AttributeComputeCapabilityMinor])
	}},
	{"memory.total", "MiB", func(s *state) string { return mib(s.usage.MemoryQuota) }},
	{"memory.used", "MiB", func(s *state) string { return mib(s.usage.MemoryUsed) }},
	{"memory.free", "MiB", func(s *state) string {
		return mib(s.usage.MemoryQuota - min(s.usage.MemoryUsed, s.usage.MemoryQuota))
	}},
	{"utilization.gpu", "%", func(s *state) string { return fmt.Sprint(s.percent) }},
	{"utilization.memory", "%", none}, {"temperature.gpu", "", none}, {"fan.speed", "%", none}, {"power.draw", "W", none}, {"power.limit", "W", none},
	{"clocks.sm", "MHz", none}, {"clocks.mem", "MHz", none}, {"pstate", "", none}, {"mig.mode.current", "", none}, {"ecc.mode.current", "", none},
}

func none(*state) string { return missing }

func fieldNames() string {
	var names []string
	for _, f := range known {
		names = append(names, f.name)
	}
	return strings.Join(names, ", ")
}

// parse returns the fields of --query-gpu, none without it, or an error for options of which one would have no effect.
func parse(o Options) (fields []field, err error) {
	switch {
	case o.List && (o.Query != "" || o.Format != ""):
		return nil, errors.New("-L lists the devices: leave out --query-gpu and --format")
	case o.Query == "" && o.Format != "":
		return nil, fmt.Errorf("--format %s: goes with --query-gpu FIELDS", o.Format)
	case o.Query == "":
		return nil, nil
	}
	for name := range strings.SplitSeq(o.Query, ",") {
		name = strings.TrimSpace(name)
		at := -1
		for i := range known {
			if known[i].name == name {
				at = i
			}
		}
		if at < 0 {
			return nil, fmt.Errorf("--query-gpu: no field %q; there are %s", name, fieldNames())
		}
		fields = append(fields, known[at])
	}
	for i, word := range strings.Split(cmp.Or(o.Format, "csv"), ",") {
		switch word = strings.TrimSpace(word); {
		case i == 0 && word == "csv", i > 0 && (word == "noheader" || word == "nounits"):
		default:
			return nil, fmt.Errorf("--format %q: must be csv, with noheader and nounits or without", o.Format)
		}
	}
	return fields, nil
}

func csv(out io.Writer, all []state, fields []field, format string) {
	units := !strings.Contains(format, "nounits")
	var line []string
	for _, f := range fields {
		if f.unit != "" && units {
			f.name += " [" + f.unit + "]"
		}
		line = append(line, f.name)
	}
	if !strings.Contains(format, "noheader") {
		fmt.Fprintln(out, strings.Join(line, ", "))
	}
	for i := range all {
		line = line[:0]
		for _, f := range fields {
			value := f.value(&all[i])
			if f.unit != "" && units && value != missing {
				value += " " + f.unit
			}
			line = append(line, value)
		}
		fmt.Fprintln(out, strings.Join(line, ", "))
	}
}

// table prints the table with nvidia-smi's columns.
func table(out io.Writer, all []state) {
	const (
		edge   = "+-----------------------------------------------------------------------------------------+"
		rows   = "|-----------------------------------------+------------------------+----------------------+"
		double = "|=========================================+========================+======================|"
		under  = "+-----------------------------------------+------------------------+----------------------+"
	)
	driver, version := "N/A", "N/A"
	if len(all) > 0 {
		driver, version = all[0].driver, fmt.Sprintf("%d.%d", all[0].version/1000, all[0].version%1000/10)
	}
	fmt.Fprintln(out, time.Now().Format(time.ANSIC))
	fmt.Fprintln(out, edge)
	fmt.Fprintf(out, "| %-87s |\n", fmt.Sprintf("PEGASUS-SMI%29s%-15s%17s%-14s", "Driver Version: ", driver, "CUDA Version: ", version))
	fmt.Fprintln(out, rows)
	fmt.Fprintln(out, "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |")
	fmt.Fprintln(out, "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |")
	fmt.Fprintln(out, "|                                         |                        |               MIG M. |")
	fmt.Fprintln(out, double)
	for _, s := range all {
		memory := fmt.Sprintf("%sMiB / %sMiB", mib(s.usage.MemoryUsed), mib(s.usage.MemoryQuota))
		fmt.Fprintf(out, "| %3d  %-30.30s  On | %16s   Off | %20s |\n", s.index, s.device.Name, s.bus(), "N/A")
		fmt.Fprintf(out, "| N/A   N/A   N/A              N/A / N/A  | %22s | %7d%%  %10s |\n", memory, s.percent, "Default")
		fmt.Fprintf(out, "|                                         |                        | %20s |\n", "N/A")
		fmt.Fprintln(out, under)
	}
	fmt.Fprintln(out)
	fmt.Fprintln(out, edge)
	fmt.Fprintf(out, "| %-87s |\n", "Processes:")
	fmt.Fprintf(out, "| %-87s |\n", " GPU   GI   CI        PID   Type   Process name                              GPU Memory")
	fmt.Fprintf(out, "| %-87s |\n", "       ID   ID                                                               Usage")
	fmt.Fprintln(out, "|=========================================================================================|")
	running := 0
	for _, s := range all {
		for _, p := range s.usage.Processes {
			running++
			fmt.Fprintf(out, "| %4d   N/A  N/A %10d      C   %-37.37s %10sMiB |\n", s.index, p.PID, processName(p.PID), mib(p.Memory))
		}
	}
	if running == 0 {
		fmt.Fprintf(out, "| %-87s |\n", " No running processes found")
	}
	fmt.Fprintln(out, edge)
}

// firstNamespace is the kernel's name of the initial PID namespace. Containers have others, in which the PID of a
// process of the host belongs to another process.
const firstNamespace = "pid:[4026531836]"

// processName returns the command name of a process, as far as it is printable; "-" if the process isn't visible from
// here.
func processName(pid uint32) string {
	if own, err := os.Readlink("/proc/self/ns/pid"); err != nil || own != firstNamespace {
		return "-"
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	name, _, _ := bytes.Cut(b, []byte{0})
	if err != nil || len(name) == 0 {
		return "-"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, string(name))
}
