package session

import (
	"strings"
	"testing"
)

// A graph's name has each of its kernels once, in their order, and does not grow with the number of nodes.
func TestGraphName(t *testing.T) {
	gr := &graph{}
	for range 3 {
		for _, kernel := range []string{"scale", "add", "add_all"} {
			gr.addKernelName(kernel)
		}
	}
	if gr.name != "scale, add, add_all" {
		t.Errorf("it is %q", gr.name)
	}
	for i := range 10000 {
		gr.addKernelName(strings.Repeat("k", i%100) + "x")
	}
	if len(gr.name) > maxNameLength+102 {
		t.Errorf("it has %d bytes", len(gr.name))
	}
}
