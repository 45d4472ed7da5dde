package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pegasus/configs"
)

func TestAbsentNVIDIA(t *testing.T) {
	here := filepath.Join(t.TempDir(), "nvidiactl")
	if err := os.WriteFile(here, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	soft, gpu := &configs.Config{}, &configs.Config{Accelerators: []configs.Accelerator{{Type: "nvidia"}}}
	if got := absentNVIDIA(soft, "/nowhere"); !strings.Contains(got, "/nowhere is missing") || strings.Contains(got, "\n") {
		t.Errorf("without a device: %q", got)
	}
	if got := absentNVIDIA(soft, here); !strings.HasPrefix(got, "nvidia: ") || strings.Contains(got, "no GPU") {
		t.Errorf("with a device: %q", got)
	}
	if got := absentNVIDIA(gpu, "/nowhere"); got != "" {
		t.Errorf("where one is asked for: %q", got)
	}
}
