// Package cases reads cases of PTX: kernels of a few instructions, with their inputs and expected results. Tests run
// them on the engine, through the guest's library, and on a GPU.
package cases

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
)

// Case is a launch of one block of the kernel k.
type Case struct {
	Name    string // for messages; the line of the file begins it
	Threads int
	// Buffers are in device memory; their addresses are the first parameters.
	Buffers []Buffer
	// Values are the bytes of the parameters after them.
	Values []byte
	// Tested are the tested instructions.
	Tested string

	text string // all but the first directives
	// open marks a case with a result that PTX does not define, so that devices may differ.
	open bool
}

// Buffer is a piece of memory: its contents before, and the expected first bytes afterwards.
type Buffer struct{ Before, After []byte }

// Text returns the module for a version of PTX and a target.
func (c *Case) Text(version, target string) string {
	return ".version " + version + "\n.target " + target + "\n.address_size 64\n" + c.text
}

// Newest returns the module in the version and for the target of software accelerators.
func (c *Case) Newest() string { return c.Text("8.6", "sm_90") }

// New creates a case of a module without its first directives. Tested is the tested instruction.
func New(name, tested, text string, threads int, buffers ...Buffer) Case {
	return Case{Name: name, Tested: tested, Threads: threads, Buffers: buffers, text: text}
}

// Check returns an error with the first difference between buffers and their expected contents.
func (c *Case) Check(buffers [][]byte) error {
	for i, b := range c.Buffers {
		got := buffers[i][:len(b.After)]
		for at := 0; at < len(got); at += 8 {
			end := min(at+8, len(got))
			if !bytes.Equal(got[at:end], b.After[at:end]) {
				return fmt.Errorf("%s: buffer %d has %x at %d, want %x", c.Name, i, got[at:end], at, b.After[at:end])
			}
		}
	}
	return nil
}

// registerTypes are the types of registers by the letter of their name.
var registerTypes = map[byte]string{'h': "b16", 'r': "b32", 'l': "b64"}

// words returns 32-bit words in memory order.
func words(list ...uint32) (b []byte) {
	for _, w := range list {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

// longs returns 64-bit words in memory order.
func longs(list ...uint64) (b []byte) {
	for _, w := range list {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// lines numbers the lines of a file and removes comments.
func lines(text string) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		for i, line := range strings.Split(text, "\n") {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' && !yield(i+1, line) {
				return
			}
		}
	}
}
