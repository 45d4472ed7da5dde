// Pegasus-image writes the container image for the nodes of a cluster: the daemon, the kubelet plugin, the hook of
// KubeVirt and the CUDA libraries, from the folder of a build.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"pegasus/cluster/image"
	"pegasus/guest/setup"
)

// contents are the files of the image, by their places in the folder of the build.
var contents = []struct{ from, to string }{
	{"bin/pegasusd", "/usr/bin/pegasusd"},
	{"bin/pegasus", "/usr/bin/pegasus"},
	{"cluster/pegasus-dra", "/usr/bin/pegasus-dra"},
	{"cluster/pegasus-fleet", "/usr/bin/pegasus-fleet"},
	{"cluster/pegasus-kubevirt", "/usr/bin/pegasus-kubevirt"},
	{"guest/" + setup.LibraryName, "/usr/lib/pegasus/" + setup.LibraryName},
	{"guest/" + setup.MonitorName, "/usr/lib/pegasus/" + setup.MonitorName},
}

// users are the databases of users and groups: root owns sockets by default.
var users = []image.File{
	{Path: "/etc/passwd", Mode: 0o644, Data: []byte("root:x:0:0:root:/:/\n")},
	{Path: "/etc/group", Mode: 0o644, Data: []byte("root:x:0:\n")},
}

func main() {
	build := flag.String("build", "build", "`folder` of the build")
	out := flag.String("o", "", "`file` of the archive")
	name := flag.String("name", "pegasus.local/pegasus:1", "`name` of the image, with a tag")
	flag.Parse()
	digest, err := write(*build, *out, *name)
	if err != nil {
		fmt.Fprintln(os.Stderr, "pegasus-image:", err)
		os.Exit(1)
	}
	fmt.Println(*name + "@" + digest)
}

// write writes the archive.
func write(build, out, name string) (digest string, err error) {
	i := image.Image{Name: name, Files: users}
	for _, c := range contents {
		data, err := os.ReadFile(filepath.Join(build, c.from))
		if err != nil {
			return "", fmt.Errorf("%w; run `make build cluster` first", err)
		}
		i.Files = append(i.Files, image.File{Path: c.to, Mode: 0o755, Data: data})
	}
	f, err := os.Create(out)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if digest, err = i.Write(f); err == nil {
		err = f.Close()
	}
	return digest, err
}
