package main

import (
	"context"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// facts are the questions that documents leave open, and the device's properties.
var facts = []step{
	{"attributes", "attributes of the device, beside the software accelerator's", time.Minute, besideSoftware("attributes")},
	{"device", "the device as Pegasus reports it to guests", 30 * time.Second, describe},
	{"symbols", "functions that the driver's library exports", 10 * time.Second, exported},
	{"resolver", "results of cuGetProcAddress, beside the table of Pegasus", time.Minute, resolver},
	{"targets", "PTX versions and targets that the driver accepts", time.Minute, besideSoftware("targets")},
	{"linear", "rounding of integers by linear filtering", time.Minute, besideSoftware("linear")},
	{"misuse", "errors for misuse (negative: minus the signal that ended the process; -100: no result within 15 s)", 3 * time.Minute, besideSoftware("misuse")},
	{"reserving", "whether device memory may be at addresses chosen by the caller", time.Minute, alone("programs/probe", "reserving")},
	{"registering", "cost of registering host memory, by the kind of memory", 90 * time.Second, alone("programs/probe", "registering")},
	{"waiting", "time until a stream continues after a wait for a word, or a host function", time.Minute, alone("programs/probe", "waiting")},
	{"held", "number of streams that may be held at once", time.Minute, alone("programs/probe", "held")},
	{"events", "precision and cost of events, and whether waits spin", time.Minute, alone("programs/probe", "events")},
	{"killed", "time until a killed process with a running kernel is gone", time.Minute, alone("programs/probe", "killed")},
	{"recording", "calls of programs, recorded with the driver and replayed by Pegasus", 4 * time.Minute, recording},
	{"switching", "cost of changing between processes", time.Minute, alone("programs/probe", "switching")},
}

// besideSoftware returns a step that queries the driver, and then the software accelerator. They may differ.
func besideSoftware(probe string) func(context.Context, *visit) (any, error) {
	return func(ctx context.Context, v *visit) (any, error) {
		f, err := v.ask(ctx, v.program(ctx, v.environment(), v.in("programs/probe"), probe))
		if err != nil {
			return f, err
		}
		d, err := v.launch("[[accelerator]]\nname = \"soft0\"\nmemory = \"1GiB\"\n[[domain]]\nname = \"visit\"\n", os.Environ())
		if err != nil {
			return f, err
		}
		defer d.stop()
		g, err := v.ask(ctx, d.guest(ctx, "visit", v.in("programs/probe"), probe))
		if err != nil {
			return f, fmt.Errorf("the software accelerator: %w", err)
		}
		f, _ = f.beside("on the software accelerator", g)
		return f, nil
	}
}

// describe returns the device's description as printed by pegasus-nvidia.
func describe(ctx context.Context, v *visit) (any, error) {
	out, err := v.output(ctx, v.program(ctx, v.environment(), v.in("bin/pegasus-nvidia"), "list", "--library", v.driver))
	if err != nil {
		return nil, err
	}
	return json.RawMessage(out), nil
}

// exported compares the functions that the library exports with those of ours.
func exported(_ context.Context, v *visit) (any, error) {
	theirs, err := functionsOf(v.driver)
	if err != nil {
		return nil, err
	}
	ours, err := functionsOf(v.in("guest/libcuda.so.1"))
	if err != nil {
		return nil, err
	}
	return struct {
		Count   int      `json:"count"`
		Unknown []string `json:"unknown_to_us"`
		Missing []string `json:"missing_there"`
	}{len(theirs), without(theirs, ours), without(ours, theirs)}, nil
}

// functionsOf returns the CUDA functions that a library exports, in order.
func functionsOf(library string) ([]string, error) {
	f, err := elf.Open(library)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := f.DynamicSymbols()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", library, err)
	}
	var names []string
	for _, s := range all {
		if s.Section != elf.SHN_UNDEF && strings.HasPrefix(s.Name, "cu") {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// without returns the names of all that are not in others.
func without(all, others []string) (left []string) {
	for _, name := range all {
		if _, found := slices.BinarySearch(others, name); !found {
			left = append(left, name)
		}
	}
	return left
}
