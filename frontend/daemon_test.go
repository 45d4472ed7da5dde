package frontend_test

import (
	"bufio"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// startDaemon builds pegasusd and starts a private one with a software accelerator. It returns the socket of a domain,
// and the function that ends the daemon.
func startDaemon() (socket string, stop func()) {
	dir, err := os.MkdirTemp("", "pg") // short: socket paths are at most 107 bytes
	if err != nil {
		log.Fatal(err)
	}
	program, config := filepath.Join(dir, "pegasusd"), filepath.Join(dir, "pegasus.toml")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", program, "pegasus/cmd/pegasusd")
	if out, err := build.CombinedOutput(); err != nil {
		log.Fatalf("go build: %v\n%s", err, out)
	}
	text := "[[accelerator]]\nname = \"soft0\"\ntype = \"soft\"\ncores = 1\n[[domain]]\nname = \"render\"\n"
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		log.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	daemon := exec.Command(program, "--private", "--linger", "10m", "--runtime-dir", dir, "--config", config, "--ready-fd", "3")
	daemon.ExtraFiles = []*os.File{w}
	err = daemon.Start()
	w.Close()
	if err != nil {
		log.Fatal(err)
	}
	if line, _ := bufio.NewReader(r).ReadString('\n'); line != "ready\n" {
		log.Fatalf("pegasusd: %s", line)
	}
	return filepath.Join(dir, "domains", "render.sock"), func() {
		daemon.Process.Signal(syscall.SIGTERM)
		daemon.Wait()
		os.RemoveAll(dir)
	}
}
