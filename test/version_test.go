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

// CUDA_VISIBLE_DEVICES hides the device as with NVIDIA's driver: the first entry that names none ends the list, text behind a
// number is ignored, and no device is visible if one is named twice.
func TestVisibleDevices(t *testing.T) {
	h := startHost(t, oneDomain)
	version := program(t, "version")
	_, uuid, _ := strings.Cut(string(h.pegasus("smi", "-L", "--domain", "one")), "UUID: ")
	uuid = strings.TrimRight(uuid, ")\n")
	for _, c := range []struct {
		list          string
		visible, told bool
	}{
		{"0", true, false}, {" 0,7", true, false}, {uuid, true, false}, {strings.ToLower(uuid[:12]) + ",1", true, false},
		{"", false, false}, {"-1", false, false}, {",0", false, false},
		{"1", false, true}, {"7,0", false, true}, {"GPU-", false, true}, {uuid + "0", false, true}, {"NoDevFiles", false, true},
		{"0x", true, false}, {"0,1,0", true, false}, {"0,0", false, true}, {"0, 0gpu", false, true}, {uuid + "," + uuid, false, true}, {"00", true, false},
	} {
		cmd := h.guest("one", version)
		cmd.Env = append(cmd.Environ(), "CUDA_VISIBLE_DEVICES="+c.list)
		text, err := cmd.CombinedOutput()
		if told := strings.Contains(string(text), "the process sees no device; its only one is 0, "+uuid); (err == nil) != c.visible || told != c.told {
			t.Errorf("%q: %v, %s", c.list, err, text)
		}
		if !c.visible && !strings.Contains(string(text), "CUDA_ERROR_NO_DEVICE") {
			t.Errorf("%q: %s, want CUDA_ERROR_NO_DEVICE", c.list, text)
		}
	}
	cmd := h.guest("one", program(t, "nvml"), "versions")
	cmd.Env = append(cmd.Environ(), "CUDA_VISIBLE_DEVICES=")
	succeed(t, cmd) // NVML ignores the variable
}
