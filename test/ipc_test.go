package test

import "testing"

// Properties of memory and events shared between processes by IPC handles, each in two processes.
func TestIPC(t *testing.T) {
	t.Parallel()
	h := startHost(t, oneDomain)
	ipc := program(t, "ipc")
	for _, part := range []string{"memory", "survivor", "busy", "function", "events", "graphs", "wrong", "pools", "poolstale", "poolorphan", "poolfiles", "poolends"} {
		t.Run(part, func(t *testing.T) { succeed(t, h.guest("one", ipc, part)) })
	}
}

// Lending memory that may leave the device is an error.
func TestIPCIsRefused(t *testing.T) {
	h := startHost(t, "[[accelerator]]\nname = \"a0\"\nmemory = \"64MiB\"\nswap = \"64MiB\"\n[[domain]]\nname = \"one\"\n")
	succeed(t, h.guest("one", program(t, "ipc"), "refused"))
}

// A GPU's workers pass each other the driver's descriptors, also for memory that programs map themselves.
func TestIPCOnNVIDIA(t *testing.T) {
	t.Parallel()
	h := startNVIDIA(t, oneDomain)
	ipc := program(t, "ipc")
	for _, part := range []string{"memory", "survivor", "busy", "function", "events", "graphs", "wrong", "pools", "poolstale", "poolorphan", "poolfiles", "poolends"} {
		t.Run(part, func(t *testing.T) { succeed(t, h.guest("one", ipc, part)) })
	}
	succeed(t, h.guest("one", program(t, "mapping"), "given"))
}
