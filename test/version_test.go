package test

import (
	"strings"
	"testing"
)

// A program that requires a newer CUDA gets that version, as far as the library has its functions.
func TestToldVersion(t *testing.T) {
	h := startHost(t, oneDomain)
	version := program(t, "version")
	for wanted, want := range map[string]string{
		"": "12040 12040 1", "13.0": "13000 13000 0", "12.8": "12080 12080 1",
		"13.1": "12040 12040 1", "10.2": "12040 12040 1", "13": "12040 12040 1", "13.0x": "12040 12040 1", "99999999999.0": "12040 12040 1", "-1.0": "12040 12040 1",
	} {
		t.Run(wanted, func(t *testing.T) {
			cmd := h.guest("one", version)
			cmd.Env = append(cmd.Environ(), "PEGASUS_CUDA="+wanted)
			if got := strings.TrimSpace(string(succeed(t, cmd))); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

// A symbol newer than the reported driver doesn't exist in that driver: numba finds it here, and calls it with the
// arguments of its predecessor. So it behaves as the predecessor does, and writes nothing else.
func TestNewerSymbols(t *testing.T) {
	h := startHost(t, oneDomain)
	newer := program(t, "newer")
	for _, c := range []struct{ cuda, want string }{
		{"", "12040: device 0 synchronize 0 stream 0 callback 0 1; named device 0 0 synchronize 0"},
		{"12.8", "12080: device 0 synchronize 0 stream 0 callback 0 1; named device 0 0 synchronize 0"},
		{"13.0", "13000: device 201 synchronize 201 stream 0 callback 0 1; named device 0 0 synchronize 0"},
	} {
		t.Run(c.cuda, func(t *testing.T) {
			cmd := h.guest("one", newer)
			cmd.Env = append(cmd.Environ(), "PEGASUS_CUDA="+c.cuda)
			if got := strings.TrimSpace(string(succeed(t, cmd))); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}
