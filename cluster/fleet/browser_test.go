//go:build browser

package fleet

import (
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A browser shows the page with the fleet, and reports no error of its script. With OUT=DIR the picture is fleet.png there.
func TestPageInBrowser(t *testing.T) {
	var reads atomic.Int64
	page := Page{Least: time.Minute, Read: func(context.Context) (*Fleet, error) {
		reads.Add(1)
		return View(fleet(t)), nil
	}}
	server := httptest.NewServer(page.Handler())
	defer server.Close()
	dir := os.Getenv("OUT")
	if dir == "" {
		dir = t.TempDir()
	}
	picture := filepath.Join(dir, "fleet.png")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--user-data-dir="+t.TempDir(), "--enable-logging=stderr", "--window-size=1400,1600", "--screenshot="+picture, server.URL+"/")
	log, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("chromium: %v\n%s", err, log)
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "CONSOLE") {
			t.Errorf("the page's console: %s", line)
		}
	}
	if n := reads.Load(); n != 1 {
		t.Errorf("the page has read the fleet %d times", n)
	}
	if info, err := os.Stat(picture); err != nil || info.Size() < 100_000 { // an empty page is smaller
		t.Errorf("picture: %v, %v", info, err)
	}
}
